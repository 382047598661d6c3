"""The limits of BestEffort pods on a node that lends, in both versions of cgroups."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_comparison import cgroup_comparison
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.lending.loans import Loans
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_cgroups import (
    AllocatedPod,
    CgroupOverrides,
    cgroup_rules,
    node_and_pod_cgroups,
)
from nodewright.engine.node.node_state import NodeState
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

MIB = 1 << 20


def planned(version: int, loans: Loans | None, **kubelet: Any) -> dict[str, PlannedCgroup]:
    """The cgroups of a node with an owner and a borrower, by the ends of their paths."""
    profile = a_profile(**kubelet)
    pods = (a_guaranteed_pod("owner", "1/1Gi"), a_pod("borrower"))
    node = Node.from_profile(replace(profile, spec=replace(profile.spec, pods=pods, cgroup_version=version)))
    state: NodeState = replace(node.state, loans=loans)
    allocated = [AllocatedPod(pod, state.held.memory) for pod in state.pods.values()]
    rules = cgroup_rules(state.config, CgroupOverrides(version=version))
    cgroups = node_and_pod_cgroups(state, allocated, rules)
    return {each.path.rpartition("/")[2]: each for each in cgroups if each.level is not CgroupLevel.CONTAINER}


def lines(cgroup: PlannedCgroup) -> list[str]:
    """Its files with their values."""
    return [f"{file.name}={file.value}" for file in cgroup.files if "hugetlb" not in file.name]


LOANS = Loans(cpu_milli=1500, memory_bytes=100 * MIB)
OWED = replace(LOANS, owed_bytes=20 * MIB)


@pytest.mark.parametrize(
    ("version", "loans", "expected"),
    [
        (2, None, ["cpu.weight=1"]),
        (2, LOANS, ["cpu.weight=1", "cpu.max=150000 100000", f"memory.high={100 * MIB}"]),
        (2, OWED, ["cpu.weight=1", "cpu.max=150000 100000", f"memory.high={100 * MIB}"]),
        (
            2,
            Loans(cpu_milli=0, memory_bytes=0),
            ["cpu.weight=1", "cpu.max=1000 100000", "memory.high=0"],
        ),
        (1, None, ["cpu.shares=2"]),
        (
            1,
            LOANS,
            [
                *("cpu.shares=2", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000"),
                f"memory.limit_in_bytes={100 * MIB}",
            ],
        ),
        # The kernel refuses a limit below what is held.
        (
            1,
            OWED,
            [
                *("cpu.shares=2", "cpu.cfs_period_us=100000", "cpu.cfs_quota_us=150000"),
                f"memory.limit_in_bytes={136 * MIB}",
            ],
        ),
    ],
)
def test_the_class_has_a_quota_and_a_ceiling(version: int, loans: Loans | None, expected: list[str]) -> None:
    assert lines(planned(version, loans, failCgroupV1=False)["besteffort"]) == expected


def test_other_classes_and_pods_are_as_a_kubelet_has_them() -> None:
    lends, kubelet = planned(2, LOANS), planned(2, None)
    changed = {name for name, cgroup in lends.items() if cgroup != kubelet[name]}
    assert changed == {"besteffort", "podborrower"}
    assert lends["besteffort"].qos_class is QOSClass.BEST_EFFORT
    assert lines(lends["podborrower"]) == [*lines(kubelet["podborrower"]), "cpu.idle=1"]


def test_a_weight_of_a_cgroup_that_is_idle_is_not_compared() -> None:
    borrower = planned(2, LOANS)["podborrower"]
    rules = cgroup_rules(Node.from_profile(a_profile()).config)
    texts = {file.name: file.value for file in borrower.files}
    for actual, different in (
        (texts | {"cpu.weight": "0"}, []),
        (texts | {"cpu.weight": "1", "cpu.idle": "0"}, ["cpu.idle"]),
        # A kernel without the file has a weight.
        (
            {name: text for name, text in texts.items() if name != "cpu.idle"} | {"cpu.weight": "7"},
            ["cpu.weight"],
        ),
    ):
        comparison = cgroup_comparison([borrower], {borrower.path: actual}, rules)
        assert [difference.file for difference in comparison.differences] == different
