"""The words for what a pod asks for: where amounts, class and scores come from."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from nodewright.core.requests import (
    Addend,
    ByRequest,
    ClassInStatus,
    Default,
    Derivation,
    FixedByClass,
    LimitsMissing,
    Moment,
    NodeCritical,
    NothingAsked,
    OOMReason,
    OOMScore,
    PodLimitFromContainers,
    PodRequestFromContainers,
    QOSFact,
    RequestFromLimit,
    RequestsDiffer,
    RequestsEqualLimits,
    Role,
    RoundedUp,
    SomethingAsked,
)
from nodewright.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY

POD_LEVEL = "the pod level"


def joined(words: Sequence[str]) -> str:
    """The words as a list in a sentence.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(words[:-1]), *words[-1:]) if part)


# ---------------------------------------------------------------- amounts


def decision(derivation: Derivation) -> str:
    """What decides the amount, in a few words."""
    if derivation.pod_level is not None:
        return POD_LEVEL
    moment = derivation.deciding
    if moment is None:
        return "overhead" if not derivation.claims else "resource claims"
    return moment_words(moment)


def moment_words(moment: Moment) -> str:
    """When it is that so much is in use."""
    if moment.role is Role.INIT:
        return f"while init container {moment.during} runs"
    if moment.role is Role.SIDECAR:
        return f"when sidecar {moment.during} has started"
    if len(moment.addends) == 1:
        return addend_name(moment.addends[0])
    return "all that keeps running"


def derivation_lines(derivation: Derivation) -> list[str]:
    """How the amount comes about; nothing where a single container says it all."""
    lines = []
    deciding = derivation.deciding
    if derivation.pod_level is not None:
        if deciding is not None and deciding.addends:
            lines.append(f"in place of the containers' {deciding.amount}: {sum_words(deciding)}")
    elif deciding is not None and len(deciding.addends) > 1:
        lines.append(sum_words(deciding))
    if derivation.pod_level is None:
        lines += [_runner_up(moment) for moment in _runners_up(derivation)]
    parts = _parts(derivation)
    return [*lines, " + ".join(parts)] if len(parts) > 1 else lines


def in_short(derivation: Derivation) -> str:
    """What decides the amount, on one line: the containers that add up, or the moment or level that is greatest."""
    moment = derivation.deciding
    is_sum = derivation.pod_level is None and moment is not None and moment.role is None
    first = (
        sum_words(moment)
        if is_sum and moment is not None and len(moment.addends) > 1
        else decision(derivation)
    )
    more = [
        f"{claim.amount} {addend_name(claim)}" for claim in derivation.claims if derivation.pod_level is None
    ]
    if derivation.overhead is not None and first != "overhead":
        more.append(f"{derivation.overhead} overhead")
    return " + ".join([first, *more])


def _parts(derivation: Derivation) -> list[str]:
    """What is added up beyond the containers."""
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


def no_ceiling(derivation: Derivation) -> str:
    """Which containers have no limit, so that the pod's is no ceiling; empty if there are none."""
    # Of other resources a container without a limit can have none.
    unbounded = derivation.resource in {CPU, MEMORY, EPHEMERAL_STORAGE}
    if derivation.pod_level is not None or not derivation.silent or not unbounded:
        return ""
    names = [addend_name(addend) for addend in derivation.silent]
    return f"{joined(names)} {'has' if len(names) == 1 else 'have'} no limit: the sum is no ceiling"


def sum_words(moment: Moment) -> str:
    """The amounts that are in use together."""
    return " + ".join(f"{addend.amount} {_short(addend)}" for addend in moment.addends)


def addend_name(addend: Addend) -> str:
    """The container with its role, as in `sidecar log`."""
    match addend.role:
        case Role.CONTAINER:
            return f"container {addend.name}"
        case Role.SIDECAR:
            return f"sidecar {addend.name}"
        case Role.INIT:
            return f"init container {addend.name}"
        case None:
            return f"resource claim {addend.name}"
        case _:
            assert_never(addend.role)


def _short(addend: Addend) -> str:
    return addend.name if addend.role is Role.CONTAINER else addend_name(addend)


