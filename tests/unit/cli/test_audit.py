"""`nodewright audit`: the sources of a node side by side, whichever of them can be read."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_servers import serve_pod_resources, serve_raw_answers
from tests.support.state_files import STATE_FILES, change_data, change_members, rewrite_state_files

from nodewright.cli import audit as audit_command
from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, YES
from nodewright.documents.profiles.node_profiles import load_profile
from nodewright.predict.node import Node
from tools.source import ROOT

Captured = pytest.CaptureFixture[str]
EXAMPLE, DRIFT = ROOT / "examples" / "worker-3", ROOT / "examples" / "drift" / "cgroups"
NODE = ("--node", "2s-2n-8c-smt2-adjacent")
PODS = ("--pods", f"{EXAMPLE}/pods.json", "--node-name", "worker-3")
FORWARDER = "pod5b0a3c53-52c4-4c4e-9f83-9a6d0d1f2b10"


@pytest.fixture
def kubelet(tmp_path: Path) -> Path:
    """A copy of a kubelet's directory."""
    return Path(shutil.copytree(EXAMPLE / "kubelet", tmp_path / "kubelet"))


def audited(capsys: Captured, root: Path, *more: str, code: int) -> tuple[dict[str, Any], str]:
    texts = ["audit", "--kubelet-root", str(root), *NODE, "-o", "json", *more]
    assert run(texts) == code, capsys.readouterr()
    output = capsys.readouterr()
    return json.loads(output.out), output.err


