"""Facts recovered from the reason and message in the status of a failed pod."""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.kubernetes.objects import Pod
from nodewright.reasons.cpu import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.reasons.predicates import InsufficientResource, OtherPredicate
from nodewright.reasons.reason import NodeFeaturesMissing, SysctlForbidden

REJECTION_PREFIX = "Pod was rejected: "


class FailureCause(StrEnum):
    """What ended a pod."""

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
    UNKNOWN = "unknown"
    """The kubelet sets no such reason."""


class TooFewDevices(msgspec.Struct, frozen=True, kw_only=True):
    """A container requested more devices than were free.

    Units: pieces.
    """

    resource: str
    requested: int
    available: int

    def sentence(self) -> str:
        return f"{self.resource}: {self.requested} requested, {self.available} free"


class ConditionsThen(msgspec.Struct, frozen=True, kw_only=True):
    """The node had these conditions at admission."""

    conditions: tuple[str, ...]

    def sentence(self) -> str:
        return f"the node had the condition {', '.join(self.conditions)}"


class LowOnResource(msgspec.Struct, frozen=True, kw_only=True):
    """The node was short of a resource.

    Units: amounts as the kubelet wrote them; empty: not in the message.
    """

    resource: str
    threshold: str = ""
    available: str = ""

    def sentence(self) -> str:
        if not (self.threshold or self.available):
            return f"the node was short of {self.resource}"
        return (
            f"the node was short of {self.resource}: {self.available} left, "
            f"less than the threshold of {self.threshold}"
        )


class MoreThanRequested(msgspec.Struct, frozen=True, kw_only=True):
    """A container (or the pod: ``is_pod``) used more than its request.

    Units: amounts as the kubelet wrote them.
    """

    name: str
    is_pod: bool = False
    used: str
    requested: str
    resource: str

    def sentence(self) -> str:
        kind = "pod" if self.is_pod else "container"
        return f"{kind} {self.name} used {self.used} of {self.resource} and had requested {self.requested}"


class OverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Local storage usage exceeded a limit; ``what`` is `container`, `pod` or `emptyDir`.

    Units: limit as the kubelet wrote it.
    """

    what: str
    name: str
    limit: str

    def sentence(self) -> str:
        match self.what:
            case "container":
                return f"container {self.name} used more local storage than its limit of {self.limit}"
            case "emptyDir":
                return f"emptyDir volume {self.name} held more than its limit of {self.limit}"
            case _:
                return f"the pod used more local storage than its containers' limits of {self.limit} together"


class ContainerEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A container that terminated with an exit code other than 0."""

    name: str
    reason: str
    exit_code: int

    def sentence(self) -> str:
        if self.reason == "OOMKilled":
            return (
                f"the kernel killed container {self.name} at its memory limit "
                f"(OOMKilled, exit code {self.exit_code})"
            )
        reason = f" ({self.reason})" if self.reason else ""
        return f"container {self.name} ended with exit code {self.exit_code}{reason}"


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
    | ContainerEnded
)
"""A fact in the status; `sentence()` states it in words, without a full stop."""


class StatusEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a failed pod's status proves."""

    cause: FailureCause
    reason: str
    message: str
    """Without the prefix of the messages of rejected pods."""
    facts: tuple[StatusFact, ...] = ()
    """The numbers in the message."""


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
    failed_containers = tuple(_failed_containers(pod))
    cause = _cause(reason, text, has_run=bool(failed_containers))
    facts: tuple[StatusFact, ...] = tuple(_facts(message))
    if not facts and cause is FailureCause.CONTAINERS_TERMINATED:
        facts = failed_containers
    return StatusEvidence(cause=cause, reason=reason, message=message, facts=facts)


def _cause(reason: str, text: str, *, has_run: bool) -> FailureCause:
    if reason in _CAUSES_BY_REASON:
        return _CAUSES_BY_REASON[reason]
    if text.startswith(REJECTION_PREFIX) or reason in _REJECTION_REASONS or reason.startswith("OutOf"):
        return FailureCause.REJECTED
    if reason == "Evicted":
        return FailureCause.REJECTED if text.startswith("The node had condition") else FailureCause.EVICTED
    return FailureCause.CONTAINERS_TERMINATED if has_run and not reason else FailureCause.UNKNOWN


