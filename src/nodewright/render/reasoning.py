"""An explanation as a tree of sentences, to be printed or drawn."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.cpu_reasons import CPUsOfNUMA, NotEnoughCPUs, NotEnoughWholeCores
from nodewright.model.device_reasons import DeviceHolder, DevicesAt, NotEnoughDevices
from nodewright.model.reasons import Reason
from nodewright.model.resource_names import CPU, MEMORY, is_in_bytes
from nodewright.model.topology_reasons import NoCommonNUMA, NothingPreferred, Obstacle
from nodewright.node.evidence import DeviceSite, Evidence, MemorySite
from nodewright.node.explanation import Defect, Explanation, ResourceView, RoundView
from nodewright.node.placement import ContainerPlacement, Placement
from nodewright.node.silence import Silence
from nodewright.node.step import Decision
from nodewright.render.amounts import readable
from nodewright.render.conditions import kubelet_sentence, scheduler_sentence
from nodewright.render.sentences import sentence
from nodewright.render.topology_sentences import chosen_by
from nodewright.values.idset import CPUSet, NUMASet

Tone: TypeAlias = Literal["plain", "yes", "no", "warning"]


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence and what lies below it."""

    text: str
    tone: Tone = "plain"
    below: tuple["Branch", ...] = ()
    is_detail: bool = False
    """Whether it is for those who look closely."""


def reasoning(explained: Explanation) -> tuple[Branch, ...]:
    """Why the answer is what it is."""
    found = tuple(_sections(explained))
    if found or explained.step.decision is not Decision.ADMITTED:
        return found
    return (
        Branch(
            text="There is room, and nothing else speaks against it; it asks for no NUMA nodes", tone="yes"
        ),
    )


def _sections(explained: Explanation) -> Iterator[Branch]:
    named = [one for one in explained.refusals if not isinstance(one, NoCommonNUMA)]
    if named:
        yield Branch(text="What speaks against it", tone="no", below=tuple(map(_refusal, named)))
    if explained.conditions:
        yield Branch(text="What the node's conditions mean for it", below=tuple(_conditions(explained)))
    if explained.rounds:
        where = "container by container" if explained.scope == "container" else "the pod as a whole"
        title = f"NUMA nodes, {where} ({_policy(explained)})"
        yield Branch(text=title, below=tuple(_round(explained, one) for one in explained.rounds))
    if explained.placement is not None and explained.placement.holds_anything:
        yield Branch(text="What it holds for itself", tone="yes", below=tuple(_held(explained)))
    if explained.step.victims is not None:
        yield Branch(
            text="Pods that are preempted to make room",
            tone="warning",
            below=tuple(Branch(text=one.pod.full_name) for one in explained.step.victims.victims),
        )
    yield from _warnings(explained)


def _policy(explained: Explanation) -> str:
    """Which policy it was, and whose."""
    by = explained.rounds[0].judged_by
    if by is None:
        return f"topology manager policy {explained.policy}"
    if by.policy == explained.policy:
        return f"topology policy {by.policy}, which is not the kubelet's"
    return f"topology manager policy {explained.policy}, {chosen_by(by)}"


def _conditions(explained: Explanation) -> Iterator[Branch]:
    for one in explained.conditions:
        who = (
            Branch(text=scheduler_sentence(one), tone="yes" if one.scheduler.is_open else "no"),
            Branch(text=kubelet_sentence(one), tone="yes" if one.kubelet.is_open else "no"),
        )
        text = f"{one.condition}, which is the taint {one.taint.key}:{one.taint.effect}"
        yield Branch(text=text, below=who)
    if len(explained.conditions) > 1:
        yield Branch(text="With several at once the kubelet takes critical pods only")


