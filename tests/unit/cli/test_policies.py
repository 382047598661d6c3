"""Policies on the command line: chosen by name, and said in every answer."""

import json
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

FOLDER = "examples/policies"
PODS = ["-f", f"{FOLDER}/pods.yaml", "--node", f"{FOLDER}/node.yaml"]
MINE = [
    "--policies",
    f"{FOLDER}/mine.py",
    "--topology-policy",
    "at-most-two",
    "--cpu-picker",
    "one-thread-a-core",
]
WISH = "topology policy pod-wish decides in the kubelet's place"
REPORTS = ["admit", "explain", "preempt", "cgroups"]


@pytest.mark.parametrize("command", REPORTS)
def test_every_text_starts_with_the_policies(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, *PODS]) == NO
    assert capsys.readouterr().out.startswith(WISH)


@pytest.mark.parametrize("command", REPORTS)
def test_every_document_has_the_policies(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run([command, *PODS, *MINE, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert [
        (policies_not_the_kubelet["kind"], policies_not_the_kubelet["name"])
        for policies_not_the_kubelet in document["policiesNotTheKubelets"]
    ] == [
        ("topology policy", "at-most-two"),
        ("CPU picker", "one-thread-a-core"),
    ]


def test_names_are_for_pipes_and_the_note_is_beside(capsys: pytest.CaptureFixture[str]) -> None:
    run(["admit", *PODS, "-o", "name"])
    shown = capsys.readouterr()
    assert shown.out == "pod/counting\npod/trading\n"
    assert shown.err.startswith(WISH)


def test_a_node_without_policies_omits_them(capsys: pytest.CaptureFixture[str]) -> None:
    run(["admit", "-f", "examples/admission", "--node", "examples/nodes/worker.yaml", "-o", "json"])
    assert "policiesNotTheKubelets" not in json.loads(capsys.readouterr().out)


def test_a_journal_keeps_the_names_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    run(["admit", *PODS, *MINE, "--journal", str(first)])
    names = yaml.safe_load(first.read_text())["spec"]["node"]["spec"]["policies"]
    assert names == {"topology": "at-most-two", "cpuPicker": "one-thread-a-core"}
    capsys.readouterr()
    assert run(["replay", str(first)]) == ERROR
    assert "no topology policy of this name is built in" in capsys.readouterr().err
    assert run(["replay", str(first), *MINE[:2], "--journal", str(second)]) == NO
    assert capsys.readouterr().out.startswith("topology policy at-most-two decides in the kubelet's place")
    assert second.read_text() == first.read_text()


def test_a_picker_that_breaks_a_law_ends_in_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.py"
    file.write_text(
        "from nodewright.policies import CPUSet, cpu_picker\n"
        "bad = cpu_picker('bad')(lambda asked: CPUSet.of(0))\n"
    )
    assert run(["admit", *PODS, "--policies", str(file), "--cpu-picker", "bad"]) == ERROR
    error = capsys.readouterr().err
    assert "error: CPU picker bad: must return 6 of the free CPUs" in error
    assert "returns CPUs 0, of which 0 are not free" in error


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--topology-policy", "restricted"],
            "is the kubelet's own policy: choose it in the kubelet configuration",
        ),
        (["--cpu-picker", "whole-cache"], "did you mean whole-caches?"),
        (["--node", "vm-4", "--cpu-picker", "whole-caches"], "needs cpuManagerPolicy static, not none"),
    ],
)
def test_invalid_policy_names_are_reported(
    options: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["admit", *PODS, *options]) == ERROR
    assert expected in capsys.readouterr().err


def test_an_empty_name_removes_the_nodes_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", *PODS, "--topology-policy", ""]) == YES
    assert "kubelet's place" not in capsys.readouterr().out


def test_the_guide_shows_the_policies_of_the_example() -> None:
    guide = Path("docs/guide/policies.md").read_text()
    functions = Path(f"{FOLDER}/mine.py").read_text().split("\n\n\n")[1:]
    assert len(functions) == 2
    assert all(function.strip() in guide for function in functions)


def test_a_machine_with_more_numa_nodes_than_the_kubelet_aligns_can_have_wishes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = ["--node", "epyc-7742-2s-l3numa", "--topology-policy", "pod-wish"]
    assert run(["admit", *PODS[:2], *node, "-o", "name"]) == YES
    assert capsys.readouterr().out == "pod/counting\npod/trading\npod/pricing\n"


def test_evictions_are_reported_with_the_nodes_policies(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["evict", *PODS[2:], "--available", "memory.available=1Gi"]
    assert run(texts) == YES
    assert capsys.readouterr().out.startswith(WISH)
    run([*texts, "-o", "json"])
    assert json.loads(capsys.readouterr().out)["policiesNotTheKubelets"][0]["name"] == "pod-wish"


def test_an_eviction_policy_of_a_file_can_be_the_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = yaml.safe_load(Path(f"{FOLDER}/node.yaml").read_text())
    profile["spec"]["policies"] = {"eviction": "each-second"}
    node, file = tmp_path / "node.yaml", tmp_path / "each.py"
    node.write_text(yaml.safe_dump(profile))
    file.write_text(
        "from nodewright.policies import eviction_policy\n"
        "each = eviction_policy('each-second')(lambda rooms, due_in_ns: 10**9)\n"
    )
    texts = ["admit", "-f", f"{FOLDER}/pods.yaml", "--node", str(node), "-o", "name"]
    assert run(texts) == ERROR
    assert run([*texts, "--policies", str(file)]) == YES
    assert "eviction policy each-second decides in the kubelet's place" in capsys.readouterr().err
