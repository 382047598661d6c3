"""Device plugins with the real agent: needs root and cgroups that can be written."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.terminal import NO, YES
from tools.agent_idle import running
from tools.source import ROOT

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
]
GPU = "example.com/gpu"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: none
      command: [sh, -c, "echo got $EXAMPLE_COM_GPU; exec sleep 1000"]
      resources: {limits: {example.com/gpu: COUNT}}
"""


def until(holds: Callable[[], bool], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def plugin(directory: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    program = str(ROOT / "examples" / "device-plugin" / "plugin.py")
    command = [sys.executable, program, "--directory", str(directory), "--resource", GPU, *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def counted(client: AgentClient) -> tuple[str, str]:
    (node,) = client.get("api/v1/nodes")["items"]
    status = node["status"]
    return status["capacity"].get(GPU, ""), status["allocatable"].get(GPU, "")


def test_pods_keep_their_devices_when_agent_and_plugin_come_and_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Paths of sockets are short: those that pytest makes are not.
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        monkeypatch.setenv("NODEWRIGHT_SOCKET", str(home / "agent.sock"))

        def pod(name: str, count: int, code: int = YES) -> None:
            manifest = home / f"{name}.yaml"
            manifest.write_text(POD.replace("NAME", name).replace("COUNT", str(count)), "utf-8")
            assert run(["run", "-f", str(manifest)]) == code, capsys.readouterr().err

        def devices() -> dict[str, str]:
            capsys.readouterr()
            assert run(["get", "pods", "-o", "json"]) == YES
            items = json.loads(capsys.readouterr().out)["items"]
            return {
                item["metadata"]["name"]: item["metadata"]["annotations"].get("nodewright.dev/devices", "")
                for item in items
                if item["status"].get("phase") == "Running"
            }

        words = ["--prefers", "highest", "gpu-0@0", "gpu-1@0", "gpu-2@0"]
        with (
            plugin(home / "root" / "device-plugins", *words) as running_plugin,
            running(home) as (first, client),
        ):
            until(lambda: counted(client) == ("3", "3"))
            pod("train", 2)
            until(lambda: devices() == {"train": f"{GPU}=gpu-1,gpu-2"})
            until(lambda: run(["logs", "train"]) == YES and "got gpu-1,gpu-2" in capsys.readouterr().out)
            pod("greedy", 2, NO)
            os.kill(first, signal.SIGKILL)
            with running(home) as (_, client_again):
                assert devices() == {"train": f"{GPU}=gpu-1,gpu-2"}
                until(lambda: counted(client_again) == ("3", "3"))
                running_plugin.kill()
                until(lambda: counted(client_again) == ("3", "0"))
                assert devices() == {"train": f"{GPU}=gpu-1,gpu-2"}
