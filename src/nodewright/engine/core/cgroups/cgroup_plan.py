"""The planned cgroups of a node, from daemons and all pods down to each container: paths and values.

Also translates settings to files and their texts, for both cgroup versions and both drivers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig, huge_page_size_name
from nodewright.engine.core.cgroups.cgroup_facts import (
    MEMORY_HIGH,
    MEMORY_MIN,
    AmountOrigin,
    BorrowerCeiling,
    CeilingMissing,
    CgroupFact,
    CgroupSettings,
    ContainerSettings,
    CPUPool,
    CPUQuota,
    CPUShares,
    HugePageCeiling,
    MemoryCeiling,
    MemoryProtection,
    ProcessCeiling,
    RunsIdle,
    RunsOn,
    unified_file,
)
from nodewright.engine.core.cgroups.cgroup_names import (
    CgroupDriver,
    CgroupName,
    QOSCgroupNames,
    container_cgroup_name,
    is_container_id,
    parse_cgroup_name,
    pod_cgroup_name,
    uid_on_node,
)
from nodewright.engine.core.cgroups.cgroup_settings import (
    ContainerCpuset,
    node_level_settings,
    pod_cgroup_settings,
    qos_memory_requests,
    settings_by_container,
    with_memory_qos,
    with_memory_reserve,
    with_unbounded_huge_pages,
)
from nodewright.engine.core.cgroups.cpu_weight import cpu_weight, qos_cpu_shares
from nodewright.engine.core.requests.oom_adjust import OOMScore
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.values.cpu_time import CFS_PERIOD, cpu_quota
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Bytes, Microseconds, MilliCPU

UNLIMITED = "max"
CPU_IDLE = "cpu.idle"
"""A file that kernels before 5.15 do not have. A cgroup that is idle has no weight: the kernel refuses one."""
CPU_WEIGHTS = ("cpu.weight", "cpu.shares")

_A_PERCENT = 10_000
_A_SECOND = 1_000_000


class CgroupFile(msgspec.Struct, frozen=True):
    """A file of a cgroup, the text that is written to it and the reason."""

    name: str
    value: str
    because: CgroupFact
    kubelet_value: str = ""
    """The kubelet's value, if systemd changes it."""


def cgroup_files(settings: CgroupSettings, rules: CgroupConfig) -> tuple[CgroupFile, ...]:
    """The files that the kubelet writes to one of its own cgroups.

    Follows: v1.36, kubelet/cm/cgroup_manager_linux.go, toResources and maybeSetHugetlb: huge page sizes of
        the machine that the settings omit are limited to 0.
    """
    limits = settings.huge_pages or ()
    limited_sizes = {limit.page_bytes for limit in limits}
    zero_limits = (
        HugePageCeiling(page, Bytes(0), AmountOrigin.UNSET)
        for page in rules.huge_page_sizes
        if page not in limited_sizes
    )
    return (
        *_cpu_time(settings.cpu, settings.quota, rules, is_container=False),
        *([CgroupFile("cpuset.cpus", str(settings.cpus.cpus), settings.cpus)] if settings.cpus else []),
        *_memory(settings.memory, rules),
        *_unified(settings, rules),
        *_huge_pages((*limits, *zero_limits), rules),
        *_processes(settings.processes),
    )


