"""A cluster on this machine, with the agent as its node: `python -m tools demo-cluster`.

etcd, the API server, the controllers and the scheduler are those that KUBEBUILDER_ASSETS names; the agent and its containerd
are the demonstration's own. Nothing is left afterwards.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.live.containerd import APP, Containerd, lacking
from tests.support.fake_api_certificates import Authority
from tests.support.real_api_server import ASSETS, NODE_TOKEN, RealAPIServer, real_api_server
from tests.support.real_scheduler import running_component

from tools.containers import Agent

NODE = "worker"
_NEEDED, _WANTED = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"), "kube-scheduler"
_LIMIT_S = 90.0
_MIB = 1 << 20
_POD_MEMORY_MIB, _THRESHOLD_MIB = 512, 100
_SHELL = ["sh", "-c"]
_SERVES = "trap 'exit 0' TERM; echo \"$HOSTNAME serves\"; while :; do sleep 0.2; done"
_PHASES = "custom-columns=NAME:.metadata.name,PHASE:.status.phase,REASON:.status.reason,NODE:.spec.nodeName"
_GROWS = (
    "n=0; while :; do n=$((n+1)); dd if=/dev/zero of=/memory/$n bs=1M count=16 2>/dev/null; sleep 0.2; done"
)


def missing_parts() -> str:
    """What the demonstration needs and does not have; empty: it has everything."""
    if os.geteuid() != 0:
        return "root, for cgroups and containers"
    if not ASSETS:
        needed = ", ".join((*_NEEDED, f"optionally {_WANTED}"))
        return f"KUBEBUILDER_ASSETS, the directory of {needed} (as of envtest)"
    absent = [name for name in _NEEDED if not os.access(f"{ASSETS}/{name}", os.X_OK)]
    return f"in KUBEBUILDER_ASSETS: {', '.join(absent)}" if absent else lacking()


class DemoCluster:
    """The cluster as its administrator sees it."""

    def __init__(self, folder: Path, server: RealAPIServer, agent: Agent) -> None:
        self.folder, self.server, self.agent = folder, server, agent

    def show(self, *words: str) -> None:
        """Runs kubectl and prints the command with its output."""
        print(f"\n$ kubectl {' '.join(words)}", flush=True)
        output = self.kubectl(*words)
        print(output.rstrip(), flush=True)

    def kubectl(self, *words: str, document: Any = None) -> str:
        """What kubectl prints; ends the demonstration where it fails."""
        ran = subprocess.run(
            [f"{ASSETS}/kubectl", f"--kubeconfig={self.folder}/kubeconfig", *words],
            input=None if document is None else yaml.safe_dump_all(document, sort_keys=False),
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
        if ran.returncode:
            raise SystemExit(f"kubectl {' '.join(words)}: {ran.stderr}\n{self.agent.log()}")
        return ran.stdout

    def apply(self, *documents: dict[str, Any]) -> None:
        """Applies objects, and prints them."""
        print("\n$ kubectl apply -f - <<YAML", flush=True)
        print(yaml.safe_dump_all(documents, sort_keys=False, width=110) + "YAML", flush=True)
        print(self.kubectl("apply", "-f", "-", document=documents).rstrip(), flush=True)

    def pods(self) -> list[dict[str, Any]]:
        """All pods of the namespace `default`."""
        items: list[dict[str, Any]] = self.server.request("GET", "/api/v1/namespaces/default/pods").body[
            "items"
        ]
        return items

    def count(self, phase: str, reason: str = "") -> int:
        """How many pods are in a phase, with a reason where there is one."""
        statuses = [pod["status"] for pod in self.pods()]
        return sum(status.get("phase") == phase and status.get("reason", "") == reason for status in statuses)

    def is_ready(self) -> bool:
        """Whether the node is ready."""
        answer = self.server.request("GET", f"/api/v1/nodes/{NODE}")
        conditions = answer.body["status"].get("conditions", ()) if answer.code == 200 else ()
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits; ends the demonstration where it takes too long."""
        deadline_s = time.monotonic() + _LIMIT_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"not within {_LIMIT_S:g} s: {what}\n{self.agent.log()}")
            time.sleep(0.1)


@contextmanager
def own_address() -> Iterator[str]:
    """An address of this machine alone, that is no loopback address: the API server connects to no node on one."""
    address = f"198.18.{os.getpid() // 250 % 250}.{os.getpid() % 250 + 1}"
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield address
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=False)


