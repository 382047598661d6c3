import pytest

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import (
    AmountOrigin,
    CgroupSettings,
    ContainerSettings,
    CPUPool,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    KilledTogether,
    MemoryAndSwap,
    MemoryCeiling,
    MemoryFrom,
    NoSwapReason,
    ProcessCeiling,
    RunsOn,
)
from nodewright.engine.core.cgroups.cgroup_plan import (
    CgroupFile,
    cgroup_files,
    container_files,
    systemd_quota,
)
from nodewright.model.values.cpu_time import Shares
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU

MIB = 1 << 20
SHARES = CPUShares(Shares(256), MilliCPU(250), AmountOrigin.REQUEST)
CPUS = RunsOn(CPUSet.of(1, 2), CPUPool.EXCLUSIVE)
PAGES = (HugePageCeiling(Bytes(2 * MIB), Bytes(4 * MIB), AmountOrigin.LIMIT),)


def quota(microseconds: int) -> CPUQuota:
    return CPUQuota(quota_us=Microseconds(microseconds), period_us=Microseconds(100_000))


def memory(total: int) -> MemoryCeiling:
    return MemoryCeiling(Bytes(total), AmountOrigin.LIMIT)


def file_texts(files: tuple[CgroupFile, ...]) -> str:
    return " ".join(f"{file.name}={file.value.replace(' ', '/')}" for file in files)


GROUP = CgroupSettings(
    cpu=SHARES,
    quota=quota(50_000),
    memory=memory(8192),
    processes=ProcessCeiling(9, AmountOrigin.POD_PIDS_LIMIT),
    huge_pages=PAGES,
    unified=(KilledTogether(),),
    cpus=CPUS,
)
CONTAINER = ContainerSettings(
    cpu=SHARES,
    quota=quota(50_000),
    memory=memory(8192),
    swap=MemoryAndSwap(Bytes(8192), NoSwapReason.CGROUP_V1),
    huge_pages=PAGES,
    unified=(KilledTogether(),),
    cpus=CPUS,
    mems=MemoryFrom(NUMASet.of(0, 1)),
)
HUGE_2 = "hugetlb.2MB.max=4194304 hugetlb.2MB.rsvd.max=4194304"
HUGE_1 = "hugetlb.2MB.limit_in_bytes=4194304 hugetlb.2MB.rsvd.limit_in_bytes=4194304"


def test_the_kubelet_writes_version_2() -> None:
    assert file_texts(cgroup_files(GROUP, CgroupConfig())) == (
        f"cpu.weight=10 cpu.max=50000/100000 cpuset.cpus=1-2 memory.max=8192 memory.oom.group=1 {HUGE_2} pids.max=9"
    )


def test_the_kubelet_writes_version_1() -> None:
    assert file_texts(cgroup_files(GROUP, CgroupConfig(version=1))) == (
        "cpu.shares=256 cpu.cfs_period_us=100000 cpu.cfs_quota_us=50000 cpuset.cpus=1-2 "
        f"memory.limit_in_bytes=8192 {HUGE_1} pids.max=9"
    )


def test_the_runtime_writes_version_2_with_weights_of_its_own() -> None:
    settings = ContainerSettings(
        cpu=SHARES, quota=quota(-1), unified=(KilledTogether(),), cpus=CPUS, mems=MemoryFrom(NUMASet.of(1))
    )
    rest = "cpu.max=max/100000 cpuset.cpus=1-2 cpuset.mems=1 memory.oom.group=1"
    assert file_texts(container_files(settings, CgroupConfig())) == f"cpu.weight=35 {rest}"
    linear = CgroupConfig(runtime_uses_linear_weights=True)
    assert file_texts(container_files(settings, linear)) == f"cpu.weight=10 {rest}"


