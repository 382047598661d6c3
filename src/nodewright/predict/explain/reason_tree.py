"""An explanation as a tree of sentences, for text and HTML."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.node.managers.manager_trace import NoHintReason
from nodewright.engine.node.pod_admission import ContainerPlacement, Placement
from nodewright.engine.node.resource_holders import DeviceSite, MemorySite, ResourceEvidence
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_in_bytes, readable_amount
from nodewright.model.printable import counted
from nodewright.model.reasons.cpu import CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.reasons.devices import DeviceHolder, DevicesAt, NotEnoughDevices
from nodewright.model.reasons.reason import Reason, sentence
from nodewright.model.reasons.topology import AffinityObstacle, NoCommonNUMA, NothingPreferred
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.predict.explain.alignment import leading_sentences, numa_sets_text, obstacle_text
from nodewright.predict.explain.explained_decision import (
    ExplainedDecision,
    ReportedDefect,
    ResourceView,
    RoundView,
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


def reason_tree(explanation: ExplainedDecision, *, details: bool = True) -> tuple[ReasonBranch, ...]:
    """The reasons for the decision; without ``details`` without the hints of NUMA nodes."""
    sections = tuple(_sections(explanation, details=details))
    if sections or explanation.decision is not Decision.ADMITTED:
        return sections
    return (
        ReasonBranch(
            text="The requests fit and every check passes; no resource needs NUMA placement", tone="yes"
        ),
    )


def _sections(explanation: ExplainedDecision, *, details: bool) -> Iterator[ReasonBranch]:
    if explanation.scheduler:
        yield _obstacles(explanation.scheduler, explanation.decision)
    leading = tuple(leading_sentences(explanation))
    for text in leading:
        tone: BranchTone = "no" if explanation.decision is Decision.REFUSED else "warning"
        yield ReasonBranch(text=text[:1].upper() + text[1:], tone=tone)
    reasons = [
        refusal
        for refusal in explanation.refusals
        if not (isinstance(refusal, NoCommonNUMA) or any(sentence(refusal) in text for text in leading))
    ]
    if reasons:
        yield ReasonBranch(text=explanation.refusal_title, tone="no", children=tuple(map(_refusal, reasons)))
    if explanation.conditions:
        yield ReasonBranch(text="Effect of the node's conditions", children=tuple(_conditions(explanation)))
    if explanation.rounds and (details or explanation.rounds[0].judged_by is not None):
        where = "container by container" if explanation.scope == "container" else "the pod as a whole"
        title = f"NUMA nodes, {where} ({_policy(explanation)})"
        rounds = (_round(explanation, numa_round) for numa_round in explanation.rounds)
        yield ReasonBranch(text=title, children=tuple(rounds))
    if explanation.placement is not None and explanation.placement.holds_anything:
        yield ReasonBranch(
            text=explanation.allocation_title, tone="yes", children=tuple(_allocations(explanation))
        )
    if explanation.devices:
        devices = tuple(ReasonBranch(text=each.sentence(), tone="yes") for each in explanation.devices)
        apart = tuple(ReasonBranch(text=text, tone="warning") for text in explanation.unaligned)
        yield ReasonBranch(text="Devices of its resource claims", tone="yes", children=(*devices, *apart))
    if explanation.step.victims is not None:
        yield ReasonBranch(
            text="Pods that are preempted to make room",
            tone="warning",
            children=tuple(
                ReasonBranch(text=victim.pod.full_name) for victim in explanation.step.victims.victims
            ),
        )
    yield from _warnings(explanation)


def _obstacles(obstacles: Sequence[SchedulerObstacle], decision: Decision) -> ReasonBranch:
    """Why the scheduler does not bind the pod, or whether it does is not known."""
    is_open = all(each.is_open for each in obstacles)
    undecided = "What is not judged" if decision is Decision.REFUSED else "Why it is undecided"
    title = undecided if is_open else "Why the scheduler does not bind it to this node"
    branches = (
        ReasonBranch(
            text=each.why, tone="no", children=tuple(ReasonBranch(text=text) for text in each.details)
        )
        for each in obstacles
    )
    return ReasonBranch(text=title, tone="warning" if is_open else "no", children=tuple(branches))


def _policy(explanation: ExplainedDecision) -> str:
    """The topology policy that judged, and whether it is the kubelet's."""
    by = explanation.rounds[0].judged_by
    if by is None:
        return f"topology manager policy {explanation.policy}"
    if by.policy == explanation.policy:
        return f"custom topology policy {by.policy}"
    return f"topology manager policy {explanation.policy}, {by.choice()}"


