"""Rules about pods on the nodes that are given: what every kubelet would say, before a controller asks it for ever."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from nodewright.core.requests import QOSClass, pod_requests
from nodewright.lint.findings import Edit, Found, Rule, Severity
from nodewright.lint.subjects import Around, LintNode, Part, PodSubject
from nodewright.model.cpu_reasons import (
    CPUsNotFree,
    KubeletCrashes,
    KubeletHangs,
    NotWholeCores,
)
from nodewright.model.device_reasons import DeviceUnlisted
from nodewright.model.memory_reasons import MemoryTypeMissing
from nodewright.model.objects import Pod
from nodewright.model.reasons import InsufficientResource, Reason
from nodewright.model.resource_names import CPU, is_extended, is_huge_page
from nodewright.model.tolerations import tolerates
from nodewright.model.topology_reasons import TopologyReason
from nodewright.model.verdict import Granted
from nodewright.node.admission import judged
from nodewright.node.changes import Amount, AmountsRewritten, CPULimitDropped, RequestsChanged
from nodewright.node.counterfactual import Suggestion
from nodewright.node.events import PodArrived
from nodewright.node.step import Decision, Step, step
from nodewright.node.suggest import suggestions
from nodewright.values.quantity import Format, Quantity

BUDGET = 300
"""Decisions for the search for a smallest change."""


class Judged(NamedTuple):
    """What an empty node says to a pod."""

    node: LintNode
    short: tuple[InsufficientResource, ...]
    """What the scheduler would miss; empty: it may send the pod there."""
    step: Step


@lru_cache(maxsize=4)  # several rules look at one pod after the other
def _on_nodes(pod: PodSubject, around: Around) -> tuple[Judged, ...]:
    """What the nodes that the pod is meant for say to it."""
    found = []
    for node in around.nodes:
        short = _short_of(node, pod.pod)
        if short is not None:
            foreseen = short if pod.is_scheduled else ()
            found.append(Judged(node, foreseen, step(node.state, PodArrived(pod.pod))))
    return tuple(found)


def _short_of(node: LintNode, pod: Pod) -> tuple[InsufficientResource, ...] | None:
    """What an empty node lacks for the pod; None: the pod is not for it, by its selectors, tolerations or devices."""
    view = node.state.config.view
    if any(
        taint.effect == "NoSchedule" and not any(tolerates(one, taint) for one in pod.spec.tolerations)
        for taint in view.taints
    ):
        return None
    if any(is_extended(name) and name not in view.allocatable for name in pod_requests(pod)):
        return None  # Nothing is known of its devices; the scheduler sends the pod where there are some.
    verdict = judged(node.state, pod, node.state.held).verdict
    because = () if isinstance(verdict, Granted) else verdict.because
    short = tuple(one for one in because if isinstance(one, InsufficientResource))
    return short if len(short) == len(because) else None


def _refused_everywhere(pod: PodSubject, around: Around) -> tuple[Judged, ...]:
    """The nodes that the scheduler may choose, if every one of them turns the pod away."""
    chosen = tuple(one for one in _on_nodes(pod, around) if not one.short)
    if all(one.step.decision is Decision.REFUSED for one in chosen):
        return chosen
    return ()


def _first_reason(everywhere: tuple[Judged, ...]) -> Reason | None:
    return everywhere[0].step.because[0] if everywhere else None


def _odd_cpus(pod: PodSubject, around: Around) -> Iterator[Found]:
    """CPU counts that are no whole cores, where only whole cores are given out."""
    everywhere = _refused_everywhere(pod, around)
    reason = _first_reason(everywhere)
    if not isinstance(reason, NotWholeCores):
        return
    per_core = reason.cpus_per_core
    odd = [part for part in pod.complete_parts if _cpus(part) % per_core]
    edits = [
        Edit(f"{part.resources}.{side}[{CPU}]", str(-(-_cpus(part) // per_core) * per_core))
        for part in odd
        for side in ("requests", "limits")
        if pod.text_at(f"{part.resources}.{side}", CPU) is not None
    ]
    facts = {
        **_facts(pod, everywhere),
        "containers": ", ".join(f"{part.container.name} ({_cpus(part)})" for part in odd),
        "perCore": per_core,
    }
    path = f"{odd[0].resources}" if odd else f"{pod.prefix}spec"
    yield Found(path=path, facts=facts, edits=tuple(edits))


def _cpus(part: Part) -> int:
    amount = part.container.resources.requests.get(CPU)
    return 0 if amount is None or amount.milli_value() % 1000 else amount.value()


def _not_aligned(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Requests for which no node's topology manager finds NUMA nodes."""
    everywhere = _refused_everywhere(pod, around)
    if isinstance(_first_reason(everywhere), TopologyReason):
        yield _with_changes(pod, everywhere)