def _refusal(reason: Reason) -> Branch:
    """A reason, what there is on each NUMA node below it."""
    if isinstance(reason, NotEnoughCPUs | NotEnoughWholeCores):
        lead = sentence(replace(reason, where=()))
        return Branch(text=lead, tone="no", below=_sites(CPU, reason.where))
    if isinstance(reason, NotEnoughDevices):
        stock = reason.stock
        lead = (
            f"{stock.resource}: {reason.requested} asked for, {reason.available} of {stock.registered} free"
        )
        below = [Branch(text=_devices_at(one)) for one in stock.places]
        below += [Branch(text=_has(one)) for one in stock.holders]
        return Branch(text=lead, tone="no", below=tuple(below))
    return Branch(text=sentence(reason), tone="no")


# ---------------------------------------------------------------- NUMA nodes


def _round(explained: Explanation, seen: RoundView) -> Branch:
    whose = f"container {seen.container}" if seen.container else "all containers together"
    if seen.hint is None:
        return Branch(text=whose, tone="no")
    is_clear = seen.hint.preferred and seen.admits
    below = [_resource(one, is_detail=is_clear and _is_open(one)) for one in seen.resources]
    below.append(_merged(explained, seen))
    return Branch(text=whose, tone="yes" if seen.admits else "no", below=tuple(below))


def _is_open(view: ResourceView) -> bool:
    """Whether every NUMA node that has some of it is preferred: then nobody asks who has what."""
    preferred = NUMASet()
    for numa in view.hints.preferred:
        preferred |= numa
    return all(_place(site) <= preferred for site in view.sites or ())


def _place(site: CPUsOfNUMA | MemorySite | DeviceSite) -> NUMASet:
    match site:
        case CPUsOfNUMA(numa=numa):
            return NUMASet.of(numa)
        case MemorySite(left=left):
            return NUMASet.of(left.numa)
        case DeviceSite(at=at):
            return at.numa


def _resource(view: ResourceView, *, is_detail: bool) -> Branch:
    hints = view.hints
    if hints.says == "no opinion":
        name = hints.resource or hints.provider
        why = _SILENCE[view.silence or "nothing asked"]
        return Branch(
            text=f"{name}: any NUMA node ({why})",
            below=_sites(MEMORY, view.sites) if view.silence == "nothing fits" else (),
            is_detail=view.silence in {"policy", "nothing asked"},
        )
    asked = f"{hints.resource}: {_asked(hints.resource, view.asked)} asked for"
    below = tuple(replace(one, is_detail=is_detail) for one in _sites(hints.resource, view.sites))
    if hints.says == "impossible":
        return Branch(text=f"{asked}; no NUMA nodes have enough", tone="no", below=below)
    if hints.preferred:
        return Branch(text=f"{asked}; prefers {sets_text(hints.preferred)}", below=below)
    needs = f"{asked}; needs {_nodes(hints.narrowest)} now" if hints.narrowest else f"{asked}; nothing fits"
    fewest = view.enough_if_empty
    if fewest is not None and hints.narrowest and len(hints.narrowest) <= fewest:
        # Preferred by its manager, and yet no use: the policy takes single NUMA nodes only.
        needs += ", as few as would ever do, but more than one"
    elif fewest is not None:
        needs += f", where {_count(fewest)} would do if nothing were taken: not preferred"
    return Branch(text=needs, tone="no", below=below)


_SILENCE: dict[Silence, str] = {
    "policy": "its manager's policy has no opinion",
    "class": "the pod is not Guaranteed",
    "pod-level resources": "the pod has resources of its own, and the gate PodLevelResourceManagers is off",
    "not whole": "no whole number of CPUs is asked for",
    "inexact": "an amount is not held as a whole number, so allocation will refuse it",
    "nothing fits": "nothing fits, so allocation will refuse it",
    "nothing asked": "none is asked for",
    "nowhere": "its devices name none",
}