def _runners_up(derivation: Derivation) -> list[Moment]:
    """The greatest moment of the other kind: all that keeps running, or the greatest init container."""
    deciding = derivation.deciding
    if deciding is None:
        return []
    if deciding.role is not None:
        return [moment for moment in derivation.moments if moment.role is None]
    inits = [moment for moment in derivation.moments if moment.role is Role.INIT]
    return [max(inits, key=lambda moment: moment.amount)] if inits else []


def _runner_up(moment: Moment) -> str:
    who = moment_words(moment) if moment.role is None else f"init container {moment.during}"
    detail = f": {sum_words(moment)}" if len(moment.addends) > 1 else ""
    return f"{who} needs {moment.amount}{detail}"


# ---------------------------------------------------------------- defaults


def default_lines(defaults: Iterable[Default]) -> list[str]:
    """What was filled in, a line a container and rule."""
    groups: dict[tuple[str, str], list[str]] = {}
    for fact in defaults:
        who, how, what = _default(fact)
        groups.setdefault((who, how), []).append(what)
    return [f"{who}: {how.format(joined(what))}" for (who, how), what in groups.items()]


def _default(fact: Default) -> tuple[str, str, str]:
    match fact:
        case RequestFromLimit(container=container, resource=resource, amount=amount):
            return container or POD_LEVEL, "request of {}, from the limit", f"{amount} {resource}"
        case PodRequestFromContainers(resource=resource, amount=amount):
            return POD_LEVEL, "request of {}, from the containers' requests", f"{amount} {resource}"
        case PodLimitFromContainers(resource=resource, amount=amount):
            return POD_LEVEL, "limit of {}, from the containers' limits", f"{amount} {resource}"
        case RoundedUp(container=container, field=field, resource=resource, before=before, amount=amount):
            who = container or ("overhead" if field == "overhead" else POD_LEVEL)
            return who, "rounded up to thousandths: {}", f"{field} {resource} {before} to {amount}"
        case _:
            assert_never(fact)


# ---------------------------------------------------------------- class and scores


def qos_sentence(fact: QOSFact) -> str:
    """Why the pod is, or is not, of a class."""
    match fact:
        case ClassInStatus():
            return "the status says so"
        case NothingAsked(pod_level=True):
            return "the pod level is there and asks for no cpu or memory; containers are not looked at"
        case NothingAsked():
            return "no container asks for cpu or memory"
        case RequestsEqualLimits(pod_level=True):
            return "requests equal limits for cpu and memory at the pod level"
        case RequestsEqualLimits():
            return "requests equal limits for cpu and memory everywhere"
        case SomethingAsked(container=container, resources=resources):
            return f"not BestEffort: {container or POD_LEVEL} asks for {joined(resources)}"
        case LimitsMissing(container=container, resources=resources, sidecar=sidecar, init=init):
            role = "sidecar " if sidecar else "init container " if init else ""
            return f"not Guaranteed: {role}{container or POD_LEVEL} has no limit on {joined(resources)}"
        case RequestsDiffer(resource=resource, requests=requests, limits=limits, containers=containers):
            names = joined([name or POD_LEVEL for name in containers])
            return f"not Guaranteed: {resource} requests are {requests}, limits {limits}, because of {names}"
        case _:
            assert_never(fact)


def score_sentence(score: OOMScore) -> str:
    """How the score comes about."""
    match score.because:
        case ByRequest() as formula:
            return _formula(score.adj, formula)
        case NodeCritical() | FixedByClass() as because:
            return fixed_score(because)
        case _:
            assert_never(score.because)


def fixed_score(because: OOMReason) -> str:
    """Why all containers have the same score; empty where they need not."""
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
    memory = f"({formula.request} + {formula.share})" if formula.share else f"{formula.request}"
    text = f"1000 - 1000 x {memory} / {formula.capacity} = {formula.score}"
    reached = formula.score
    if formula.sidecar_score is not None and formula.sidecar_score < reached:
        reached = formula.sidecar_score
        text += f"; as a sidecar, what the smallest container has: {reached}"
    if adj != reached:
        text += f"; {'at least' if adj > reached else 'at most'} {adj}"
    return text
