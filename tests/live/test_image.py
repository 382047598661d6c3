"""The image of a release in containerd, run as pods by our own agent; it needs a network for its packages, part of `make soak`."""

import http.client
import json
import os
import socket
import ssl
import subprocess
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.live.containerd import PATH, lacking
from tests.tools.test_artefacts import wheel_of
from tests.unit.scheduling.exporter.test_exporter import put

from nodewright.documents.profiles.node_export import read_node_export
from nodewright.documents.profiles.state_files.cpu_manager_state import cpu_state_file
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.model.values.idset import CPUSet
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


def exporter_pod(folder: Path, port: int) -> dict[str, Any]:
    """The pod of the DaemonSet without a cluster: the kubelet's files and the tokens lie in a directory."""
    daemon_set = yaml.safe_load((ROOT / "packaging/kubernetes/base/export-daemonset.yaml").read_text("utf-8"))
    spec = daemon_set["spec"]["template"]["spec"]
    [container] = spec["containers"]
    left_out = ("--kubelet-url=", "--kubelet-token", "--kubelet-certificate", "--listen=", "--health-port=")
    arguments = [text for text in container["args"] if not text.startswith(left_out)]
    container |= {
        "image": f"{NAME}:{__version__}",
        "imagePullPolicy": "Never",
        "args": [*arguments, f"--listen=127.0.0.1:{port}", "--node-name=n"],
        "env": [each for each in container["env"] if "value" in each],
        "volumeMounts": [each for each in container["volumeMounts"] if each["name"] != "api-access"],
    }
    for name in ("ports", "livenessProbe", "readinessProbe"):
        del container[name]
    for mount in container["volumeMounts"]:
        mount.pop("mountPropagation", None)  # the directory of a test is on no shared mount
    places = {"kubelet": folder / "kubelet", "tokens": folder / "tokens"}
    volumes = [
        {"name": each["name"], "hostPath": {"path": str(places[each["name"]])}}
        if each["name"] in places
        else each
        for each in spec["volumes"]
        if each["name"] != "api-access"
    ]
    pod_spec = {
        "hostNetwork": True,
        "containers": [container],
        "volumes": volumes,
        "securityContext": spec.get("securityContext", {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "exporter-of-node"}, "spec": pod_spec}


def answer_of(port: int, token: str) -> tuple[int, bytes] | None:
    """Status and body of the export; None while nothing listens."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it has made its certificate itself
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)
    try:
        connection.request("GET", "/v1/state", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return None
    finally:
        connection.close()


def check_exporter(agent: Agent, folder: Path) -> None:
    """The exporter of the DaemonSet makes its key in /dev/shm, and serves over TLS who has a token."""
    kubelet, tokens = folder / "kubelet", folder / "tokens"
    for name in ("checkpoints", "pki", "plugins", "plugins_registry", "pods"):
        (kubelet / name).mkdir(parents=True)
    tokens.mkdir()
    (tokens / "tokens.csv").write_text("s3cret,nodewright-extender,1,nodewright-readers\n")
    (kubelet / "config.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"
    )
    put(kubelet / "cpu_manager_state", cpu_state_file(CPUState(CPUSet.of(), {}), "none"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent.put("exporter-of-node", exporter_pod(folder, port))

    def answers() -> bool:
        return (answer_of(port, "s3cret") or (503, b""))[0] != 503

    agent.until(answers, "the exporter answers")
    assert (answer_of(port, "wrong") or (0, b""))[0] == 401
    status, body = answer_of(port, "s3cret") or (0, b"")
    assert (status, read_node_export(body).node_name) == (200, "n")


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
        check_exporter(agent, tmp_path)
