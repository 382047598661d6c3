from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CgroupSettings,
    CPUShares,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    ProcessCeiling,
)
from nodewright.engine.core.cgroups.cgroup_settings import (
    HUGE_PAGES_UNBOUNDED,
    node_level_settings,
    qos_memory_requests,
    with_memory_qos,
    with_memory_reserve,
    with_reserve_retried,
    with_unbounded_huge_pages,
)
from nodewright.engine.core.cgroups.cpu_weight import qos_cpu_shares
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.quantity import Bytes, MilliCPU
from nodewright.testing.objects import a_guaranteed_pod, a_pod, amounts

GUARANTEED, BURSTABLE, BEST_EFFORT = QOSClass
PODS = (
    a_guaranteed_pod("g", "1/100Mi"),
    a_pod("b1", "250m/40Mi"),
    a_pod("b2", "cpu=500m"),
    a_pod("e"),
)
EMPTY = {decided: CgroupSettings() for decided in QOSClass}
REQUESTED = qos_memory_requests(PODS)
MIB = 1 << 20
GATES_1_36 = default_gates(RELEASE_TABLES["1.36"])


def memory(groups: dict[QOSClass, CgroupSettings]) -> list[int | None]:
    return [group.memory.memory_bytes if group.memory else None for group in groups.values()]


def test_burstable_pods_bring_their_requests_to_their_group_and_guaranteed_ones_nothing() -> None:
    assert qos_cpu_shares(PODS) == {
        GUARANTEED: CgroupSettings(),
        BURSTABLE: CgroupSettings(cpu=CPUShares(Shares(768), MilliCPU(750), AmountOrigin.BURSTABLE_PODS)),
        BEST_EFFORT: CgroupSettings(cpu=CPUShares(Shares(2), MilliCPU(0), AmountOrigin.BEST_EFFORT)),
    }


def test_memory_is_summed_by_class() -> None:
    assert REQUESTED == {GUARANTEED: 100 * MIB, BURSTABLE: 40 * MIB}


def test_the_group_of_all_pods_protects_what_those_within_protect() -> None:
    tiered = CgroupConfig(has_memory_qos=True, reservation_policy="TieredReservation")
    result = with_memory_qos(EMPTY, REQUESTED, tiered)
    protected = MemoryProtection("memory.min", Bytes(140 * MIB), AmountOrigin.PROTECTED_PODS)
    assert result[GUARANTEED].unified == (
        protected,
        MemoryProtection("memory.low", Bytes(40 * MIB), AmountOrigin.BURSTABLE_PODS),
    )
    older = with_memory_qos(EMPTY, REQUESTED, replace(tiered, gates=GATES_1_36))
    assert (older[GUARANTEED].unified, older[BURSTABLE]) == ((protected,), result[BURSTABLE])
    assert result[BURSTABLE].unified == (
        MemoryProtection("memory.low", Bytes(40 * MIB), AmountOrigin.BURSTABLE_PODS),
    )
    assert result[BEST_EFFORT] == CgroupSettings()


def test_a_policy_that_reserves_nothing_writes_zeros_and_so_does_the_gate_that_is_off() -> None:
    result = with_memory_qos(EMPTY, REQUESTED, CgroupConfig(has_memory_qos=True))
    zeros = tuple(
        MemoryProtection(file, Bytes(0), AmountOrigin.POLICY) for file in ("memory.min", "memory.low")
    )
    assert (result[GUARANTEED].unified, result[BURSTABLE].unified) == (zeros, zeros[1:])
    tiered = CgroupConfig(reservation_policy="TieredReservation")
    assert with_memory_qos(EMPTY, REQUESTED, tiered) == result
    assert with_memory_qos(EMPTY, REQUESTED, replace(tiered, version=1)) == EMPTY


def test_up_to_1_36_nothing_is_written_without_the_gate() -> None:
    older = CgroupConfig(has_memory_qos=True, gates=GATES_1_36)
    result = with_memory_qos(EMPTY, REQUESTED, older)
    assert result[GUARANTEED].unified == (MemoryProtection("memory.min", Bytes(0), AmountOrigin.POLICY),)
    assert result[BURSTABLE].unified == (MemoryProtection("memory.low", Bytes(0), AmountOrigin.POLICY),)
    assert with_memory_qos(EMPTY, REQUESTED, replace(older, has_memory_qos=False)) == EMPTY


def test_lower_classes_get_what_is_reserved_for_higher_ones_taken_off() -> None:
    result = with_memory_reserve(EMPTY, REQUESTED, 50, Bytes(60 * MIB))
    assert memory(result) == [None, 10 * MIB, -10 * MIB]
    assert result[BURSTABLE].memory == MemoryCeiling(Bytes(10 * MIB), AmountOrigin.QOS_RESERVED)
    assert with_memory_reserve(EMPTY, REQUESTED, 50, None) == EMPTY
    assert with_memory_reserve(EMPTY, REQUESTED, 50, Bytes(0)) == EMPTY


def test_percentages_are_cut_toward_zero() -> None:
    odd = {GUARANTEED: Bytes(-3), BURSTABLE: Bytes(3)}
    assert memory(with_memory_reserve(EMPTY, odd, 50, Bytes(10))) == [None, 11, 10]


def test_where_more_is_in_use_than_is_left_the_usage_becomes_the_limit() -> None:
    reserved = with_memory_reserve(EMPTY, REQUESTED, 100, Bytes(200 * MIB))
    usage = {GUARANTEED: Bytes(9 * MIB), BURSTABLE: Bytes(100 * MIB), BEST_EFFORT: Bytes(61 * MIB)}
    assert memory(reserved) == [None, 100 * MIB, 60 * MIB]
    assert memory(with_reserve_retried(reserved, usage)) == [None, 100 * MIB, 61 * MIB]


def test_huge_pages_of_all_classes_are_unbounded_that_of_all_pods_too() -> None:
    result = with_unbounded_huge_pages(EMPTY, CgroupConfig(huge_page_sizes=(Bytes(2 * MIB),)))
    bound = (HugePageCeiling(Bytes(2 * MIB), HUGE_PAGES_UNBOUNDED, AmountOrigin.UNBOUNDED),)
    assert result == {decided: CgroupSettings(huge_pages=bound) for decided in QOSClass}


def test_the_group_of_all_pods_has_what_pods_can_have() -> None:
    limits = amounts("cpu=8 memory=15Gi pid=31768 hugepages-2Mi=1Gi ephemeral-storage=1Gi")
    assert node_level_settings(limits, AmountOrigin.NODE) == CgroupSettings(
        cpu=CPUShares(Shares(8192), MilliCPU(8000), AmountOrigin.NODE),
        memory=MemoryCeiling(Bytes(15 << 30), AmountOrigin.NODE),
        processes=ProcessCeiling(31768, AmountOrigin.NODE),
        huge_pages=(HugePageCeiling(Bytes(2 * MIB), Bytes(1 << 30), AmountOrigin.NODE),),
    )


def test_compressible_resources_alone_set_cpu_time_alone() -> None:
    kept = amounts("1/1Gi")
    assert node_level_settings(kept, AmountOrigin.KUBE_RESERVED, compressible_only=True) == CgroupSettings(
        cpu=CPUShares(Shares(1024), MilliCPU(1000), AmountOrigin.KUBE_RESERVED)
    )
    assert node_level_settings({}, AmountOrigin.KUBE_RESERVED) == CgroupSettings(huge_pages=())
    assert node_level_settings(None, AmountOrigin.KUBE_RESERVED) is None
