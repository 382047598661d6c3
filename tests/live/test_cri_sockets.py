"""The sockets around an agent whose pods are containers: device plugins, PodResources, the kubelet's API, the audit."""

import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.live.containerd import lacking

from nodewright.cluster.pod_resources.lister import PodResourcesClient
from nodewright.model.kubernetes.pod_resources_api import ContainerDevices
from tools.containers import Agent, a_pod, an_agent
from tools.source import ROOT

pytestmark = pytest.mark.live
GPU = "example.com/gpu"


@contextmanager
def plugin(*words: str) -> Iterator[None]:
    command = [sys.executable, str(ROOT / "examples" / "device-plugin" / "plugin.py"), "--resource", GPU]
    with subprocess.Popen([*command, *words], stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.kill()


def with_gpus(agent: Agent, count: int, script: str) -> dict[str, Any]:
    """A pod that says in /out/train what it finds."""
    pod = a_pod("train", {"limits": {GPU: str(count)}}, agent.started)
    (container,) = pod["spec"]["containers"]
    container["command"] = [
        "sh",
        "-c",
        f"({script}) > /out/.train 2>&1; mv /out/.train /out/train; sleep 1000",
    ]
    pod["spec"]["terminationGracePeriodSeconds"] = 1
    return pod


def kubelet_api(folder: Path, port: int) -> tuple[str, ...]:
    """The options of an agent that answers as a kubelet does."""
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": 0,
    }
    (folder / "kubelet.yaml").write_text(json.dumps(configuration))
    (folder / "tokens.csv").write_text("secret,reader,1\n")
    return (
        f"--config={folder}/kubelet.yaml",
        "--kubelet-api",
        f"--token-auth-file={folder}/tokens.csv",
        "--grant=read=user:reader",
    )


def http_get(agent: Agent, port: int, path: str) -> str:
    context = ssl.create_default_context(cafile=agent.root / "agent/pki/kubelet.crt")
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}")
    request.add_header("Authorization", "Bearer secret")
    with urllib.request.urlopen(request, timeout=20, context=context) as answer:  # noqa: S310 - ours
        return str(answer.read(), "utf-8")


def test_what_containers_use_and_say_is_told_as_by_a_kubelet(tmp_path: Path) -> None:
    if why := lacking():
        pytest.skip(why)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = int(held.getsockname()[1])
    with an_agent(None, *kubelet_api(tmp_path, port)) as agent:
        pod = a_pod("busy", {"limits": {"cpu": "100m", "memory": "32Mi"}}, agent.started)
        (container,) = pod["spec"]["containers"]
        container["command"] = ["sh", "-c", "echo hello; echo > /out/busy; while :; do :; done"]
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        agent.put("busy", pod)
        agent.until(lambda: agent.runs("busy"), "the pod runs")

        def containers() -> list[dict[str, Any]]:
            pods = json.loads(http_get(agent, port, "/stats/summary"))["pods"]
            return [container for pod in pods for container in pod["containers"]]

        # A rate takes two readings of the runtime's figures.
        agent.until(
            lambda: any("usageNanoCores" in container.get("cpu", {}) for container in containers()), "a rate"
        )
        (use,) = json.loads(http_get(agent, port, "/stats/summary"))["pods"]
        (each,) = use["containers"]
        assert (use["podRef"]["name"], each["name"]) == ("busy", "app")
        assert 0 < each["cpu"]["usageNanoCores"] < 300_000_000
        assert each["cpu"]["usageCoreNanoSeconds"] > 10**7
        assert each["memory"]["workingSetBytes"] > 0
        # The pod as a whole has its sandbox, too.
        assert use["memory"]["workingSetBytes"] >= each["memory"]["workingSetBytes"]
        metrics = http_get(agent, port, "/metrics/resource")
        for name in ("container_cpu_usage_seconds_total", "container_memory_working_set_bytes"):
            line = f'{name}{{container="app",pod="busy",namespace="default"}} '
            (value,) = [splitline for splitline in metrics.splitlines() if splitline.startswith(line)]
            assert float(value.split()[1]) > 0
        assert http_get(agent, port, "/containerLogs/default/busy/app") == "hello\n"
        (running,) = json.loads(http_get(agent, port, "/runningpods/"))["items"]
        assert running["metadata"]["name"] == "busy"


def test_devices_get_into_containers_and_all_sockets_tell_of_them() -> None:
    if why := lacking():
        pytest.skip(why)
    with an_agent() as agent:
        registry, root = agent.root / "agent" / "plugins_registry", agent.root
        (root / "driver").mkdir()
        (root / "driver" / "version").write_text("550.1\n")
        os.mknod(root / "gpu0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        words = [
            "--registry",
            str(registry),
            "--mount",
            f"{root}/driver:/opt/driver",
            "--file",
            str(root / "gpu0"),
        ]
        with plugin(*words, "gpu-0@0", "gpu-1@0", "gpu-2"):
            agent.until(lambda: f"{GPU}:" in agent.ask("describe", "node"), "the plugin is found")
            script = f"echo $EXAMPLE_COM_GPU; cat /opt/driver/version; echo > {root}/gpu0 && echo written; echo > /opt/driver/x"
            agent.put("train", with_gpus(agent, 2, script))
            agent.until(lambda: agent.runs("train"), "the pod runs")
            assert (agent.started / "train").read_text().splitlines() == [
                "gpu-0,gpu-1",
                "550.1",
                "written",
                "sh: can't create /opt/driver/x: Read-only file system",
            ]
            (pod,) = PodResourcesClient(root / "agent/pod-resources/kubelet.sock").pods()
            assert pod.containers[0].devices == tuple(
                ContainerDevices(GPU, (text,), (0,)) for text in ("gpu-0", "gpu-1")
            )
            ask = agent.ask("describe", "node")
            assert [line.split() for line in ask.splitlines() if " gpu-" in line] == [
                [GPU, "gpu-0", "0", "Healthy", "default/train"],
                [GPU, "gpu-1", "0", "Healthy", "default/train"],
                [GPU, "gpu-2", "-", "Healthy", "<none>"],
            ]
            audit = json.loads(
                agent.ask(
                    "audit", "--root-dir", str(root / "agent"), "--socket", f"{root}/agent.sock", "-o", "json"
                )
            )
            assert audit["findings"] == []
            assert audit["compared"] > 5
