"""An answer about nothing is an error, unless `--allow-empty` says that there may be nothing."""

from pathlib import Path

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, YES

NODE = ("--node", "uma-4c")
CUSTOM = "{apiVersion: ceph.rook.io/v1, kind: CephCluster, metadata: {name: c}, spec: {}}\n"
OTHER = CUSTOM.replace("name: c", "name: d")
POD = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("lint",),
        ("quota",),
        ("requests",),
        ("admit", *NODE),
        ("explain", *NODE),
        ("preempt", *NODE),
        ("upgrade", *NODE, "--to", "1.36"),
    ],
)
def test_nothing_to_judge_is_an_error_unless_it_is_allowed(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "custom.yaml"
    path.write_text(CUSTOM)
    assert run([*command, "-f", str(path)]) == ERROR
    assert run([*command, "-f", str(path), "--allow-empty"]) == YES


@pytest.mark.parametrize("command", ["lint", "quota"])
def test_what_is_not_judged_is_named(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(f"{POD}---\n{CUSTOM}---\n{CUSTOM.replace('name: c', 'name: d')}")
    assert run([command, "-f", str(path), *(["--fail-on", "error"] if command == "lint" else [])]) == YES
    assert "not judged: 2 CephCluster" in capsys.readouterr().err


NESTED = """
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train}
spec:
  replicatedJobs:
  - {name: w, template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: x}]}}}}}
"""


def test_a_custom_resource_whose_pod_template_is_judged_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nested.yaml"
    path.write_text(f"{NESTED}---\n{CUSTOM}")
    run(["lint", "-f", str(path)])
    captured = capsys.readouterr()
    assert "in JobSet default/train" in captured.out
    assert "not judged: 1 CephCluster\n" in captured.err


def test_a_node_profile_is_judged_without_a_word_about_other_forms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(["lint", "-f", "examples/nodes/worker.yaml"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("spec", ["1.5", "true", "text", "[kubelet]", "{kubelet: 1}"])
def test_a_custom_resource_may_have_any_spec(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(CUSTOM.replace("spec: {}", f"spec: {spec}"))
    assert run(["lint", "-f", str(path)]) == ERROR
    assert "nothing here is judged: 1 CephCluster" in capsys.readouterr().err


ENDED = """
{apiVersion: v1, kind: Pod, metadata: {name: a, uid: u}, spec: {containers: [{name: a, image: a}]}, status: {phase: Failed}}
"""


@pytest.mark.parametrize(
    "line", ["admit", "explain", "preempt", "cgroups", "evict --available memory.available=1Gi"]
)
@pytest.mark.parametrize("empty", [False, True])
def test_pods_that_have_all_ended_are_no_answer(
    line: str, empty: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ended.yaml"
    path.write_text(ENDED)
    words = [*line.split(), "--node", "vm-4", "-f", str(path), *(["--allow-empty"] if empty else [])]
    assert run(words) == (0 if empty else ERROR)
    assert "nothing here is judged: no pod " in capsys.readouterr().err


NODE_OBJECT = "{apiVersion: v1, kind: Node, metadata: {name: one}, status: {allocatable: &a {cpu: 4, memory: 8Gi, pods: 110}, capacity: *a}}"


@pytest.mark.parametrize("pods", ["", ENDED])
@pytest.mark.parametrize("line", ["drain node/one", "fleet run"])
def test_nodes_without_pods_are_no_answer(
    line: str, pods: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "nodes.yaml"
    path.write_text(f"{NODE_OBJECT}\n---\n{pods}")
    assert run([*line.split(), "-f", str(path)]) == ERROR
    captured = capsys.readouterr()
    assert "nothing here is judged: no pod " in captured.err
    assert captured.out == ""


def test_an_empty_fleet_has_a_capacity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.yaml").write_text(NODE_OBJECT)
    (tmp_path / "pod.yaml").write_text(POD)
    words = ["-f", str(tmp_path / "nodes.yaml")]
    assert run(["fleet", "run", *words, "--probe", str(tmp_path / "pod.yaml")]) == YES
    assert "110" in capsys.readouterr().out


def test_a_scenario_without_events_is_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("{apiVersion: nodewright.dev/v1alpha1, kind: Scenario, spec: {events: []}}")
    assert run(["replay", str(path), *NODE]) == ERROR
    assert "spec.events: nothing here is judged: no event" in capsys.readouterr().err


NAMESPACE = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n"


@pytest.mark.parametrize("text", [NAMESPACE, ENDED, f"{NAMESPACE}---\n{ENDED}"])
def test_a_quota_is_asked_about_neither_namespaces_nor_ended_pods(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "objects.yaml"
    path.write_text(text)
    assert run(["quota", "-f", str(path)]) == ERROR
    captured = capsys.readouterr()
    assert "nothing here is judged: 1 " in captured.err
    assert captured.out == ""


def test_the_fewest_nodes_for_ended_pods_are_no_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(ENDED)
    assert run(["fleet", "minimise", "--nodes", "examples/fleet/nodes.csv", "--pods", str(path)]) == ERROR
    captured = capsys.readouterr()
    assert "nothing here is judged: no pod " in captured.err
    assert captured.out == ""
