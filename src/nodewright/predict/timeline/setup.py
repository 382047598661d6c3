"""The input of a timeline: memory and limits of a node and its containers, growth, and assumptions.

`timeline_setup` derives it from a node's configuration, its pods and its stats summary.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import KilledTogether, SwapShare
from nodewright.engine.core.cgroups.cgroup_settings import pod_cgroup_settings
from nodewright.engine.core.cgroups.container_settings import settings_by_container
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig
from nodewright.engine.core.requests.oom_adjust import oom_scores
from nodewright.engine.node.node_cgroups import cgroup_rules
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.kubernetes.stats_summary import MemoryStats, PodStats, StatsSummary
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import ZERO
from nodewright.predict.timeline.usage_forecast import SECOND_NS, Assumptions, Growth

__all__ = [
    "SECOND_NS",
    "Assumptions",
    "ContainerMemory",
    "Growth",
    "LimitScope",
    "PodMemory",
    "TimelineSetup",
]


class LimitScope(StrEnum):
    """The level at which memory reaches its limit."""

    NODE = "node"
    PODS = "pods"
    POD = "pod"
    CONTAINER = "container"


class ContainerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a container at the start.

    Units: bytes; thousandths of a CPU.
    """

    name: str
    used_bytes: int = 0
    """Working set."""
    file_bytes: int = 0
    """The part that is page cache, which the OOM killer does not count."""
    limit_bytes: int | None = None
    """`memory.max`; None: no limit."""
    swap_bytes: int = 0
    """`memory.swap.max`."""
    oom_score_adj: int = 0
    oom_group: bool = True
    """`memory.oom.group`."""
    restarts: bool = True
    """Whether the kubelet restarts it after an OOM kill."""
    cpu_milli: int = 0
    """CPU request."""


class PodMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a pod at the start.

    Units: bytes; nanoseconds.
    """

    claim: ActivePod
    containers: tuple[ContainerMemory, ...]
    limit_bytes: int | None = None
    """`memory.max` of its cgroup."""
    has_stats: bool = True
    age_ns: int | None = None
    """Time since its start; None: not known."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.claim.uid


class TimelineSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a timeline depends on except the eviction policy.

    Units: bytes; nanoseconds.
    """

    rules: EvictionConfig
    """With thresholds on memory only; other signals are not simulated."""
    pods: tuple[PodMemory, ...]
    memory_bytes: int
    """Memory capacity of the node."""
    system_bytes: int = 0
    """Usage outside pods."""
    pods_limit_bytes: int | None = None
    """`memory.max` of the cgroup of all pods."""
    pods_other_bytes: int = 0
    """Usage in the cgroup of all pods that belongs to no pod."""
    swap_bytes: int = 0
    growth: tuple[Growth, ...] = ()
    """In order of time."""
    duration_ns: int = 600 * SECOND_NS
    enforces_pods: bool = True
    """Whether hard thresholds on memory also apply to all pods together (`enforceNodeAllocatable`)."""
    is_notified: bool = False
    """Whether the kernel notifies the kubelet of thresholds (`kernelMemcgNotification`, cgroup v1)."""
    assumptions: Assumptions = Assumptions()


SIMULATED_SIGNALS = (Signal.MEMORY_AVAILABLE, Signal.ALLOCATABLE_MEMORY_AVAILABLE)
"""The simulated signals; disks, inodes and processes are not simulated."""


def timeline_setup(
    config: NodeConfig,
    pods: Sequence[Pod],
    usage: StatsSummary,
    growth: Sequence[Growth] = (),
    *,
    duration_ns: int,
) -> TimelineSetup | None:
    """The setup; None if the stats summary has no memory of the node, or zeros.

    A pod without stats uses nothing until it grows, and has no stats until then.
    """
    node = usage.node.memory
    if node is None or (not node.available_bytes and not node.working_set_bytes):
        return None
    if node.available_bytes is None or node.working_set_bytes is None:
        return None
    rules = cgroup_rules(config)
    kubelet = config.parts.kubelet
    pod_memories = _pod_memories(config, rules, pods, usage, growth)
    measured = sum(container.used_bytes for pod in pod_memories for container in pod.containers)
    in_pods = _pods_bytes(usage)
    limit = config.resources.kubepods.get(MEMORY, ZERO).value()
    enforced = kubelet.cgroups_per_qos
    return TimelineSetup(
        rules=memory_eviction_rules(config),
        pods=pod_memories,
        memory_bytes=node.available_bytes + node.working_set_bytes,
        system_bytes=max(node.working_set_bytes - max(in_pods, measured), 0),
        pods_limit_bytes=limit if enforced and limit else None,
        pods_other_bytes=max(in_pods - measured, 0),
        swap_bytes=config.facts.swap_bytes,
        growth=tuple(sorted(growth, key=lambda step: step.at_ns)),
        duration_ns=duration_ns,
        enforces_pods="pods" in kubelet.enforce_node_allocatable,
        is_notified=kubelet.kernel_memcg_notification and rules.version == 1,
    )


def memory_eviction_rules(config: NodeConfig) -> EvictionConfig:
    """The node's eviction configuration, reduced to thresholds on memory."""
    thresholds = tuple(
        threshold for threshold in config.eviction.thresholds if threshold.signal in SIMULATED_SIGNALS
    )
    return replace(config.eviction, thresholds=thresholds, local_storage_isolation=False)


