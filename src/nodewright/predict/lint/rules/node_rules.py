"""Rules about pods on the nodes that are given: what every kubelet would say, before a controller asks it for ever."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.core.requests.resource_breakdown import decisive_fields
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.pod_admission import predicate_result
from nodewright.engine.node.step import Decision, Step, step
from nodewright.engine.node.what_if.changes import Amount, AmountsRewritten, CPULimitDropped, RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.kubernetes.objects import Pod, tolerates
from nodewright.model.kubernetes.resource_names import CPU, is_extended, is_huge_page
from nodewright.model.reasons.cpu import CPUsNotFree, KubeletCrashes, KubeletHangs, NotWholeCores
from nodewright.model.reasons.devices import DeviceUnlisted
from nodewright.model.reasons.memory import MemoryTypeMissing
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.topology import TopologyReason
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.lint.lint_model import (
    FieldViolation,
    LintContext,
    LintNode,
    LintRule,
    PodSubject,
    Severity,
    SubjectContainer,
    SuggestedEdit,
)

SUGGESTION_BUDGET = 300
"""Decisions for the search for a smallest change."""


class EmptyNodeVerdict(NamedTuple):
    """The verdict of an empty node on a pod."""

    node: LintNode
    shortages: tuple[InsufficientResource, ...]
    """The shortages that the scheduler sees; empty: it may bind the pod there."""
    step: Step


@lru_cache(maxsize=4)  # several rules check the same pod in a row
def _on_nodes(pod: PodSubject, context: LintContext) -> tuple[EmptyNodeVerdict, ...]:
    """The verdicts of the eligible nodes on the pod, or on one like it that all of them admit without a remark."""
    welcome = _welcome_pods(context)
    key = decisive_fields(pod.pod), pod.is_scheduled
    verdicts = welcome.get(key)
    if verdicts is None:
        verdicts = _verdicts(pod, context)
        if all(
            verdict.step.decision is Decision.ADMITTED and not verdict.step.because and not verdict.shortages
            for verdict in verdicts
        ):
            welcome[key] = verdicts
    return verdicts


@lru_cache(maxsize=2)
def _welcome_pods(_context: LintContext) -> dict[tuple[bytes, bool], tuple[EmptyNodeVerdict, ...]]:
    """The verdicts on pods that every node admits, by what they depend on."""
    return {}


def _verdicts(pod: PodSubject, context: LintContext) -> tuple[EmptyNodeVerdict, ...]:
    verdicts = []
    for node in context.nodes:
        short = _short_of(node, pod.pod)
        if short is not None:
            shortages = short if pod.is_scheduled else ()
            verdicts.append(EmptyNodeVerdict(node, shortages, step(node.state, PodAdded(pod.pod))))
    return tuple(verdicts)


def _short_of(node: LintNode, pod: Pod) -> tuple[InsufficientResource, ...] | None:
    """The shortages of an empty node; None: selectors, tolerations or devices exclude the node."""
    view = node.state.config.view
    if any(
        taint.effect == "NoSchedule"
        and not any(tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        for taint in view.taints
    ):
        return None
    if any(is_extended(name) and name not in view.allocatable for name in pod_requests(pod)):
        return None  # Its devices are unknown; the scheduler binds the pod to nodes with such devices.
    verdict = predicate_result(node.state, pod, node.state.held).verdict
    because = () if isinstance(verdict, Granted) else verdict.because
    short = tuple(reason for reason in because if isinstance(reason, InsufficientResource))
    return short if len(short) == len(because) else None


def _refused_everywhere(pod: PodSubject, context: LintContext) -> tuple[EmptyNodeVerdict, ...]:
    """The nodes that the scheduler may choose, if every one of them rejects the pod."""
    chosen = tuple(node for node in _on_nodes(pod, context) if not node.shortages)
    if all(verdict.step.decision is Decision.REFUSED for verdict in chosen):
        return chosen
    return ()


def _first_reason(everywhere: tuple[EmptyNodeVerdict, ...]) -> Reason | None:
    return everywhere[0].step.because[0] if everywhere else None


def _odd_cpus(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """CPU counts that are no whole cores, where only whole cores are allocated."""
    everywhere = _refused_everywhere(pod, context)
    reason = _first_reason(everywhere)
    if not isinstance(reason, NotWholeCores):
        return
    per_core = reason.cpus_per_core
    odd = [part for part in pod.defaulted_containers if _cpus(part) % per_core]
    edits = [
        SuggestedEdit(f"{part.resources_path}.{side}[{CPU}]", str(-(-_cpus(part) // per_core) * per_core))
        for part in odd
        for side in ("requests", "limits")
        if pod.written_value(f"{part.resources_path}.{side}", CPU) is not None
    ]
    facts = {
        **_facts(pod, everywhere),
        "containers": ", ".join(f"{part.container.name} ({_cpus(part)})" for part in odd),
        "perCore": per_core,
    }
    path = f"{odd[0].resources_path}" if odd else f"{pod.prefix}spec"
    yield FieldViolation(path=path, facts=facts, edits=tuple(edits))


def _cpus(part: SubjectContainer) -> int:
    amount = part.container.resources.requests.get(CPU)
    return 0 if amount is None or amount.milli_value() % 1000 else amount.value()


def _not_aligned(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Requests for which no node's topology manager finds NUMA nodes."""
    everywhere = _refused_everywhere(pod, context)
    if isinstance(_first_reason(everywhere), TopologyReason):
        yield _with_changes(pod, everywhere)