def container_files(settings: ContainerSettings, rules: CgroupConfig) -> tuple[CgroupFile, ...]:
    """The files that the runtime writes for the kubelet's settings of a container's cgroup."""
    files = [*_cpu_time(settings.cpu, settings.quota, rules, is_container=True)]
    if settings.cpus is not None:
        files.append(CgroupFile("cpuset.cpus", str(settings.cpus.cpus), settings.cpus))
    if settings.mems is not None:
        files.append(CgroupFile("cpuset.mems", str(settings.mems.numa), settings.mems))
    files += _memory(settings.memory, rules)
    if settings.swap is not None:
        files.append(
            CgroupFile("memory.memsw.limit_in_bytes", str(settings.swap.memory_bytes), settings.swap)
        )
    return (*files, *_unified(settings, rules), *_huge_pages(settings.huge_pages, rules))


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
    cpu: CPUShares | None, quota: CPUQuota | None, rules: CgroupConfig, *, is_container: bool
) -> Iterator[CgroupFile]:
    if cpu is not None and rules.version == 2:
        yield CgroupFile("cpu.weight", str(cpu_weight(cpu, rules, is_container=is_container)), cpu)
    elif cpu is not None:
        yield CgroupFile("cpu.shares", str(cpu.shares), cpu)
    if quota is None:
        return
    kubelet_quota, period = quota.quota_us, quota.period_us
    written = kubelet_quota
    if kubelet_quota > 0 and rules.driver == CgroupDriver.SYSTEMD:
        written = systemd_quota(kubelet_quota, period)
    if rules.version == 2:
        texts = [f"{amount if amount > 0 else UNLIMITED} {period}" for amount in (written, kubelet_quota)]
        yield CgroupFile("cpu.max", texts[0], quota, texts[1] if written != kubelet_quota else "")
        return
    yield CgroupFile("cpu.cfs_period_us", str(period), quota)
    if written:
        yield CgroupFile(
            "cpu.cfs_quota_us", str(written), quota, str(kubelet_quota) if written != kubelet_quota else ""
        )


def _memory(ceiling: MemoryCeiling | None, rules: CgroupConfig) -> list[CgroupFile]:
    """The file for a memory limit; none for a limit of 0, which means no limit."""
    if ceiling is None or not ceiling.memory_bytes:
        return []
    if rules.version == 1:
        return [CgroupFile("memory.limit_in_bytes", str(ceiling.memory_bytes), ceiling)]
    text = UNLIMITED if ceiling.memory_bytes == -1 else str(ceiling.memory_bytes)
    return [CgroupFile("memory.max", text, ceiling)]


def _unified(settings: CgroupSettings | ContainerSettings, rules: CgroupConfig) -> list[CgroupFile]:
    if rules.version == 1:
        return []
    return [CgroupFile(*unified_file(fact), fact) for fact in settings.unified]


def _huge_pages(limits: Iterable[HugePageCeiling], rules: CgroupConfig) -> Iterator[CgroupFile]:
    """Two files for each limit: for pages in use and, on Linux 5.7 and later, for reserved pages."""
    suffix = "max" if rules.version == 2 else "limit_in_bytes"
    for limit in limits:
        size = huge_page_size_name(limit.page_bytes)
        if size is not None:
            for kind in ("", ".rsvd"):
                yield CgroupFile(f"hugetlb.{size}{kind}.{suffix}", str(limit.total_bytes), limit)


def _processes(ceiling: ProcessCeiling | None) -> list[CgroupFile]:
    if ceiling is None:
        return []
    # systemd has no 0, so 1 is written with any driver.
    text = UNLIMITED if ceiling.processes < 0 else str(ceiling.processes or 1)
    return [CgroupFile("pids.max", text, ceiling)]


class CgroupLevel(StrEnum):
    """The level of a cgroup in the tree."""

    DAEMONS = "daemons"
    NODE = "node"
    QOS_CLASS = "qosClass"
    POD = "pod"
    CONTAINER = "container"


