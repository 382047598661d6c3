"""The input of a timeline: memory and limits of a node and its containers, growth, and assumptions.

`timeline_setup` derives it from a node's configuration, its pods and its stats summary.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import KilledTogether, SwapShare
from nodewright.engine.core.cgroups.cgroup_settings import pod_cgroup_settings, settings_by_container
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig
from nodewright.engine.core.requests.oom_adjust import oom_scores
from nodewright.engine.node.eviction_pass import hidden_huge_pages, huge_page_bytes
from nodewright.engine.node.node_cgroups import cgroup_rules
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal, Threshold
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.kubernetes.stats_summary import MemoryStats, PodStats, StatsSummary
from nodewright.model.reasons.eviction import LimitExceeded, NodeRanShort
from nodewright.model.values.duration import Duration
from nodewright.model.values.event_queue import EventQueue
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import ZERO
from nodewright.predict.timeline.usage_forecast import SECOND_NS, Assumptions, Growth


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
    """Memory capacity of the node as `memory.available` counts it."""
    huge_page_bytes: int = 0
    """The part of it that is in huge pages, which no process of this timeline uses."""
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
        huge_page_bytes=huge_page_bytes(config.resources.capacity) - hidden_huge_pages(config),
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
            restarts=(container.restart_policy or pod.spec.restart_policy) != "Never",
            cpu_milli=container.resources.requests.get(CPU, ZERO).milli_value(),
        )


def _pod_bytes(pod_stats: PodStats | None) -> int:
    return (
        (pod_stats.memory.working_set_bytes or 0)
        if pod_stats is not None and pod_stats.memory is not None
        else 0
    )


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


class TimelineMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens, with its time."""

    at_ns: int


class ThresholdCrossed(TimelineMoment, frozen=True, kw_only=True):
    """A signal falls below its threshold; the eviction policy has not observed it yet."""

    signal: Signal
    threshold_bytes: int
    grace_ns: int = 0


class Noticed(TimelineMoment, frozen=True, kw_only=True):
    """A check observes that the threshold is met."""

    signal: Signal
    threshold_bytes: int
    available_bytes: int
    late_ns: int
    """Time since the threshold was crossed."""


class Recovered(TimelineMoment, frozen=True, kw_only=True):
    """A check observes that the threshold, minimum reclaim included, is no longer met."""

    signal: Signal
    available_bytes: int


class ConditionsChanged(TimelineMoment, frozen=True, kw_only=True):
    """The node's pressure conditions change."""

    conditions: tuple[NodeCondition, ...]


class EvictionBegun(TimelineMoment, frozen=True, kw_only=True):
    """The eviction of a pod starts."""

    pod: str
    grace_period_s: int
    ends_ns: int
    because: NodeRanShort | LimitExceeded
    seen_bytes: int
    """Its usage at the last measurement."""
    used_bytes: int
    """Its usage now."""
    critical_passed: tuple[str, ...] = ()
    """Critical pods ranked before it, which are not evicted."""


class EvictionDone(TimelineMoment, frozen=True, kw_only=True):
    """An evicted pod has terminated and its memory is free."""

    pod: str
    freed_bytes: int
    beyond_need_bytes: int
    """The part beyond what the threshold and its minimum reclaim required."""
    lost_cpu_s: float
    """The CPU that it requests, times its age: the work that may have to be done again."""
    age_known: bool


class NobodyToEvict(TimelineMoment, frozen=True, kw_only=True):
    """A threshold is met, and there is no pod other than critical ones."""

    signal: Signal


class KernelKilled(TimelineMoment, frozen=True, kw_only=True):
    """The kernel's OOM killer ends a container, or a process outside pods, at a memory limit."""

    scope: LimitScope
    of: str
    """Name of the pod or container at its limit; otherwise all pods or the node."""
    limit_bytes: int
    pod: str
    """Empty: a process outside pods."""
    container: str
    oom_score_adj: int
    points: int
    used_bytes: int
    as_a_whole: bool
    lost_cpu_s: float = 0
    restarts_ns: int | None = None

    @property
    def is_race_lost(self) -> bool:
        """Whether eviction could have prevented it; it cannot for a container's or a pod's own limit."""
        return self.scope in (LimitScope.NODE, LimitScope.PODS)


