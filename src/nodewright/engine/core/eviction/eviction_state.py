"""The eviction manager's state, observations and results, as values.

Also admission under node pressure: pods that the kubelet rejects or that taints keep from being scheduled.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import ActivePod, EvictionCandidate
from nodewright.engine.core.eviction.eviction_thresholds import (
    EvictionConfig,
    NodeFilesystems,
    SignalObservation,
    SignalObservations,
    watched_thresholds,
)
from nodewright.engine.core.requests.qos_and_priority import (
    QOSClass,
    is_critical,
    is_mirror,
    is_static,
    qos_class,
)
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, NodeCondition, Signal, Threshold
from nodewright.model.kubernetes.objects import Pod, Taint, tolerates
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, INODES
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.eviction import (
    LimitExceeded,
    NodeRanShort,
    NodeUnderPressure,
    SplitFilesystemsUnsupported,
    VolumeUseMissing,
)
from nodewright.model.releases.release_rules import PodLevelQOS
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

MEMORY_PRESSURE_ONLY = (NodeCondition.MEMORY_PRESSURE,)


class EvictionState(msgspec.Struct, frozen=True, kw_only=True):
    """The manager's state between passes; empty in a kubelet that has just started.

    Units: times in nanoseconds on the caller's clock.
    """

    filesystems: NodeFilesystems | None = None
    """As of the first pass; they are not determined again."""
    can_rank: bool = True
    """False: the file systems are not supported, and no pod is evicted for pressure."""
    thresholds: tuple[Threshold, ...] = ()
    """All watched thresholds; the fields below index into it."""
    first_observed_at_ns: Mapping[int, int] = {}
    """The time since which each threshold has been met continuously."""
    due_indices: tuple[int, ...] = ()
    """The thresholds met beyond their grace period; they remain until minimum reclaim is reached."""
    conditions_last_observed_at_ns: Mapping[NodeCondition, int] = {}
    conditions: tuple[NodeCondition, ...] = ()
    """The node's conditions, in the order of `NodeCondition`."""
    last_measured_at: Mapping[Signal, Instant | None] = {}
    """The measurement time of each signal's last observation."""

    @property
    def thresholds_met(self) -> tuple[Threshold, ...]:
        """The thresholds that are carried over to the next pass."""
        return tuple(self.thresholds[index] for index in self.due_indices)

    def with_filesystems(self, rules: EvictionConfig, filesystems: NodeFilesystems) -> "EvictionState":
        """The state with known file systems and the thresholds watched on them.

        Follows: v1.36, eviction/eviction_manager.go, synchronize.
        """
        if filesystems.dedicated_container_fs and not rules.separate_disk_gc:
            return replace(self, filesystems=filesystems, thresholds=rules.thresholds, can_rank=False)
        return replace(
            self,
            filesystems=filesystems,
            thresholds=watched_thresholds(rules.thresholds, filesystems).thresholds,
        )


class EvictionObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a pass."""

    usage: StatsSummary | None
    """The stats summary; None: it could not be read, and the pass does nothing."""
    active_pods: tuple[ActivePod, ...]
    """The active pods, in the kubelet's order."""
    filesystems: NodeFilesystems = NodeFilesystems()
    """As the container runtime reports them now."""


class NodeReclaim(StrEnum):
    """Node-level reclaim, which evicts no pods."""

    CONTAINERS = "containers"
    """Dead containers."""
    IMAGES = "images"
    """Unused images."""


class MetThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold that is met, or remains until minimum reclaim is reached."""

    threshold: Threshold
    amount: Quantity
    """The threshold as an amount."""
    observation: SignalObservation
    met_for: Duration
    """The time for which it has been met."""
    awaits_min_reclaim: bool
    """The signal is back above the threshold, but less than minimum reclaim above it."""
    is_due: bool
    """Its grace period has elapsed."""
    has_new_stats: bool
    """The signal was measured after the last pass; old stats trigger nothing."""


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to evict, and why. Its status becomes Failed, reason Evicted.

    Units: grace_period_s in seconds.
    """

    active_pod: ActivePod
    grace_period_s: int
    because: NodeRanShort | LimitExceeded

    @property
    def termination_s(self) -> int:
        """The seconds that the containers have to terminate: at least one, also with a negative maximum.

        Follows: v1.36, pkg/kubelet/pod_workers.go, calculateEffectiveGracePeriod.
        """
        deletion_s = self.active_pod.pod.metadata.deletion_grace_period_seconds or self.grace_period_s
        return max(min(self.grace_period_s, deletion_s), 1)

    @property
    def is_disruption(self) -> bool:
        """Whether the pod gets the condition DisruptionTarget."""
        return isinstance(self.because, NodeRanShort)


StopReason: TypeAlias = VolumeUseMissing | SplitFilesystemsUnsupported