def _pods_bytes(usage: StatsSummary) -> int:
    pods = next(
        (container.memory for container in usage.node.system_containers if container.name == "pods"), None
    )
    return (pods.working_set_bytes or 0) if pods is not None else 0


def _pod_memories(
    config: NodeConfig,
    rules: CgroupConfig,
    pods: Sequence[Pod],
    usage: StatsSummary,
    growth: Sequence[Growth],
) -> tuple[PodMemory, ...]:
    stats = {pod_stats.pod_ref.uid: pod_stats for pod_stats in usage.pods}
    known = {*stats, *(step.pod for step in growth)}
    now = usage.node.memory.time if usage.node.memory is not None else None
    return tuple(
        _pod_memory(config, rules, pod, stats.get(pod.uid), now, has_stats=pod.uid in known) for pod in pods
    )


def _pod_memory(
    config: NodeConfig,
    rules: CgroupConfig,
    pod: Pod,
    pod_stats: PodStats | None,
    now: Instant | None,
    *,
    has_stats: bool,
) -> PodMemory:
    memory_settings = pod_cgroup_settings(pod, rules).memory
    return PodMemory(
        claim=ActivePod.of(pod, config.requests),
        containers=tuple(_container_memories(pod, rules, pod_stats)),
        limit_bytes=memory_settings.memory_bytes
        if memory_settings is not None and memory_settings.memory_bytes > 0
        else None,
        has_stats=has_stats,
        age_ns=_age_ns(pod, now),
    )


def _container_memories(
    pod: Pod, rules: CgroupConfig, pod_stats: PodStats | None
) -> Iterator[ContainerMemory]:
    """The containers that run: sidecars and main containers; other init containers have ended."""
    settings = settings_by_container(pod, rules)
    scores = {score.container: score.adj for score in oom_scores(pod, rules.memory_capacity)}
    running = (*pod.spec.containers, *(init for init in pod.spec.init_containers if init.is_sidecar))
    stats = (
        {each.name: each.memory for each in pod_stats.containers if each.memory is not None}
        if pod_stats
        else {}
    )
    rest = _pod_bytes(pod_stats) - sum((memory.working_set_bytes or 0) for memory in stats.values())
    for index, container in enumerate(running):
        cgroup = settings[container.name]
        memory = stats.get(container.name, MemoryStats())
        # Usage beyond the containers (sandbox, volumes in memory) is counted with the first container.
        used = (memory.working_set_bytes or 0) + (max(rest, 0) if index == 0 else 0)
        yield ContainerMemory(
            name=container.name,
            used_bytes=used,
            file_bytes=0
            if memory.rss_bytes is None
            else max((memory.working_set_bytes or 0) - memory.rss_bytes, 0),
            limit_bytes=cgroup.memory.memory_bytes if cgroup.memory is not None else None,
            swap_bytes=sum(fact.swap_bytes for fact in cgroup.unified if isinstance(fact, SwapShare)),
            oom_score_adj=scores[container.name],
            oom_group=any(isinstance(fact, KilledTogether) for fact in cgroup.unified),
            restarts=_restarts(pod, container),
            cpu_milli=container.resources.requests.get(CPU, ZERO).milli_value(),
        )


def _pod_bytes(pod_stats: PodStats | None) -> int:
    return (
        (pod_stats.memory.working_set_bytes or 0)
        if pod_stats is not None and pod_stats.memory is not None
        else 0
    )


def _restarts(pod: Pod, container: Container) -> bool:
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    return policy != "Never"


def _age_ns(pod: Pod, now: Instant | None) -> int | None:
    if now is None or not pod.status.start_time:
        return None
    try:
        return max(now.nanoseconds - Instant.parse(pod.status.start_time).nanoseconds, 0)
    except InstantError:
        return None


MAX_EVENTS = 50_000
"""Events of a run: the kubelet's checks of more than five days."""


def timeline_too_long(duration_ns: int, now_ns: int) -> InputError:
    """The error of a timeline that has more events than the limit."""
    rule = (
        f"more than {MAX_EVENTS} checks and changes of memory by {Duration(now_ns)}, the limit: "
        "shorten --duration or spec.duration"
    )
    return InputError([Fault(source="the timeline", value=str(Duration(duration_ns)), rule=rule)])
