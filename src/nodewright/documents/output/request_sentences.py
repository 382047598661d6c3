"""Sentences that explain a pod's effective requests, QoS class and OOM scores."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from nodewright.engine.admission.limit_ranger import DefaultedByLimitRange
from nodewright.engine.core.requests.oom_adjust import (
    ByRequest,
    FixedByClass,
    NodeCritical,
    OOMReason,
    OOMScore,
)
from nodewright.engine.core.requests.qos_and_priority import (
    ClassInStatus,
    LimitsMissing,
    NothingAsked,
    QOSFact,
    RequestsDiffer,
    RequestsEqualLimits,
    SomethingAsked,
)
from nodewright.engine.core.requests.resource_breakdown import (
    ContainerRole,
    LifecycleMoment,
    ResourceAddend,
    ResourceDerivation,
)
from nodewright.engine.core.requests.resource_defaults import (
    AppliedDefault,
    PodLimitFromContainers,
    PodRequestFromContainers,
    RequestFromLimit,
    RoundedUp,
)
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    readable_amount,
    resource_sort_key,
)

POD_LEVEL = "the pod level"


def joined(words: Sequence[str]) -> str:
    """The words as an enumeration.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


# ---------------------------------------------------------------- amounts


def deciding_text(derivation: ResourceDerivation) -> str:
    """A short name of the term that decides the amount."""
    if derivation.pod_level is not None:
        return POD_LEVEL
    moment = derivation.deciding
    if moment is None:
        return "overhead" if not derivation.claims else "resource claims"
    return moment_text(moment)


def moment_text(moment: LifecycleMoment) -> str:
    """The moment of the pod's life cycle, in words."""
    if moment.role is ContainerRole.INIT:
        return f"while init container {moment.during} runs"
    if moment.role is ContainerRole.SIDECAR:
        return f"when sidecar {moment.during} has started"
    if len(moment.addends) == 1:
        return addend_name(moment.addends[0])
    return "all long-running containers"


def derivation_lines(derivation: ResourceDerivation) -> list[str]:
    """The derivation of the amount; empty if a single container decides it."""
    lines = []
    deciding = derivation.deciding
    if derivation.pod_level is not None:
        if deciding is not None and deciding.addends:
            lines.append(f"instead of the containers' {deciding.amount}: {sum_text(deciding)}")
    elif deciding is not None and len(deciding.addends) > 1:
        lines.append(sum_text(deciding))
    if derivation.pod_level is None:
        lines += [_runner_up(moment) for moment in _runners_up(derivation)]
    parts = _parts(derivation)
    return [*lines, " + ".join(parts)] if len(parts) > 1 else lines


def derivation_summary(derivation: ResourceDerivation) -> str:
    """The derivation of the amount on one line: the sum of containers, or the greatest moment or level."""
    moment = derivation.deciding
    is_sum = derivation.pod_level is None and moment is not None and moment.role is None
    first = (
        sum_text(moment)
        if is_sum and moment is not None and len(moment.addends) > 1
        else deciding_text(derivation)
    )
    terms = [
        f"{claim.amount} {addend_name(claim)}" for claim in derivation.claims if derivation.pod_level is None
    ]
    if derivation.overhead is not None and first != "overhead":
        terms.append(f"{derivation.overhead} overhead")
    return " + ".join([first, *terms])


def _parts(derivation: ResourceDerivation) -> list[str]:
    """The terms of the sum beside the containers."""
    parts = []
    if derivation.pod_level is not None:
        parts.append(f"{derivation.pod_level}")
    else:
        if derivation.deciding is not None:
            parts.append(f"{derivation.deciding.amount}")
        parts += [f"{claim.amount} {addend_name(claim)}" for claim in derivation.claims]
    if derivation.overhead is not None:
        parts.append(f"{derivation.overhead} overhead of the runtime class")
    return parts


def containers_without_limit(derivation: ResourceDerivation) -> str:
    """The containers without a limit, because of which the pod has no effective limit; empty if there are none."""
    # A container without a limit cannot use any of the other resources.
    unbounded = derivation.resource in {CPU, MEMORY, EPHEMERAL_STORAGE}
    if derivation.pod_level is not None or not derivation.unset or not unbounded:
        return ""
    names = [addend_name(addend) for addend in derivation.unset]
    return (
        f"{joined(names)} {'has' if len(names) == 1 else 'have'} no limit, so the sum does not bound the pod"
    )


def sum_text(moment: LifecycleMoment) -> str:
    """The amounts that are requested at the same time, as a sum."""
    return " + ".join(f"{addend.amount} {_short(addend)}" for addend in moment.addends)


def addend_name(addend: ResourceAddend) -> str:
    """The container with its role, as in `sidecar log`."""
    match addend.role:
        case ContainerRole.CONTAINER:
            return f"container {addend.name}"
        case ContainerRole.SIDECAR:
            return f"sidecar {addend.name}"
        case ContainerRole.INIT:
            return f"init container {addend.name}"
        case ContainerRole.EPHEMERAL:
            return f"ephemeral container {addend.name}"
        case None:
            return f"resource claim {addend.name}"
        case _:
            assert_never(addend.role)


def _short(addend: ResourceAddend) -> str:
    return addend.name if addend.role is ContainerRole.CONTAINER else addend_name(addend)


