"""The command `nodewright rehearse`."""

import json
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.state_files import STATE_FILES, change_members, rewrite_state_files

from nodewright.cli.app import run
from nodewright.documents.output.terminal import NO, YES

EXAMPLES = Path(__file__).parents[3] / "examples"
ROOT = EXAMPLES / "worker-3" / "kubelet"
NODE = ["--node", str(EXAMPLES / "rehearsal" / "worker-3.yaml")]
MORE = ["--config", str(EXAMPLES / "rehearsal" / "more-reserved.yaml")]
FEWER = ["--config", str(EXAMPLES / "rehearsal" / "fewer-pods.yaml")]
TRAINER = "9e1f7d5a-0a43-4c0a-b0d5-6e2f1f0f9c22"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of a kubelet's directory, to be broken."""
    return Path(shutil.copytree(ROOT, tmp_path / "kubelet"))


def report(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> Any:
    assert run(["rehearse", *arguments, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def test_with_nothing_changed_all_stay(capsys: pytest.CaptureFixture[str]) -> None:
    result = report(capsys, *NODE, "--kubelet-root", str(ROOT), code=YES)
    assert (result["starts"], result["remedy"], result["leftovers"]) == (True, None, [])
    assert {pod["verdict"] for pod in result["pods"]} == {"kept"}
    trainer = next(pod for pod in result["pods"] if pod["uid"] == TRAINER)
    assert trainer["before"]["containers"][0]["cpus"] == trainer["after"]["containers"][0]["cpus"] == "6-13"


def test_required_steps_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    result = report(capsys, *NODE, "--kubelet-root", str(ROOT), *MORE, code=NO)
    assert [(error["stage"], error["because"]["type"]) for error in result["errors"]] == [
        ("managers", "ReservedMemoryDiffers")
    ]
    remedy = result["remedy"]
    assert remedy["deleteFiles"] == [str(ROOT / "cpu_manager_state"), str(ROOT / "memory_manager_state")]
    assert [each["limits"]["memory"] for each in remedy["reservedMemory"]] == ["2148Mi", "1Gi"]
    assert [pod["verdict"] for pod in remedy["then"]["pods"]] == ["kept", "moved", "moved", "kept"]


def test_the_pods_that_are_lost_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rehearse", *NODE, *FEWER, "-o", "name"]) == NO
    assert capsys.readouterr().out == "pod/web-6d5c8f7b9-l4x8q\n"
    (lost,) = [pod for pod in report(capsys, *NODE, *FEWER, code=NO)["pods"] if pod["verdict"] == "lost"]
    assert (lost["reason"], lost["after"]) == ("OutOfpods", None)


@pytest.fixture
def read_only(root: Path) -> Iterator[Path]:
    """The directory, in which nothing can be written."""
    paths = [root, *root.rglob("*")]
    for path in paths:
        path.chmod(stat.S_IRUSR | (stat.S_IXUSR if path.is_dir() else 0))
    yield root
    for path in paths:
        path.chmod(0o700)


def test_nothing_is_ever_written(read_only: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {
        path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in read_only.rglob("*")
    }
    report(capsys, *NODE, "--kubelet-root", str(read_only), *MORE, code=NO)
    report(capsys, *NODE, "--kubelet-root", str(read_only), code=YES)
    after = {
        path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes()) for path in read_only.rglob("*")
    }
    assert after == before


@pytest.mark.parametrize(
    ("file", "stage", "words"),
    [
        ("cpu_manager_state", "cpu manager", "start cpu manager error: could not restore state from checkpoint: "),
        ("memory_manager_state", "memory manager",
         "start memory manager error: could not restore state from checkpoint: "),
        ("allocated_pods_state", "pod resources", "could not restore state from checkpoint: "),
        ("actuated_pods_state", "pod resources", "could not restore state from checkpoint: "),
    ],
)  # fmt: skip
def test_a_torn_file_is_the_one_to_delete(
    root: Path, file: str, stage: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = root / file
    torn.write_bytes(torn.read_bytes()[:-9])
    result = report(capsys, *NODE, "--kubelet-root", str(root), code=NO)
    (error,) = result["errors"]
    assert error["stage"] == stage
    assert error["error"].startswith(words)
    assert result["remedy"]["deleteFiles"] == [str(torn)]


@pytest.mark.parametrize(
    ("release", "gates", "file", "starts"),
    [
        ("1.32", "{}", "allocated_pods_state", True),
        ("1.32", "{}", "pod_status_manager_state", True),
        ("1.32", "{InPlacePodVerticalScaling: true}", "pod_status_manager_state", False),
        ("1.32", "{InPlacePodVerticalScaling: true}", "actuated_pods_state", True),
        ("1.33", "{}", "allocated_pods_state", False),
        ("1.33", "{}", "pod_status_manager_state", True),
        ("1.34", "{InPlacePodVerticalScaling: false}", "actuated_pods_state", True),
        ("1.36", "{}", "pod_status_manager_state", True),
    ],
)
def test_only_a_file_that_this_kubelet_reads_stops_its_start(
    root: Path, release: str, gates: str, file: str, starts: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each release and gate reads its own files with the resources of pods."""
    (root / "config.yaml").write_text((root / "config.yaml").read_text() + f"featureGates: {gates}\n")
    (root / file).write_bytes(b'{"checksum":1}"x"')
    command = [*NODE, "--kubelet-root", str(root), "--release", release]
    assert report(capsys, *command, code=YES if starts else NO)["starts"] is starts


def test_a_torn_file_of_the_device_manager_is_ignored(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn = root / "device-plugins" / "kubelet_internal_checkpoint"
    torn.write_bytes(b"{")
    assert run(["rehearse", *NODE, "--kubelet-root", str(root)]) == YES
    out = capsys.readouterr().out
    assert "ignored: unexpected end of JSON input\n" in out
    assert "devices may be allocated twice" in out


def test_an_invalid_configuration_is_reported_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: -1\n")
    result = report(capsys, *NODE, "--kubelet-root", str(ROOT), "--config", str(config), code=NO)
    (error,) = result["errors"]
    assert error["error"] == "invalid configuration: maxPods (--max-pods) -1 must not be a negative number"
    assert (error["because"]["path"], result["pods"]) == ("maxPods", [])
    assert run(["rehearse", *NODE, "--config", str(config)]) == NO
    assert capsys.readouterr().out.startswith("the kubelet does not start: invalid configuration: maxPods")


def listed(*pods: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)})


def a_pod(name: str, uid: str, *, cpu: str, **more: Any) -> dict[str, Any]:
    document = {"cpu": cpu, "memory": "1Gi"}
    container = {"name": "app", "image": "app", "resources": {"requests": document, "limits": document}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"nodeName": "worker-3", "containers": [container]},
        **more,
    }


def test_files_of_the_oldest_format_name_containers_by_their_ids(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("memory_manager_state", "allocated_pods_state", "actuated_pods_state"):
        (root / name).unlink()
    (root / "cpu_manager_state").write_text(
        '{"policyName":"static","defaultCpuSet":"0-1,4-31","entries":{"0abc":"2-3"},"checksum":0}'
    )
    pods = tmp_path / "pods.json"
    status = {
        "containerStatuses": [{"name": "app", "containerID": "containerd://0abc", "state": {"running": {}}}]
    }
    pods.write_text(listed(a_pod("old", "u1", cpu="2", status={"phase": "Running", **status})))
    result = report(capsys, *NODE, "--kubelet-root", str(root), "--pods", str(pods), code=YES)
    assert [pod["after"]["containers"][0]["cpus"] for pod in result["pods"]] == ["2-3"]
    pods.write_text(listed(a_pod("old", "u1", cpu="2")))
    result = report(capsys, *NODE, "--kubelet-root", str(root), "--pods", str(pods), code=NO)
    assert "containerID '0abc' not found in initial containers list" in result["errors"][0]["error"]


def test_unknown_pods_leave_the_answer_undecided(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = tmp_path / "alone.json"
    alone.write_text(listed(a_pod("web", "u1", cpu="1")))
    gone = report(capsys, *NODE, "--kubelet-root", str(root), "--pods", str(alone), code=YES)
    assert len(gone["leftovers"]) == 2
    nobody = tmp_path / "node.yaml"
    nobody.write_text((EXAMPLES / "rehearsal" / "worker-3.yaml").read_text().partition("  pods:")[0])
    assert run(["rehearse", "--node", str(nobody), "--kubelet-root", str(root)]) == NO
    assert "not judged: the pods that hold CPUs, memory or devices" in capsys.readouterr().out


def test_pods_of_a_file_take_the_place_of_those_of_the_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = tmp_path / "pods.json"
    pods.write_text(listed(a_pod("web", "u1", cpu="2"), a_pod("db", "u2", cpu="2")))
    result = report(capsys, *NODE, "--pods", str(pods), code=YES)
    assert [pod["name"] for pod in result["pods"]] == ["db", "web"]


def test_a_remedy_of_a_node_without_pods_ends_with_a_whole_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = tmp_path / "pods.json"
    pods.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    assert run(["rehearse", *NODE, "--kubelet-root", str(ROOT), *MORE, "--pods", str(pods)]) == NO
    out = capsys.readouterr().out
    assert "then it starts; no pods are known on the node\n" in out
    assert "of the pods that continue to run:" not in out


DATA_DAMAGED = {"dataChecksum": 1}
OLDER_DAMAGED = {"checksum": 1}


@pytest.mark.parametrize("file", STATE_FILES)
@pytest.mark.parametrize(
    ("release", "members", "starts"),
    [
        ("1.37", {}, True),
        ("1.37", DATA_DAMAGED, False),
        ("1.37", OLDER_DAMAGED, True),
        ("1.36", {}, True),
        ("1.36", DATA_DAMAGED, True),
        ("1.36", OLDER_DAMAGED, False),
        ("1.32", {}, True),
    ],
)
def test_each_release_reads_its_part_of_a_file_of_1_37(
    root: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    release: str,
    members: dict[str, int],
    starts: bool,
) -> None:
    rewrite_state_files(root, "1.37")
    change_members(root / file, **members)
    command = [*NODE, "--kubelet-root", str(root), "--release", release]
    result = report(capsys, *command, code=YES if starts else NO)
    assert result["starts"] is starts
    if starts:
        assert {pod["verdict"] for pod in result["pods"]} == {"kept"}
        return
    assert result["remedy"]["deleteFiles"] == [str(root / file)]
    if release == "1.37":
        version = {"cpu_manager_state": 4}.get(file, 3)
        assert (
            f"could not load v{version} checkpoint: checkpoint is corrupted" in result["errors"][0]["error"]
        )


@pytest.mark.parametrize(("release", "starts"), [("1.37", True), ("1.36", False)])
def test_files_of_1_36_with_pod_level_managers_are_read_without_them_since_1_37(
    root: Path, capsys: pytest.CaptureFixture[str], release: str, starts: bool
) -> None:
    rewrite_state_files(root, "1.36", pods={})
    command = [*NODE, "--kubelet-root", str(root), "--release", release]
    result = report(capsys, *command, code=YES if starts else NO)
    assert result["starts"] is starts
    if not starts:
        assert result["remedy"]["deleteFiles"] == [str(root / name) for name in STATE_FILES]


@pytest.mark.parametrize(("release", "gate"), [("1.37", "true"), ("1.37", "false"), ("1.36", "true")])
def test_cpus_of_the_pod_level_are_lost_where_nothing_reads_them(
    root: Path, capsys: pytest.CaptureFixture[str], release: str, gate: str
) -> None:
    rewrite_state_files(root, "1.37", pods={TRAINER: "6-13"})
    (root / "config.yaml").write_text(
        (root / "config.yaml").read_text() + f"\nfeatureGates: {{PodLevelResourceManagers: {gate}}}\n"
    )
    result = report(capsys, *NODE, "--kubelet-root", str(root), "--release", release, code=YES)
    (trainer,) = [pod for pod in result["pods"] if pod["uid"] == TRAINER]
    is_read = (release, gate) == ("1.37", "true")
    said = f"{root}/cpu_manager_state: what these pods hold as a whole is not read: {TRAINER}"
    assert result["warnings"] == ([] if is_read else [said])
    assert trainer["before"]["podCPUs"] == "6-13"
    assert (trainer["after"].get("podCPUs"), trainer["verdict"]) == (
        ("6-13", "kept") if is_read else (None, "moved")
    )
