"""Which files are written for settings, and with what text: for both versions of cgroups, under both drivers.

Follows: opencontainers/cgroups v0.0.6, which the kubelet and runc write with.
"""

from collections.abc import Iterable, Iterator

import msgspec

from nodewright.core.cgroups.facts import (
    ContainerSettings,
    CPUQuota,
    CPUShares,
    Fact,
    GroupSettings,
    HugePageCeiling,
    MemoryCeiling,
    Origin,
    ProcessCeiling,
    unified_text,
)
from nodewright.core.cgroups.names import Driver
from nodewright.core.cgroups.rules import CgroupRules, huge_page_text
from nodewright.values.cpu_time import Weight, kubelet_weight, runtime_weight
from nodewright.values.units import Bytes, Microseconds

UNLIMITED = "max"

_A_PERCENT = 10_000
_A_SECOND = 1_000_000


class File(msgspec.Struct, frozen=True):
    """A file of a cgroup, what is written to it and why."""

    name: str
    value: str
    because: Fact
    wanted: str = ""
    """What the kubelet asked for, where systemd made another value of it."""


def group_files(settings: GroupSettings, rules: CgroupRules) -> tuple[File, ...]:
    """What the kubelet writes to one of its own groups.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, toResources and maybeSetHugetlb: page sizes of the machine
        that the settings do not name are bounded to nothing.
    """
    named = settings.huge_pages or ()
    there = {each.page_bytes for each in named}
    others = (
        HugePageCeiling(page, Bytes(0), Origin.NOTHING) for page in rules.huge_pages if page not in there
    )
    return (
        *_cpu_time(settings.cpu, settings.quota, rules, is_container=False),
        *([File("cpuset.cpus", str(settings.cpus.cpus), settings.cpus)] if settings.cpus else []),
        *_memory(settings.memory, rules),
        *_unified(settings, rules),
        *_huge_pages((*named, *others), rules),
        *_processes(settings.processes),
    )


def container_files(settings: ContainerSettings, rules: CgroupRules) -> tuple[File, ...]:
    """What the runtime writes to a container's group for what the kubelet told it."""
    found = [*_cpu_time(settings.cpu, settings.quota, rules, is_container=True)]
    if settings.cpus is not None:
        found.append(File("cpuset.cpus", str(settings.cpus.cpus), settings.cpus))
    if settings.mems is not None:
        found.append(File("cpuset.mems", str(settings.mems.numa), settings.mems))
    found += _memory(settings.memory, rules)
    if settings.swap is not None:
        found.append(File("memory.memsw.limit_in_bytes", str(settings.swap.memory_bytes), settings.swap))
    return (*found, *_unified(settings, rules), *_huge_pages(settings.huge_pages, rules))


def systemd_quota(quota: Microseconds, period: Microseconds) -> Microseconds:
    """The quota that systemd can express: whole per cent of a CPU, rounded up.

    Units:   microseconds a period.
    Follows: opencontainers/cgroups v0.0.6, systemd/common.go, addCPUQuota.

    >>> systemd_quota(Microseconds(2500), Microseconds(100_000))
    3000
    """
    a_second = quota * _A_SECOND // period
    if a_second % _A_PERCENT == 0:
        return quota
    return Microseconds((a_second // _A_PERCENT + 1) * _A_PERCENT * period // _A_SECOND)


def _cpu_time(
    cpu: CPUShares | None, quota: CPUQuota | None, rules: CgroupRules, *, is_container: bool
) -> Iterator[File]:
    if cpu is not None and rules.version == 2:
        yield File("cpu.weight", str(_weight(cpu, rules, is_container=is_container)), cpu)
    elif cpu is not None:
        yield File("cpu.shares", str(cpu.shares), cpu)
    if quota is None:
        return
    wanted, period = quota.quota_us, quota.period_us
    written = wanted
    if wanted > 0 and rules.driver == Driver.SYSTEMD:
        written = systemd_quota(wanted, period)
    if rules.version == 2:
        texts = [f"{each if each > 0 else UNLIMITED} {period}" for each in (written, wanted)]
        yield File("cpu.max", texts[0], quota, texts[1] if written != wanted else "")
        return
    yield File("cpu.cfs_period_us", str(period), quota)
    if written:
        yield File("cpu.cfs_quota_us", str(written), quota, str(wanted) if written != wanted else "")


def _weight(cpu: CPUShares, rules: CgroupRules, *, is_container: bool) -> Weight:
    is_curved = is_container and not rules.has_linear_runtime
    return runtime_weight(cpu.shares) if is_curved else kubelet_weight(cpu.shares)


def _memory(ceiling: MemoryCeiling | None, rules: CgroupRules) -> list[File]:
    """Nothing is written for a ceiling of 0: that is none."""
    if ceiling is None or not ceiling.memory_bytes:
        return []
    if rules.version == 1:
        return [File("memory.limit_in_bytes", str(ceiling.memory_bytes), ceiling)]
    text = UNLIMITED if ceiling.memory_bytes == -1 else str(ceiling.memory_bytes)
    return [File("memory.max", text, ceiling)]


def _unified(settings: GroupSettings | ContainerSettings, rules: CgroupRules) -> list[File]:
    if rules.version == 1:
        return []
    return [File(*unified_text(fact), fact) for fact in settings.unified]


def _huge_pages(bounds: Iterable[HugePageCeiling], rules: CgroupRules) -> Iterator[File]:
    """Each bound is written twice: for pages in use, and for those that are set aside (kernels from 5.7 on)."""
    suffix = "max" if rules.version == 2 else "limit_in_bytes"
    for bound in bounds:
        size = huge_page_text(bound.page_bytes)
        if size is not None:
            for kind in ("", ".rsvd"):
                yield File(f"hugetlb.{size}{kind}.{suffix}", str(bound.total_bytes), bound)


def _processes(ceiling: ProcessCeiling | None) -> list[File]:
    if ceiling is None:
        return []
    # systemd knows no 0, so 1 is written, whatever the driver.
    text = UNLIMITED if ceiling.processes < 0 else str(ceiling.processes or 1)
    return [File("pids.max", text, ceiling)]
