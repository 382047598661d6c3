"""Programs of Kubernetes in Go against the agent's sockets: the sample device plugin, and the PodResources client."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.real_api_server import ASSETS

from nodewright.cluster.client.agent_client import AgentClient
from tools.agent_idle import running

SEARCHED = os.pathsep.join(filter(None, (ASSETS, os.environ.get("PATH", ""))))
PLUGIN, CLIENT = (
    shutil.which(name, path=SEARCHED) for name in ("sample-device-plugin", "pod-resources-client")
)
pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(
        PLUGIN is None or CLIENT is None,
        reason="neither KUBEBUILDER_ASSETS nor PATH has sample-device-plugin and pod-resources-client",
    ),
]
RESOURCE = "example.com/resource"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train"},
    "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "main",
                "image": "none",
                "command": ["sleep", "1000"],
                "resources": {"limits": {RESOURCE: "1", "cpu": "100m", "memory": "32Mi"}},
            }
        ],
    },
}


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@contextmanager
def sample_plugin(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The plugin with the agent's directory in place of /var/lib/kubelet, which it has built in; only it sees that."""
    kubelet = "/var/lib/kubelet"
    script = f"mkdir -p {kubelet} && mount --bind {root} {kubelet} && exec {PLUGIN}"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    with (root.parent / "plugin.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def answers(socket: Path) -> Any:
    """What the Go client prints."""
    assert CLIENT is not None
    result = subprocess.run(
        [CLIENT, str(socket), "default", "train"], capture_output=True, text=True, timeout=30, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def count(client: AgentClient, kind: str) -> str:
    (node,) = client.get("api/v1/nodes")["items"]
    return str(node["status"][kind].get(RESOURCE, ""))


def is_running(client: AgentClient) -> bool:
    return any(pod["status"].get("phase") == "Running" for pod in client.get("api/v1/pods")["items"])


def device_ids(container: Any) -> list[str]:
    return sorted(name for devices in container.get("devices", ()) for name in devices["device_ids"])


def test_the_sample_plugin_and_the_go_client_of_pod_resources() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        root, pods = Path(place, "root"), Path(place, "pods")
        pods.mkdir()
        with running(Path(place), "--workload-dir", str(pods)) as (_, client):
            sockets = root / "device-plugins"
            until((sockets / "kubelet.sock").exists, "the agent has no socket for plugins")
            with sample_plugin(root) as plugin:
                until(lambda: count(client, "allocatable") == "2", "the plugin is not registered")
                Path(pods, "train.json").write_text(json.dumps(POD), "utf-8")
                until(lambda: is_running(client), "the pod does not run")
                known = answers(root / "pod-resources" / "kubelet.sock")
                [listed] = known["list"]["pod_resources"]
                assert known["get"]["pod_resources"] == listed
                [held] = device_ids(listed["containers"][0])
                assert held in ("Dev-1", "Dev-2")
                assert device_ids(known["allocatable"]) == ["Dev-1", "Dev-2"]
                plugin.send_signal(signal.SIGTERM)
                until(lambda: count(client, "allocatable") == "0", "the devices of a dead plugin stay")
                assert count(client, "capacity") == "2"
                assert device_ids(
                    answers(root / "pod-resources" / "kubelet.sock")["get"]["pod_resources"]["containers"][0]
                ) == [held]