def _conditions(explanation: ExplainedDecision) -> Iterator[ReasonBranch]:
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


def _round(explanation: ExplainedDecision, numa_round: RoundView) -> ReasonBranch:
    title = f"container {numa_round.container}" if numa_round.container else "its requests"
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


def _resource(view: ResourceView, *, is_detail: bool) -> ReasonBranch:
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
    sites = tuple(replace(site, is_detail=is_detail) for site in _site_branches(hints.resource, view.sites))
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
        needs += f"; {counted(fewest, 'NUMA node')} would suffice if nothing were allocated, so it is not preferred"
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


def _merged(explanation: ExplainedDecision, numa_round: RoundView) -> ReasonBranch:
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
    why = "; ".join(map(obstacle_text, numa_round.obstacles))
    text = f"merged: {where}, not preferred, because {why}{unproved}"
    if numa_round.admits:
        return ReasonBranch(text=f"{text}; {explanation.policy} admits it nevertheless", tone="warning")
    return ReasonBranch(text=f"{text}; {explanation.policy} admits preferred hints only", tone="no")


# ---------------------------------------------------------------- allocations


def _allocations(explanation: ExplainedDecision) -> Iterator[ReasonBranch]:
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


def _warnings(explanation: ExplainedDecision) -> Iterator[ReasonBranch]:
    if explanation.defects:
        children = [
            ReasonBranch(text=defect.text, tone="warning", children=tuple(_holders(defect)))
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


def _holders(defect: ReportedDefect) -> Iterator[ReasonBranch]:
    for holder in defect.holders:
        yield ReasonBranch(
            text=f"{cpus_text(holder.cpus)}: already assigned to {consumer_name(holder.pod, holder.container)}"
        )
    if defect.reserved:
        yield ReasonBranch(text=f"{cpus_text(defect.reserved)}: reserved for the system")


def merge_duration_s(explanation: ExplainedDecision) -> tuple[float, float]:
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


def _result_without_defects(explanation: ExplainedDecision) -> Iterator[str]:
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


def sites_of(resource: str, sites: ResourceEvidence) -> tuple[str, ...]:
    """What each NUMA node has of the resource, and which pods hold the rest; equal NUMA nodes together."""
    if sites is None:
        return ()
    groups: dict[str, list[CPUsOfNUMA | MemorySite | DeviceSite]] = {}
    for site in sites:
        groups.setdefault(_alike(resource, site) or f"NUMA node {place_of(site)}", []).append(site)
    texts = []
    for text, group in groups.items():
        if len(group) >= _SMALLEST_GROUP:
            numa = NUMASet.from_ids(id_ for site in group for id_ in place_of(site))
            texts.append(f"NUMA nodes {numa}: {text} each")
        else:
            texts += [_site(resource, site) for site in group]
    return tuple(texts)


_SMALLEST_GROUP = 3
"""Fewer NUMA nodes are shown one by one."""


def _alike(resource: str, site: CPUsOfNUMA | MemorySite | DeviceSite) -> str:
    """What NUMA nodes without holders have in common; empty for a node that is shown by itself."""
    if site.holders:
        return ""
    match site:
        case CPUsOfNUMA():
            reserved = f", {len(site.reserved)} reserved" if site.reserved else ""
            return f"{counted(len(site.free), 'CPU')} free{reserved}"
        case MemorySite(left=left) if len(left.group) <= 1:
            return f"{readable_amount(resource, left.free)} of {readable_amount(resource, left.allocatable)} free"
        case DeviceSite(at=at) if len(at.numa) == 1 and not site.stranded:
            return _free_devices(at)
        case _:
            return ""


def _site(resource: str, site: CPUsOfNUMA | MemorySite | DeviceSite) -> str:
    if isinstance(site, DeviceSite):
        stranded = [f"{', '.join(site.stranded)} counted as used without a holder"] if site.stranded else []
        return "; ".join([devices_at_text(site.at), *map(device_holder_text, site.holders), *stranded])
    if isinstance(site, CPUsOfNUMA):
        parts = [f"{cpus_text(site.free)} free" if site.free else "no CPU free"]
        parts += [f"{site.reserved} reserved"] if site.reserved else []
        parts += [
            f"{consumer_name(holder.pod, holder.container)} has {holder.cpus}" for holder in site.holders
        ]
        return f"NUMA node {site.numa}: {'; '.join(parts)}"
    memory = site.left
    parts = [
        f"{readable_amount(resource, memory.free)} of {readable_amount(resource, memory.allocatable)} free"
    ]
    if len(memory.group) > 1:
        parts.append(f"used together as {{{memory.group}}}")
    for holder in site.holders:
        spread = f" on {{{holder.numa}}}" if len(holder.numa) > 1 else ""
        size = readable_amount(resource, holder.size)
        parts.append(f"{consumer_name(holder.pod, holder.container)} has {size}{spread}")
    return f"NUMA node {memory.numa}: {'; '.join(parts)}"


def devices_at_text(place: DevicesAt) -> str:
    """The devices of a place, and how many are free."""
    return f"{numa_text(place.numa) if place.numa else 'no NUMA node'}: {_free_devices(place)}"


def _free_devices(place: DevicesAt) -> str:
    unhealthy = (
        f", {place.registered - place.healthy} not healthy" if place.healthy < place.registered else ""
    )
    return f"{place.free} of {place.registered} free{unhealthy}"


def device_holder_text(holder: DeviceHolder) -> str:
    """A container with its devices."""
    return f"{consumer_name(holder.pod, holder.container)} has {', '.join(holder.devices)}"


def consumer_name(pod: str, container: str) -> str:
    """A container of a pod, or the pod as a whole."""
    return f"{pod} ({container})" if container else pod


def place_of(site: CPUsOfNUMA | MemorySite | DeviceSite) -> NUMASet:
    """The NUMA nodes of a site."""
    match site:
        case CPUsOfNUMA(numa=numa):
            return NUMASet.of(numa)
        case MemorySite(left=left):
            return NUMASet.of(left.numa)
        case DeviceSite(at=at):
            return at.numa


def numa_text(numa: NUMASet) -> str:
    """NUMA nodes, e.g. `NUMA nodes 0-1`."""
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"


def cpus_text(cpus: CPUSet) -> str:
    """CPUs, e.g. `CPUs 2-3`."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"


_NAMED_HOLDERS = 2


class NUMACell(msgspec.Struct, frozen=True):
    """What is free of a resource in one place."""

    text: str
    is_enough: bool
    """Whether this place alone has what is requested."""
    holders: str = ""
    """The pods that have the rest."""


class NUMAColumn(msgspec.Struct, frozen=True):
    """A resource."""

    resource: str
    requested: str
    hint: str
    """The hint of its manager, as text."""


class NUMARow(msgspec.Struct, frozen=True):
    """NUMA nodes with equal cells; a cell is None where the place has nothing of the resource."""

    name: str
    cells: tuple[NUMACell | None, ...]


class NUMATable(msgspec.Struct, frozen=True):
    """The resources of one container, or of all together, on the NUMA nodes."""

    container: str
    """Empty: the pod as a whole."""
    columns: tuple[NUMAColumn, ...]
    rows: tuple[NUMARow, ...]


def numa_tables(explanation: ExplainedDecision) -> tuple[NUMATable, ...]:
    """A table for each round of the topology manager in which a manager knows what is free."""
    return tuple(
        table
        for numa_round in explanation.rounds
        if (table := _round_table(numa_round.container, numa_round.resources)) is not None
    )


def _round_table(container: str, views: Iterable[ResourceView]) -> NUMATable | None:
    columns = [
        (
            NUMAColumn(resource, _cell_amount(resource, view.requested), _hint(view)),
            view.requested,
            view.sites,
        )
        for view in views
        if view.sites and (resource := view.hints.resource)
    ]
    return _table(container, columns) if columns else None


def _cell_amount(resource: str, amount: int | None) -> str:
    if amount is None:
        return "some"
    return readable_amount(resource, amount) if is_in_bytes(resource) else f"{amount:,}"


def _hint(view: ResourceView) -> str:
    hints = view.hints
    if hints.says == "no opinion":
        return "any"
    if hints.says == "impossible":
        return "nowhere enough"
    if hints.preferred:
        return f"prefers {numa_sets_text(hints.preferred)}"
    return f"needs {{{hints.narrowest}}}" if hints.narrowest else "nothing fits"


def _table(container: str, columns: Sequence[tuple[NUMAColumn, int | None, ResourceEvidence]]) -> NUMATable:
    cells = [dict(_cells(column.resource, requested, sites or ())) for column, requested, sites in columns]
    places = sorted(
        {place for by_place in cells for place in by_place}, key=lambda p: (len(p) != 1, tuple(p))
    )
    joined: dict[tuple[NUMACell | None, ...], list[NUMASet]] = {}
    for place in places:
        joined.setdefault(tuple(by_place.get(place) for by_place in cells), []).append(place)
    rows = tuple(NUMARow(_name(equal), key) for key, equal in joined.items())
    return NUMATable(container, tuple(column for column, _, _ in columns), rows)


def _name(places: Sequence[NUMASet]) -> str:
    """The name of places with equal cells."""
    single = NUMASet()
    for place in places:
        single |= place if len(place) == 1 else NUMASet()
    several = [f"{{{place}}}" if place else "no NUMA node" for place in places if len(place) != 1]
    return ", ".join([*([f"NUMA {single}"] if single else []), *several])


def _cells(
    resource: str, requested: int | None, sites: Iterable[CPUsOfNUMA | MemorySite | DeviceSite]
) -> Iterator[tuple[NUMASet, NUMACell]]:
    for site in sites:
        place, free, whole = _amounts(site)
        text = f"{_cell_amount(resource, free)} of {_amount(resource, whole)} free"
        pods = list(dict.fromkeys(holder.pod for holder in site.holders))
        more = f" and {len(pods) - _NAMED_HOLDERS} more" if len(pods) > _NAMED_HOLDERS else ""
        is_enough = requested is None or free >= requested
        yield place, NUMACell(text, is_enough, f"{', '.join(pods[:_NAMED_HOLDERS])}{more}")


def _amounts(site: CPUsOfNUMA | MemorySite | DeviceSite) -> tuple[NUMASet, int, int]:
    """The place of a resource, with the free and the whole amount."""
    match site:
        case CPUsOfNUMA(numa=numa, free=free, reserved=reserved):
            held = sum(len(holder.cpus) for holder in site.holders)
            return NUMASet.of(numa), len(free), len(free) + len(reserved) + held
        case MemorySite(left=left):
            return NUMASet.of(left.numa), left.free, left.allocatable
        case DeviceSite(at=at):
            return at.numa, at.free, at.registered
        case _:
            assert_never(site)