def finding_keys(document: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {(finding["kind"], finding["pod"], finding["field"]) for finding in document["findings"]}


def missed(document: dict[str, Any]) -> dict[str, str]:
    return {each.get("source", each["reason"]): each.get("because", "") for each in document["notCompared"]}


def test_files_that_agree_are_no_finding(capsys: Captured, kubelet: Path) -> None:
    document, said = audited(capsys, kubelet, *PODS, "--cgroups", "none", code=YES)
    assert (document["findings"], document["compared"] > 10, said) == ([], True, "")
    assert set(missed(document)) == {"podResources", "cgroups"}


def test_differences_from_the_kernel_are_found(capsys: Captured, kubelet: Path) -> None:
    document, _ = audited(capsys, kubelet, *PODS, "--cgroups", str(DRIFT), code=NO)
    assert finding_keys(document) == {
        ("cpus", "telco/forwarder-0", "cpus"),
        ("file", "shop/web-6d5c8f7b9-l4x8q", "memory.max"),
        ("group", "f00dfeed-0000-4000-8000-000000000000", "cgroup"),
    }
    (cpus,) = [finding for finding in document["findings"] if finding["kind"] == "cpus"]
    assert cpus["said"] == {"state": "2-5", "cgroups": "2-9", "pods": 4}
    assert (cpus["odd"], cpus["means"]) == ("cgroups", "it runs on other CPUs than were allocated")


def test_differences_from_the_socket_are_found(capsys: Captured, kubelet: Path, tmp_path: Path) -> None:
    """The socket tells of the node as it was captured from its cluster, where devices have other names."""
    socket = tmp_path / "s"
    with serve_pod_resources(
        socket, Node.from_profile(load_profile(str(EXAMPLE / "from-the-cluster.yaml"))).state
    ):
        more = ("--pod-resources", str(socket), "--cgroups", "none")
        document, _ = audited(capsys, kubelet, *PODS, *more, code=NO)
        assert {finding["kind"] for finding in document["findings"]} == {"devices"}
        document, said = audited(capsys, kubelet, *more, code=YES)
        assert "namesUnknown" in missed(document)
        assert said == ""


def test_one_source_that_is_down_hides_none_of_the_others(
    capsys: Captured, kubelet: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "s"
    (kubelet / "memory_manager_state").write_bytes(b'{"policyName":"St')
    with serve_raw_answers(socket, List=b"\xff\xff"):
        more = ("--pod-resources", str(socket), "--cgroups", str(DRIFT))
        document, _ = audited(capsys, kubelet, *PODS, *more, code=NO)
    assert ("cpus", "telco/forwarder-0", "cpus") in finding_keys(document)
    assert "no answer of List" in missed(document)["podResources"]
    assert "memory_manager_state" in missed(document)["state"]
    (kubelet / "cpu_manager_state").unlink()
    document, _ = audited(capsys, kubelet, *PODS, "--cgroups", str(DRIFT), code=NO)
    assert ("file", "shop/web-6d5c8f7b9-l4x8q", "memory.max") in finding_keys(document)


def test_a_specified_source_that_does_not_exist_is_no_success(
    capsys: Captured, kubelet: Path, tmp_path: Path
) -> None:
    for more, source, expected in (
        (("--pod-resources", str(tmp_path / "none")), "podResources", "no such socket"),
        (("--cgroups", str(tmp_path)), "cgroups", "not a cgroup hierarchy"),
        (
            ("--cgroups", str(DRIFT), "--cgroup-root", "/elsewhere"),
            "cgroups",
            "specify their parent with --cgroup-root",
        ),
    ):
        cgroups = () if "--cgroups" in more else ("--cgroups", "none")
        document, _ = audited(capsys, kubelet, *PODS, *more, *cgroups, code=ERROR)
        assert document["findings"] == []
        assert expected in missed(document)[source]


def test_pods_that_are_torn_leave_what_speaks_of_the_node(
    capsys: Captured, kubelet: Path, tmp_path: Path
) -> None:
    (tmp_path / "pods.json").write_text('{"kind":"PodList","apiV', "utf-8")
    more = ("--pods", str(tmp_path / "pods.json"), "--cgroups", "none")
    document, _ = audited(capsys, kubelet, *more, code=ERROR)
    assert "pods.json" in missed(document)["pods"]
    assert document["compared"] > 0


def test_with_one_source_alone_there_is_nothing_to_compare(capsys: Captured, tmp_path: Path) -> None:
    assert run(["audit", "--kubelet-root", str(tmp_path / "none"), *NODE, "--cgroups", "none"]) == ERROR
    err = capsys.readouterr().err
    assert "no such directory" in err
    assert "nothing to compare" in err


def test_holdings_of_pods_that_are_gone_go_by_themselves(
    capsys: Captured, kubelet: Path, tmp_path: Path
) -> None:
    pods = json.loads((EXAMPLE / "pods.json").read_text("utf-8"))
    pods["items"] = [each for each in pods["items"] if each["metadata"]["name"] != "forwarder-0"]
    (tmp_path / "pods.json").write_text(json.dumps(pods), "utf-8")
    more = ("--pods", str(tmp_path / "pods.json"), "--node-name", "worker-3", "--cgroups", "none")
    document, _ = audited(capsys, kubelet, *more, code=YES)
    assert {each["field"] for each in document["passing"]} == {"cpus", "memory", "example.com/nic"}


def test_it_finds_the_directory_of_this_machine_by_itself(
    capsys: Captured, kubelet: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(audit_command, "AGENT_ROOT", tmp_path / "none")
    monkeypatch.setattr(audit_command, "DEFAULT_ROOT_DIRECTORY", kubelet)
    assert run(["audit", *NODE, "--cgroups", "none"]) == YES
    printed = capsys.readouterr()
    assert "0 facts disagree of 1 compared" in printed.out
    assert "not compared: pods: no source specified (--pods, --socket)" in printed.err


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (("besteffort",), "/kubepods/besteffort"),
        (("burstable",), "/kubepods/burstable"),
        (("burstable/*",), "/kubepods/burstable/pod"),
        (("pod*",), "/kubepods/pod9e1f7d5a"),
    ],
)
def test_cgroups_that_a_copy_lacks_are_a_gap_and_no_discrepancy(
    gone: tuple[str, ...], named: str, kubelet: Path, tmp_path: Path, capsys: Captured
) -> None:
    copy = shutil.copytree(DRIFT, tmp_path / "copy")
    for pattern in gone:
        for directory in (copy / "kubepods").glob(pattern):
            if directory.is_dir():
                shutil.rmtree(directory)
    document, _ = audited(capsys, kubelet, *PODS, "--cgroups", str(copy), code=NO)
    missing = [row for row in document["findings"] if row["said"].get("cgroups") == "missing"]
    assert missing == []
    (gap,) = (gap for gap in document["notCompared"] if gap["reason"] == "notCopied")
    assert any(name.startswith(named) for name in gap["names"])
    assert run(["audit", "--kubelet-root", str(kubelet), *NODE, *PODS, "--cgroups", str(copy)]) == NO
    assert "not compared: cgroups that the copy does not have: /kubepods/" in capsys.readouterr().err


def test_a_cgroup_that_is_missing_beside_others_is_a_discrepancy(
    kubelet: Path, tmp_path: Path, capsys: Captured
) -> None:
    copy = shutil.copytree(DRIFT, tmp_path / "copy")
    shutil.rmtree(copy / "kubepods" / FORWARDER)
    document, _ = audited(capsys, kubelet, *PODS, "--cgroups", str(copy), code=NO)
    assert [row["said"].get("cgroups") for row in document["findings"]].count("missing") == 1


RELEASES = {"1.37": NODE, "1.36": ("--node", f"{ROOT}/examples/rehearsal/worker-3.yaml")}
"""A node of each of the releases; without pods."""


def parts_found(capsys: Captured, root: Path, release: str, file: str) -> tuple[dict[str, Any] | None, str]:
    """What is said about the parts of the file, and why the file is not compared."""
    texts = [
        "audit",
        "--kubelet-root",
        str(root),
        *RELEASES[release],
        *PODS,
        "--cgroups",
        "none",
        "-o",
        "json",
    ]
    code = run(texts)
    document = json.loads(capsys.readouterr().out)
    found = [each for each in document["findings"] if each["kind"] == "parts"]
    assert {each["field"] for each in found} <= {file}
    assert code == (NO if found else YES)
    return (found[0]["said"] if found else None), missed(document).get("state", "")


@pytest.mark.parametrize("file", STATE_FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_the_parts_of_a_file_of_1_37_are_compared(
    capsys: Captured, kubelet: Path, release: str, file: str
) -> None:
    rewrite_state_files(kubelet, "1.37")
    assert parts_found(capsys, kubelet, release, file) == (None, "")
    change_data(kubelet / file, entries={})
    said, _ = parts_found(capsys, kubelet, release, file)
    assert said is not None
    assert said["data"] == "-"
    assert "assignments.9e1f7d5a-0a43-4c0a-b0d5-6e2f1f0f9c22.train" in said["olderMembers"]


@pytest.mark.parametrize("file", STATE_FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_wrong_checksum_of_data_is_found_whatever_the_kubelet_reads(
    capsys: Captured, kubelet: Path, release: str, file: str
) -> None:
    rewrite_state_files(kubelet, "1.37")
    change_members(kubelet / file, dataChecksum=1)
    said, not_read = parts_found(capsys, kubelet, release, file)
    assert said is not None
    assert "the dataChecksum is 1, that of the content is" in said["data"]
    assert said["olderMembers"] == "readable"
    assert ("the dataChecksum is 1" in not_read) == (release == "1.37")


@pytest.mark.parametrize("file", STATE_FILES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_damaged_older_part_is_found_whatever_the_kubelet_reads(
    capsys: Captured, kubelet: Path, release: str, file: str
) -> None:
    rewrite_state_files(kubelet, "1.37")
    change_members(kubelet / file, checksum=1)
    said, not_read = parts_found(capsys, kubelet, release, file)
    assert said is not None
    assert said["data"] == "readable"
    assert "the checksum is 1, that of the content is" in said["olderMembers"]
    assert ("the checksum is 1" in not_read) == (release == "1.36")


@pytest.mark.parametrize("release", RELEASES)
def test_cpus_of_the_pod_level_are_found_where_the_kubelet_does_not_read_them(
    capsys: Captured, kubelet: Path, release: str
) -> None:
    rewrite_state_files(kubelet, "1.37", pods={"9e1f7d5a-0a43-4c0a-b0d5-6e2f1f0f9c22": "6-13"})
    said, _ = parts_found(capsys, kubelet, release, "cpu_manager_state")
    expected = {"data": "pods.9e1f7d5a-0a43-4c0a-b0d5-6e2f1f0f9c22 6-13", "olderMembers": "-"}
    assert said == (expected if release == "1.36" else None)
