import pytest

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_limits, huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CeilingMissing,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    NoQuotaReason,
    ProcessCeiling,
)
from nodewright.engine.core.cgroups.cgroup_settings import pod_cgroup_settings
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU
from nodewright.testing.objects import a_guaranteed_pod, a_pod, amounts, container, pod, sidecar

RULES = CgroupConfig()
TIERED = CgroupConfig(has_memory_qos=True, reservation_policy="TieredReservation")
MIB = 1 << 20


def test_a_guaranteed_pod_has_shares_quota_and_memory() -> None:
    settings = pod_cgroup_settings(a_guaranteed_pod("db", "500m/128Mi"), RULES)
    assert settings.cpu == CPUShares(Shares(512), MilliCPU(500), AmountOrigin.POD_REQUESTS)
    assert settings.quota == CPUQuota(
        quota_us=Microseconds(50_000),
        period_us=Microseconds(100_000),
        milli_cpu=MilliCPU(500),
        origin=AmountOrigin.POD_LIMITS,
    )
    assert settings.memory == MemoryCeiling(Bytes(134_217_728), AmountOrigin.POD_LIMITS)
    assert (settings.processes, settings.huge_pages, settings.unified, settings.unset_limits) == (
        None,
        (),
        (),
        (),
    )


def test_a_best_effort_pod_has_the_least_shares_and_no_ceiling() -> None:
    settings = pod_cgroup_settings(a_pod("e"), RULES)
    assert settings.cpu == CPUShares(Shares(2), MilliCPU(0), AmountOrigin.BEST_EFFORT)
    assert (settings.quota, settings.memory) == (None, None)
    assert settings.unset_limits == (CeilingMissing("cpu", ()), CeilingMissing("memory", ()))


LIMITED, FREE = ("1/1Gi", "2/2Gi"), ("1/1Gi", "")


def ceilings(init: tuple[Container, ...], *containers: Container, whole: str = "") -> list[tuple[str, ...]]:
    """The containers that keep a Burstable pod's group from a ceiling on memory."""
    made = pod(*containers, init=init, whole=whole)
    return [
        each.containers for each in pod_cgroup_settings(made, RULES).unset_limits if each.resource == "memory"
    ]


def test_one_container_without_a_limit_leaves_a_burstable_pod_without() -> None:
    assert ceilings((), container("a", *LIMITED), container("b", *LIMITED)) == []
    assert ceilings((), container("a", *LIMITED), container("b", *FREE)) == [("b",)]
    assert ceilings((container("i", *FREE),), container("a", *LIMITED)) == [("i",)]


def test_the_limit_of_a_sidecar_stands_in_for_init_containers_after_it() -> None:
    limited, free = sidecar("s", *LIMITED), container("i", *FREE)
    assert ceilings((limited, free), container("a", *LIMITED)) == []
    assert ceilings((free, limited), container("a", *LIMITED)) == [("i",)]


def test_a_limit_of_the_pod_level_is_enough() -> None:
    assert ceilings((), container("a", *FREE), whole="memory=1Gi") == []
    assert ceilings((), container("a", *FREE), whole="cpu=1") == [("a",)]


@pytest.mark.parametrize(
    ("rules", "pinned", "quota", "unlimited"),
    [
        (RULES, False, 200_000, None),
        (RULES, True, -1, NoQuotaReason.EXCLUSIVE_CPUS),
        (CgroupConfig(cpu_cfs_quota=False), False, -1, NoQuotaReason.NOT_ENFORCED),
        (CgroupConfig(cpu_cfs_quota=False), True, -1, NoQuotaReason.NOT_ENFORCED),
        (CgroupConfig(configured_period_us=Microseconds(50_000)), False, 100_000, None),
        # Without its gate the period is written, but the quota is worked out for the default.
        (
            CgroupConfig(configured_period_us=Microseconds(50_000), has_custom_period=False),
            False,
            200_000,
            None,
        ),
    ],
)
def test_the_quota_of_a_pod(
    rules: CgroupConfig, pinned: bool, quota: int, unlimited: NoQuotaReason | None
) -> None:
    settings = pod_cgroup_settings(a_guaranteed_pod("db", "2/1Gi"), rules, has_exclusive_cpus=pinned)
    assert settings.quota is not None
    assert (settings.quota.quota_us, settings.quota.unlimited) == (quota, unlimited)
    assert settings.quota.period_us == rules.configured_period_us


def test_a_class_that_the_status_names_brings_a_quota_without_a_limit() -> None:
    settings = pod_cgroup_settings(a_pod("odd", status={"qosClass": "Guaranteed"}), RULES)
    assert settings.quota is not None
    assert (settings.quota.quota_us, settings.quota.unlimited) == (0, NoQuotaReason.NO_LIMIT)


def protection(made: Pod, rules: CgroupConfig) -> list[tuple[str, int]]:
    unified = pod_cgroup_settings(made, rules).unified
    assert all(isinstance(each, MemoryProtection) for each in unified)
    return [(each.file, each.memory_bytes) for each in unified if isinstance(each, MemoryProtection)]


def test_requested_memory_is_protected_by_tier() -> None:
    assert protection(a_guaranteed_pod("g", "1/64Mi"), TIERED) == [("memory.min", 64 * MIB)]
    assert protection(a_pod("b", "memory=64Mi"), TIERED) == [("memory.low", 64 * MIB)]
    assert protection(a_pod("b", "cpu=1"), TIERED) == []
    assert protection(a_pod("b", "memory=64Mi"), CgroupConfig(has_memory_qos=True)) == []
    untouched = CgroupConfig(reservation_policy="TieredReservation")
    assert protection(a_pod("b", "memory=64Mi"), untouched) == []


def test_huge_pages_are_bounded_by_requests_and_processes_by_the_setting() -> None:
    settings = pod_cgroup_settings(a_pod("h", "cpu=1 hugepages-2Mi=4Mi"), CgroupConfig(pod_pids_limit=1024))
    assert settings.huge_pages == (
        HugePageCeiling(Bytes(2 * MIB), Bytes(4 * MIB), AmountOrigin.POD_REQUESTS),
    )
    assert settings.processes == ProcessCeiling(1024, AmountOrigin.POD_PIDS_LIMIT)


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ("hugepages-2Mi=4Mi hugepages-2048Ki=2Mi cpu=1", {2 * MIB: 6 * MIB}),
        ("hugepages-odd=5", {0: 5}),
        ("memory=1Gi", {}),
    ],
)
def test_names_of_the_same_page_size_are_added_up(asked: str, limits: dict[int, int]) -> None:
    assert huge_page_limits(amounts(asked)) == limits


@pytest.mark.parametrize(
    ("page_bytes", "text"),
    [
        (64 << 10, "64KB"),
        (16 << 30, "16GB"),
        (512, "512B"),
        (3 << 50, "3PB"),
        (2047 << 50, "2047PB"),
        (1025, None),
    ],
)
def test_page_sizes_are_named_as_the_kernel_names_them(page_bytes: int, text: str | None) -> None:
    assert huge_page_size_name(page_bytes) == text
