"""The image of a release in containerd, run as pods by our own agent; it needs a network for its packages, part of `make soak`."""

import json
import os
import subprocess
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.live.containerd import PATH, lacking
from tests.tools.test_artefacts import wheel_of

from nodewright.version import __version__
from tools.containers import Agent, an_agent
from tools.image import NAME, SITE, download_debian, image
from tools.release import hatch
from tools.source import ROOT

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("RECORDED_SHARE") != "1", reason="minutes: make soak"),
]
TIME_S = 1_700_000_000
MAX_BYTES = 60_000_000
EXAMPLES = f"/{SITE}/nodewright/examples"
COMMANDS = {
    "admit": (
        f"admit -f {EXAMPLES}/admission/pods.yaml --node {EXAMPLES}/nodes/worker.yaml",
        3,
        "jobs/report",
    ),
    "exporter": ("export --once --kubelet-root /nowhere --node-name n", 2, "/nowhere"),
    "extender": ("extender --insecure-http --kubeconfig /nowhere", 1, "/nowhere"),
    "agent": (
        f"agent --dry-run --node vm-4 --pod-manifest-path {EXAMPLES}/agent",
        3,
        "create a sandbox for pod",
    ),
    "help": ("lint --help", 0, "Usage: nodewright lint"),
    "imports": ("version", 0, "nodewright "),
}
"""The arguments of each pod, its exit code and what it prints: servers go as far as they do without a cluster."""


def pod(name: str, arguments: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": f"{NAME}:{__version__}",
        "imagePullPolicy": "Never",
        "args": arguments.split(),
    }
    container |= {
        "securityContext": {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
    }
    container["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    spec: dict[str, Any] = {
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "restartPolicy": "Never",
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def exit_code(agent: Agent, name: str) -> int | None:
    for each in agent.pods():
        if each["metadata"]["name"] == name:
            for status in each["status"].get("containerStatuses", ()):
                ended = status["state"].get("terminated")
                return None if ended is None else int(ended["exitCode"])
    return None


def has_ended(agent: Agent, name: str) -> bool:
    return exit_code(agent, name) is not None


def test_every_command_runs_as_a_pod_of_the_image(tmp_path: Path) -> None:
    if why := lacking():
        pytest.skip(why)
    hatch(ROOT, tmp_path, TIME_S)
    download_debian(tmp_path / "debian")
    archive, sbom = image(wheel_of(tmp_path), tmp_path / "debian", TIME_S)
    again, _ = image(wheel_of(tmp_path), tmp_path / "debian", TIME_S)
    assert sha256(archive).digest() == sha256(again).digest()
    assert len(archive) < MAX_BYTES
    names = {component["name"] for component in json.loads(sbom)["components"]}
    assert {"nodewright", "msgspec", "grpcio", "libc6", "libssl3"} <= names
    with an_agent() as agent:
        place = agent.containerd.root / "release.tar"
        place.write_bytes(archive)
        words = [
            "ctr",
            "--address",
            str(agent.containerd.socket),
            "--namespace",
            "k8s.io",
            "images",
            "import",
        ]
        subprocess.run(
            [*words, str(place)], check=True, env={**os.environ, "PATH": PATH}, capture_output=True
        )
        for name, (arguments, _, _) in COMMANDS.items():
            agent.put(name, pod(name, arguments))
        for name, (arguments, code, text) in COMMANDS.items():
            agent.until(partial(has_ended, agent, name), f"the pod {name} ends")
            logs = agent.ask("logs", name)
            assert (exit_code(agent, name), text in logs) == (code, True), (arguments, logs)
