"""`nodewright explain` as a command."""

import io
import json
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

SPLIT = ["explain", "-f", "examples/numa/split-pods.yaml", "--node", "examples/numa/split-node.yaml"]
GPUS = ["explain", "-f", "examples/numa/gpu-nic-pods.yaml", "--node", "examples/numa/gpu-nic-node.yaml"]


def test_json_and_yaml_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GPUS, "-o", "json"]) == NO
    as_json = json.loads(capsys.readouterr().out)
    assert run([*GPUS, "-o", "yaml"]) == NO
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    first, second, third = as_json["pods"]
    assert as_json["rulesOf"] == "1.36"
    assert first["topologyManager"]["rounds"][0]["numa"] == [0]
    assert second["placement"]["containers"][0]["devices"] == {
        "example.com/gpu": ["gpu-1"],
        "example.com/nic": ["nic-1"],
    }
    assert (third["reason"], third["topologyManager"]["rounds"][0]["admits"]) == (
        "TopologyAffinityError",
        False,
    )
    assert [suggestion["kind"] for suggestion in third["suggestions"]] == ["a pod that leaves"]


POD = {"apiVersion": "v1", "kind": "Pod"}


def pod(name: str, **spec: object) -> dict[str, object]:
    containers = [{"name": "main", "image": "a", "resources": spec.pop("resources", {})}]
    return {**POD, "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def test_conditions_show_the_decisions_of_scheduler_and_kubelet(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tolerates = [{"operator": "Exists"}]
    pods = [
        pod("plain"),
        pod("burst", resources={"requests": {"memory": "1Gi"}}),
        pod("tolerant", tolerations=tolerates),
        pod("critical", priorityClassName="system-node-critical"),
    ]
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(pods))
    texts = ["explain", "-f", str(path), "--node", "examples/nodes/worker.yaml"]

    def listed_conditions(*arguments: str, code: int = NO) -> list[tuple[str, bool, bool]]:
        assert run([*texts, *arguments, "-o", "json"]) == code
        pods = json.loads(capsys.readouterr().out)["pods"]
        return [
            (item["name"], each["scheduler"]["passes"], each["kubelet"]["passes"])
            for item in pods
            for each in item["conditions"]
        ]

    assert listed_conditions("--condition", "MemoryPressure=True") == [
        ("plain", False, False),
        ("burst", False, True),
        ("tolerant", True, True),
        ("critical", False, True),
    ]
    assert [
        listed_condition[1:] for listed_condition in listed_conditions("--condition", "DiskPressure")
    ] == [
        (False, False),
        (False, False),
        (True, False),
        (False, True),
    ]
    assert listed_conditions("--condition", "DiskPressure=False", code=YES) == []
    both = ["--condition", "DiskPressure", "--condition", "MemoryPressure", "--pod"]
    assert run([*texts, *both, "tolerant"]) == NO
    text = capsys.readouterr().out
    assert "the kubelet admits it: the pod tolerates the taint" in text
    assert "the kubelet rejects it, even if it is bound to the node" in text
    assert "With several conditions at once the kubelet admits critical pods only" in text
    assert run([*texts, *both, "critical"]) == YES
    assert "the kubelet admits it: the pod is critical" in capsys.readouterr().out
    assert run([*texts, "--condition", "Tired"]) == USAGE
    assert "is not one of DiskPressure, MemoryPressure, PIDPressure" in capsys.readouterr().err


def test_suggestions_let_a_best_effort_pod_in_under_memory_pressure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump(pod("plain")))
    texts = ["explain", "-f", str(path), "--node", "examples/nodes/worker.yaml", "--condition"]
    assert run([*texts, "MemoryPressure"]) == NO
    text = capsys.readouterr().out
    assert "- a toleration for node.kubernetes.io/memory-pressure:NoSchedule" in text
    assert "- container main: 0.001 CPUs instead of 0" in text
    assert "- the node without MemoryPressure, 5m0s after the last observation" in text
    assert run([*texts, "PIDPressure"]) == NO
    assert capsys.readouterr().out.count("\n    - ") == 1


def test_a_single_pod_is_explained_after_the_pods_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GPUS, "--pod", "train-1"]) == YES
    assert capsys.readouterr().out.startswith("ml/train-1: admitted\n")
    assert run([*GPUS, "--pod", "ml/train-0", "--pod", "ml/train-2", "-o", "json"]) == NO
    assert [pod["name"] for pod in json.loads(capsys.readouterr().out)["pods"]] == ["train-0", "train-2"]


def test_all_unknown_pods_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*GPUS, "--pod", "x", "--pod", "train-0", "--pod", "y"]) == ERROR
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        'error: --pod: Invalid value: "x": is not one of the pods in the manifests',
        'error: --pod: Invalid value: "y": is not one of the pods in the manifests',
    ]


def test_strict_turns_warnings_into_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(Path("examples/numa/split-best-effort.yaml").read_text() + "maxPod: 3\n")
    assert run([*SPLIT, "--kubelet-config", str(config)]) == YES
    assert run([*SPLIT, "--kubelet-config", str(config), "--strict"]) == ERROR
    assert 'unknown field "maxPod"' in capsys.readouterr().err


def test_a_deployment_is_named_as_the_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    manifest = tmp_path / "deployment.yaml"
    manifest.write_text(
        yaml.safe_dump(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
        )
    )
    assert run(["explain", "-f", str(manifest), "--node", "vm-4"]) == YES
    assert "(Deployment web): admitted" in capsys.readouterr().out


def test_a_page_is_written_in_addition(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "why.html"
    assert run([*GPUS, "--html", str(page)]) == NO
    assert capsys.readouterr().out.startswith("ml/train-0: admitted\n")
    written = page.read_text("utf-8")
    assert written.startswith("<!doctype html>")
    assert "ml/train-2" in written
    assert run([*GPUS, "--html", str(tmp_path / "no" / "such" / "folder.html")]) == ERROR


def test_pods_of_standard_input_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: x}]}\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pod)))
    assert run(["explain", "-f", "-"]) == YES
    assert "default/web: admitted" in capsys.readouterr().out
