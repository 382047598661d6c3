"""A cluster of a real API server and `nodewright agent` as its node `worker`."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.agent_command import AgentCommand
from tests.support.live_agent import private_cgroups
from tests.support.partition_proxy import PartitionProxy
from tests.support.real_api_server import ASSETS, BOOTSTRAP_TOKEN, NODE_TOKEN, RealAPIServer, real_api_server

from nodewright.agent.host.cgroupfs import CgroupFS

NODE, PODS = "/api/v1/nodes/worker", "/api/v1/namespaces/default/pods"
_LIMIT_S = 60


class ClusterBench:
    """The API server as an administrator sees it, and the agent."""

    def __init__(self, server: RealAPIServer, agent: AgentCommand, cgroups: CgroupFS) -> None:
        self.server, self.agent, self.cgroups = server, agent, cgroups

    def pod(self, name: str) -> dict[str, Any]:
        """A pod; empty: there is none."""
        answer = self.server.request("GET", f"{PODS}/{name}")
        return {} if answer.code == 404 else answer.body

    def phase(self, name: str) -> str:
        """The phase of a pod; empty: there is none."""
        return str(self.pod(name).get("status", {}).get("phase", ""))

    def node_status(self) -> dict[str, Any]:
        """The status of the node."""
        answer = self.server.request("GET", NODE)
        return dict(answer.body["status"]) if answer.code == 200 else {}

    def is_ready(self) -> bool:
        """Whether the node is ready."""
        conditions = self.node_status().get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def create_pod(self, name: str, command: str, **spec: Any) -> None:
        """Creates a pod that is bound to the node; its script has a shell."""
        container = {"name": "main", "image": "none", "command": ["sh", "-c", command]}
        document = {
            "metadata": {"name": name},
            "spec": {
                "nodeName": "worker",
                "containers": [container],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        answer = self.server.create(PODS, document)
        assert answer.code == 201, answer.message

    def delete_pod(self, name: str) -> None:
        """Deletes a pod as kubectl does."""
        answer = self.server.request("DELETE", f"{PODS}/{name}")
        assert answer.code == 200, answer.message

    def signing_requests(self, signer: str = "kubernetes.io/kube-apiserver-client-kubelet") -> list[str]:
        """The names of the signing requests for a signer."""
        path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
        items = self.server.request("GET", path).body["items"]
        return [item["metadata"]["name"] for item in items if item["spec"]["signerName"] == signer]

    def kubectl(self, *words: str) -> list[str]:
        """The command line of kubectl as the administrator."""
        return [f"{ASSETS}/kubectl", f"--kubeconfig={self.agent.folder}/admin.kubeconfig", *words]

    def kubectl_output(self, *words: str, stdin: str = "") -> str:
        """What kubectl prints; it must succeed."""
        ran = subprocess.run(
            self.kubectl(*words), input=stdin, capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
        assert ran.returncode == 0, (ran.stdout, ran.stderr, self.agent.log_tail())
        return ran.stdout

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Waits until something is so; says otherwise what the agent has logged."""
        deadline = time.monotonic() + _LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, self.agent.log_tail()
            time.sleep(0.05)


@contextmanager
def cluster_bench(
    folder: Path,
    *options: str,
    checks_rights: bool = True,
    server_options: tuple[str, ...] = (),
    proxy: PartitionProxy | None = None,
    bootstraps: bool = False,
) -> Iterator[ClusterBench]:
    """The server, and an agent that is to be started; nothing of the pods is left afterwards.

    The agent reaches the server by the proxy, where there is one. With ``bootstraps`` it has a token to request its
    certificate with.
    """
    running_server = real_api_server(folder, checks_rights=checks_rights, flags=server_options)
    with running_server as server, private_cgroups() as cgroups:
        kubeconfig = folder / "kubeconfig"
        if bootstraps:
            bootstrap = server.write_kubeconfig(folder / "bootstrap.kubeconfig", BOOTSTRAP_TOKEN)
            options = (*options, "--bootstrap-kubeconfig", str(bootstrap))
        else:
            server.write_kubeconfig(kubeconfig, NODE_TOKEN)
        server.write_kubeconfig(folder / "admin.kubeconfig")
        if proxy is not None and not bootstraps:
            proxy.target_port = server.port
            text = kubeconfig.read_text("utf-8").replace(f":{server.port}", f":{proxy.port}")
            kubeconfig.write_text(text, "utf-8")
        options = (*options, "--kubeconfig", str(kubeconfig), "--hostname-override", "worker")
        agent = AgentCommand(folder, cgroups.root, *options)
        try:
            yield ClusterBench(server, agent, cgroups)
        finally:
            agent.stop()