class Deadlocked(TimelineMoment, frozen=True, kw_only=True):
    """Memory is exhausted and the kernel may not kill any process."""

    scope: LimitScope
    of: str


class Restarted(TimelineMoment, frozen=True, kw_only=True):
    """The kubelet restarts a container that the kernel killed."""

    pod: str
    container: str


Moment: TypeAlias = (
    ThresholdCrossed
    | Noticed
    | Recovered
    | ConditionsChanged
    | EvictionBegun
    | EvictionDone
    | NobodyToEvict
    | KernelKilled
    | Deadlocked
    | Restarted
)


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """What happens under an eviction policy."""

    policy: str
    about: str = ""
    """Description of the policy."""
    duration_ns: int
    moments: tuple[Moment, ...]
    check_count: int
    """Number of checks by the policy."""
    available: tuple[tuple[int, int], ...]
    """Memory available on the node, as corners of a curve: nanoseconds and bytes."""

    @property
    def evictions(self) -> tuple[EvictionDone, ...]:
        """Evictions that ended within the timeline."""
        return tuple(moment for moment in self.moments if isinstance(moment, EvictionDone))

    @property
    def kernel_kills(self) -> tuple[KernelKilled, ...]:
        """Kills by the kernel's OOM killer."""
        return tuple(moment for moment in self.moments if isinstance(moment, KernelKilled))

    @property
    def is_lost(self) -> bool:
        """Whether the node, or all pods together, ran out of memory before eviction freed enough."""
        return any(isinstance(moment, Deadlocked) for moment in self.moments) or any(
            kill.is_race_lost for kill in self.kernel_kills
        )

    @property
    def first_crossing_ns(self) -> int | None:
        """When a threshold is crossed for the first time; None: never."""
        return next((moment.at_ns for moment in self.moments if isinstance(moment, ThresholdCrossed)), None)

    @property
    def lowest_available_bytes(self) -> int:
        """Minimum of the available memory."""
        return min(amount for _, amount in self.available)

    @property
    def lost_cpu_s(self) -> float:
        """CPU time lost by eviction and by the kernel's kills."""
        return sum(eviction.lost_cpu_s for eviction in self.evictions) + sum(
            kill.lost_cpu_s for kill in self.kernel_kills
        )

    @property
    def beyond_need_bytes(self) -> int:
        """Memory freed beyond what the thresholds required."""
        return sum(eviction.beyond_need_bytes for eviction in self.evictions)


NANO = 10**9