def _storm(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Refusals of other kinds that every node repeats."""
    everywhere = _refused_everywhere(pod, around)
    reason = _first_reason(everywhere)
    if reason is None or isinstance(reason, NotWholeCores | TopologyReason) or _ends_kubelet(reason):
        return
    yield _with_changes(pod, everywhere)


def _with_changes(pod: PodSubject, everywhere: tuple[Judged, ...]) -> Found:
    """The refusal with what would let the pod in, and the first of it as an edit."""
    changes = _smallest(pod, everywhere[0])
    facts = {**_facts(pod, everywhere), "changes": changes}
    requests = (one.change for one in changes if isinstance(one.change, RequestsChanged))
    edits = tuple(
        edit for one in next(requests, RequestsChanged(amounts=())).amounts for edit in _edits(pod, one)
    )
    return Found(path=f"{pod.prefix}spec", facts=facts, edits=edits)


def _edits(pod: PodSubject, amount: Amount) -> Iterator[Edit]:
    """The request with another amount, and the limit where it was the same."""
    name = amount.resource
    now = Quantity.of_milli(amount.now) if name == CPU else Quantity.of(amount.now, Format.BINARY_SI)
    for part in pod.complete_parts:
        if part.container.name == amount.container:
            resources = part.container.resources
            together = resources.limits.get(name) == resources.requests.get(name)
            for side in ("requests", "limits") if together else ("requests",):
                if pod.text_at(f"{part.resources}.{side}", name) is not None:
                    yield Edit(f"{part.resources}.{side}[{name}]", now.canonical())


def _fits_nowhere(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods that are too large for every node they are meant for."""
    found = _on_nodes(pod, around)
    if not found or not all(one.short for one in found):
        return
    nearest = min(found, key=lambda one: (len(one.short), one.node.name))
    facts = {
        "kind": pod.kind,
        "nodes": _names(found),
        "node": nearest.node.name,
        "short": nearest.short,
    }
    yield Found(path=f"{pod.prefix}spec", facts=facts)


def _refused_somewhere(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods that the scheduler may send to a node that turns them away, though there are better ones."""
    chosen = [one for one in _on_nodes(pod, around) if not one.short]
    bad = [one for one in chosen if one.step.decision is Decision.REFUSED]
    if bad and len(bad) < len(chosen) and pod.is_scheduled:
        good = [one for one in chosen if one.step.decision is not Decision.REFUSED]
        facts = {**_facts(pod, tuple(bad)), "good": _names(good)}
        yield Found(path=f"{pod.prefix}spec", facts=facts)


def _ends_kubelet_rule(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods over which a kubelet crashes or hangs."""
    for one in _on_nodes(pod, around):
        if not one.short and one.step.because and _ends_kubelet(one.step.because[0]):
            yield Found(path=f"{pod.prefix}spec", facts=_facts(pod, (one,)))
            return


def _ends_kubelet(reason: Reason) -> bool:
    return isinstance(reason, KubeletHangs | KubeletCrashes | MemoryTypeMissing | DeviceUnlisted)


def _parts_of_cpus(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Guaranteed containers with more than one CPU, not whole, where whole ones would be theirs alone."""
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    static = [node.name for node in around.nodes if node.pins_cpus]
    if not static:
        return
    for part in pod.complete_parts:
        milli = part.container.resources.requests.get(CPU)
        if milli is None or milli.milli_value() < 1000 or not milli.milli_value() % 1000:
            continue
        up = str(-(-milli.milli_value() // 1000))
        edits = tuple(
            Edit(f"{part.resources}.{side}[{CPU}]", up)
            for side in ("requests", "limits")
            if pod.text_at(f"{part.resources}.{side}", CPU) is not None
        )
        facts = {"container": part.container.name, "cpus": str(milli), "nodes": ", ".join(static)}
        yield Found(path=part.resources, facts=facts, edits=edits)


def _pages_of_init(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Huge pages for init containers alone, of which the memory manager knows nothing when it counts the pod."""
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    asked = {name for one in pod.pod.spec.containers for name in one.resources.requests}
    nodes = [
        node.name
        for node in around.nodes
        if node.state.config.parts.kubelet.topology_manager_scope == "pod"
        and node.places_memory
        and node.state.config.parts.kubelet.topology_manager_policy != "none"
    ]
    for part in pod.complete_parts if nodes else ():
        for name in part.container.resources.requests:
            if is_huge_page(name) and name not in asked and part.role != "container":
                facts = {"container": part.container.name, "resource": name, "nodes": ", ".join(nodes)}
                yield Found(path=part.resources, facts=facts)


def _given_twice(pod: PodSubject, around: Around) -> Iterator[Found]:
    """Pods that are given CPUs which are not free, on machines that the kubelet takes for regular ones."""
    for one in _on_nodes(pod, around):
        remarks = [reason for reason in one.step.because if isinstance(reason, CPUsNotFree)]
        if remarks:
            facts = {"node": one.node.name, "cpus": str(remarks[0].cpus)}
            yield Found(path=f"{pod.prefix}spec", facts=facts)
            return


def _facts(pod: PodSubject, judged_by: tuple[Judged, ...]) -> dict[str, object]:
    return {
        "kind": pod.kind,
        "nodes": _names(judged_by),
        "reason": judged_by[0].step.because[0],
        "scheduled": pod.is_scheduled,
    }


def _names(found: Iterable[Judged]) -> str:
    return ", ".join(one.node.name for one in found)


def _smallest(pod: PodSubject, one: Judged) -> tuple[Suggestion, ...]:
    """The smallest changes of the pod that would let it in; of the node, none are looked for."""
    found = suggestions(one.node.state, pod.pod, one.step, budget=BUDGET)
    return tuple(each for each in found.suggestions if isinstance(each.change, _OF_PODS))


_OF_PODS = RequestsChanged | AmountsRewritten | CPULimitDropped

NODE_RULES = (
    Rule("NW201", Severity.ERROR, (PodSubject,), _odd_cpus, needs_node=True),
    Rule("NW202", Severity.ERROR, (PodSubject,), _not_aligned, needs_node=True),
    Rule("NW203", Severity.ERROR, (PodSubject,), _storm, needs_node=True),
    Rule("NW204", Severity.ERROR, (PodSubject,), _fits_nowhere, needs_node=True),
    Rule("NW205", Severity.WARNING, (PodSubject,), _refused_somewhere, needs_node=True),
    Rule("NW206", Severity.ERROR, (PodSubject,), _ends_kubelet_rule, needs_node=True),
    Rule("NW207", Severity.INFO, (PodSubject,), _parts_of_cpus, needs_node=True),
    Rule("NW208", Severity.WARNING, (PodSubject,), _pages_of_init, needs_node=True),
    Rule("NW209", Severity.ERROR, (PodSubject,), _given_twice, needs_node=True),
)
