"""Facts recovered from the status of a pod: what ended it, or why it does not run as it should."""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.patterns import lazy_pattern
from nodewright.model.reasons.container_evidence import (
    ConditionsThen,
    ContainerBackOff,
    ContainerEnded,
    ContainerLost,
    ContainerOOMKilled,
    LowOnResource,
    MoreThanRequested,
    NodesUnsuitable,
    OverLimit,
    PreemptedForCriticalPod,
    PreemptionOutcome,
    ResizeWaits,
    SchedulingGates,
    StatusClue,
    failed_containers,
    resize_fact,
    restarted_containers,
    scheduling_facts,
)
from nodewright.model.reasons.cpu import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.reasons.predicates import InsufficientResource, OtherPredicate
from nodewright.model.reasons.reason import NodeFeaturesMissing, SysctlForbidden
from nodewright.model.values.golang import saturated_int

REJECTION_PREFIX = "Pod was rejected: "


class FailureCause(StrEnum):
    """What ended a pod, or keeps it from running as specified."""

    REJECTED = "turned away"
    """The kubelet rejected it at admission; no container ran."""
    EVICTED = "evicted"
    """The kubelet evicted it under node pressure, or because it exceeded a storage limit."""
    PREEMPTED = "preempted"
    """The kubelet preempted it for a critical pod."""
    DEADLINE_EXCEEDED = "overdue"
    """It exceeded its activeDeadlineSeconds."""
    NODE_SHUTDOWN = "shut down"
    """The node was shut down."""
    CONTAINERS_TERMINATED = "by itself"
    """Its containers terminated and are not restarted."""
    CRASH_LOOP = "restarting"
    """It has not ended: the kubelet waits before it restarts a container."""
    RESTARTED = "restarted"
    """It has not ended: containers failed and were restarted."""
    UNSCHEDULABLE = "unschedulable"
    """It has not started: the scheduler finds no node."""
    RESIZE_PENDING = "resize pending"
    """It runs: the kubelet has not performed a resize."""
    UNKNOWN = "unknown"
    """The kubelet sets no such reason."""


class TooFewDevices(StatusClue, frozen=True, kw_only=True):
    """A container requested more devices than were free.

    Units: pieces.
    """

    resource: str
    requested: int
    available: int

    def sentence(self) -> str:
        return f"{self.resource}: {self.requested} requested, {self.available} free"

    def remedies(self) -> tuple[str, ...]:
        return (f"at most {self.available} {self.resource}, or a node with {self.requested} free",)


StatusFact: TypeAlias = (
    InsufficientResource
    | NotEnoughCPUs
    | NotWholeCores
    | NotEnoughWholeCores
    | SysctlForbidden
    | NodeFeaturesMissing
    | OtherPredicate
    | TooFewDevices
    | ConditionsThen
    | LowOnResource
    | MoreThanRequested
    | OverLimit
    | PreemptedForCriticalPod
    | ContainerEnded
    | ContainerOOMKilled
    | ContainerBackOff
    | ContainerLost
    | NodesUnsuitable
    | PreemptionOutcome
    | SchedulingGates
    | ResizeWaits
)
"""A fact in the status; `sentence()` states it in words, without a full stop."""


class StatusEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed pod's status proves."""

    cause: FailureCause
    reason: str
    message: str
    """Without the prefix of the messages of rejected pods."""
    facts: tuple[StatusFact, ...] = ()
    """The numbers in the message, and the states of containers."""

    @property
    def has_ended(self) -> bool:
        """Whether the pod has ended."""
        return self.cause not in _WITHOUT_END

    @property
    def open_questions(self) -> tuple[str, ...]:
        """What the status cannot prove."""
        texts = (fact.open_question() for fact in self.facts if isinstance(fact, StatusClue))
        return tuple(dict.fromkeys(filter(None, texts)))

    @property
    def remedies(self) -> tuple[str, ...]:
        """What helps, one change each."""
        return tuple(dict.fromkeys(text for fact in self.facts for text in _remedies(fact)))


ADMITTED_CAUSES = frozenset((FailureCause.CRASH_LOOP, FailureCause.RESTARTED, FailureCause.RESIZE_PENDING))
"""The causes of pods that run."""
_WITHOUT_END = frozenset((*ADMITTED_CAUSES, FailureCause.UNSCHEDULABLE))


