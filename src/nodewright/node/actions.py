"""What the node asks its surroundings to do: values that the agent performs and the simulator applies."""

from dataclasses import dataclass
from typing import TypeAlias

from nodewright.core.eviction import NodeReclaim
from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.eviction_reasons import LimitExceeded, NodeRanShort
from nodewright.model.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChange:
    """What a pod's status is to say from now on."""

    phase: str
    reason: str
    message: str
    disruption_target: str | None = None
    """Message of a condition `DisruptionTarget` (True, reason TerminationByKubelet); None: no such condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPreemption:
    """Add one to the kubelet's counter of preemptions.

    Follows: v1.36, pkg/kubelet/metrics/metrics.go, Preemptions.
    """

    signal: str
    """The first resource that was missing; empty: none was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordEvent:
    """Record an event about a pod."""

    pod_uid: str
    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceReclaim:
    """Record the event `EvictionThresholdMet` about the node: it takes back some of a resource.

    Follows: v1.36, eviction/eviction_manager.go, synchronize.
    """

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimNode:
    """Give back what no pod needs, before pods are ended: then usage is read again."""

    what: NodeReclaim


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPod:
    """End a pod and wait until it and its containers are gone, before anything else is done.

    A kill that fails is left to the pod's next sync and stops nothing.

    Units: grace_period_s in seconds; None: the pod's own.
    """

    pod_uid: str
    status: StatusChange
    grace_period_s: int | None = None
    if_done: tuple[CountPreemption, ...] = ()
    """What to do when the kill has succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """End a pod because the node ran short, or for a limit on local storage, and wait until it is gone.

    First the event about it (Warning, `Evicted`). Its status becomes Failed, `Evicted`, with the kubelet's message for
    the reason; where the node ran short, it gets the condition `DisruptionTarget` (TerminationByKubelet).

    Units:   grace_period_s in seconds.
    Follows: v1.36, eviction/eviction_manager.go, evictPod.
    """

    pod_uid: str
    grace_period_s: int
    because: NodeRanShort | LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitPod:
    """Take the pod: start it, once all before this is done."""

    pod_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectPod:
    """Turn the pod away: its status becomes Failed, with the kubelet's reason and message for the first of these.

    Follows: v1.36, pkg/kubelet/kubelet.go, rejectPod.
    """

    pod_uid: str
    because: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPlugin:
    """Ask a device plugin which devices it prefers; then the pod arrives again, with the answer.

    Nothing has been decided, and nothing has changed.
    """

    pod_uid: str
    question: PreferenceWanted


@dataclass(frozen=True, slots=True, kw_only=True)
class EndKubelet:
    """The kubelet ends, with the error for the first of these; pods go on running, new ones wait."""

    because: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizePod:
    """Give the pod the resources that are asked for: its containers and cgroups follow."""

    pod_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutOffResize:
    """Leave the pod as it is for now; the condition `PodResizePending` says `Deferred`, and the first of these.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, SetPodResizePendingCondition.
    """

    pod_uid: str
    because: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnDownResize:
    """Leave the pod as it is for good; the condition `PodResizePending` says `Infeasible`, and the first of these."""

    pod_uid: str
    because: tuple[Reason, ...]


Action: TypeAlias = (
    AdmitPod
    | RejectPod
    | AskPlugin
    | KillPod
    | RecordEvent
    | CountPreemption
    | AnnounceReclaim
    | ReclaimNode
    | EvictPod
    | EndKubelet
    | ResizePod
    | PutOffResize
    | TurnDownResize
)