class LinearAmount:
    """Bytes over time, piecewise linear.

    Units: nanoseconds; rates in bytes per second, so that integers (billionths of a byte) are exact.
    """

    __slots__ = ("_nanobytes", "_times", "_values", "at_ns", "rate", "version")

    def __init__(self, start_bytes: int = 0) -> None:
        self.at_ns = 0
        self._nanobytes = start_bytes * NANO
        self.rate = 0
        self.version = 0
        """Increases with each change, so that an event scheduled before the change is recognised as outdated."""
        self._times = [0]
        self._values = [(self._nanobytes, 0)]

    def bytes_at(self, now_ns: int) -> int:
        """The amount then, rounded down; also for times before the last change."""
        if now_ns >= self.at_ns:
            return (self._nanobytes + self.rate * (now_ns - self.at_ns)) // NANO
        index = max(bisect_right(self._times, now_ns) - 1, 0)
        value, rate = self._values[index]
        return (value + rate * (now_ns - self._times[index])) // NANO

    def nanobytes_at(self, now_ns: int) -> int:
        """The amount in billionths of a byte; only for times since the last change."""
        return self._nanobytes + self.rate * (now_ns - self.at_ns)

    def change(self, now_ns: int, *, by_nanobytes: int = 0, by_rate: int = 0) -> None:
        """Adds to the amount and to its rate from now on."""
        self._nanobytes = self.nanobytes_at(now_ns) + by_nanobytes
        self.at_ns, self.rate, self.version = now_ns, self.rate + by_rate, self.version + 1
        if self._times[-1] == now_ns:
            self._values[-1] = (self._nanobytes, self.rate)
        else:
            self._times.append(now_ns)
            self._values.append((self._nanobytes, self.rate))

    def reaches_ns(self, limit_bytes: int) -> int | None:
        """The first nanosecond at which the amount is the limit or more; None: never at this rate."""
        missing = limit_bytes * NANO - self._nanobytes
        if missing <= 0:
            return self.at_ns
        return self.at_ns - (-missing // self.rate) if self.rate > 0 else None

    def empties_ns(self) -> int | None:
        """When the amount is 0; None: it does not shrink."""
        return self.at_ns - (self._nanobytes // self.rate) if self.rate < 0 else None

    def breakpoints(self, until_ns: int) -> list[tuple[int, int]]:
        """The corners of the curve up to a time, as time and bytes; a jump is two corners."""
        corners: list[tuple[int, int]] = []
        for index, at_ns in enumerate(self._times):
            if at_ns > until_ns:
                break
            value, _ = self._values[index]
            if index:
                start_value, rate = self._values[index - 1]
                end_value = start_value + rate * (at_ns - self._times[index - 1])
                if end_value != value:
                    corners.append((at_ns, end_value // NANO))
            corners.append((at_ns, value // NANO))
        if corners[-1][0] < until_ns:
            corners.append((until_ns, self.bytes_at(until_ns)))
        return corners


class EventOrder(IntEnum):
    """Priority of events in the same nanosecond: changes first, then the check that observes them."""

    GROWTH = 0
    EMPTY = 1
    ENDED = 2
    LIMIT = 3
    RESTART = 4
    CHECK = 5


ContainerKey: TypeAlias = tuple[str, str]
"""A container: pod uid and container name; both are empty for processes outside pods."""


class LimitWatch(msgspec.Struct, eq=False):
    """A memory limit, or an eviction threshold, on an amount."""

    amount: LinearAmount
    base_bytes: int
    scope: LimitScope
    subject: str
    key: ContainerKey | None = None
    """The container that is limited, or the pod uid with an empty name."""
    threshold: Threshold | None = None
    """None for a memory limit, where the kernel's OOM killer acts."""
    counts_swap: bool = False
    """Whether the swap that pods may use adds to the limit."""
    swap_bytes: int = 0
    capacity_bytes: int = 0
    """Total capacity, for a threshold."""
    is_above: bool = False

    @property
    def limit_bytes(self) -> int:
        """The amount at which the event is due."""
        return self.base_bytes + self.swap_bytes


class LimitReached(msgspec.Struct, frozen=True):
    """An amount reaches a limit."""

    watch: LimitWatch
    version: int


class MemoryEmptied(msgspec.Struct, frozen=True):
    """A shrinking container uses no memory any more."""

    key: ContainerKey
    version: int


class PolicyCheck(msgspec.Struct, frozen=True):
    """A check by the eviction policy; ``notified``: by the kernel's memory notifier, outside the policy's loop."""

    notified: bool = False


class PodTerminated(msgspec.Struct, frozen=True):
    """The termination of an evicted pod ends; ``next_check_ns``: when the eviction loop continues."""

    uid: str
    next_check_ns: int | None


class ContainerRestart(msgspec.Struct, frozen=True):
    """The kubelet restarts a container."""

    key: ContainerKey


TimelineEvent: TypeAlias = (
    Growth | LimitReached | MemoryEmptied | PolicyCheck | PodTerminated | ContainerRestart
)
TimelineQueue: TypeAlias = EventQueue[int, TimelineEvent]