class PlannedCgroup(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup and the values that are written to its files."""

    level: CgroupLevel
    path: str
    """The path from the root of the cgroup tree, as the driver names it."""
    files: tuple[CgroupFile, ...]
    qos_class: QOSClass | None = None
    pod: str = ""
    """Namespace and name."""
    container: str = ""
    container_id: str = ""
    """The id in the pod's status; empty: unknown, and the last element of the path is a placeholder."""
    is_transient: bool = False
    """Whether it is the cgroup of an init container that ends, which then disappears."""
    unset_limits: tuple[CeilingMissing, ...] = ()
    oom_score: OOMScore | None = None


class DaemonCgroup(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup of daemons in which the kubelet enforces their reservation."""

    path: str
    limits: ResourceList
    origin: AmountOrigin
    compressible_only: bool = False


class Borrowers(msgspec.Struct, frozen=True, kw_only=True):
    """What BestEffort pods may use together."""

    cpu: MilliCPU
    memory: Bytes
    held: Bytes
    """What they hold of memory, if that is more."""


class CgroupLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The cgroup hierarchy of a kubelet."""

    root: CgroupName
    """The cgroup of all pods."""
    cgroups_per_qos: bool = True
    """Whether QoS classes and pods have cgroups (`cgroupsPerQOS`)."""
    limits: ResourceList
    """The limits of all pods together."""
    allocatable_memory: Bytes | None = None
    qos_reserved_percent: int | None = None
    """`qosReserved` for memory; None: not set, or the gate QOSReserved is off."""
    daemons: tuple[DaemonCgroup, ...] = ()
    all_cpus: CPUSet | None = None
    """All CPUs if the CPU manager allocates none exclusively: then the top cgroups get this cpuset."""
    borrowers: Borrowers | None = None
    """None: the node lends nothing, as a kubelet."""


def top_level_cgroups(
    tree: CgroupLayout, rules: CgroupConfig, pods: Collection[Pod]
) -> tuple[PlannedCgroup, ...]:
    """The cgroups above those of pods, after the kubelet has run for a minute with these active pods.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, enforceNodeAllocatableCgroups;
        kubelet/cm/qos_container_manager_linux.go, UpdateCgroups.
    """
    runs_on = RunsOn(tree.all_cpus, CPUPool.ALL) if tree.all_cpus else None
    daemon_cgroups = [_daemon_cgroup(daemons, rules, runs_on) for daemons in tree.daemons]
    top = node_level_settings(tree.limits, AmountOrigin.NODE)
    assert top is not None
    top = replace(top, cpus=runs_on)
    if not tree.cgroups_per_qos:
        # The root of the cgroup tree has no files that can be written.
        return (
            (*daemon_cgroups, _planned_cgroup(CgroupLevel.NODE, tree.root, top, rules))
            if tree.root.components
            else tuple(daemon_cgroups)
        )
    requested = qos_memory_requests(pods, rules.requests)
    classes = with_memory_qos(qos_cpu_shares(pods, rules.requests), requested, rules)
    if tree.qos_reserved_percent is not None:
        classes = with_memory_reserve(classes, requested, tree.qos_reserved_percent, tree.allocatable_memory)
    classes = with_unbounded_huge_pages(classes, rules)
    if tree.borrowers is not None:
        best_effort = classes[QOSClass.BEST_EFFORT]
        classes = {**classes, QOSClass.BEST_EFFORT: _limited(best_effort, tree.borrowers, rules)}
    # Guaranteed pods are in the cgroup of all pods, which is also the cgroup of their class.
    guaranteed = classes.pop(QOSClass.GUARANTEED)
    top = replace(top, unified=guaranteed.unified, huge_pages=guaranteed.huge_pages)
    parents = QOSCgroupNames.for_root(tree.root)
    return (
        *daemon_cgroups,
        _planned_cgroup(CgroupLevel.NODE, tree.root, top, rules),
        *(
            _planned_cgroup(CgroupLevel.QOS_CLASS, parents.for_class(pod_class), settings, rules, pod_class)
            for pod_class, settings in classes.items()
        ),
    )


def pod_cgroups(
    pod: Pod,
    tree: CgroupLayout,
    rules: CgroupConfig,
    cpusets: Mapping[str, ContainerCpuset],
    *,
    has_exclusive_cpus: bool,
) -> Iterator[PlannedCgroup]:
    """The cgroup of the pod, if pods have any, and those of its containers: containers in order, then init containers.

    Errors: CgroupNameError for a uid that cannot be part of a cgroup name.
    """
    pod_class, parent = qos_class(pod, rules.qos), "/<runtime>"
    if tree.cgroups_per_qos:
        on_node = replace(pod, metadata=replace(pod.metadata, uid=uid_on_node(pod)))
        parent = pod_cgroup_name(on_node, QOSCgroupNames.for_root(tree.root), pod_level=rules.qos).path(
            rules.driver
        )
        settings = pod_cgroup_settings(pod, rules, has_exclusive_cpus=has_exclusive_cpus)
        yield PlannedCgroup(
            level=CgroupLevel.POD,
            path=parent,
            files=(*cgroup_files(settings, rules), *_idle(pod_class, tree)),
            qos_class=pod_class,
            pod=pod.full_name,
            unset_limits=settings.unset_limits,
        )
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    ids = {status.name: status.container_id for status in statuses if is_container_id(status.container_id)}
    transient = {container.name for container in pod.spec.init_containers if not container.is_sidecar}
    for name, container_settings in settings_by_container(pod, rules, cpusets).items():
        container_id = ids.get(name, "") if tree.cgroups_per_qos else ""
        leaf = container_cgroup_name(container_id, rules.driver) if container_id else f"<{name}>"
        yield PlannedCgroup(
            level=CgroupLevel.CONTAINER,
            path=f"{parent}/{leaf}",
            files=container_files(container_settings, rules),
            qos_class=pod_class,
            pod=pod.full_name,
            container=name,
            container_id=container_id,
            is_transient=name in transient,
            oom_score=container_settings.oom_score,
        )


def _idle(pod_class: QOSClass, tree: CgroupLayout) -> list[CgroupFile]:
    """The file of a borrower that has it run only while no other pod has work."""
    is_borrower = tree.borrowers is not None and pod_class is QOSClass.BEST_EFFORT
    return [CgroupFile(CPU_IDLE, "1", RunsIdle())] if is_borrower else []


def _limited(settings: CgroupSettings, borrowers: Borrowers, rules: CgroupConfig) -> CgroupSettings:
    """The settings of the BestEffort class with a quota and a ceiling of memory.

    The weight of the class stays the kubelet's: a kubelet writes it, and does not start where it cannot. Version 1 has no
    `memory.high`: its limit is never below what is held, because the kernel refuses that.
    """
    period = rules.configured_period_us if rules.has_custom_period else CFS_PERIOD
    quota = CPUQuota(
        quota_us=cpu_quota(MilliCPU(max(borrowers.cpu, 1)), Microseconds(period)),
        period_us=Microseconds(period),
        milli_cpu=borrowers.cpu,
        origin=AmountOrigin.LENT,
    )
    if rules.version == 1:
        ceiling = MemoryCeiling(
            Bytes(max(borrowers.memory, borrowers.held, MIN_LIMIT_BYTES)), AmountOrigin.LENT
        )
        return replace(settings, quota=quota, memory=ceiling)
    unified = tuple(fact for fact in settings.unified if unified_file(fact)[0] != MEMORY_HIGH)
    return replace(settings, quota=quota, unified=(*unified, BorrowerCeiling(borrowers.memory)))


MIN_LIMIT_BYTES = 1 << 20
"""A limit of 0 would not be written."""


def _daemon_cgroup(daemons: DaemonCgroup, rules: CgroupConfig, runs_on: RunsOn | None) -> PlannedCgroup:
    """The cgroup of daemons; with MemoryQoS all its memory is protected.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, enforceExistingCgroup.
    """
    settings = node_level_settings(
        daemons.limits, daemons.origin, compressible_only=daemons.compressible_only
    )
    assert settings is not None
    if rules.has_memory_qos and settings.memory is not None:
        protected = MemoryProtection(MEMORY_MIN, settings.memory.memory_bytes, daemons.origin)
        settings = replace(settings, unified=(protected,))
    name = parse_cgroup_name(daemons.path, rules.driver)
    return _planned_cgroup(CgroupLevel.DAEMONS, name, replace(settings, cpus=runs_on), rules)


def _planned_cgroup(
    level: CgroupLevel,
    name: CgroupName,
    settings: CgroupSettings,
    rules: CgroupConfig,
    pod_class: QOSClass | None = None,
) -> PlannedCgroup:
    path, files = name.path(rules.driver), cgroup_files(settings, rules)
    return PlannedCgroup(level=level, path=path, files=files, qos_class=pod_class)