def _failed_containers(pod: Pod) -> Iterator[ContainerEnded]:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        terminated = status.state.terminated
        if terminated is not None and terminated.exit_code != 0:
            yield ContainerEnded(name=status.name, reason=terminated.reason, exit_code=terminated.exit_code)


def _facts(message: str) -> Iterator[StatusFact]:
    """The numbers in the message, in its order."""
    for pattern, fact in _FACTS:
        for match in pattern.finditer(message):
            yield fact(match)


def _shortage(match: re.Match[str]) -> StatusFact:
    name, *amounts = match.groups()
    requested, used, capacity = map(int, amounts)
    return InsufficientResource(resource=name, requested=requested, used=used, capacity=capacity)


def _low(match: re.Match[str]) -> StatusFact:
    resource, threshold, available = match.groups("")
    return LowOnResource(resource=resource, threshold=threshold, available=available)


def _consumer(match: re.Match[str]) -> StatusFact:
    kind, name, used, requested, resource = match.groups()
    return MoreThanRequested(
        name=name, is_pod=kind == "Pod", used=used, requested=requested, resource=resource
    )


def _sysctl(match: re.Match[str]) -> StatusFact:
    return SysctlForbidden(sysctl=match[1], host_namespace=match[2] or "")


_FACTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], StatusFact]], ...] = (
    (
        re.compile(
            r"Node didn't have enough resource: (\S+), requested: (-?\d+), used: (-?\d+), capacity: (-?\d+)"
        ),
        _shortage,
    ),
    (
        re.compile(r"not enough cpus available to satisfy request: requested=(\d+), available=(\d+)"),
        lambda match: NotEnoughCPUs(requested=int(match[1]), available=int(match[2])),
    ),
    (
        re.compile(r"SMT Alignment Error: requested (\d+) cpus not multiple cpus per core = (\d+)"),
        lambda match: NotWholeCores(requested=int(match[1]), cpus_per_core=int(match[2])),
    ),
    (
        re.compile(
            r"available physical CPUs = (\d+), requested CPUs = (\d+), CPUs per core = (\d+)",
        ),
        lambda match: NotEnoughWholeCores(
            available=int(match[1]), requested=int(match[2]), cpus_per_core=int(match[3])
        ),
    ),
    (
        re.compile(r"requested number of devices unavailable for (\S+)\. Requested: (\d+), Available: (\d+)"),
        lambda match: TooFewDevices(resource=match[1], requested=int(match[2]), available=int(match[3])),
    ),
    (
        re.compile(r'forbidden sysctl: "([^"]*)" not allow(?:listed|ed with host (\w+) enabled)'),
        _sysctl,
    ),
    (
        re.compile(r"Pod requires node features that are not available: (.+)"),
        lambda match: NodeFeaturesMissing(features=tuple(match[1].split(", "))),
    ),
    (
        re.compile(r"^Predicate (\S+) failed: (.+)"),
        lambda match: OtherPredicate(predicate=match[1], description=match[2]),
    ),
    (
        re.compile(r"The node had condition: \[([^\]]*)\]"),
        lambda match: ConditionsThen(conditions=tuple(match[1].split())),
    ),
    (
        re.compile(
            r"The node was low on resource: (\S+?)\. (?:Threshold quantity: (\S+), available: (\S+)\. )?"
        ),
        _low,
    ),
    (
        re.compile(
            r"(Container|Pod) (\S+) was using (\S+), request is (\S+), has larger consumption of (\S+)\."
        ),
        _consumer,
    ),
    (
        re.compile(r'Container (\S+) exceeded its local ephemeral storage limit "([^"]*)"'),
        lambda match: OverLimit(what="container", name=match[1], limit=match[2]),
    ),
    (
        re.compile(
            r"Pod ephemeral local storage usage exceeds the total limit of containers (\S+?)\.(?:\s|$)"
        ),
        lambda match: OverLimit(what="pod", name="", limit=match[1]),
    ),
    (
        re.compile(r'Usage of EmptyDir volume "([^"]*)" exceeds the limit "([^"]*)"'),
        lambda match: OverLimit(what="emptyDir", name=match[1], limit=match[2]),
    ),
)
