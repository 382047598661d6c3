"""Actions that a step returns: the agent performs them, the simulator applies them."""

from typing import TypeAlias

import msgspec

from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.model.reasons.devices import PreferenceWanted
from nodewright.model.reasons.eviction import LimitExceeded, NodeRanShort
from nodewright.model.reasons.reason import Reason


class StatusChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new status of a pod."""

    phase: str
    reason: str
    message: str
    disruption_target: str | None = None
    """Message of the condition `DisruptionTarget` (True, reason TerminationByKubelet); None: no such condition."""


class CountPreemption(msgspec.Struct, frozen=True, kw_only=True):
    """Increment the kubelet's preemption counter.

    Follows: v1.36, pkg/kubelet/metrics/metrics.go, Preemptions.
    """

    signal: str
    """The first missing resource; empty: none."""


class RecordPodEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event about a pod."""

    pod_uid: str
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


class RecordReclaim(msgspec.Struct, frozen=True, kw_only=True):
    """Record the event `EvictionThresholdMet` about the node.

    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    """

    resource: str


class ReclaimNode(msgspec.Struct, frozen=True, kw_only=True):
    """Reclaim node-level resources before pods are evicted; usage is read again afterwards."""

    what: NodeReclaim


class KillPod(msgspec.Struct, frozen=True, kw_only=True):
    """Kill a pod and wait until it has terminated.

    A failed kill is retried by the pod's next sync and does not stop later actions.

    Units: grace_period_s in seconds; None: the pod's own.
    """

    pod_uid: str
    status: StatusChange
    grace_period_s: int | None = None
    if_done: tuple[CountPreemption, ...] = ()
    """The actions after a successful kill."""


class EvictPod(msgspec.Struct, frozen=True, kw_only=True):
    """Evict a pod for node pressure or a local storage limit, and wait until it has terminated.

    Record the event (Warning, `Evicted`) first. The status becomes Failed, `Evicted`, with the kubelet's message for
    the reason; under node pressure the pod gets the condition `DisruptionTarget` (TerminationByKubelet).

    Units:   grace_period_s in seconds.
    Follows: v1.36, eviction/eviction_manager.go, evictPod.
    """

    pod_uid: str
    grace_period_s: int
    because: NodeRanShort | LimitExceeded


class AdmitPod(msgspec.Struct, frozen=True, kw_only=True):
    """Admit the pod: start it when all previous actions have finished."""

    pod_uid: str


class RejectPod(msgspec.Struct, frozen=True, kw_only=True):
    """Reject the pod: its status becomes Failed with the kubelet's reason and message for the first reason.

    Follows: v1.36, pkg/kubelet/kubelet.go, rejectPod.
    """

    pod_uid: str
    because: tuple[Reason, ...]


class GetPreferredAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Call a device plugin's `GetPreferredAllocation` and repeat `PodAdded` with the answer.

    The step made no decision and no change.
    """

    pod_uid: str
    request: PreferenceWanted


class ExitKubelet(msgspec.Struct, frozen=True, kw_only=True):
    """Exit the kubelet with the error of the first reason; pods keep running, new pods wait."""

    because: tuple[Reason, ...]


class ResizePod(msgspec.Struct, frozen=True, kw_only=True):
    """Apply the requested resources to the pod's containers and cgroups."""

    pod_uid: str


class DeferResize(msgspec.Struct, frozen=True, kw_only=True):
    """Defer the resize: set the condition `PodResizePending` to `Deferred` with the first reason.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, SetPodResizePendingCondition.
    """

    pod_uid: str
    because: tuple[Reason, ...]


class MarkResizeInfeasible(msgspec.Struct, frozen=True, kw_only=True):
    """Decline the resize: set the condition `PodResizePending` to `Infeasible` with the first reason."""

    pod_uid: str
    because: tuple[Reason, ...]


class LimitBorrowers(msgspec.Struct, frozen=True, kw_only=True):
    """Limit BestEffort pods together to what the node lends; no kubelet does this.

    Units: thousandths of a CPU; bytes.
    """

    cpu_milli: int
    memory_bytes: int


Action: TypeAlias = (
    AdmitPod
    | RejectPod
    | GetPreferredAllocation
    | KillPod
    | RecordPodEvent
    | CountPreemption
    | RecordReclaim
    | ReclaimNode
    | EvictPod
    | ExitKubelet
    | ResizePod
    | DeferResize
    | MarkResizeInfeasible
    | LimitBorrowers
)