def _merged(explained: Explanation, seen: RoundView) -> Branch:
    assert seen.hint is not None
    anything = "any NUMA node" if seen.hint.preferred else "nothing in common"
    where = f"{{{seen.hint.numa}}}" if seen.hint.numa is not None else anything
    unproved = "" if seen.proved else " (the search was cut short: there may be better ones)"
    if seen.judged_by is not None and seen.judged_by.policy == explained.policy:
        said = f": {seen.judged_by.said}" if seen.judged_by.said else ""
        takes = "takes it" if seen.admits else "does not take it"
        text = f"together: {where}{unproved}; {explained.policy} {takes}{said}"
        return Branch(text=text, tone="yes" if seen.admits else "no")
    if seen.hint.preferred:
        return Branch(text=f"together: {where}, preferred{unproved}", tone="yes")
    why = "; ".join(map(_obstacle, seen.obstacles))
    text = f"together: {where}, not preferred, because {why}{unproved}"
    if seen.admits:
        return Branch(text=f"{text}; {explained.policy} takes it all the same", tone="warning")
    return Branch(text=f"{text}; {explained.policy} takes preferred NUMA nodes only", tone="no")


def _obstacle(obstacle: Obstacle) -> str:
    if isinstance(obstacle, NothingPreferred):
        return f"{obstacle.hints.resource} prefers none that is possible"
    wishes = [f"{one.resource} prefers {sets_text(one.preferred)}" for one in obstacle.hints]
    return f"no NUMA nodes are preferred by all: {', '.join(wishes)}"


def sets_text(preferred: Sequence[NUMASet]) -> str:
    """Sets of NUMA nodes, e.g. `{0} or {1}`; all of one size that begin a long list are cut short."""
    shown = " or ".join(f"{{{numa}}}" for numa in preferred[:4])
    return f"{shown} or others" if len(preferred) > 4 else shown


# ---------------------------------------------------------------- who has what


def _sites(resource: str, sites: Evidence) -> tuple[Branch, ...]:
    if sites is None:
        return ()
    return tuple(Branch(text=_site(resource, one)) for one in sites)


def _site(resource: str, site: CPUsOfNUMA | MemorySite | DeviceSite) -> str:
    if isinstance(site, DeviceSite):
        stranded = [f"{', '.join(site.stranded)} in use by nobody"] if site.stranded else []
        return "; ".join([_devices_at(site.at), *map(_has, site.holders), *stranded])
    if isinstance(site, CPUsOfNUMA):
        parts = [f"{_cpus(site.free)} free" if site.free else "no CPU free"]
        parts += [f"{site.reserved} reserved"] if site.reserved else []
        parts += [f"{holder(one.pod, one.container)} has {one.cpus}" for one in site.holders]
        return f"NUMA node {site.numa}: {'; '.join(parts)}"
    left = site.left
    parts = [f"{readable(resource, left.free)} of {readable(resource, left.allocatable)} free"]
    if len(left.group) > 1:
        parts.append(f"used together as {{{left.group}}}")
    parts += [
        f"{holder(one.pod, one.container)} has {readable(resource, one.size)}{_spread(one.numa)}"
        for one in site.holders
    ]
    return f"NUMA node {left.numa}: {'; '.join(parts)}"


def _spread(numa: NUMASet) -> str:
    return f" on {{{numa}}}" if len(numa) > 1 else ""


def _devices_at(place: DevicesAt) -> str:
    where = f"NUMA node{'s' if len(place.numa) > 1 else ''} {place.numa}" if place.numa else "no NUMA node"
    ill = f", {place.registered - place.healthy} not healthy" if place.healthy < place.registered else ""
    return f"{where}: {place.free} of {place.registered} free{ill}"


def _has(one: DeviceHolder) -> str:
    return f"{holder(one.pod, one.container)} has {', '.join(one.devices)}"


def holder(pod: str, container: str) -> str:
    """A container of a pod, or the pod as a whole."""
    return f"{pod} ({container})" if container else pod


# ---------------------------------------------------------------- what came of it