def _storm(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Other refusals that every node repeats."""
    everywhere = _refused_everywhere(pod, context)
    reason = _first_reason(everywhere)
    if reason is None or isinstance(reason, NotWholeCores | TopologyReason) or _ends_kubelet(reason):
        return
    yield _with_changes(pod, everywhere)


def _with_changes(pod: PodSubject, everywhere: tuple[EmptyNodeVerdict, ...]) -> FieldViolation:
    """The refusal with the changes that get the pod admitted, the first of them as an edit."""
    changes = _smallest(pod, everywhere[0])
    facts = {**_facts(pod, everywhere), "changes": changes}
    requests = (change.change for change in changes if isinstance(change.change, RequestsChanged))
    edits = tuple(
        edit for amount in next(requests, RequestsChanged(amounts=())).amounts for edit in _edits(pod, amount)
    )
    return FieldViolation(path=f"{pod.prefix}spec", facts=facts, edits=edits)


def _edits(pod: PodSubject, amount: Amount) -> Iterator[SuggestedEdit]:
    """The request with another amount, and the limit where it was the same."""
    name = amount.resource
    now = Quantity.of_milli(amount.now) if name == CPU else Quantity.of(amount.now, QuantityFormat.BINARY_SI)
    for part in pod.defaulted_containers:
        if part.container.name == amount.container:
            resources = part.container.resources
            together = resources.limits.get(name) == resources.requests.get(name)
            for side in ("requests", "limits") if together else ("requests",):
                if pod.written_value(f"{part.resources_path}.{side}", name) is not None:
                    yield SuggestedEdit(f"{part.resources_path}.{side}[{name}]", now.canonical())


def _fits_nowhere(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that are too large for every eligible node."""
    verdicts = _on_nodes(pod, context)
    if not verdicts or not all(verdict.shortages for verdict in verdicts):
        return
    nearest = min(verdicts, key=lambda verdict: (len(verdict.shortages), verdict.node.name))
    facts = {
        "kind": pod.kind,
        "nodes": _names(verdicts),
        "node": nearest.node.name,
        "short": nearest.shortages,
    }
    yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


def _refused_somewhere(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that the scheduler may bind to a node that rejects them, although other nodes admit them."""
    chosen = [verdict for verdict in _on_nodes(pod, context) if not verdict.shortages]
    bad = [verdict for verdict in chosen if verdict.step.decision is Decision.REFUSED]
    if bad and len(bad) < len(chosen) and pod.is_scheduled:
        good = [verdict for verdict in chosen if verdict.step.decision is not Decision.REFUSED]
        facts = {**_facts(pod, tuple(bad)), "good": _names(good)}
        yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)


def _ends_kubelet_rule(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that make a kubelet crash or hang."""
    for node in _on_nodes(pod, context):
        if not node.shortages and node.step.because and _ends_kubelet(node.step.because[0]):
            yield FieldViolation(path=f"{pod.prefix}spec", facts=_facts(pod, (node,)))
            return


def _ends_kubelet(reason: Reason) -> bool:
    return isinstance(reason, KubeletHangs | KubeletCrashes | MemoryTypeMissing | DeviceUnlisted)


def _parts_of_cpus(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Guaranteed containers with more than one CPU, but not a whole number, where whole CPUs would be exclusive."""
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    static = [node.name for node in context.nodes if node.pins_cpus]
    if not static:
        return
    for part in pod.defaulted_containers:
        amount = part.container.resources.requests.get(CPU)
        if amount is None or amount.milli_value() < 1000 or not amount.milli_value() % 1000:
            continue
        rounded_up = str(-(-amount.milli_value() // 1000))
        edits = tuple(
            SuggestedEdit(f"{part.resources_path}.{side}[{CPU}]", rounded_up)
            for side in ("requests", "limits")
            if pod.written_value(f"{part.resources_path}.{side}", CPU) is not None
        )
        facts = {"container": part.container.name, "cpus": str(amount), "nodes": ", ".join(static)}
        yield FieldViolation(path=part.resources_path, facts=facts, edits=edits)


def _pages_of_init(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Huge pages of init containers alone, which the memory manager does not count for the pod."""
    if pod.qos_class is not QOSClass.GUARANTEED:
        return
    app_requests = {name for container in pod.pod.spec.containers for name in container.resources.requests}
    nodes = [
        node.name
        for node in context.nodes
        if node.state.config.parts.kubelet.topology_manager_scope == "pod"
        and node.pins_memory
        and node.state.config.parts.kubelet.topology_manager_policy != "none"
    ]
    for part in pod.defaulted_containers if nodes else ():
        for name in part.container.resources.requests:
            if is_huge_page(name) and name not in app_requests and part.role != "container":
                facts = {"container": part.container.name, "resource": name, "nodes": ", ".join(nodes)}
                yield FieldViolation(path=part.resources_path, facts=facts)


def _allocated_twice(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Pods that are allocated CPUs which are not free, on machines with unequal cores."""
    for node in _on_nodes(pod, context):
        conflicts = [reason for reason in node.step.because if isinstance(reason, CPUsNotFree)]
        if conflicts:
            facts = {"node": node.node.name, "cpus": str(conflicts[0].cpus)}
            yield FieldViolation(path=f"{pod.prefix}spec", facts=facts)
            return


def _unknown_resources(pod: PodSubject, context: LintContext) -> Iterator[FieldViolation]:
    """Extended resources that none of the nodes has, so that the other rules do not judge the pod."""
    if not context.nodes:
        return
    for part in pod.defaulted_containers:
        for name in part.container.resources.requests:
            if is_extended(name) and not any(
                name in node.state.config.view.allocatable for node in context.nodes
            ):
                facts = {"resource": name, "container": part.container.name}
                yield FieldViolation(path=part.resources_path, facts=facts)


def _facts(pod: PodSubject, judged_by: tuple[EmptyNodeVerdict, ...]) -> dict[str, object]:
    return {
        "kind": pod.kind,
        "nodes": _names(judged_by),
        "reason": judged_by[0].step.because[0],
        "scheduled": pod.is_scheduled,
    }


def _names(verdicts: Iterable[EmptyNodeVerdict]) -> str:
    return ", ".join(verdict.node.name for verdict in verdicts)


def _smallest(pod: PodSubject, verdict: EmptyNodeVerdict) -> tuple[Suggestion, ...]:
    """The smallest changes of the pod with which the node admits it; changes of the node are not searched."""
    changes = suggested_changes(verdict.node.state, pod.pod, verdict.step, budget=SUGGESTION_BUDGET)
    return tuple(
        suggestion for suggestion in changes.suggestions if isinstance(suggestion.change, _POD_CHANGES)
    )


_POD_CHANGES = RequestsChanged | AmountsRewritten | CPULimitDropped

NODE_RULES = (
    LintRule("NW201", Severity.ERROR, (PodSubject,), _odd_cpus, needs_node=True),
    LintRule("NW202", Severity.ERROR, (PodSubject,), _not_aligned, needs_node=True),
    LintRule("NW203", Severity.ERROR, (PodSubject,), _storm, needs_node=True),
    LintRule("NW204", Severity.ERROR, (PodSubject,), _fits_nowhere, needs_node=True),
    LintRule("NW205", Severity.WARNING, (PodSubject,), _refused_somewhere, needs_node=True),
    LintRule("NW206", Severity.ERROR, (PodSubject,), _ends_kubelet_rule, needs_node=True),
    LintRule("NW207", Severity.INFO, (PodSubject,), _parts_of_cpus, needs_node=True),
    LintRule("NW208", Severity.WARNING, (PodSubject,), _pages_of_init, needs_node=True),
    LintRule("NW209", Severity.ERROR, (PodSubject,), _allocated_twice, needs_node=True),
    LintRule("NW210", Severity.WARNING, (PodSubject,), _unknown_resources, needs_node=True),
)
