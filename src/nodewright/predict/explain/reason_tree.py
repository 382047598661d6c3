"""An explanation as a tree of sentences, for text and HTML."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.node.managers.manager_trace import NoHintReason
from nodewright.engine.node.pod_placement import ContainerPlacement, Placement
from nodewright.engine.node.resource_holders import ResourceEvidence
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_in_bytes, readable_amount
from nodewright.model.reasons.cpu import NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.reasons.devices import NotEnoughDevices
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.texts import sentence
from nodewright.model.reasons.topology import AffinityObstacle, NoCommonNUMA, NothingPreferred
from nodewright.model.values.idset import NUMASet
from nodewright.predict.explain.explanation import Defect, Explanation, ResourceView, RoundView
from nodewright.predict.explain.reason_tree import (
    consumer_name,
    cpus_text,
    device_holder_text,
    devices_at_text,
    numa_text,
    place_of,
    sites_of,
)
from nodewright.predict.explain.suggestion_text import kubelet_effect, scheduler_effect

BranchTone: TypeAlias = Literal["plain", "yes", "no", "warning"]


class ReasonBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence with the sentences that support it."""

    text: str
    tone: BranchTone = "plain"
    children: tuple["ReasonBranch", ...] = ()
    is_detail: bool = False
    """Whether it is shown only in wide output."""


def reason_tree(explanation: Explanation, *, details: bool = True) -> tuple[ReasonBranch, ...]:
    """The reasons for the decision; without ``details`` some branches that are shown only in wide output may be absent."""
    sections = tuple(_sections(explanation, details=details))
    if sections or explanation.step.decision is not Decision.ADMITTED:
        return sections
    return (
        ReasonBranch(
            text="The requests fit and every check passes; no resource needs NUMA placement", tone="yes"
        ),
    )


def _sections(explanation: Explanation, *, details: bool) -> Iterator[ReasonBranch]:
    reasons = [refusal for refusal in explanation.refusals if not isinstance(refusal, NoCommonNUMA)]
    if reasons:
        yield ReasonBranch(text="Why it is not admitted", tone="no", children=tuple(map(_refusal, reasons)))
    if explanation.conditions:
        yield ReasonBranch(text="Effect of the node's conditions", children=tuple(_conditions(explanation)))
    if explanation.rounds:
        where = "container by container" if explanation.scope == "container" else "the pod as a whole"
        title = f"NUMA nodes, {where} ({_policy(explanation)})"
        rounds = (_round(explanation, numa_round, details=details) for numa_round in explanation.rounds)
        yield ReasonBranch(text=title, children=tuple(rounds))
    if explanation.placement is not None and explanation.placement.holds_anything:
        yield ReasonBranch(
            text="Exclusive allocations", tone="yes", children=tuple(_allocations(explanation))
        )
    if explanation.step.victims is not None:
        yield ReasonBranch(
            text="Pods that are preempted to make room",
            tone="warning",
            children=tuple(
                ReasonBranch(text=victim.pod.full_name) for victim in explanation.step.victims.victims
            ),
        )
    yield from _warnings(explanation)


def _policy(explanation: Explanation) -> str:
    """The topology policy that judged, and whether it is the kubelet's."""
    by = explanation.rounds[0].judged_by
    if by is None:
        return f"topology manager policy {explanation.policy}"
    if by.policy == explanation.policy:
        return f"custom topology policy {by.policy}"
    return f"topology manager policy {explanation.policy}, {by.choice()}"


def _conditions(explanation: Explanation) -> Iterator[ReasonBranch]:
    for condition in explanation.conditions:
        effects = (
            ReasonBranch(
                text=scheduler_effect(condition), tone="yes" if condition.scheduler.admits else "no"
            ),
            ReasonBranch(text=kubelet_effect(condition), tone="yes" if condition.kubelet.admits else "no"),
        )
        text = f"{condition.condition}, which is the taint {condition.taint.key}:{condition.taint.effect}"
        yield ReasonBranch(text=text, children=effects)
    if len(explanation.conditions) > 1:
        yield ReasonBranch(text="With several conditions at once the kubelet admits critical pods only")


def _refusal(reason: Reason) -> ReasonBranch:
    """A reason, with the state of each NUMA node below it."""
    if isinstance(reason, NotEnoughCPUs | NotEnoughWholeCores):
        lead = sentence(replace(reason, where=()))
        return ReasonBranch(text=lead, tone="no", children=_site_branches(CPU, reason.where))
    if isinstance(reason, NotEnoughDevices):
        stock = reason.stock
        lead = (
            f"{stock.resource}: {reason.requested} requested, {reason.available} of {stock.registered} free"
        )
        children = [ReasonBranch(text=devices_at_text(place)) for place in stock.places]
        children += [ReasonBranch(text=device_holder_text(holder)) for holder in stock.holders]
        return ReasonBranch(text=lead, tone="no", children=tuple(children))
    return ReasonBranch(text=sentence(reason), tone="no")


# ---------------------------------------------------------------- NUMA nodes