def _held(explained: Explanation) -> Iterator[Branch]:
    placement = explained.placement
    assert placement is not None
    remarks = dict(explained.choices)
    if placement.cpus or placement.memory:
        yield Branch(
            text=f"the pod as a whole: {', '.join(_whole(placement))}", below=_remarks(remarks.get("", ()))
        )
    for one in placement.containers:
        if one.holds_anything:
            text = f"container {one.name}: {', '.join(_things(one))}"
            yield Branch(text=text, below=_remarks(remarks.get(one.name, ())))


def _remarks(reasons: Iterable[Reason]) -> tuple[Branch, ...]:
    return tuple(Branch(text=sentence(one), is_detail=True) for one in reasons)


def _whole(placement: Placement) -> Iterator[str]:
    if placement.cpus:
        yield _cpus(placement.cpus)
    for block in placement.memory or ():
        yield _block(block.resource, block.size, block.numa)


def _things(one: ContainerPlacement) -> Iterator[str]:
    if one.cpus:
        yield _cpus(one.cpus)
    for block in one.memory:
        if block.size:
            yield _block(block.resource, block.size, block.numa)
    for resource, devices in one.devices.items():
        yield f"{resource} {', '.join(devices)}"


def _block(resource: str, size: int, numa: Iterable[int]) -> str:
    kind = "memory" if resource == MEMORY else resource
    return f"{readable(resource, size)} {kind} on {_nodes(NUMASet.from_ids(numa))}"


# ---------------------------------------------------------------- what the real kubelet does wrong

STALL_S = 1
"""From so many seconds on a stall is worth a warning."""
NS_PER_COMBINATION = (280, 410)
"""What a combination of hints took a kubelet (Go 1.26, one core of an AMD EPYC)."""


def _warnings(explained: Explanation) -> Iterator[Branch]:
    if explained.defects:
        below = [
            Branch(text=sentence(one.reason), tone="warning", below=tuple(_owners(one)))
            for one in explained.defects
        ]
        below += [Branch(text=text) for text in _put_right(explained)]
        yield Branch(text="Known defects of the kubelet", tone="warning", below=tuple(below))
    least, most = stall_s(explained)
    if most >= STALL_S:
        yield Branch(
            text=(
                f"A real kubelet would be busy for {duration(least)} to {duration(most)}: "
                f"it tries {explained.combinations:,} combinations of hints"
            ),
            tone="warning",
        )


def _owners(defect: Defect) -> Iterator[Branch]:
    for one in defect.holders:
        yield Branch(
            text=f"{_cpus(one.cpus)}: {holder(one.pod, one.container)} has {_them(one.cpus)} already"
        )
    if defect.reserved:
        yield Branch(text=f"{_cpus(defect.reserved)}: reserved for the system")


def _them(cpus: CPUSet) -> str:
    return "them" if len(cpus) > 1 else "it"


def stall_s(explained: Explanation) -> tuple[float, float]:
    """How long a real kubelet would merge hints, at least and at most.

    Units: seconds.
    """
    least, most = (explained.combinations * ns / 1e9 for ns in NS_PER_COMBINATION)
    return least, most


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(4.643), duration(1184), duration(10**6)
    ('4.6 s', '20 min', '11.6 days')
    """
    for size, unit in ((86_400.0, "days"), (3_600.0, "h")):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.1f} s"


def _put_right(explained: Explanation) -> Iterator[str]:
    other = explained.without_defects
    if other is None:
        return
    yield f"a kubelet without them: {other.decision.value}"
    if other.placement is not None:
        for one in other.placement.containers:
            if one.holds_anything:
                yield f"container {one.name} would have {', '.join(_things(one))}"
    elif other.because:
        yield sentence(other.because[0])


def _asked(resource: str, amount: int | None) -> str:
    if amount is None:
        return "some"
    return readable(resource, amount) if is_in_bytes(resource) else str(amount)


def _nodes(numa: NUMASet) -> str:
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"


def _cpus(cpus: CPUSet) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"


def _count(count: int) -> str:
    return "1 NUMA node" if count == 1 else f"{count} NUMA nodes"
