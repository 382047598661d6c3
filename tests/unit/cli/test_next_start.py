"""What comes later of a decision that is right now: a kubelet that does not start again."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, YES

STRICT = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}
reservedSystemCPUs: "0"
"""
PODS = """\
apiVersion: v1
kind: Pod
metadata: {{name: all, uid: u-all}}
spec: {{containers: [{{name: a, image: a:1, resources: {{limits: {{cpu: {cpus}, memory: 1Gi}}}}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: shared, uid: u-shared}}
spec: {{containers: [{{name: a, image: a:1, resources: {{requests: {{memory: 64Mi}}}}}}]}}
"""
ERROR = "start cpu manager error: default cpuset cannot be empty"


@pytest.fixture
def config(tmp_path: Path) -> list[str]:
    (tmp_path / "kubelet.yaml").write_text(STRICT)
    return ["--shape", "1x1x4x1", "--kubelet-config", str(tmp_path / "kubelet.yaml")]


def pods(tmp_path: Path, cpus: int) -> str:
    (tmp_path / "pods.yaml").write_text(PODS.format(cpus=cpus))
    return str(tmp_path / "pods.yaml")


def answer(command: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run([command, *arguments, "-o", "json"]) == YES
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ["admit", "explain"])
@pytest.mark.parametrize(("cpus", "is_last"), [(3, True), (2, False)])
def test_a_pod_that_takes_the_last_shared_cpu_is_admitted_with_a_warning(
    command: str,
    cpus: int,
    is_last: bool,
    config: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    holder, sharing = answer(command, capsys, pods(tmp_path, cpus), *config)["pods"]
    assert [ERROR in text for text in holder["later"]] == [True] * is_last
    assert sharing["later"] == []
    assert run([command, pods(tmp_path, cpus), *config]) == YES
    assert ("does not start again" in capsys.readouterr().out) is is_last


def running(tmp_path: Path, config: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """A profile of the node that runs the pods, whose state file has an empty shared pool."""
    node = tmp_path / "node.json"
    assert run(["node", "capture", *config, "-o", "json"]) == YES
    profile = json.loads(capsys.readouterr().out)
    names = {"all": {"limits": {"cpu": "3", "memory": "1Gi"}}, "shared": {"requests": {"memory": "64Mi"}}}
    profile["spec"]["pods"] = [
        {
            "metadata": {"name": name, "uid": f"u-{name}"},
            "spec": {"containers": [{"name": "a", "image": "a:1", "resources": resources}]},
        }
        for name, resources in names.items()
    ]
    node.write_text(json.dumps(profile))
    return str(node)


def test_a_rehearsal_advises_nothing_that_fails_again(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = running(tmp_path, config, capsys)
    assert run(["rehearse", "--node", node, "-o", "json"]) == NO
    report = json.loads(capsys.readouterr().out)
    assert report["errors"][0]["error"] == ERROR
    remedy = report["remedy"]
    assert remedy["drain"] == ["default/all"]
    assert (remedy["then"]["starts"], remedy["then"]["later"], remedy["then"]["leftovers"]) == (True, [], [])
    assert [pod["name"] for pod in remedy["then"]["pods"]] == ["shared"]
    assert run(["rehearse", "--node", node]) == NO
    out = capsys.readouterr().out
    assert out.index("otherwise no CPU is left to share") < out.index("stop the kubelet and delete")


def test_a_start_without_a_state_file_succeeds_once(
    config: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = running(tmp_path, config, capsys)
    root = tmp_path / "kubelet"
    root.mkdir()
    assert run(["rehearse", "--node", node, "--kubelet-root", str(root), "-o", "json"]) == NO
    report = json.loads(capsys.readouterr().out)
    assert report["starts"]
    assert [ERROR in text for text in report["later"]] == [True]
