from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_comparison import (
    CgroupComparison,
    cgroup_comparison,
    files_to_read,
    unknown_pod_cgroups,
    value_read_back,
)
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CgroupFact,
    CPUPool,
    HugePageCeiling,
    KilledTogether,
    MemoryCeiling,
    NoSwapReason,
    RunsOn,
    SwapForbidden,
)
from nodewright.engine.core.cgroups.cgroup_names import CgroupName, QOSCgroupNames
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Bytes

RULES = CgroupConfig()
CEILING = MemoryCeiling(Bytes(8192), AmountOrigin.LIMIT)
MAX = CgroupFile("memory.max", "8192", CEILING)
GROUP = PlannedCgroup(level=CgroupLevel.POD, path="/p", files=(MAX,), pod="default/p")
FINE = {"memory.max": "8192", "cpu.max": "max 100000", "memory.low": "0"}


def differing(
    group: PlannedCgroup, texts: Mapping[str, str] | None, rules: CgroupConfig = RULES
) -> list[str]:
    file_differences = cgroup_comparison((group,), {group.path: texts}, rules).differences
    return [
        f"{file_difference.file}: {file_difference.expected} / {file_difference.actual}"
        for file_difference in file_differences
    ]


def test_what_is_as_it_should_be_is_counted() -> None:
    assert cgroup_comparison((GROUP,), {"/p": FINE}, RULES) == CgroupComparison(
        differences=(), matching_files=3
    )


def test_what_differs_or_lacks_is_named() -> None:
    assert differing(GROUP, {**FINE, "memory.max": "max"}) == ["memory.max: 8192 / max"]
    assert differing(GROUP, {}) == ["memory.max: 8192 / None"]
    assert differing(GROUP, None) == [":  / None"]
    assert cgroup_comparison((GROUP,), {"/p": {**FINE, "memory.max": "1"}}, RULES).matching_files == 2


def test_what_nobody_should_have_written_is_named() -> None:
    assert differing(GROUP, {**FINE, "cpu.max": "5000 100000"}) == ["cpu.max: max 100000 / 5000 100000"]
    first = replace(RULES, version=1)
    assert differing(GROUP, {**FINE, "cpu.cfs_quota_us": "5000"}, first) == ["cpu.cfs_quota_us: -1 / 5000"]
    unlimited = replace(GROUP, files=())
    texts = {"memory.limit_in_bytes": "9223372036854771712"}
    assert differing(unlimited, texts, first) == []
    texts = {"memory.limit_in_bytes": "67108864"}
    assert differing(unlimited, texts, first) == ["memory.limit_in_bytes: -1 / 67108864"]
    assert differing(replace(GROUP, level=CgroupLevel.QOS_CLASS), {**FINE, "cpu.max": "5000 100000"}) == []


def test_files_that_are_looked_at_are_those_written_and_those_that_should_be_untouched() -> None:
    assert files_to_read(GROUP, 2) == ("memory.max", "cpu.max", "memory.high", "memory.min", "memory.low")
    assert files_to_read(replace(GROUP, level=CgroupLevel.NODE), 2) == ("memory.max",)
    assert files_to_read(GROUP, 1) == ("memory.max", "cpu.cfs_quota_us", "memory.limit_in_bytes")


def test_bounds_of_pages_set_aside_may_lack() -> None:
    pages = HugePageCeiling(Bytes(1 << 21), Bytes(0), AmountOrigin.UNSET)
    group = replace(GROUP, files=(CgroupFile("hugetlb.2MB.rsvd.max", "0", pages),))
    assert differing(group, {}) == []
    assert differing(group, {"hugetlb.2MB.rsvd.max": "4096"}) == ["hugetlb.2MB.rsvd.max: 0 / 4096"]


def test_cpus_are_compared_as_sets() -> None:
    group = replace(GROUP, files=(CgroupFile("cpuset.cpus", "0-2", RunsOn(CPUSet.of(0, 1, 2), CPUPool.ALL)),))
    assert differing(group, {"cpuset.cpus": "0,1-2"}) == []
    assert differing(group, {"cpuset.cpus": "0-1"}) == ["cpuset.cpus: 0-2 / 0-1"]
    assert differing(group, {"cpuset.cpus": "odd"}) == ["cpuset.cpus: 0-2 / odd"]


def test_containers_without_an_id_are_left_out_and_ended_ones_are_not_missed() -> None:
    unknown = replace(GROUP, level=CgroupLevel.CONTAINER, container="c")
    known = replace(unknown, container_id="containerd://1f", path="/p/1f")
    assert cgroup_comparison((unknown,), {"/p": None}, RULES).not_compared == (unknown,)
    assert differing(known, None) == [":  / None"]
    assert differing(replace(known, is_transient=True), None) == []


@pytest.mark.parametrize(
    ("name", "value", "because", "shown"),
    [
        ("memory.max", "8191", CEILING, "4096"),
        ("memory.max", "max", CEILING, "max"),
        ("memory.swap.max", "4097", SwapForbidden(NoSwapReason.CRITICAL), "4096"),
        ("memory.oom.group", "1", KilledTogether(), "1"),
        (
            "hugetlb.2MB.max",
            "3000000",
            HugePageCeiling(Bytes(1 << 21), Bytes(0), AmountOrigin.LIMIT),
            "2097152",
        ),
        ("cpu.weight", "79", KilledTogether(), "79"),
    ],
)
def test_the_kernel_counts_in_whole_pages(name: str, value: str, because: CgroupFact, shown: str) -> None:
    assert value_read_back(CgroupFile(name, value, because), RULES) == shown


def test_groups_of_pods_that_nobody_knows_are_found() -> None:
    parents = QOSCgroupNames.for_root(CgroupName(("kubepods",)))
    below = {"/kubepods": ["burstable", "podknown", "podx"], "/kubepods/burstable": ["pody", "other"]}
    file_differences = unknown_pod_cgroups(below, {"known"}, parents, RULES)
    assert [(file_difference.path, file_difference.actual) for file_difference in file_differences] == [
        ("/kubepods/podx", ""),
        ("/kubepods/burstable/pody", ""),
    ]
