"""`--shape` wherever a command takes `--node`, and a shape as a NodeProfile to edit."""

from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import COMMANDS, app, run
from nodewright.documents.output.terminal import USAGE, YES

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a:1}]}\n"


def options_of(command: object) -> set[str]:
    return {name for parameter in getattr(command, "params", ()) for name in parameter.opts}


def test_each_command_with_a_node_takes_a_shape() -> None:
    context = app.make_context("nodewright", ["help"], resilient_parsing=True)
    commands = [app.get_command(context, name) for name in COMMANDS]
    commands += [each for command in commands for each in getattr(command, "commands", {}).values()]
    missing = {
        command.name
        for command in commands
        if command and "--node" in options_of(command) and not options_of(command) & {"--shape", "--nodes"}
    }
    assert missing == {"agent"}  # its --node is of a dry run, and takes a shape


@pytest.mark.parametrize(
    "command",
    [
        ["node", "show"],
        ["node", "export"],
        ["rehearse"],
        ["upgrade"],
        ["requests", "POD"],
        ["evict", "-f", "POD", "--available", "50Mi"],
    ],
)
def test_a_shape_is_the_node(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    words = [word.replace("POD", str(tmp_path / "pod.yaml")) for word in command]
    run([*words, "--shape", "1x2x4x2"])
    assert "No such option" not in capsys.readouterr().err


def test_a_captured_shape_is_a_profile_that_every_command_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "capture", "--shape", "1x2x8x2", "--memory", "64Gi"]) == YES
    text = capsys.readouterr().out
    machine = yaml.safe_load(text)["spec"]["machineInfo"]
    assert (machine["num_cores"], machine["memory_capacity"]) == (32, 64 << 30)
    assert "notJudged" not in yaml.safe_load(text)["spec"]
    (tmp_path / "node.yaml").write_text(text)
    assert run(["node", "show", "--node", str(tmp_path / "node.yaml")]) == YES


def test_lint_takes_a_shape_as_its_node(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(POD)
    assert run(["lint", "-f", str(tmp_path / "pod.yaml"), "--node", "1x2x4x2"]) == YES

    assert run(["lint", "-f", str(tmp_path / "pod.yaml"), "--shape", "1x2x4x2"]) == YES


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["--memory", "4Gi"], "--memory requires --shape"),
        (["--shape", "1x1x2x1", "--node", "uma-4c"], "--shape and --node exclude each other"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "show", *words]) == USAGE
    assert rule in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            ["node", "show", "--cpus", "4"],
            "Error: No such option '--cpus'. `nodewright node show --help-all` lists",
        ),
        (["rehearse", "--hel"], "Did you mean --help?"),
        (["admit", "--config", "x"], "Did you mean --kubeconfig, --kubelet-config?"),
        (["admit", "--shapes", "x"], "Did you mean --shape?"),
    ],
)
def test_an_unknown_option_names_one_that_may_be_meant(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == USAGE
    assert hint in capsys.readouterr().err


def test_a_start_that_fails_with_assumed_parts_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A gap in a copy is no fact: the answer does not blame the kubelet alone."""
    assert run(["node", "capture", "--shape", "1x2x4x1", "-o", "yaml"]) == YES
    profile = yaml.safe_load(capsys.readouterr().out)
    profile["spec"]["kubeletConfiguration"] = {"memoryManagerPolicy": "Static"}
    profile["spec"]["notJudged"] = [{"part": "numaNodes", "because": "node1/meminfo is missing"}]
    (tmp_path / "node.yaml").write_text(yaml.safe_dump(profile))
    (tmp_path / "pod.yaml").write_text(POD)
    run(["admit", str(tmp_path / "pod.yaml"), "--node", str(tmp_path / "node.yaml")])
    err = capsys.readouterr().err
    assert "the kubelet does not start" in err
    assert "as it is not known: numaNodes: node1/meminfo is missing" in err


@pytest.mark.parametrize(
    ("node", "pod", "is_said"),
    [
        ("1x2x4x1", "{limits: {cpu: 2, memory: 1Gi}}", True),
        ("1x1x4x1", "{limits: {cpu: 2, memory: 1Gi}}", False),  # one NUMA node: no policy decides
        ("1x2x4x1", "{requests: {cpu: 2, memory: 1Gi}}", False),
        ("dgx-h100", "{limits: {nvidia.com/gpu: 1}}", True),
    ],
)
def test_default_policies_are_named_where_they_decide(
    node: str, pod: str, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pod.yaml").write_text(POD.replace("image: a:1", f"image: a:1, resources: {pod}"))
    for command in ("admit", "explain"):
        run([command, str(tmp_path / "pod.yaml"), "--node", node])
        assert ("note: topology manager policy none" in capsys.readouterr().err) is is_said
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    )
    run(
        [
            "admit",
            str(tmp_path / "pod.yaml"),
            "--node",
            node,
            "--kubelet-config",
            str(tmp_path / "kubelet.yaml"),
        ]
    )
    assert "topology manager policy none" not in capsys.readouterr().err


@pytest.mark.parametrize(("root_fs", "is_said"), [("0", True), ("10Gi", False)])
def test_storage_that_a_profile_does_not_have_is_said(
    root_fs: str, is_said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeProfile\n"
    machine = "machineInfo: {num_cores: 4, memory_capacity: 8Gi}"
    (tmp_path / "node.yaml").write_text(f"{head}spec: {{rootFsCapacity: {root_fs}, {machine}}}\n")
    resources = "resources: {requests: {ephemeral-storage: 1Gi}}"
    (tmp_path / "pod.yaml").write_text(POD.replace("image: a:1", f"image: a:1, {resources}"))
    run(["admit", str(tmp_path / "pod.yaml"), "--node", str(tmp_path / "node.yaml")])
    assert ("note: the node has no ephemeral-storage" in capsys.readouterr().err) is is_said


def test_memory_that_is_not_known_is_no_fault_of_the_kubelet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lscpu.json"
    path.write_text('{"cpus": [{"cpu": 0, "node": 0, "socket": 0, "core": 0, "online": true}]}', "utf-8")
    assert run(["node", "capture", "--lscpu", str(path)]) == 0
    path.write_text(capsys.readouterr().out, "utf-8")
    assert run(["admit", "--node", str(path), "-f", "examples/agent/web.yaml"]) == 1
    message = capsys.readouterr().err
    assert (
        "spec.machineInfo.memory_capacity: Invalid value: 0: the memory of the machine is not known"
        in message
    )
    assert "kubelet does not start" not in message