def _round(explanation: Explanation, numa_round: RoundView, *, details: bool) -> ReasonBranch:
    title = f"container {numa_round.container}" if numa_round.container else "all containers together"
    if numa_round.hint is None:
        return ReasonBranch(text=title, tone="no")
    is_clear = numa_round.hint.preferred and numa_round.admits
    short = {name for obstacle in numa_round.obstacles for name in _obstacle_resources(obstacle)}
    children = [
        _resource(
            resource,
            is_detail=_is_open(resource)
            if is_clear
            else bool(short) and resource.hints.resource not in short,
            details=details,
        )
        for resource in numa_round.resources
    ]
    children.append(_merged(explanation, numa_round))
    return ReasonBranch(text=title, tone="yes" if numa_round.admits else "no", children=tuple(children))


def _obstacle_resources(obstacle: AffinityObstacle) -> set[str | None]:
    if isinstance(obstacle, NothingPreferred):
        return {obstacle.hints.resource}
    return {hint.resource for hint in obstacle.hints}


def _is_open(view: ResourceView) -> bool:
    """Whether every NUMA node with some of the resource is preferred, so that its holders did not matter."""
    preferred = NUMASet()
    for numa in view.hints.preferred:
        preferred |= numa
    return all(place_of(site) <= preferred for site in view.sites or ())


def _resource(view: ResourceView, *, is_detail: bool, details: bool) -> ReasonBranch:
    hints = view.hints
    if hints.says == "no opinion":
        name = hints.resource or hints.provider
        why = _NO_HINT_TEXTS[view.no_hint_reason or "nothing asked"]
        return ReasonBranch(
            text=f"{name}: any NUMA node ({why})",
            children=_site_branches(MEMORY, view.sites) if view.no_hint_reason == "nothing fits" else (),
            is_detail=view.no_hint_reason in {"policy", "nothing asked"},
        )
    request = f"{hints.resource}: {_amount(hints.resource, view.requested)} requested"
    shown = None if is_detail and not details else view.sites
    sites = tuple(replace(site, is_detail=is_detail) for site in _site_branches(hints.resource, shown))
    if hints.says == "impossible":
        return ReasonBranch(text=f"{request}; no set of NUMA nodes has enough", tone="no", children=sites)
    if hints.preferred:
        return ReasonBranch(text=f"{request}; prefers {numa_sets_text(hints.preferred)}", children=sites)
    needs = (
        f"{request}; needs {numa_text(hints.narrowest)} now"
        if hints.narrowest
        else f"{request}; nothing fits"
    )
    fewest = view.enough_if_empty
    if fewest is not None and hints.narrowest and len(hints.narrowest) <= fewest:
        # Its manager prefers this set, but the policy admits single NUMA nodes only.
        needs += ", the fewest possible, but more than one"
    elif fewest is not None:
        needs += f"; {_count(fewest)} would suffice if nothing were allocated, so it is not preferred"
    return ReasonBranch(text=needs, tone="no", children=sites)


_NO_HINT_TEXTS: dict[NoHintReason, str] = {
    "policy": "its manager's policy gives no hints",
    "class": "the pod is not Guaranteed",
    "pod-level resources": "the pod has pod-level resources, and the feature gate PodLevelResourceManagers is off",
    "not whole": "the CPU request is not a whole number",
    "inexact": "an amount is not stored as an integer, so allocation refuses it",
    "nothing fits": "nothing fits, so allocation refuses it",
    "nothing asked": "none requested",
    "nowhere": "its devices have no NUMA affinity",
}


def _site_branches(resource: str, sites: ResourceEvidence) -> tuple[ReasonBranch, ...]:
    return tuple(ReasonBranch(text=text) for text in sites_of(resource, sites))


def _merged(explanation: Explanation, numa_round: RoundView) -> ReasonBranch:
    assert numa_round.hint is not None
    anything = "any NUMA node" if numa_round.hint.preferred else "no common NUMA node"
    where = f"{{{numa_round.hint.numa}}}" if numa_round.hint.numa is not None else anything
    unproved = "" if numa_round.proved else " (incomplete search: a better hint may exist)"
    if numa_round.judged_by is not None and numa_round.judged_by.policy == explanation.policy:
        remark = f": {numa_round.judged_by.said}" if numa_round.judged_by.said else ""
        verb = "admits" if numa_round.admits else "rejects"
        text = f"merged: {where}{unproved}; {explanation.policy} {verb} it{remark}"
        return ReasonBranch(text=text, tone="yes" if numa_round.admits else "no")
    if numa_round.hint.preferred:
        return ReasonBranch(text=f"merged: {where}, preferred{unproved}", tone="yes")
    why = "; ".join(map(_obstacle, numa_round.obstacles))
    text = f"merged: {where}, not preferred, because {why}{unproved}"
    if numa_round.admits:
        return ReasonBranch(text=f"{text}; {explanation.policy} admits it nevertheless", tone="warning")
    return ReasonBranch(text=f"{text}; {explanation.policy} admits preferred hints only", tone="no")


