"""The command `nodewright upgrade`."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.support.json_schema import violations
from tests.support.state_files import STATE_FILES, change_members, rewrite_state_files

from nodewright.cli.about import schema_of
from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKER = str(EXAMPLES / "upgrade" / "worker-7.yaml")
EDGE = str(EXAMPLES / "upgrade" / "nodes")
MANIFESTS = str(EXAMPLES / "upgrade" / "manifests.yaml")
DIRECTORY = EXAMPLES / "worker-3" / "kubelet"
WITH_DIRECTORY = str(EXAMPLES / "rehearsal" / "worker-3.yaml")


def report(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> Any:
    assert run(["upgrade", *arguments, "-o", "json"]) == code
    return json.loads(capsys.readouterr().out)


def values(group: Any, severity: str) -> set[tuple[str, str, str]]:
    return {
        (finding["aspect"], value.get("pod", ""), value.get("detail", ""))
        for finding in group["findings"]
        if finding["severity"] == severity
        for value in finding["values"]
    }


@pytest.mark.slow
def test_the_default_is_from_the_nodes_release_to_the_newest(capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = report(capsys, "--node", WORKER, "-f", MANIFESTS, code=NO)["groups"]
    assert (group["nodes"], group["from"], group["to"]) == (["worker-7"], "1.33", "1.37")
    assert (group["isDowngrade"], group["outcome"]) == (False, "lost")
    assert values(group, "lost") == {
        ("start of the kubelet", "", "featureGates[MemoryManager]"),
        ("CPUs", "telco/probe", "probe"),
    }
    assert ("QoS class", "batch/report", "") in values(group, "changed")
    assert ("eviction rank", "shop/cache-0", "") in values(group, "changed")


@pytest.mark.slow
def test_the_report_satisfies_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    document = report(capsys, "--node", WORKER, "-f", MANIFESTS, code=NO)
    assert violations(schema_of("UpgradeReport"), document) == []


@pytest.mark.slow
def test_findings_are_ordered_from_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = report(capsys, "--node", WORKER, "-f", MANIFESTS, code=NO)["groups"]
    order = ["lost", "way back", "changed", "note"]
    severities = [order.index(finding["severity"]) for finding in group["findings"]]
    assert severities == sorted(severities)


def test_no_change_is_reported_with_what_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["upgrade", "--node", WORKER, "--to", "v1.33.2"]) == YES
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "worker-7: upgrade from 1.33 to 1.33: no change"
    assert lines[-1].startswith("compared values: ")
    (group,) = report(capsys, "--node", WORKER, "--to", "1.33", code=YES)["groups"]
    assert (group["outcome"], group["findings"]) == ("noChange", [])


def test_a_downgrade_is_named_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["upgrade", "--node", WITH_DIRECTORY, "--from", "1.36", "--to", "1.33"]) == YES
    assert capsys.readouterr().out.startswith("worker-3: downgrade from 1.36 to 1.33: ")


@pytest.mark.parametrize("option", ["--from", "--to"])
@pytest.mark.parametrize("text", ["1.38", "new"])
def test_an_unknown_release_is_refused_with_those_there_are(
    option: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["upgrade", "--node", WORKER, option, text]) == ERROR
    error = capsys.readouterr().err
    assert error.startswith(f"error: {option}: ")
    assert "known are 1.32, 1.33, 1.34, 1.35, 1.36" in error


@pytest.mark.slow
def test_nodes_with_the_same_findings_are_one_group_and_names_are_those_that_lose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    groups = report(capsys, "--nodes", EDGE, code=NO)["groups"]
    assert [group["nodes"] for group in groups] == [["edge-1", "edge-2"], ["edge-3"]]
    assert run(["upgrade", "--nodes", EDGE, "-o", "name"]) == NO
    assert capsys.readouterr().out == "node/edge-1\nnode/edge-2\n"


def test_nodes_and_pods_of_a_cluster_are_compared_with_the_pods_that_are_bound_to_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "nodeInfo": {"kubeletVersion": "v1.33.4"},
            },
        }
        for name in ("a", "b")
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"},
        "spec": {
            "nodeName": "a",
            "initContainers": [
                {
                    "name": "mesh",
                    "image": "mesh",
                    "restartPolicy": "Always",
                    "resources": {"requests": {"memory": "1Gi"}},
                }
            ],
            "containers": [{"name": "web", "image": "web", "resources": {"requests": {"memory": "1Gi"}}}],
        },
        "status": {"phase": "Running"},
    }
    dump = tmp_path / "cluster.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, pod]}))
    groups = report(capsys, "--nodes", str(dump), code=YES)["groups"]
    assert {tuple(group["nodes"]): group["from"] for group in groups} == {("a",): "1.33", ("b",): "1.33"}
    first = next(group for group in groups if group["nodes"] == ["a"])
    reclaimable = ("request that eviction and preemption count", "shop/web", "memory")
    assert reclaimable in values(first, "changed")


def test_flags_of_kubeadm_and_state_files_are_read_from_the_kubelets_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(DIRECTORY, tmp_path / "kubelet")
    (root / "kubeadm-flags.env").write_text(
        'KUBELET_KUBEADM_ARGS="--node-ip=10.0.0.7 --pod-infra-container-image=pause:3.10"\n'
    )
    query = ["--node", WITH_DIRECTORY, "--from", "1.34", "--kubelet-root"]
    (group,) = report(capsys, *query, str(root), code=NO)["groups"]
    assert values(group, "lost") == {("start of the kubelet", "", "--pod-infra-container-image")}
    assert group["compared"]["state files"] == 3
    (group,) = report(capsys, *query, str(DIRECTORY), code=YES)["groups"]
    assert values(group, "lost") == set()


def test_files_that_only_the_next_release_reads_are_read_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(DIRECTORY, tmp_path / "kubelet")
    for name in ("allocated_pods_state", "actuated_pods_state"):
        (root / name).write_bytes(b"{")
    query = ["--node", WITH_DIRECTORY, "--from", "1.32", "--kubelet-root", str(root)]
    (group,) = report(capsys, *query, "--to", "1.34", code=NO)["groups"]
    assert values(group, "lost") == {
        ("start of the kubelet", "", f"pod resources {name}")
        for name in ("allocated_pods_state", "actuated_pods_state")
    }


def test_options_of_one_node_are_not_for_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["upgrade", "--nodes", EDGE, "--node", WORKER]) == USAGE
    assert "--node is for one node, not for --nodes" in capsys.readouterr().err


def test_a_release_without_rules_warns_and_is_an_error_under_strict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.yaml"
    text = (EXAMPLES / "upgrade" / "nodes" / "edge-3.yaml").read_text()
    old.write_text(text.replace("v1.34.7", "v1.31.2"))
    (group,) = report(capsys, "--node", str(old), code=YES)["groups"]
    assert group["from"] == "1.32"
    assert run(["upgrade", "--node", str(old), "--strict"]) == ERROR
    assert "answers are those of 1.32" in capsys.readouterr().err


@pytest.mark.slow
def test_the_text_names_the_rule_its_source_and_the_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    query = ["upgrade", "--node", WORKER, "-f", MANIFESTS]
    assert run(query) == NO
    out = capsys.readouterr().out
    assert "changed in 1.34; PR 132277" in out
    assert "  do: remove `featureGates.MemoryManager`" in out
    assert "more values: -o wide" in out
    assert run([*query, "-o", "wide"]) == NO
    assert "more values" not in capsys.readouterr().out


def test_pods_without_uids_are_compared_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "node.yaml"
    profile.write_text(re.sub(", uid: [0-9a-f-]+", "", Path(WORKER).read_text()))
    (group,) = report(capsys, "--node", str(profile), code=NO)["groups"]
    assert ("QoS class", "batch/report", "") in values(group, "changed")


def test_a_table_of_nodes_is_read_and_a_file_without_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = str(EXAMPLES / "fleet" / "nodes.csv")
    (group,) = report(capsys, "--nodes", table, "--from", "1.33", code=YES)["groups"]
    assert (group["from"], group["outcome"]) == ("1.33", "noChange")
    items = tmp_path / "list.yaml"
    items.write_text("- a\n- b\n")
    assert run(["upgrade", "--nodes", str(items)]) == ERROR
    assert capsys.readouterr().err.startswith("error: ")


def test_notes_alone_are_no_change_of_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["upgrade", "--node", "vm-4", "--from", "1.33", "--to", "1.36"]) == YES
    out = capsys.readouterr().out
    assert out.startswith("vm-4: upgrade from 1.33 to 1.36: no value changes; 3 notes\n")
    assert " of a return to the old release" in out.splitlines()[-1]


@pytest.mark.parametrize("file", STATE_FILES)
@pytest.mark.parametrize(
    ("members", "way", "is_lost"),
    [
        ({}, ("1.36", "1.37"), False),
        ({}, ("1.37", "1.36"), False),
        ({"dataChecksum": 1}, ("1.36", "1.37"), True),
        ({"dataChecksum": 1}, ("1.37", "1.36"), False),
        ({"checksum": 1}, ("1.37", "1.36"), True),
        ({"checksum": 1}, ("1.36", "1.37"), False),
    ],
)
def test_each_release_needs_its_part_of_a_state_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    members: dict[str, int],
    way: tuple[str, str],
    is_lost: bool,
) -> None:
    root = shutil.copytree(DIRECTORY, tmp_path / "kubelet")
    rewrite_state_files(root, "1.37")
    change_members(root / file, **members)
    query = ["--node", WITH_DIRECTORY, "--from", way[0], "--to", way[1], "--kubelet-root", str(root)]
    (group,) = report(capsys, *query, code=NO if is_lost else YES)["groups"]
    found = {each for each in values(group, "lost") if each[0] in ("start of the kubelet", "state file")}
    stage = file.replace("_state", "").replace("_", " ")
    assert found == (
        {("start of the kubelet", "", f"{stage} {file}"), ("state file", "", file)} if is_lost else set()
    )


def test_the_oldest_format_of_the_cpu_manager_stops_1_37(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = shutil.copytree(DIRECTORY, tmp_path / "kubelet")
    (root / "cpu_manager_state").write_text(
        '{"policyName":"static","defaultCpuSet":"0-31","entries":{"id":"2"},"checksum":0}'
    )
    query = ["--node", WITH_DIRECTORY, "--from", "1.36", "--to", "1.37", "--kubelet-root", str(root)]
    assert run(["upgrade", *query, "-o", "json"]) in (YES, NO)
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    errors = [
        value["after"]
        for finding in group["findings"]
        if finding["aspect"] == "start of the kubelet"
        for value in finding["values"]
    ]
    assert any(
        "cannot unmarshal string into Go struct field CPUManagerCheckpointV2" in text for text in errors
    )
