"""`nodewright evict`: which pods are evicted."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.model.kubernetes.eviction_thresholds import eviction_settings_from_flags, parse_thresholds
from nodewright.predict.node import Node

NODE = "examples/eviction/node.yaml"
SUMMARY = "examples/eviction/summary.json"


def run_evict(capsys: pytest.CaptureFixture[str], *arguments: str, node: str = NODE) -> tuple[int, str, str]:
    code = run(["evict", "--node", node, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 3) -> dict[str, Any]:
    found, out, err = run_evict(capsys, *arguments, "-o", "json")
    assert found == code, err
    return dict(json.loads(out))


def test_the_qos_class_does_not_determine_the_ranking(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "--usage", SUMMARY)
    assert [(each["name"], each["qosClass"], each["beforeNextBy"]) for each in result["ranking"][:4]] == [
        ("web", "Burstable", "priority"),
        ("queue", "BestEffort", "priority"),
        ("dns", "Burstable", "exceeds"),
        ("db", "Guaranteed", "priority"),
    ]
    (gone,) = result["evictions"]
    assert (gone["name"], gone["frees"], gone["gracePeriodSeconds"]) == ("web", 2 << 30, 1)
    assert result["handledSignal"] == "memory.available"
    assert result["relieved"]


def test_the_flags_of_the_guide_equal_the_example() -> None:
    flags = eviction_settings_from_flags(
        hard="imagefs.available<10%,memory.available<500Mi,nodefs.available<5%,nodefs.inodesFree<5%",
        soft="imagefs.available<30%,nodefs.available<10%",
        soft_grace_period="imagefs.available=2m,nodefs.available=2m",
        minimum_reclaim="memory.available=1Gi",
    )
    config = Node.open(NODE).config
    assert config.eviction.max_pod_grace_period_s == 600
    assert config.eviction.thresholds == parse_thresholds(flags, for_pods=True).thresholds


def test_no_pod_is_evicted_while_no_threshold_is_met(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_evict(capsys, "--usage", SUMMARY, "--available", "memory.available=4Gi")
    assert code == 0
    assert "No pod is evicted." in out
    assert run_evict(capsys, "--usage", SUMMARY, "-o", "name")[:2] == (3, "pod/web\n")


def test_faults_are_reported_with_their_location(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(
        '{"node": {"memory": {"availableBytes": -5}},\n'
        ' "pods": [{"podRef": {"name": 1}, "memory": {"workingSetBytes": 1e30}}]}'
    )
    code, out, err = run_evict(capsys, "--usage", str(wrong))
    assert (code, out) == (1, "")
    negative, name, huge = err.splitlines()
    assert negative == (
        f"error: {wrong}:1:22: node.memory.availableBytes: Invalid value: -5: must be a 64-bit integer, "
        "0 to 18446744073709551615"
    )
    assert "2:23: pods[0].podRef.name: Invalid value: 1: must be a string" in name
    assert "pods[0].memory.workingSetBytes: Invalid value: 1e+30: must be a 64-bit integer" in huge


def test_amounts_on_the_command_line_need_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "--available", "memory.available=100Mi")
    assert [eviction["name"] for eviction in result["evictions"]] == ["web", "db", "queue", "cache"]
    assert not result["relieved"], "nothing is known of what they use, so nothing is known to come free"
    code, out, _ = run_evict(capsys, "--available", "memory.available=100Mi")
    assert code == 3
    assert "and memory.available is still too low: the remaining pod is critical" in out
    assert "the pod's usage is unknown" in out


def test_a_soft_threshold_on_disk_reclaims_first_and_waits(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--usage",
        SUMMARY,
        "--available",
        "memory.available=4Gi",
        "--available",
        "nodefs.available=9Gi",
    ]
    code, out, _ = run_evict(capsys, *arguments, "--filesystems", "images")
    assert code == 3
    assert "met: 1Gi short, counts after 2m0s" in out
    assert "from 2m0s on, with 30 s to terminate" in out
    assert "from 2m1s on" in out
    assert "The node reports DiskPressure (taint node.kubernetes.io/disk-pressure:NoSchedule)." in out
    assert "no images or dead containers are removed first" in out
    one_disk = run_evict(capsys, *arguments)[1]
    assert (
        "The node first removes dead containers and images that no container uses; the amount freed"
        in one_disk
    )


def test_a_second_usage_shows_what_the_node_reclaimed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    after = tmp_path / "after.yaml"
    after.write_text(
        "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\n"
        "spec: {available: {nodefs.available: 30Gi, memory.available: 4Gi}}\n"
    )
    low = ["--usage", SUMMARY, "--available", "nodefs.available=1Gi", "--available", "memory.available=4Gi"]
    code, out, _ = run_evict(capsys, *low, "--after", str(after))
    assert code == 3
    assert "that is sufficient, no pod is evicted" in out
    assert "EVICTED" in out
    assert document(capsys, *low, "--after", str(after))["reclaimFirst"]["wasEnough"]


def test_pods_of_manifests_match_stats_by_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def pod(name: str, node: str, phase: str = "Running") -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": f"new-{name}"},
            "spec": {"nodeName": node, "containers": [{"name": name, "image": name}]},
            "status": {"phase": phase},
        }

    pods = [pod("late", "worker-7"), pod("far", "worker-8"), pod("done", "worker-7", "Succeeded")]
    manifests = tmp_path / "pods.json"
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    usage = json.loads(Path(SUMMARY).read_text())
    usage["pods"].append({**usage["pods"][2], "podRef": {"namespace": "shop", "name": "late", "uid": "old"}})
    usage["pods"].append({**usage["pods"][2], "podRef": {"namespace": "shop", "name": "gone", "uid": "x"}})
    usage["pods"].pop(3)
    changed = tmp_path / "usage.json"
    changed.write_text(json.dumps(usage))
    code, out, err = run_evict(capsys, "--usage", str(changed), "-f", str(manifests), "-o", "wide")
    assert code == 3
    assert "1 pod of the manifests on other nodes than worker-7" in err
    assert "shop/late has a different uid in the usage, old: matched by name" in err
    assert "1 pod of the usage not on the node, ignored: shop/gone" in err
    assert "1 pod without stats, ranked first as the kubelet does: shop/cache" in err
    rows = [line.split()[1] for line in out.splitlines() if line[:1].isdigit() and " shop/" in line]
    assert rows[:2] == ["shop/cache", "shop/late"]
    assert "no stats" in out
    assert "swap: 3Gi used, 1Gi left (not considered by eviction)" in out
    assert "memory pressure (PSI): some 11.5 %" in out


def test_tables_have_the_capacities_of_the_node(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table = tmp_path / "usage.yaml"
    head = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\nspec:\n"
    table.write_text(
        f"{head}  available: {{pid.available: 10, memory.available: 20Gi, imagefs.inodesFree: 5}}\n"
    )
    code, out, err = run_evict(capsys, "--usage", str(table))
    assert (code, out) == (1, "")
    assert 'spec.available[memory.available]: Invalid value: "20Gi": exceeds the capacity' in err
    assert "specify spec.capacity[imagefs.inodesFree]" in err
    rows = tmp_path / "usage.csv"
    rows.write_text("pod,memory,processes\nshop/web,2Gi,50\nshop/db,5Gi,9\nshop/queue,1Mi,70\n")
    result = document(
        capsys,
        "--usage",
        str(rows),
        "--available",
        "memory.available=10Gi",
        "--signal",
        "pid.available",
        code=0,
    )
    assert [(each["name"], each.get("usage")) for each in result["ranking"]][:3] == [
        ("web", 50),
        ("db", 9),
        ("cache", None),
    ]
    assert "request" in result["ranking"][0]


@pytest.mark.parametrize(
    ("amount", "rule"),
    [
        (
            "nodefs.inodesFree=1",
            "the capacity is not in the node's profile: specify spec.capacity[nodefs.inodesFree]",
        ),
        ("memory.available=17Gi", "exceeds the capacity, 17179869184"),
    ],
)
def test_an_available_amount_has_a_capacity_that_it_does_not_exceed(
    capsys: pytest.CaptureFixture[str], amount: str, rule: str
) -> None:
    code, out, err = run_evict(capsys, "--available", amount, node="vm-4")
    signal = amount.partition("=")[0]
    assert (code, out) == (1, "")
    assert f"error: available[{signal}]: Invalid value: " in err
    assert rule in err


def test_a_percentage_is_of_the_capacity_that_the_usage_states(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    usage = tmp_path / "usage.yaml"
    head = "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\n"
    usage.write_text(f"{head}spec: {{capacity: {{nodefs.inodesFree: 1000}}}}\n")
    arguments = ("--usage", str(usage), "--available", "nodefs.inodesFree=49", "-o", "json")
    (threshold,) = [
        each
        for each in json.loads(run_evict(capsys, *arguments, node="vm-4")[1])["thresholds"]
        if each["signal"] == "nodefs.inodesFree"
    ]
    assert (threshold["available"], threshold["capacity"], threshold["amount"]) == (49, 1000, 50)
    assert threshold["met"]


def test_an_amount_that_no_threshold_observes_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = tmp_path / "usage.yaml"
    table.write_text(
        "apiVersion: nodewright.dev/v1alpha1\nkind: NodeUsage\n"
        "spec: {available: {pid.available: 1}, capacity: {pid.available: 9}}\n"
    )
    for arguments in (("--usage", str(table)), ("--usage", str(table), "--available", "pid.available=2")):
        _, _, err = run_evict(capsys, *arguments, node="vm-4")
        assert (
            err
            == "warning: no threshold of the node is on pid.available: the amount that is available evicts no pod\n"
        )


def test_a_file_system_of_no_size_is_remarked_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    usage = tmp_path / "usage.json"
    usage.write_text(
        '{"node": {"fs": {"availableBytes": 0, "capacityBytes": 0, "inodesFree": 9, "inodes": 5},'
        ' "memory": {"availableBytes": 5368709120, "workingSetBytes": 5368709120}}}'
    )
    code, _, err = run_evict(capsys, "--usage", str(usage))
    assert code == 0
    assert "nodefs.available has a capacity of 0: thresholds in percent are never met" in err
    assert "nodefs.inodesFree has more available than its capacity: 9 of 5" in err
    assert run_evict(capsys, "--usage", str(usage), "--strict")[0] == 1


def test_a_dedicated_image_file_system_is_inferred(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    node = tmp_path / "node.yaml"
    node.write_text(Path(NODE).read_text().replace("  pidMax:", "  imageFs: {capacityBytes: 5}\n  pidMax:"))
    assert run(["evict", "--node", str(node), "--available", "memory.available=4Gi", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["filesystems"]["dedicatedImageFs"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "specify the usage with --usage, --live or --available"),
        (["--usage", SUMMARY, "--live"], "exclude each other"),
        (["--available", "memory=1Gi"], "'memory' is not a signal"),
        (["--available", "memory.available=lots"], "memory.available=lots"),
        (["--available", "memory.available=-1"], "must not be negative"),
    ],
)
def test_invalid_arguments_are_usage_errors(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run_evict(capsys, *arguments)
    assert code == 2
    assert said in err


def test_this_machine_can_be_queried(capsys: pytest.CaptureFixture[str]) -> None:
    # How full its disk is nobody knows: either answer will do.
    code, out, err = run_evict(capsys, "--live", "--available", "memory.available=8Gi", "-o", "json")
    assert code in (0, 3), err
    thresholds = json.loads(out)["thresholds"]
    assert any(
        threshold["signal"] == "nodefs.available" and threshold["observed"] for threshold in thresholds
    )
    assert run(["evict", "--live", "-o", "yaml"]) in (0, 3)
    assert "kind: EvictionReport" in capsys.readouterr().out