@contextmanager
def demo_cluster(*, has_scheduler: bool) -> Iterator[DemoCluster]:
    """A cluster with a ready node; nothing is left of it afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nodewright-cluster-")))
        address = stack.enter_context(own_address())
        authority = Authority(folder)
        certificate, key = authority.pair("kube-apiserver")
        flags = (
            f"--kubelet-client-certificate={certificate}",
            f"--kubelet-client-key={key}",
            "--kubelet-preferred-address-types=InternalIP",
        )
        server = stack.enter_context(real_api_server(folder, checks_rights=True, flags=flags))
        components = ["kube-controller-manager", *([_WANTED] if has_scheduler else [])]
        for component in components:
            options = ("--leader-elect=false", "--secure-port=0")
            stack.enter_context(running_component(server, folder, component, *options))
        runtime = stack.enter_context(Containerd())
        (folder / "kubeconfig-node").write_text(
            (folder / "kubeconfig")
            .read_text("utf-8")
            .replace('"token": "admin"', f'"token": "{NODE_TOKEN}"'),
            "utf-8",
        )
        node_options = (
            f"--kubeconfig={folder}/kubeconfig-node",
            f"--hostname-override={NODE}",
            f"--node-ip={address}",
            "--kubelet-api",
        )
        agent = Agent(runtime, node_options, _configuration(address, authority.certificate))
        stack.callback(agent.close)
        agent.start()
        cluster = DemoCluster(folder, server, agent)
        stack.callback(_end_pods, cluster)
        cluster.wait_until(cluster.is_ready, "the node is ready")
        yield cluster


def _end_pods(cluster: DemoCluster) -> None:
    cluster.kubectl("delete", "deployments,pods", "--all", "--wait=false")
    cluster.wait_until(lambda: not cluster.pods(), "the pods end")


def _configuration(address: str, authority: Path) -> dict[str, Any]:
    """A node whose pods have 512Mi of memory; its API is for the API server alone."""
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB
    reserved_mib = total_mib - _POD_MEMORY_MIB - _THRESHOLD_MIB
    return {
        "address": address,
        "port": 10250,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "systemReserved": {"memory": f"{reserved_mib}Mi"},
        "evictionHard": {"memory.available": f"{_THRESHOLD_MIB}Mi"},
    }


def deployment(name: str, replicas: int, cpu: str) -> dict[str, Any]:
    """A Deployment of pods that each request so much of a CPU."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod_spec(_SERVES, {"cpu": cpu})},
        },
    }


def pod_spec(script: str, requests: dict[str, str], **fields: Any) -> dict[str, Any]:
    """The spec of a pod with a container that runs the script."""
    container = {
        "name": "main",
        "image": APP,
        "command": [*_SHELL, script],
        "resources": {"requests": requests},
    }
    return {"terminationGracePeriodSeconds": 2, "containers": [container], **fields}


def _demonstrate(cluster: DemoCluster, cpu_millis: int, *, has_scheduler: bool) -> None:
    say("A node of a cluster: registered, with a lease, ready")
    cluster.show("get", "nodes", "-o", "wide")
    cluster.show("get", "leases", "--namespace=kube-node-lease")

    say("A Deployment of three pods, each with a quarter of the CPU of the node")
    web = deployment("web", 3, f"{cpu_millis // 4}m")
    if not has_scheduler:
        web["spec"]["template"]["spec"]["nodeName"] = NODE
    cluster.apply(web)
    cluster.wait_until(lambda: cluster.count("Running") == 3, "three pods run")
    cluster.show("get", "pods", "-o", "wide")
    cluster.show("logs", "deployment/web")
    cluster.show("exec", "deployment/web", "--", "sh", "-c", "hostname; id -u")

    say("A critical static pod requests half of the CPU: the node preempts one pod, which waits for room")
    critical = pod_spec(_SERVES, {"cpu": f"{cpu_millis // 2}m"}, priorityClassName="system-node-critical")
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "critical"}, "spec": critical}
    cluster.agent.put("critical", manifest, cluster.agent.manifests)
    cluster.wait_until(lambda: cluster.count("Failed", "Preempting") == 1, "a pod is preempted")
    cluster.wait_until(lambda: cluster.count("Running") == 3, "the critical pod runs")
    cluster.show("get", "pods", "-o", _PHASES)
    cluster.agent.drop("critical")
    cluster.wait_until(lambda: cluster.count("Running") == 3, "the third pod runs again")

    say("A pod that grows is evicted before memory runs out")
    greedy = pod_spec(
        _GROWS,
        {"memory": "16Mi"},
        restartPolicy="Never",
        volumes=[{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        **({} if has_scheduler else {"nodeName": NODE}),
    )
    greedy["containers"][0]["volumeMounts"] = [{"name": "memory", "mountPath": "/memory"}]
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy"}, "spec": greedy})
    cluster.wait_until(lambda: cluster.count("Failed", "Evicted") == 1, "the pod is evicted")
    cluster.show("get", "pods", "-o", _PHASES)
    cluster.show("get", "pod", "greedy", "-o", "jsonpath={.status.message}")

    say("The end")
    cluster.show("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
    cluster.show("delete", "pod", "greedy")
    cluster.show("get", "pods")


def say(text: str) -> None:
    """Prints a heading."""
    print(f"\n\033[1m# {text}\033[0m" if sys.stdout.isatty() else f"\n# {text}", flush=True)


def main() -> int:
    """Runs the demonstration; 0 also where a part is missing, which is printed."""
    if missing := missing_parts():
        print(f"python -m tools demo-cluster needs {missing}", file=sys.stderr)
        return 0
    # What is stopped by a signal leaves nothing either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    has_scheduler = os.access(f"{ASSETS}/{_WANTED}", os.X_OK)
    with demo_cluster(has_scheduler=has_scheduler) as cluster:
        node = cluster.server.request("GET", f"/api/v1/nodes/{NODE}").body
        cpu = str(node["status"]["allocatable"]["cpu"])
        cpu_millis = int(cpu.removesuffix("m")) if cpu.endswith("m") else int(cpu) * 1000
        _demonstrate(cluster, cpu_millis, has_scheduler=has_scheduler)
    return 0