def test_the_runtime_writes_version_1() -> None:
    assert file_texts(container_files(CONTAINER, CgroupConfig(version=1))) == (
        "cpu.shares=256 cpu.cfs_period_us=100000 cpu.cfs_quota_us=50000 cpuset.cpus=1-2 cpuset.mems=0-1 "
        f"memory.limit_in_bytes=8192 memory.memsw.limit_in_bytes=8192 {HUGE_1}"
    )


def test_what_is_not_set_is_not_written() -> None:
    assert cgroup_files(CgroupSettings(), CgroupConfig()) == ()
    assert container_files(ContainerSettings(), CgroupConfig()) == ()
    assert cgroup_files(CgroupSettings(memory=memory(0)), CgroupConfig()) == ()


@pytest.mark.parametrize(
    ("version", "microseconds", "text"),
    [
        (2, 0, "cpu.max=max/100000"),
        (2, -1, "cpu.max=max/100000"),
        (1, 0, "cpu.cfs_period_us=100000"),
        (1, -1, "cpu.cfs_period_us=100000 cpu.cfs_quota_us=-1"),
    ],
)
def test_a_quota_that_is_none(version: int, microseconds: int, text: str) -> None:
    settings = CgroupSettings(quota=quota(microseconds))
    assert file_texts(cgroup_files(settings, CgroupConfig(version=version, driver="systemd"))) == text


def test_systemd_makes_whole_per_cents_of_quotas_and_that_is_told() -> None:
    (file,) = cgroup_files(CgroupSettings(quota=quota(2500)), CgroupConfig(driver="systemd"))
    assert (file.value, file.kubelet_value) == ("3000 100000", "2500 100000")
    first = CgroupConfig(version=1, driver="systemd")
    period, file = cgroup_files(CgroupSettings(quota=quota(2500)), first)
    assert (period.kubelet_value, file.value, file.kubelet_value) == ("", "3000", "2500")
    (file,) = cgroup_files(CgroupSettings(quota=quota(3000)), CgroupConfig(driver="systemd"))
    assert file.kubelet_value == ""


@pytest.mark.parametrize(
    ("microseconds", "period", "rounded"),
    [(1000, 100_000, 1000), (1001, 100_000, 2000), (16_650, 50_000, 17_000), (1000, 33_000, 1320)],
)
def test_quotas_of_systemd(microseconds: int, period: int, rounded: int) -> None:
    assert systemd_quota(Microseconds(microseconds), Microseconds(period)) == rounded


def test_the_kubelet_bounds_page_sizes_that_nobody_names_to_nothing() -> None:
    rules = CgroupConfig(huge_page_sizes=(Bytes(2 * MIB), Bytes(1 << 30)))
    huge = "hugetlb.1GB.max=0 hugetlb.1GB.rsvd.max=0"
    assert file_texts(cgroup_files(CgroupSettings(huge_pages=PAGES), rules)) == f"{HUGE_2} {huge}"
    assert file_texts(cgroup_files(CgroupSettings(), rules)).startswith("hugetlb.2MB.max=0 ")


def test_page_sizes_that_no_kernel_has_are_passed_over() -> None:
    odd = (HugePageCeiling(Bytes(1500), Bytes(3000), AmountOrigin.POD_REQUESTS),)
    assert cgroup_files(CgroupSettings(huge_pages=odd), CgroupConfig()) == ()


@pytest.mark.parametrize(("processes", "text"), [(7, "7"), (0, "1"), (-1, "max")])
def test_processes(processes: int, text: str) -> None:
    settings = CgroupSettings(processes=ProcessCeiling(processes, AmountOrigin.NODE))
    assert file_texts(cgroup_files(settings, CgroupConfig())) == f"pids.max={text}"


def test_unlimited_memory_and_a_reserve_that_is_less_than_nothing() -> None:
    assert file_texts(cgroup_files(CgroupSettings(memory=memory(-1)), CgroupConfig())) == "memory.max=max"
    assert file_texts(cgroup_files(CgroupSettings(memory=memory(-5)), CgroupConfig())) == "memory.max=-5"
