from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodewright.core.cgroups.compare import (
    Comparison,
    as_shown,
    compared,
    files_to_read,
    strangers,
)
from nodewright.core.cgroups.facts import (
    Fact,
    HugePageCeiling,
    KilledTogether,
    MemoryCeiling,
    NoSwap,
    Origin,
    Pool,
    RunsOn,
    SwapForbidden,
)
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.names import CgroupName, Parents
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.values.idset import CPUSet
from nodewright.values.units import Bytes

RULES = CgroupRules()
CEILING = MemoryCeiling(Bytes(8192), Origin.LIMIT)
MAX = File("memory.max", "8192", CEILING)
GROUP = Group(level=Level.POD, path="/p", files=(MAX,), pod="default/p")
FINE = {"memory.max": "8192", "cpu.max": "max 100000", "memory.low": "0"}


def differing(group: Group, texts: Mapping[str, str] | None, rules: CgroupRules = RULES) -> list[str]:
    found = compared((group,), {group.path: texts}, rules).differences
    return [f"{one.file}: {one.expected} / {one.found}" for one in found]


def test_what_is_as_it_should_be_is_counted() -> None:
    assert compared((GROUP,), {"/p": FINE}, RULES) == Comparison(differences=(), agreeing=3)


def test_what_differs_or_lacks_is_named() -> None:
    assert differing(GROUP, {**FINE, "memory.max": "max"}) == ["memory.max: 8192 / max"]
    assert differing(GROUP, {}) == ["memory.max: 8192 / None"]
    assert differing(GROUP, None) == [":  / None"]
    assert compared((GROUP,), {"/p": {**FINE, "memory.max": "1"}}, RULES).agreeing == 2


def test_what_nobody_should_have_written_is_named() -> None:
    assert differing(GROUP, {**FINE, "cpu.max": "5000 100000"}) == ["cpu.max: max 100000 / 5000 100000"]
    first = replace(RULES, version=1)
    assert differing(GROUP, {**FINE, "cpu.cfs_quota_us": "5000"}, first) == ["cpu.cfs_quota_us: -1 / 5000"]
    unlimited = replace(GROUP, files=())
    texts = {"memory.limit_in_bytes": "9223372036854771712"}
    assert differing(unlimited, texts, first) == []
    texts = {"memory.limit_in_bytes": "67108864"}
    assert differing(unlimited, texts, first) == ["memory.limit_in_bytes: -1 / 67108864"]
    assert differing(replace(GROUP, level=Level.CLASS), {**FINE, "cpu.max": "5000 100000"}) == []


def test_files_that_are_looked_at_are_those_written_and_those_that_should_be_untouched() -> None:
    assert files_to_read(GROUP, 2) == ("memory.max", "cpu.max", "memory.high", "memory.min", "memory.low")
    assert files_to_read(replace(GROUP, level=Level.NODE), 2) == ("memory.max",)
    assert files_to_read(GROUP, 1) == ("memory.max", "cpu.cfs_quota_us", "memory.limit_in_bytes")


def test_bounds_of_pages_set_aside_may_lack() -> None:
    pages = HugePageCeiling(Bytes(1 << 21), Bytes(0), Origin.NOTHING)
    group = replace(GROUP, files=(File("hugetlb.2MB.rsvd.max", "0", pages),))
    assert differing(group, {}) == []
    assert differing(group, {"hugetlb.2MB.rsvd.max": "4096"}) == ["hugetlb.2MB.rsvd.max: 0 / 4096"]


def test_cpus_are_compared_as_sets() -> None:
    group = replace(GROUP, files=(File("cpuset.cpus", "0-2", RunsOn(CPUSet.of(0, 1, 2), Pool.ALL)),))
    assert differing(group, {"cpuset.cpus": "0,1-2"}) == []
    assert differing(group, {"cpuset.cpus": "0-1"}) == ["cpuset.cpus: 0-2 / 0-1"]
    assert differing(group, {"cpuset.cpus": "odd"}) == ["cpuset.cpus: 0-2 / odd"]


def test_containers_without_an_id_are_left_out_and_ended_ones_are_not_missed() -> None:
    unknown = replace(GROUP, level=Level.CONTAINER, container="c")
    known = replace(unknown, container_id="containerd://1f", path="/p/1f")
    assert compared((unknown,), {"/p": None}, RULES).not_compared == (unknown,)
    assert differing(known, None) == [":  / None"]
    assert differing(replace(known, is_passing=True), None) == []


@pytest.mark.parametrize(
    ("name", "value", "because", "shown"),
    [
        ("memory.max", "8191", CEILING, "4096"),
        ("memory.max", "max", CEILING, "max"),
        ("memory.swap.max", "4097", SwapForbidden(NoSwap.CRITICAL), "4096"),
        ("memory.oom.group", "1", KilledTogether(), "1"),
        ("hugetlb.2MB.max", "3000000", HugePageCeiling(Bytes(1 << 21), Bytes(0), Origin.LIMIT), "2097152"),
        ("cpu.weight", "79", KilledTogether(), "79"),
    ],
)
def test_the_kernel_counts_in_whole_pages(name: str, value: str, because: Fact, shown: str) -> None:
    assert as_shown(File(name, value, because), RULES) == shown


def test_groups_of_pods_that_nobody_knows_are_found() -> None:
    parents = Parents.below(CgroupName(("kubepods",)))
    below = {"/kubepods": ["burstable", "podknown", "podx"], "/kubepods/burstable": ["pody", "other"]}
    found = strangers(below, {"known"}, parents, RULES)
    assert [(one.path, one.found) for one in found] == [
        ("/kubepods/podx", ""),
        ("/kubepods/burstable/pody", ""),
    ]