def _obstacle(obstacle: AffinityObstacle) -> str:
    if isinstance(obstacle, NothingPreferred):
        return f"no possible hint of {obstacle.hints.resource} is preferred"
    preferences = [f"{hint.resource} prefers {numa_sets_text(hint.preferred)}" for hint in obstacle.hints]
    return f"no set of NUMA nodes is preferred by all: {', '.join(preferences)}"


def numa_sets_text(preferred: Sequence[NUMASet]) -> str:
    """Sets of NUMA nodes, e.g. `{0} or {1}`; the first four of a longer list."""
    shown = " or ".join(f"{{{numa}}}" for numa in preferred[:4])
    return f"{shown} or others" if len(preferred) > 4 else shown


# ---------------------------------------------------------------- allocations


def _allocations(explanation: Explanation) -> Iterator[ReasonBranch]:
    placement = explanation.placement
    assert placement is not None
    remarks = dict(explanation.choices)
    if placement.cpus or placement.memory:
        yield ReasonBranch(
            text=f"the pod as a whole: {', '.join(_pod_level_items(placement))}",
            children=_remarks(remarks.get("", ())),
        )
    for container in placement.containers:
        if container.holds_anything:
            text = f"container {container.name}: {', '.join(_container_items(container))}"
            yield ReasonBranch(text=text, children=_remarks(remarks.get(container.name, ())))


def _remarks(reasons: Iterable[Reason]) -> tuple[ReasonBranch, ...]:
    return tuple(ReasonBranch(text=sentence(reason), is_detail=True) for reason in reasons)


def _pod_level_items(placement: Placement) -> Iterator[str]:
    if placement.cpus:
        yield cpus_text(placement.cpus)
    for block in placement.memory or ():
        yield _block(block.resource, block.size, block.numa)


def _container_items(placement: ContainerPlacement) -> Iterator[str]:
    if placement.cpus:
        yield cpus_text(placement.cpus)
    for block in placement.memory:
        if block.size:
            yield _block(block.resource, block.size, block.numa)
    for resource, devices in placement.devices.items():
        yield f"{resource} {', '.join(devices)}"


def _block(resource: str, size: int, numa: Iterable[int]) -> str:
    kind = "memory" if resource == MEMORY else resource
    return f"{readable_amount(resource, size)} {kind} on {numa_text(NUMASet.from_ids(numa))}"


# ---------------------------------------------------------------- kubelet defects

LONG_MERGE_S = 1
"""Shortest merge that gets a warning."""
NS_PER_COMBINATION = (280, 410)
"""Measured duration of one combination of hints in the kubelet (Go 1.26, one core of an AMD EPYC), least and most."""


def _warnings(explanation: Explanation) -> Iterator[ReasonBranch]:
    if explanation.defects:
        children = [
            ReasonBranch(text=sentence(defect.reason), tone="warning", children=tuple(_holders(defect)))
            for defect in explanation.defects
        ]
        children += [ReasonBranch(text=text) for text in _result_without_defects(explanation)]
        yield ReasonBranch(text="Known defects of the kubelet", tone="warning", children=tuple(children))
    least, most = merge_duration_s(explanation)
    if most >= LONG_MERGE_S:
        yield ReasonBranch(
            text=(
                f"A real kubelet would merge hints for {duration_text(least)} to {duration_text(most)}: "
                f"it tries {explanation.combinations:,} combinations of hints"
            ),
            tone="warning",
        )


def _holders(defect: Defect) -> Iterator[ReasonBranch]:
    for holder in defect.holders:
        yield ReasonBranch(
            text=f"{cpus_text(holder.cpus)}: already assigned to {consumer_name(holder.pod, holder.container)}"
        )
    if defect.reserved:
        yield ReasonBranch(text=f"{cpus_text(defect.reserved)}: reserved for the system")


def merge_duration_s(explanation: Explanation) -> tuple[float, float]:
    """Estimated time that a real kubelet spends merging hints, least and most.

    Units: seconds.
    """
    least, most = (explanation.combinations * ns / 1e9 for ns in NS_PER_COMBINATION)
    return least, most


def duration_text(seconds: float) -> str:
    """A duration in a readable unit.

    >>> duration_text(4.643), duration_text(1184), duration_text(10**6)
    ('4.6 s', '20 min', '11.6 days')
    """
    for size, unit in ((86_400.0, "days"), (3_600.0, "h")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.1f} s"


def _result_without_defects(explanation: Explanation) -> Iterator[str]:
    corrected = explanation.without_defects
    if corrected is None:
        return
    yield f"without these defects: {corrected.decision.value}"
    if corrected.placement is not None:
        for container in corrected.placement.containers:
            if container.holds_anything:
                yield f"container {container.name} would have {', '.join(_container_items(container))}"
    elif corrected.because:
        yield sentence(corrected.because[0])


def _amount(resource: str, amount: int | None) -> str:
    if amount is None:
        return "some"
    return readable_amount(resource, amount) if is_in_bytes(resource) else str(amount)


def _count(count: int) -> str:
    return "1 NUMA node" if count == 1 else f"{count} NUMA nodes"
