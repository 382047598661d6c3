from nodewright.core.cgroups.facts import (
    CPUShares,
    GroupSettings,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    Origin,
    ProcessCeiling,
)
from nodewright.core.cgroups.levels import (
    UNBOUNDED,
    class_memory_requests,
    class_shares,
    level_settings,
    with_protection,
    with_reserve,
    with_reserve_retried,
    with_unbounded_huge_pages,
)
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.requests import QOSClass
from nodewright.testing.objects import a_guaranteed_pod, a_pod, amounts
from nodewright.values.cpu_time import Shares
from nodewright.values.units import Bytes, MilliCPU

GUARANTEED, BURSTABLE, BEST_EFFORT = QOSClass
PODS = (
    a_guaranteed_pod("g", "1/100Mi"),
    a_pod("b1", "250m/40Mi"),
    a_pod("b2", "cpu=500m"),
    a_pod("e"),
)
EMPTY = {decided: GroupSettings() for decided in QOSClass}
REQUESTED = class_memory_requests(PODS)
MIB = 1 << 20


def memory(groups: dict[QOSClass, GroupSettings]) -> list[int | None]:
    return [group.memory.memory_bytes if group.memory else None for group in groups.values()]


def test_burstable_pods_bring_their_requests_to_their_group_and_guaranteed_ones_nothing() -> None:
    assert class_shares(PODS) == {
        GUARANTEED: GroupSettings(),
        BURSTABLE: GroupSettings(cpu=CPUShares(Shares(768), MilliCPU(750), Origin.BURSTABLE_PODS)),
        BEST_EFFORT: GroupSettings(cpu=CPUShares(Shares(2), MilliCPU(0), Origin.BEST_EFFORT)),
    }


def test_memory_is_summed_by_class() -> None:
    assert REQUESTED == {GUARANTEED: 100 * MIB, BURSTABLE: 40 * MIB}


def test_the_group_of_all_pods_protects_what_those_within_protect() -> None:
    tiered = CgroupRules(has_memory_qos=True, reservation_policy="TieredReservation")
    found = with_protection(EMPTY, REQUESTED, tiered)
    assert found[GUARANTEED].unified == (
        MemoryProtection("memory.min", Bytes(140 * MIB), Origin.PROTECTED_PODS),
    )
    assert found[BURSTABLE].unified == (
        MemoryProtection("memory.low", Bytes(40 * MIB), Origin.BURSTABLE_PODS),
    )
    assert found[BEST_EFFORT] == GroupSettings()


def test_a_policy_that_reserves_nothing_writes_zeros_and_without_the_gate_nothing_is_written() -> None:
    found = with_protection(EMPTY, REQUESTED, CgroupRules(has_memory_qos=True))
    assert found[GUARANTEED].unified == (MemoryProtection("memory.min", Bytes(0), Origin.POLICY),)
    assert found[BURSTABLE].unified == (MemoryProtection("memory.low", Bytes(0), Origin.POLICY),)
    assert with_protection(EMPTY, REQUESTED, CgroupRules()) == EMPTY


def test_lower_classes_get_what_is_reserved_for_higher_ones_taken_off() -> None:
    found = with_reserve(EMPTY, REQUESTED, 50, Bytes(60 * MIB))
    assert memory(found) == [None, 10 * MIB, -10 * MIB]
    assert found[BURSTABLE].memory == MemoryCeiling(Bytes(10 * MIB), Origin.QOS_RESERVED)
    assert with_reserve(EMPTY, REQUESTED, 50, None) == EMPTY
    assert with_reserve(EMPTY, REQUESTED, 50, Bytes(0)) == EMPTY


def test_percentages_are_cut_toward_zero() -> None:
    odd = {GUARANTEED: Bytes(-3), BURSTABLE: Bytes(3)}
    assert memory(with_reserve(EMPTY, odd, 50, Bytes(10))) == [None, 11, 10]


def test_where_more_is_in_use_than_is_left_the_usage_becomes_the_limit() -> None:
    reserved = with_reserve(EMPTY, REQUESTED, 100, Bytes(200 * MIB))
    usage = {GUARANTEED: Bytes(9 * MIB), BURSTABLE: Bytes(100 * MIB), BEST_EFFORT: Bytes(61 * MIB)}
    assert memory(reserved) == [None, 100 * MIB, 60 * MIB]
    assert memory(with_reserve_retried(reserved, usage)) == [None, 100 * MIB, 61 * MIB]


def test_huge_pages_of_all_classes_are_unbounded_that_of_all_pods_too() -> None:
    found = with_unbounded_huge_pages(EMPTY, CgroupRules(huge_pages=(Bytes(2 * MIB),)))
    bound = (HugePageCeiling(Bytes(2 * MIB), UNBOUNDED, Origin.UNBOUNDED),)
    assert found == {decided: GroupSettings(huge_pages=bound) for decided in QOSClass}


def test_the_group_of_all_pods_has_what_pods_can_have() -> None:
    limits = amounts("cpu=8 memory=15Gi pid=31768 hugepages-2Mi=1Gi ephemeral-storage=1Gi")
    assert level_settings(limits, Origin.NODE) == GroupSettings(
        cpu=CPUShares(Shares(8192), MilliCPU(8000), Origin.NODE),
        memory=MemoryCeiling(Bytes(15 << 30), Origin.NODE),
        processes=ProcessCeiling(31768, Origin.NODE),
        huge_pages=(HugePageCeiling(Bytes(2 * MIB), Bytes(1 << 30), Origin.NODE),),
    )


def test_compressible_resources_alone_set_cpu_time_alone() -> None:
    kept = amounts("1/1Gi")
    assert level_settings(kept, Origin.KUBE_RESERVED, compressible_only=True) == GroupSettings(
        cpu=CPUShares(Shares(1024), MilliCPU(1000), Origin.KUBE_RESERVED)
    )
    assert level_settings({}, Origin.KUBE_RESERVED) == GroupSettings(huge_pages=())
    assert level_settings(None, Origin.KUBE_RESERVED) is None
