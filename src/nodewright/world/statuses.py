"""Statuses of pods, read back: what the kubelet's reason and message prove."""

import re
from collections.abc import Callable, Iterator

from nodewright.model.cpu_reasons import NotEnoughCPUs, NotEnoughWholeCores, NotWholeCores
from nodewright.model.objects import Pod
from nodewright.model.reasons import (
    InsufficientResource,
    NodeFeaturesMissing,
    OtherPredicate,
    SysctlForbidden,
)
from nodewright.model.refusal import (
    ConditionsThen,
    ContainerEnded,
    Ending,
    LowOnResource,
    MoreThanRequested,
    OverLimit,
    Proof,
    ProvenFact,
    TooFewDevices,
)

REJECTED = "Pod was rejected: "

_LATER = {
    "Preempting": Ending.PREEMPTED,
    "DeadlineExceeded": Ending.OVERDUE,
    "Terminated": Ending.SHUT_DOWN,
    "Shutdown": Ending.SHUT_DOWN,
}
_TURNED_AWAY = frozenset(
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


def proof_of(pod: Pod) -> Proof:
    """What the status of a failed pod proves about its end.

    Follows: v1.36, pkg/kubelet/kubelet.go, rejectPod; pkg/kubelet/lifecycle/predicate.go;
        pkg/kubelet/cm/admission/errors.go; pkg/kubelet/eviction/helpers.go, evictionMessage;
        pkg/kubelet/preemption/preemption.go; pkg/kubelet/active_deadline.go;
        pkg/kubelet/nodeshutdown/nodeshutdown_manager.go.
    """
    reason, text = pod.status.reason, pod.status.message
    message = text.removeprefix(REJECTED)
    ended = tuple(_ended(pod))
    ending = _ending(reason, text, has_run=bool(ended))
    facts = tuple(_facts(message)) or (ended if ending is Ending.BY_ITSELF else ())
    return Proof(ending=ending, reason=reason, message=message, facts=facts)


def _ending(reason: str, text: str, *, has_run: bool) -> Ending:
    if reason in _LATER:
        return _LATER[reason]
    if text.startswith(REJECTED) or reason in _TURNED_AWAY or reason.startswith("OutOf"):
        return Ending.TURNED_AWAY
    if reason == "Evicted":
        return Ending.TURNED_AWAY if text.startswith("The node had condition") else Ending.EVICTED
    return Ending.BY_ITSELF if has_run and not reason else Ending.UNKNOWN


def _ended(pod: Pod) -> Iterator[ContainerEnded]:
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        over = status.state.terminated
        if over is not None and over.exit_code != 0:
            yield ContainerEnded(name=status.name, reason=over.reason, exit_code=over.exit_code)


def _facts(message: str) -> Iterator[ProvenFact]:
    """The numbers in the message, in its order."""
    for pattern, fact in _FACTS:
        for found in pattern.finditer(message):
            yield fact(found)


def _shortage(found: re.Match[str]) -> ProvenFact:
    name, *amounts = found.groups()
    requested, used, capacity = map(int, amounts)
    return InsufficientResource(resource=name, requested=requested, used=used, capacity=capacity)


def _low(found: re.Match[str]) -> ProvenFact:
    resource, threshold, available = found.groups("")
    return LowOnResource(resource=resource, threshold=threshold, available=available)


def _consumer(found: re.Match[str]) -> ProvenFact:
    kind, name, used, requested, resource = found.groups()
    return MoreThanRequested(
        name=name, is_pod=kind == "Pod", used=used, requested=requested, resource=resource
    )


def _sysctl(found: re.Match[str]) -> ProvenFact:
    return SysctlForbidden(sysctl=found[1], host_namespace=found[2] or "")


_FACTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], ProvenFact]], ...] = (
    (
        re.compile(
            r"Node didn't have enough resource: (\S+), requested: (-?\d+), used: (-?\d+), capacity: (-?\d+)"
        ),
        _shortage,
    ),
    (
        re.compile(r"not enough cpus available to satisfy request: requested=(\d+), available=(\d+)"),
        lambda found: NotEnoughCPUs(requested=int(found[1]), available=int(found[2])),
    ),
    (
        re.compile(r"SMT Alignment Error: requested (\d+) cpus not multiple cpus per core = (\d+)"),
        lambda found: NotWholeCores(requested=int(found[1]), cpus_per_core=int(found[2])),
    ),
    (
        re.compile(
            r"available physical CPUs = (\d+), requested CPUs = (\d+), CPUs per core = (\d+)",
        ),
        lambda found: NotEnoughWholeCores(
            available=int(found[1]), requested=int(found[2]), cpus_per_core=int(found[3])
        ),
    ),
    (
        re.compile(r"requested number of devices unavailable for (\S+)\. Requested: (\d+), Available: (\d+)"),
        lambda found: TooFewDevices(resource=found[1], requested=int(found[2]), available=int(found[3])),
    ),
    (
        re.compile(r'forbidden sysctl: "([^"]*)" not allow(?:listed|ed with host (\w+) enabled)'),
        _sysctl,
    ),
    (
        re.compile(r"Pod requires node features that are not available: (.+)"),
        lambda found: NodeFeaturesMissing(features=tuple(found[1].split(", "))),
    ),
    (
        re.compile(r"^Predicate (\S+) failed: (.+)"),
        lambda found: OtherPredicate(predicate=found[1], description=found[2]),
    ),
    (
        re.compile(r"The node had condition: \[([^\]]*)\]"),
        lambda found: ConditionsThen(conditions=tuple(found[1].split())),
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
        lambda found: OverLimit(what="container", name=found[1], limit=found[2]),
    ),
    (
        re.compile(
            r"Pod ephemeral local storage usage exceeds the total limit of containers (\S+?)\.(?:\s|$)"
        ),
        lambda found: OverLimit(what="pod", name="", limit=found[1]),
    ),
    (
        re.compile(r'Usage of EmptyDir volume "([^"]*)" exceeds the limit "([^"]*)"'),
        lambda found: OverLimit(what="emptyDir", name=found[1], limit=found[2]),
    ),
)
