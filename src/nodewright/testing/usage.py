"""Short constructors of a node's usage, for tests and notebooks: `memory="400Mi/16Gi"` is available/capacity.

Settings of timelines in a few words, for tests and notebooks: amounts are texts, rates are a second.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, parse_thresholds
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    RlimitStats,
    RuntimeStats,
    StatsSummary,
    VolumeStats,
)
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity
from nodewright.predict.timeline.timeline_model import ContainerMemory, PodMemory, TimelineSetup
from nodewright.predict.timeline.usage_forecast import Assumptions, Growth
from nodewright.testing.objects import a_pod


def a_reading(*pods: PodStats, at_s: int | None = None, **signals: str) -> StatsSummary:
    """The usage of a node with 16Gi of memory and 100Gi of disk, half of which is available unless specified.

    ``signals`` are `memory`, `allocatable` (that of all pods), `nodefs`, `imagefs`, `containerfs` and their
    inodes (`nodefs_inodes`, ...), and `pids`: each available/capacity, or empty for "not observed". ``at_s`` is
    when it was measured, in seconds since 1970.

    >>> a_reading(memory="400Mi/16Gi", imagefs="").node.memory.available_bytes
    419430400
    """
    at = None if at_s is None else Instant(at_s * 10**9)
    pids = _pair(signals.get("pids", "16384/32768"))
    container_of_pods = ContainerStats(
        name="pods", memory=_memory(signals.get("allocatable", "8Gi/16Gi"), at)
    )
    node = NodeStats(
        node_name="node1",
        memory=_memory(signals.get("memory", "8Gi/16Gi"), at),
        system_containers=(container_of_pods,),
        fs=_filesystem("nodefs", signals, at),
        runtime=RuntimeStats(
            image_fs=_filesystem("imagefs", signals, at), container_fs=_filesystem("containerfs", signals, at)
        ),
        rlimit=RlimitStats(time=at, max_pid=pids[1], running=pids[1] - pids[0]) if pids else None,
    )
    return StatsSummary(node=node, pods=pods)


def a_pod_usage(name: str, memory: str = "0", *, processes: int = 0, **disk: str) -> PodStats:
    """The usage of a pod with one container, `main`; its uid is its name.

    ``disk`` are `rootfs`, `logs`, `storage` (ephemeral storage as a whole) and volumes by name: bytes, or
    bytes/inodes.

    >>> a_pod_usage("web", "1Gi", rootfs="5Gi/300", cache="1Gi").volumes[0].used_bytes
    1073741824
    """
    used = MemoryStats(working_set_bytes=_count(memory))
    main = ContainerStats(name="main", memory=used, rootfs=_held(disk, "rootfs"), logs=_held(disk, "logs"))
    storage = _held(disk, "storage")
    return PodStats(
        pod_ref=PodReference(name=name, namespace="default", uid=name),
        containers=(main,),
        memory=used,
        volumes=tuple(_volume(volume, text) for volume, text in disk.items()),
        ephemeral_storage=storage,
        processes=ProcessStats(process_count=processes),
    )


def _memory(text: str, at: Instant | None) -> MemoryStats | None:
    pair = _pair(text)
    return (
        MemoryStats(time=at, available_bytes=pair[0], working_set_bytes=pair[1] - pair[0]) if pair else None
    )


def _filesystem(name: str, signals: dict[str, str], at: Instant | None) -> FsStats | None:
    space = _pair(signals.get(name, "50Gi/100Gi"))
    inodes = _pair(signals.get(f"{name}_inodes", "500000/1000000"))
    if not space and not inodes:
        return None
    return FsStats(
        time=at,
        available_bytes=space[0] if space else None,
        capacity_bytes=space[1] if space else None,
        inodes_free=inodes[0] if inodes else None,
        inodes=inodes[1] if inodes else None,
    )


def _held(disk: dict[str, str], part: str) -> FsStats | None:
    text = disk.pop(part, None)
    if text is None:
        return None
    used, _, inodes = text.partition("/")
    return FsStats(used_bytes=_count(used), inodes_used=_count(inodes or "0"))


def _volume(name: str, text: str) -> VolumeStats:
    used, _, inodes = text.partition("/")
    return VolumeStats(
        name=name, used_bytes=_count(used) if used else None, inodes_used=_count(inodes or "0")
    )


def _pair(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    available, _, capacity = text.partition("/")
    return _count(available), _count(capacity)


def _count(text: str) -> int:
    return Quantity.parse(text).value()


SECOND_NS = 10**9


def a_timeline_pod(
    name: str, used: str = "0", request: str = "0", *, limit: str = "", priority: int = 0, **more: int
) -> PodMemory:
    """A pod with one container, `main`, that requests a CPU; ``more`` are fields of the container.

    >>> a_timeline_pod("web", "1Gi").containers[0].used_bytes
    1073741824
    """
    part = ContainerMemory(
        name="main",
        used_bytes=_count(used),
        limit_bytes=_count(limit) if limit else None,
        oom_score_adj=1000 if request == "0" else 900,
        cpu_milli=1000,
    )
    part = replace(part, **more)
    pod = a_pod(name, f"memory={request} cpu=1", priority=priority)
    return PodMemory(claim=ActivePod.of(pod), containers=(part,), age_ns=0)


def a_timeline_setting(
    *pods: PodMemory,
    growth: Mapping[str, str] | None = None,
    hard: str = "100Mi",
    memory: str = "4Gi",
    seconds: int = 120,
    system: str = "0",
) -> TimelineSetup:
    """A node of 4Gi without kernel memory, and the growth per second of its pods, by name (`system`: outside pods).

    >>> a_timeline_setting(a_timeline_pod("web"), growth={"web": "1Mi"}).growth[0].rate
    1048576
    """
    settings = EvictionSettings(hard={"memory.available": hard} if hard else {})
    return TimelineSetup(
        rules=EvictionConfig(thresholds=parse_thresholds(settings).thresholds, local_storage_isolation=False),
        pods=pods,
        memory_bytes=_count(memory),
        system_bytes=_count(system),
        growth=tuple(_growth(name, rate) for name, rate in (growth or {}).items()),
        duration_ns=seconds * SECOND_NS,
        enforces_pods=False,
        assumptions=Assumptions(kept_free_bytes=0),
    )


def _growth(name: str, rate: str) -> Growth:
    pod, container = ("", "") if name == "system" else (name, "main")
    return Growth(at_ns=0, pod=pod, container=container, rate=_count(rate))
