"""The command `nodewright cgroups`."""

import json
from pathlib import Path

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES

FOLDER = Path(__file__).parents[3] / "examples" / "cgroups"
NODE = ["--node", str(FOLDER / "node.yaml")]
ASKED = ["cgroups", "-f", str(FOLDER / "pods.yaml"), *NODE]

RUNNING = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: web-1}
spec:
  initContainers:
    - {name: prepare, image: i, resources: {limits: {cpu: 10m, memory: 16Mi}}}
  containers:
    - {name: app, image: i, resources: {limits: {cpu: 500m, memory: 128Mi}}}
    - {name: log, image: i, resources: {limits: {cpu: 10m, memory: 16Mi}}}
status:
  phase: Running
  containerStatuses:
    - {name: app, image: i, imageID: i, ready: true, restartCount: 0, containerID: "containerd://aaa1"}
  initContainerStatuses:
    - {name: prepare, image: i, imageID: i, ready: true, restartCount: 0, containerID: "containerd://bbb2"}
"""


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def value(path: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """The value of the one file whose path ends so."""
    assert run([*ASKED, "-o", "name", *more]) == YES
    (text,) = (line for line in lines(capsys) if line.partition(" = ")[0].endswith(path))
    return text.partition(" = ")[2]


# Path of a file, its value; in version 1, with names of cgroupfs.
WORKED = """
    pod0001-request/<app>/cpu.shares               256
    pod0002-limits/<app>/cpu.shares                512
    pod0003-nothing/<app>/cpu.shares               2
    pod0002-limits/<app>/cpu.cfs_quota_us          50000
    pod0002-limits/<app>/cpu.cfs_period_us         100000
    pod0002-limits/<app>/memory.limit_in_bytes     134217728
    pod0002-limits/memory.limit_in_bytes           134217728