class PendingPass(msgspec.Struct, frozen=True, kw_only=True):
    """The first part of a pass: run `evictions` and `reclaim`, read the stats again, then call `finish_pass`."""

    state: EvictionState
    observation: EvictionObservation
    observed: SignalObservations = {}
    met: tuple[MetThreshold, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """For limits on local storage; if there are any, the pass does nothing else."""
    eligible_thresholds: tuple[Threshold, ...] = ()
    """The thresholds of which the kubelet picks one."""
    target: Threshold | None = None
    """The threshold picked: the first of them."""
    stopped: StopReason | None = None
    """What ended the pass early."""

    @property
    def reclaim(self) -> tuple[NodeReclaim, ...]:
        """The node-level reclaim to run first, in order."""
        filesystems = self.state.filesystems
        if self.target is None or filesystems is None or not self.state.can_rank:
            return ()
        return reclaim_steps(self.target.signal, filesystems)

    def with_target(self, threshold: Threshold) -> "PendingPass":
        """The same pass with another eligible threshold as target."""
        return replace(self, target=threshold)


class EvictionPass(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pass: what it did and why."""

    state: EvictionState
    met: tuple[MetThreshold, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """In order; at most one for pressure."""
    target: Threshold | None = None
    """The threshold acted on; None: no shortage, or evictions for limits took precedence."""
    other_targets: tuple[Threshold, ...] = ()
    """Thresholds that the kubelet might have picked instead: its choice is random."""
    reclaimed: tuple[NodeReclaim, ...] = ()
    """The node-level reclaim that ran first."""
    relieved_by_reclaim: bool = False
    """Whether no threshold was met after the reclaim, minimum reclaim included."""
    ranking: tuple[EvictionCandidate, ...] = ()
    """All active pods in the order of eviction; empty if no eviction was needed."""
    stopped: StopReason | None = None

    @property
    def skipped_critical(self) -> tuple[EvictionCandidate, ...]:
        """The critical pods that were skipped."""
        evicted = {eviction.active_pod.uid for eviction in self.evictions}
        skipped = []
        for candidate in self.ranking:
            if candidate.active_pod.uid in evicted:
                break
            skipped.append(candidate)
        return tuple(skipped)


def reclaim_steps(signal: Signal, filesystems: NodeFilesystems) -> tuple[NodeReclaim, ...]:
    """The node-level reclaim for the signal, before pods are evicted.

    Follows: v1.36, eviction/helpers.go, buildSignalToNodeReclaimFuncs.

    >>> reclaim_steps(Signal.NODEFS_AVAILABLE, NodeFilesystems(dedicated_image_fs=True))
    ()
    >>> [step.value for step in reclaim_steps(Signal.IMAGEFS_INODES_FREE, NodeFilesystems())]
    ['containers', 'images']
    """
    if SIGNAL_RESOURCES[signal] not in (EPHEMERAL_STORAGE, INODES):
        return ()
    is_nodefs = signal in (Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE)
    is_imagefs = signal in (Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE)
    if filesystems.is_image_fs_split:
        return (NodeReclaim.IMAGES,) if is_imagefs else (NodeReclaim.CONTAINERS,)
    if filesystems.images_and_layers_share_fs and is_nodefs:
        return ()
    return (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)


class PressureAdmission(StrEnum):
    """Why a pod is admitted under pressure, or that it is not."""

    NO_CONDITION = "no condition"
    CRITICAL = "critical"
    NOT_BEST_EFFORT = "not best effort"
    TOLERATES = "tolerates the taint"
    NOT_SCHEDULED = "not scheduled"
    """Static pods and their mirrors are not scheduled."""
    NONE = "none"

    @property
    def admits(self) -> bool:
        """Whether the pod is admitted."""
        return self is not PressureAdmission.NONE


class ConditionEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one condition on the admission of a pod."""

    condition: NodeCondition
    taint: Taint
    scheduler: PressureAdmission
    """In a scheduler that respects taints."""
    kubelet: PressureAdmission


def pressure_refusal(
    conditions: tuple[NodeCondition, ...],
    pod: Pod,
    *,
    comparisons: bool = False,
    pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED,
) -> NodeUnderPressure | None:
    """Why the kubelet rejects a pod while the node has these conditions; None: it admits the pod.

    ``comparisons`` is the gate TaintTolerationComparisonOperators.

    Follows: v1.36, eviction/eviction_manager.go, Admit.
    """
    if kubelet_admission(conditions, pod, comparisons=comparisons, pod_level=pod_level).admits:
        return None
    return NodeUnderPressure(conditions=conditions, best_effort_only=conditions == MEMORY_PRESSURE_ONLY)


def kubelet_admission(
    conditions: tuple[NodeCondition, ...],
    pod: Pod,
    *,
    comparisons: bool = False,
    pod_level: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED,
) -> PressureAdmission:
    """Why the kubelet admits the pod under these conditions, or NONE.

    Under memory pressure alone, only best-effort pods are rejected; only in this case a toleration helps.
    """
    if not conditions:
        return PressureAdmission.NO_CONDITION
    if is_critical(pod):
        return PressureAdmission.CRITICAL
    if conditions == MEMORY_PRESSURE_ONLY:
        if qos_class(pod, pod_level) is not QOSClass.BEST_EFFORT:
            return PressureAdmission.NOT_BEST_EFFORT
        if _tolerates(pod, NodeCondition.MEMORY_PRESSURE, comparisons=comparisons):
            return PressureAdmission.TOLERATES
    return PressureAdmission.NONE


def condition_effects(
    conditions: tuple[NodeCondition, ...], pod: Pod, *, comparisons: bool = False
) -> tuple[ConditionEffect, ...]:
    """The effect of each condition as if it were the only one.

    Tolerations that an admission plugin adds for the QoS class are not assumed.

    Follows: v1.36, pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go, Filter.
    """
    return tuple(
        ConditionEffect(
            condition=condition,
            taint=condition.taint,
            scheduler=_scheduler_admission(condition, pod, comparisons=comparisons),
            kubelet=kubelet_admission((condition,), pod, comparisons=comparisons),
        )
        for condition in conditions
    )


def _scheduler_admission(condition: NodeCondition, pod: Pod, *, comparisons: bool) -> PressureAdmission:
    if is_static(pod) or is_mirror(pod):
        return PressureAdmission.NOT_SCHEDULED
    return (
        PressureAdmission.TOLERATES
        if _tolerates(pod, condition, comparisons=comparisons)
        else PressureAdmission.NONE
    )


def _tolerates(pod: Pod, condition: NodeCondition, *, comparisons: bool) -> bool:
    return any(
        tolerates(toleration, condition.taint, comparisons=comparisons) for toleration in pod.spec.tolerations
    )