def _remedies(fact: StatusFact) -> tuple[str, ...]:
    if isinstance(fact, StatusClue):
        return fact.remedies()
    if isinstance(fact, NotWholeCores):
        return (f"a multiple of {fact.cpus_per_core} CPUs, the whole cores of the node",)
    if isinstance(fact, InsufficientResource) and fact.requested <= fact.capacity:
        left = readable_amount(fact.resource, max(fact.capacity - fact.used, 0))
        return (f"at most {left} {fact.resource} requested, as the node was then",)
    return ()


_CAUSES_BY_REASON = {
    "Preempting": FailureCause.PREEMPTED,
    "DeadlineExceeded": FailureCause.DEADLINE_EXCEEDED,
    "Terminated": FailureCause.NODE_SHUTDOWN,
    "Shutdown": FailureCause.NODE_SHUTDOWN,
}
_REJECTION_REASONS = frozenset(
    [
        "TopologyAffinityError",
        "SMTAlignmentError",
        "EmptyPodSharedPoolError",
        "UnexpectedAdmissionError",
        "InvalidNodeInfo",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodOSNotSupported",
        "SupplementalGroupsPolicyNotSupported",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "SysctlForbidden",
        "PodLevelResourcesNotSupported",
        "PodFeatureUnsupported",
        "AppArmor",
        "NodeShutdown",
        "UnknownReason",
        "UnexpectedPredicateFailureType",
    ]
)


def status_evidence(pod: Pod) -> StatusEvidence:
    """What the status of a failed pod proves about its end.

    Follows: v1.36, pkg/kubelet/kubelet.go, rejectPod; pkg/kubelet/lifecycle/predicate.go;
        pkg/kubelet/cm/admission/errors.go; pkg/kubelet/eviction/helpers.go, evictionMessage;
        pkg/kubelet/preemption/preemption.go; pkg/kubelet/active_deadline.go;
        pkg/kubelet/nodeshutdown/nodeshutdown_manager.go.
    """
    reason, text = pod.status.reason, pod.status.message
    message = text.removeprefix(REJECTION_PREFIX)
    ended_containers = tuple(failed_containers(pod))
    cause = _cause(reason, text, has_run=bool(ended_containers))
    facts: tuple[StatusFact, ...] = tuple(_facts(message))
    if not facts and cause is FailureCause.CONTAINERS_TERMINATED:
        facts = ended_containers
    if cause is FailureCause.PREEMPTED:
        facts = (PreemptedForCriticalPod(),)
    return StatusEvidence(cause=cause, reason=reason, message=message, facts=facts)


def problem_evidence(pod: Pod) -> StatusEvidence | None:
    """What the status proves about a pod that failed or does not run as specified; None: it shows no problem.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, doBackOff; pkg/kubelet/kubelet_pods.go,
        convertToAPIContainerStatuses.
    """
    if pod.status.phase == "Failed":
        return status_evidence(pod)
    if pod.status.phase == "Succeeded":
        return None
    scheduling = tuple(scheduling_facts(pod))
    containers = tuple(restarted_containers(pod))
    resize = resize_fact(pod)
    if scheduling:
        cause, reason = FailureCause.UNSCHEDULABLE, "Unschedulable"
        if any(isinstance(fact, SchedulingGates) for fact in scheduling):
            reason = "SchedulingGated"
    elif any(isinstance(fact, ContainerBackOff) for fact in containers):
        cause, reason = FailureCause.CRASH_LOOP, "CrashLoopBackOff"
    elif containers:
        cause, reason = FailureCause.RESTARTED, ""
    elif resize is not None:
        cause, reason = FailureCause.RESIZE_PENDING, resize.reason
    else:
        return None
    resizes = () if resize is None else (resize,)
    return StatusEvidence(cause=cause, reason=reason, message="", facts=(*scheduling, *containers, *resizes))