def _runners_up(derivation: ResourceDerivation) -> list[LifecycleMoment]:
    """The greatest moment of the other kind: the long-running containers, or the greatest init container."""
    deciding = derivation.deciding
    if deciding is None:
        return []
    if deciding.role is not None:
        return [moment for moment in derivation.moments if moment.role is None]
    inits = [moment for moment in derivation.moments if moment.role is ContainerRole.INIT]
    return [max(inits, key=lambda moment: moment.amount)] if inits else []


def _runner_up(moment: LifecycleMoment) -> str:
    subject = moment_text(moment) if moment.role is None else f"init container {moment.during}"
    detail = f": {sum_text(moment)}" if len(moment.addends) > 1 else ""
    verb = "need" if moment.role is None and len(moment.addends) > 1 else "needs"
    return f"{subject} {verb} {moment.amount}{detail}"


# ---------------------------------------------------------------- defaults


def default_lines(defaults: Iterable[AppliedDefault]) -> list[str]:
    """The applied defaults, one line for each container and rule."""
    groups: dict[tuple[str, str], list[str]] = {}
    for fact in defaults:
        owner, rule, amounts = _default(fact)
        groups.setdefault((owner, rule), []).append(amounts)
    return [f"{owner}: {rule.format(joined(amounts))}" for (owner, rule), amounts in groups.items()]


def limit_range_lines(filled: Iterable[DefaultedByLimitRange]) -> list[str]:
    """The defaults of limit ranges, one line for each container and side."""
    return [
        f"{default.container}: {side} of {joined(amounts)}, from LimitRange {limit_range.limit_range}"
        for limit_range in filled
        for default in limit_range.defaults
        for side, by_resource in (("request", default.requests), ("limit", default.limits))
        if (amounts := [f"{by_resource[name]} {name}" for name in sorted(by_resource, key=resource_sort_key)])
    ]


def _default(fact: AppliedDefault) -> tuple[str, str, str]:
    match fact:
        case RequestFromLimit(container=container, resource=resource, amount=amount):
            return container or POD_LEVEL, "request of {}, from the limit", f"{amount} {resource}"
        case PodRequestFromContainers(resource=resource, amount=amount):
            return POD_LEVEL, "request of {}, from the containers' requests", f"{amount} {resource}"
        case PodLimitFromContainers(resource=resource, amount=amount, from_request=True):
            return (
                POD_LEVEL,
                "limit of {}, from the request: the containers' limits are below it",
                f"{amount} {resource}",
            )
        case PodLimitFromContainers(resource=resource, amount=amount):
            return POD_LEVEL, "limit of {}, from the containers' limits", f"{amount} {resource}"
        case RoundedUp(container=container, field=field, resource=resource, before=before, amount=amount):
            owner = container or ("overhead" if field == "overhead" else POD_LEVEL)
            return owner, "rounded up to thousandths: {}", f"{field} {resource} {before} to {amount}"
        case _:
            assert_never(fact)


# ---------------------------------------------------------------- class and scores


def qos_sentence(fact: QOSFact) -> str:
    """Why the pod has, or does not have, a QoS class."""
    match fact:
        case ClassInStatus():
            return "as recorded in the pod status"
        case NothingAsked(pod_level=True):
            return "pod-level resources are set, but not for cpu or memory; containers do not count"
        case NothingAsked():
            return "no container has a request or limit for cpu or memory"
        case RequestsEqualLimits(pod_level=True):
            return "requests equal limits for cpu and memory at the pod level"
        case RequestsEqualLimits():
            return "requests equal limits for cpu and memory everywhere"
        case SomethingAsked(container=container, resources=resources):
            return f"not BestEffort: {container or POD_LEVEL} has a request or limit for {joined(resources)}"
        case LimitsMissing(container=container, resources=resources, sidecar=sidecar, init=init):
            role = "sidecar " if sidecar else "init container " if init else ""
            return f"not Guaranteed: {role}{container or POD_LEVEL} has no limit on {joined(resources)}"
        case RequestsDiffer(resource=resource, requests=requests, limits=limits, containers=containers):
            names = joined([name or POD_LEVEL for name in containers])
            return f"not Guaranteed: {resource} requests are {requests}, limits {limits}, because of {names}"
        case _:
            assert_never(fact)


def score_sentence(score: OOMScore) -> str:
    """The derivation of the score."""
    match score.because:
        case ByRequest() as formula:
            return _formula(score.adj, formula)
        case NodeCritical() | FixedByClass() as because:
            return fixed_score_sentence(because)
        case _:
            assert_never(score.because)


def fixed_score_sentence(because: OOMReason) -> str:
    """Why all containers have the same score; empty if scores depend on requests."""
    match because:
        case NodeCritical():
            return "the pod is of class system-node-critical"
        case FixedByClass(qos_class=qos_class):
            return f"the pod is {qos_class}"
        case ByRequest():
            return ""
        case _:
            assert_never(because)


def _formula(adj: int, formula: ByRequest) -> str:
    amounts = (formula.request, formula.share, formula.capacity)
    request, share, capacity = (readable_amount(MEMORY, amount) for amount in amounts)
    memory = f"({request} + {share})" if formula.share else request
    text = f"1000 - 1000 x {memory} / {capacity} = {formula.score}"
    score = formula.score
    if formula.sidecar_score is not None and formula.sidecar_score < score:
        score = formula.sidecar_score
        text += f"; sidecars get at most the highest score of the regular containers: {score}"
    if adj != score:
        text += f"; {'at least' if adj > score else 'at most'} {adj}"
    return text