"""


@pytest.mark.parametrize("line", WORKED.strip().splitlines())
def test_worked_cases_of_version_1(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, expected = line.split()
    assert value(path, capsys, "--cgroup-version", "1", "--cgroup-driver", "cgroupfs") == expected


def test_names_values_and_reasons_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ASKED) == YES
    out = lines(capsys)
    assert "  /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0001_request.slice" in out
    text = "\n".join(out)
    assert "cpu.weight        10      the pod requests cpu 250m: 256 shares" in text
    assert "cpuset.cpus        1-2          exclusive CPUs" in text
    assert "memory.oom.group   1            singleProcessOOMKill: false" in text, (
        "so it is without a word of it"
    )
    assert "no memory limit on the pod: app has no limit" in text
    assert ".rsvd." not in text


def test_weights_of_older_runtimes(capsys: pytest.CaptureFixture[str]) -> None:
    path = "kubepods-burstable-pod0001_request.slice/<app>/cpu.weight"
    assert value(path, capsys) == "35"
    assert value(path, capsys, "--linear-weights") == "10"


def test_json_and_yaml_are_equal_and_have_the_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASKED, "-o", "json"]) == YES
    as_json = json.loads(capsys.readouterr().out)
    assert run([*ASKED, "-o", "yaml"]) == YES
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert (as_json["kind"], as_json["cgroupVersion"], as_json["cgroupDriver"]) == (
        "CgroupReport",
        2,
        "systemd",
    )
    (group,) = (
        group for group in as_json["groups"] if group["level"] == "pod" and group["pod"] == "shop/request"
    )
    assert group["files"][0] == {
        "path": f"{group['path']}/cpu.weight",
        "file": "cpu.weight",
        "value": "10",
        "why": "the pod requests cpu 250m: 256 shares",
        "because": {"type": "CPUShares", "shares": 256, "milliCpu": 250, "origin": "podRequests"},
    }
    assert [each["because"]["resource"] for each in group["notSet"]] == ["cpu", "memory"]


def test_a_pod_that_is_refused_has_no_cgroups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "big.yaml"
    path.write_text(RUNNING.replace("500m", "50"))
    assert run(["cgroups", "-f", str(path), *NODE]) == NO
    assert lines(capsys)[-1].startswith("pod shop/web is refused by the node and has no cgroups: ")
    assert run(["cgroups", "-f", str(path), *NODE, "-o", "json"]) == NO
    (refused,) = json.loads(capsys.readouterr().out)["refused"]
    assert refused["name"] == "web"
    assert refused["reason"]


# ---------------------------------------------------------------- comparing with a tree


@pytest.fixture
def pods(tmp_path: Path) -> str:
    path = tmp_path / "running.yaml"
    path.write_text(RUNNING)
    return str(path)


@pytest.fixture
def tree(tmp_path: Path, pods: str, capsys: pytest.CaptureFixture[str]) -> Path:
    """A tree in which everything is as it should be."""
    root = tmp_path / "tree"
    run(["cgroups", "-f", pods, *NODE, "-o", "name"])
    for line in lines(capsys):
        path, _, text = line.partition(" = ")
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (root / "cgroup.controllers").write_text("cpu memory\n")
    return root


def compare(pods: str, tree: Path, *more: str) -> int:
    return run(["cgroups", "-f", pods, *NODE, "--diff", str(tree), *more])


POD = "kubepods.slice/kubepods-podweb_1.slice"


def test_a_tree_that_is_as_it_should_be(pods: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(pods, tree) == YES
    out = lines(capsys)
    assert out[0] == "container log of shop/web is not compared: its cgroup is unknown"
    assert out[-1].startswith("differing: 0, matching: ")
    # The init container has ended: its group is not missed.
    ended = tree / POD / "cri-containerd-bbb2.scope"
    for file in ended.iterdir():
        file.unlink()
    ended.rmdir()
    assert compare(pods, tree) == YES


def test_every_file_that_differs_is_listed(pods: str, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    container = tree / POD / "cri-containerd-aaa1.scope"
    (tree / POD / "cpu.weight").write_text("39\n")
    (container / "memory.max").write_text("max\n")
    (container / "memory.high").write_text("1000\n")
    (container / "cpuset.cpus").write_text("\n")
    (tree / "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podgone.slice").mkdir()
    assert compare(pods, tree) == NO
    rows = [line.split("   ") for line in lines(capsys) if line.startswith("/")]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        [f"/{POD}/cpu.weight", "20", "39", "the pod requests cpu 510m: 522 shares"],
        [
            f"/{POD}/cri-containerd-aaa1.scope/cpuset.cpus",
            "0-7",
            '""',
            "the current shared pool",
        ],
        [f"/{POD}/cri-containerd-aaa1.scope/memory.max", "134217728", "max", "limits.memory 128Mi"],
        [
            f"/{POD}/cri-containerd-aaa1.scope/memory.high",
            "max",
            "1000",
            "the kubelet does not write this file",
        ],
        [
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podgone.slice",
            "-",
            "present",
            "the cgroup of a pod that is not in the input",
        ],
    ]
    assert compare(pods, tree, "-o", "name") == NO
    assert lines(capsys)[0] == f"/{POD}/cpu.weight"
    assert compare(pods, tree, "-o", "json") == NO
    document = json.loads(capsys.readouterr().out)
    assert document["differences"][-1]["path"].endswith("kubepods-burstable-podgone.slice")
    assert document["differences"][0] == {
        "path": f"/{POD}/cpu.weight",
        "file": "cpu.weight",
        "expected": "20",
        "found": "39",
        "why": "the pod requests cpu 510m: 522 shares",
        "pod": "shop/web",
    }
    assert document["notCompared"] == [{"pod": "shop/web", "container": "log"}]


def test_a_group_that_is_not_there_is_one_difference(
    pods: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / POD / "cri-containerd-aaa1.scope").rename(tree / "elsewhere")
    assert compare(pods, tree) == NO
    (row,) = (line for line in lines(capsys) if line.startswith("/"))
    assert row.split()[:3] == [f"/{POD}/cri-containerd-aaa1.scope", "present", "-"]


def test_the_version_is_that_of_the_tree(
    tmp_path: Path, pods: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first" / "memory").mkdir(parents=True)
    assert compare(pods, tmp_path / "first", "-o", "json") == NO
    assert json.loads(capsys.readouterr().out)["cgroupVersion"] == 1


def test_a_group_of_daemons_that_is_bounded(
    tmp_path: Path, pods: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "daemons.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "systemReservedCgroup: /daemons\nsystemReserved: {cpu: 500m}\n"
        "enforceNodeAllocatable: [pods, system-reserved]\n"
    )
    assert run(["cgroups", "-f", pods, *NODE, "--kubelet-config", str(config)]) == YES
    assert lines(capsys)[:4] == [
        "daemons",
        "  /daemons",
        "  FILE              VALUE   REASON",
        "  cpu.weight        20      systemReserved: cpu 500m: 512 shares",
    ]


def test_without_groups_for_pods_nothing_is_looked_for_below_classes(
    tmp_path: Path, pods: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "flat.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n"
    )
    (tree / "kubepods/podgone").mkdir(parents=True)
    assert compare(pods, tree, "--kubelet-config", str(config)) == YES
    assert "container app of shop/web is not compared: " in capsys.readouterr().out


def test_a_directory_without_cgroups_is_an_error(
    tmp_path: Path, pods: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(pods, tmp_path) == ERROR
    assert "not a cgroup hierarchy" in capsys.readouterr().err


def test_warnings_are_errors_with_strict(tmp_path: Path) -> None:
    config = tmp_path / "odd.yaml"
    config.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\noddField: 1\n")
    assert run([*ASKED, "--kubelet-config", str(config), "--strict"]) == ERROR