def _cause(reason: str, text: str, *, has_run: bool) -> FailureCause:
    if reason in _CAUSES_BY_REASON:
        return _CAUSES_BY_REASON[reason]
    if text.startswith(REJECTION_PREFIX) or reason in _REJECTION_REASONS or reason.startswith("OutOf"):
        return FailureCause.REJECTED
    if reason == "Evicted":
        return FailureCause.REJECTED if text.startswith("The node had condition") else FailureCause.EVICTED
    return FailureCause.CONTAINERS_TERMINATED if has_run and not reason else FailureCause.UNKNOWN


def _facts(message: str) -> Iterator[StatusFact]:
    """The numbers in the message, in its order."""
    for pattern, fact in _FACTS:
        for match in pattern.finditer(message):
            yield fact(match)


def _shortage(match: re.Match[str]) -> StatusFact:
    name, *amounts = match.groups()
    requested, used, capacity = map(saturated_int, amounts)
    return InsufficientResource(resource=name, requested=requested, used=used, capacity=capacity)


def _low(match: re.Match[str]) -> StatusFact:
    resource, threshold, available = match.groups("")
    return LowOnResource(resource=resource, threshold=threshold, available=available)


def _consumer(match: re.Match[str]) -> StatusFact:
    kind, name, used, requested, resource = match.groups()
    return MoreThanRequested(
        name=name, is_pod=kind == "Pod", used=used, requested=requested, resource=resource
    )


_PATTERNS: tuple[tuple[str, Callable[[re.Match[str]], StatusFact]], ...] = (
    (
        r"Node didn't have enough resource: (\S+), requested: (-?\d+), used: (-?\d+), capacity: (-?\d+)",
        _shortage,
    ),
    (
        r"not enough cpus available to satisfy request: requested=(\d+), available=(\d+)",
        lambda match: NotEnoughCPUs(requested=saturated_int(match[1]), available=saturated_int(match[2])),
    ),
    (
        r"SMT Alignment Error: requested (\d+) cpus not multiple cpus per core = (\d+)",
        lambda match: NotWholeCores(requested=saturated_int(match[1]), cpus_per_core=saturated_int(match[2])),
    ),
    (
        r"available physical CPUs = (\d+), requested CPUs = (\d+), CPUs per core = (\d+)",
        lambda match: NotEnoughWholeCores(
            available=saturated_int(match[1]),
            requested=saturated_int(match[2]),
            cpus_per_core=saturated_int(match[3]),
        ),
    ),
    (
        r"requested number of devices unavailable for (\S+)\. Requested: (\d+), Available: (\d+)",
        lambda match: TooFewDevices(
            resource=match[1], requested=saturated_int(match[2]), available=saturated_int(match[3])
        ),
    ),
    (
        r'forbidden sysctl: "([^"]*)" not allow(?:listed|ed with host (\w+) enabled)',
        lambda match: SysctlForbidden(sysctl=match[1], host_namespace=match[2] or ""),
    ),
    (
        r"Pod requires node features that are not available: (.+)",
        lambda match: NodeFeaturesMissing(features=tuple(match[1].split(", "))),
    ),
    (
        r"^Predicate (\S+) failed: (.+)",
        lambda match: OtherPredicate(predicate=match[1], description=match[2]),
    ),
    (
        r"The node had condition: \[([^\]]*)\]",
        lambda match: ConditionsThen(conditions=tuple(match[1].split())),
    ),
    (
        r"The node was low on resource: (\S+?)\. (?:Threshold quantity: (\S+), available: (\S+)\. )?",
        _low,
    ),
    (
        r"(Container|Pod) (\S+) was using (\S+), request is (\S+), has larger consumption of (\S+)\.",
        _consumer,
    ),
    (
        r'Container (\S+) exceeded its local ephemeral storage limit "([^"]*)"',
        lambda match: OverLimit(what="container", name=match[1], limit=match[2]),
    ),
    (
        r"Pod ephemeral local storage usage exceeds the total limit of containers (\S+?)\.(?:\s|$)",
        lambda match: OverLimit(what="pod", name="", limit=match[1]),
    ),
    (
        r'Usage of EmptyDir volume "([^"]*)" exceeds the limit "([^"]*)"',
        lambda match: OverLimit(what="emptyDir", name=match[1], limit=match[2]),
    ),
)
_FACTS = tuple((lazy_pattern(pattern), fact) for pattern, fact in _PATTERNS)
