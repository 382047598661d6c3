"""Sentences for suggested changes, and for the effect of node conditions on a pod."""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from nodewright.documents.output.json_yaml import Inlined
from nodewright.engine.core.eviction.eviction_state import ConditionEffect, PressureAdmission
from nodewright.engine.core.memory.memory_policy import KIB
from nodewright.engine.node.what_if.changes import (
    Amount,
    AmountsRewritten,
    Change,
    ConditionsPass,
    CPULimitDropped,
    HugePagesReserved,
    Label,
    LabelsChanged,
    PodLeaves,
    RequestsChanged,
    Setting,
    SettingsChanged,
    TaintsRemoved,
    TaintsTolerated,
    changed_pod,
)
from nodewright.engine.node.what_if.counterfactuals import ChangePair, Counterfactuals, Suggestion
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import (
    CPU,
    HUGE_PAGES_PREFIX,
    MEMORY,
    amount_text,
    counted_amount,
    is_huge_page,
    readable_amount,
    resource_sort_key,
)
from nodewright.model.printable import counted
from nodewright.model.reasons.predicates import InsufficientResource, taint_text
from nodewright.model.values.quantity import Quantity
from nodewright.predict.explain.explained_decision import ExplainedDecision


class ReportedSuggestion(Inlined, frozen=True, kw_only=True):
    """A change after which the answer is yes; it was tried on this node."""

    kind: str
    """The kind of change, e.g. `fewer CPUs`; no smaller change of this kind suffices."""
    text: str
    change: Change


def reported_suggestion(suggestion: Suggestion) -> ReportedSuggestion:
    """The part of a report that describes a change."""
    return ReportedSuggestion(
        kind=suggestion.kind, text=suggestion_text(suggestion), change=suggestion.change
    )


def suggestion_text(suggestion: Suggestion) -> str:
    """The change in words, with its side effects.

    >>> from nodewright.engine.node.what_if.changes import Setting
    >>> scope = Setting(name="topologyManagerScope", was="container", now="pod")
    >>> suggestion_text(Suggestion(kind="scope", change=SettingsChanged(settings=(scope,)), reallocated_pods=2))
    "topologyManagerScope: pod instead of container (reallocates the node's 2 pods in order)"
    """
    side_effects = list(_price(suggestion.change))
    count = suggestion.reallocated_pods
    if count:
        side_effects.append(
            f"reallocates the node's {counted(count, 'pod')}{' in order' if count > 1 else ''}{_moved(suggestion)}"
        )
    if suggestion.numa:
        side_effects.append(
            f"the pod is spread over NUMA nodes {suggestion.numa}, so that some memory is remote"
        )
    if suggestion.preempts:
        side_effects.append(f"preempts {', '.join(pod.full_name for pod in suggestion.preempts)}")
    return change_text(suggestion.change) + (f" ({'; '.join(side_effects)})" if side_effects else "")


def _price(change: Change) -> Iterator[str]:
    """What the change costs, whatever the node."""
    match change:
        case RequestsChanged(amounts=amounts):
            unused = sum(
                max(amount.now - amount.was, 0) for amount in amounts if amount.resource == CPU and amount.was
            )
            if unused:
                yield f"{quantity_text(CPU, unused)} more than requested, which no other pod can use"
        case HugePagesReserved(was=was, now=now, page_size_kib=page_size_kib):
            size = readable_amount(MEMORY, (now - was) * page_size_kib * KIB)
            yield f"{size} less memory for everything else"
        case SettingsChanged(settings=settings):
            prices = (
                _SETTING_PRICES.get((setting.option or setting.name, setting.now)) for setting in settings
            )
            yield from [price for price in prices if price][:1]
        case _:
            pass


_SETTING_PRICES = {
    ("cpuManagerPolicy", "none"): "no pod of the node has exclusive CPUs",
    ("memoryManagerPolicy", "None"): "the memory of no pod is tied to NUMA nodes",
    ("topologyManagerPolicy", "none"): "nothing is aligned on NUMA nodes",
    ("full-pcpus-only", None): "pods can share a core",
}


def _moved(suggestion: Suggestion) -> str:
    moved = suggestion.moved_pods
    more = f" and {len(moved) - 3} more" if len(moved) > 3 else ""
    verb = "gets" if len(moved) == 1 else "get"
    return f": {', '.join(moved[:3])}{more} {verb} other allocations" if moved else ""


def pair_text(pair: ChangePair) -> str:
    """Both changes in words."""
    return f"{suggestion_text(pair.first)}, and {suggestion_text(pair.second)}"


def largest_text(pod: Pod, change: RequestsChanged) -> str:
    """The requests of the pod, as stored, with the change."""
    changed = changed_pod(pod, change)
    owners = [(_owner(each.name), each.resources.requests) for each in changed.spec.all_containers]
    if changed.spec.resources is not None:
        owners.append((_owner(""), changed.spec.resources.requests))
    return "; ".join(
        f"{owner}: {requests_text({name: counted_amount(name, amount) for name, amount in requests.items()})}"
        for owner, requests in owners
        if requests
    )


def shortage_text(short: Sequence[InsufficientResource]) -> str:
    """All that the node lacks, e.g. `5.1 more CPUs and 16 more pages of 1Gi`."""
    texts = []
    for reason in short:
        name, missing = reason.resource, reason.missing
        if is_huge_page(name):
            size = name.removeprefix(HUGE_PAGES_PREFIX)
            texts.append(counted(-(-missing // Quantity.parse(size).value()), "more page") + f" of {size}")
        elif name == CPU:
            texts.append(f"{readable_amount(CPU, missing)} more CPU{'' if missing == 1000 else 's'}")
        else:
            texts.append(f"{readable_amount(name, missing)} more {name}")
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def change_text(change: Change) -> str:
    """The change in words, without a full stop."""
    match change:
        case RequestsChanged(amounts=amounts):
            return "; ".join(map(_amount, amounts))
        case AmountsRewritten(amounts=amounts):
            return "; ".join(
                f"{_owner(amount.container)}: {amount.resource} written as {amount.now}" for amount in amounts
            )
        case CPULimitDropped(container=container):
            return (
                f"{_owner(container)}: no CPU limit, so that the pod is Burstable and gets no exclusive CPUs "
                "or memory"
            )
        case TaintsTolerated(taints=taints):
            return f"a toleration for {', '.join(map(taint_text, taints))}"
        case TaintsRemoved(taints=taints):
            return f"the node without the taint {', '.join(map(taint_text, taints))}"
        case LabelsChanged(labels=labels):
            return f"the node {', '.join(map(_label, labels))}"
        case SettingsChanged(settings=settings):
            return ", ".join(map(_setting, settings))
        case HugePagesReserved(numa_node=numa_node, was=was, now=now):
            return f"{now} pages of {change.resource} on NUMA node {numa_node} instead of {was}"
        case ConditionsPass(conditions=conditions, transition_period=period):
            return f"the node without {' and '.join(conditions)}, {period} after the last observation"
        case PodLeaves(pod=pod, requests=requests):
            return f"without the pod {pod.full_name} ({requests_text(requests)})"
        case _:
            assert_never(change)


def ineffective_text(counterfactuals: Counterfactuals) -> str:
    """The changes that alone have no effect; empty if there are none."""
    kinds = [_KIND_TEXTS.get(kind, kind) for kind in counterfactuals.ineffective]
    return f"Also tried, without effect: {', '.join(kinds)}." if kinds else ""


_KIND_TEXTS = {"a pod that leaves": "removing one pod", "not Guaranteed": "making the pod Burstable"}


def incomplete_search_text(counterfactuals: Counterfactuals) -> str:
    """The kinds of change that the budget left partly untried; empty if there are none."""
    if not counterfactuals.cut_short:
        return ""
    kinds = ", ".join(counterfactuals.cut_short)
    return f"Incomplete search, budget exhausted after {counted(counterfactuals.decisions, 'decision')}: {kinds}."


def requests_text(requests: Mapping[str, int]) -> str:
    """The requests of a pod, e.g. `2 CPUs, 1Gi memory`."""
    requested = [
        item for item in sorted(requests.items(), key=lambda item: resource_sort_key(item[0])) if item[1]
    ]
    return ", ".join(quantity_text(name, amount) for name, amount in requested) or "nothing requested"


def quantity_text(resource: str, amount: int) -> str:
    """The amount with the name of its resource.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.

    >>> quantity_text("cpu", 1000), quantity_text("cpu", 1500), quantity_text("memory", 1 << 30)
    ('1 CPU', '1.5 CPUs', '1Gi memory')
    """
    if resource == CPU:
        return f"{readable_amount(CPU, amount)} CPU{'' if amount == 1000 else 's'}"
    return f"{readable_amount(resource, amount)} {resource}"


def _amount(change: Amount) -> str:
    now = (
        quantity_text(change.resource, change.now)
        if change.resource == CPU
        else f"{change.resource} {_exact(change, change.now)}"
    )
    was = readable_amount(CPU, change.was) if change.resource == CPU else _exact(change, change.was)
    return f"{_owner(change.container)}: {now} instead of {was}"


def _exact(change: Amount, amount: int) -> str:
    return amount_text(change.resource, amount)


def _owner(container: str) -> str:
    return f"container {container}" if container else "the pod-level resources"


def _label(label: Label) -> str:
    if label.now is None:
        return f"without the label {label.key}={label.was}"
    named = f"{label.key}={label.now}" if label.now else label.key
    instead = f" instead of {label.was}" if label.was else ""
    return f"with the label {named}{instead}"


def _setting(setting: Setting) -> str:
    name = setting.name
    if name == "allowedUnsafeSysctls":
        return f"{name} with {setting.now}"
    if setting.option:
        return f"{name}: {'without' if setting.now is None else 'with'} {setting.option}"
    return f"{name}: {setting.now} instead of {setting.was}"


def proposals(explanation: ExplainedDecision) -> tuple[str, tuple[str, ...]]:
    """The heading and the texts of the changes that would let a refused pod in: single ones, else pairs."""
    suggestions, pairs = explanation.counterfactuals.suggestions, explanation.pairs
    if suggestions:
        return (
            "What would let it in (each tried on this node, the smallest that works):",
            tuple(map(suggestion_text, suggestions)),
        )
    short = f" It needs {shortage_text(explanation.short)}." if explanation.short else ""
    if pairs:
        heading = f"No single change among those tried would let it in.{short} Together (each pair tried on this node):"
        return heading, tuple(map(pair_text, pairs))
    return f"No single change among those tried would let it in.{short}", ()


def largest_pod_texts(explanation: ExplainedDecision) -> tuple[str, ...]:
    """The largest pods of this shape that the node admits, as it is and without pods; empty if that is not known."""
    largest = [("now", explanation.largest)]
    if explanation.largest_if_empty != explanation.largest:
        largest.append(("with no other pods on the node", explanation.largest_if_empty))
    none = explanation.smallest_refused
    refused = (
        f"Not even the smallest pod of this shape is admitted now: {largest_text(explanation.pod, none)}"
        if none
        else ""
    )
    return (
        *filter(None, (refused,)),
        *(
            f"The largest pod of this shape that is admitted {when}: {largest_text(explanation.pod, change)}"
            for when, change in largest
            if change
        ),
    )


def scheduler_effect(effect: ConditionEffect) -> str:
    """The decision of a scheduler that honours taints."""
    return _SCHEDULER_EFFECTS[effect.scheduler]


_SCHEDULER_EFFECTS = {
    PressureAdmission.TOLERATES: "the scheduler may choose the node: the pod tolerates the taint",
    PressureAdmission.NOT_SCHEDULED: "no scheduler is involved: the pod is static, or a mirror pod",
    PressureAdmission.NONE: "the scheduler skips the node: the pod does not tolerate the taint",
}


def kubelet_effect(effect: ConditionEffect) -> str:
    """The kubelet's decision, if this were the only condition."""
    return _KUBELET_EFFECTS[effect.kubelet]


_KUBELET_EFFECTS = {
    PressureAdmission.CRITICAL: "the kubelet admits it: the pod is critical",
    PressureAdmission.NOT_BEST_EFFORT: "the kubelet admits it: the pod is not best effort",
    PressureAdmission.TOLERATES: "the kubelet admits it: the pod tolerates the taint",
    PressureAdmission.NONE: "the kubelet rejects it, even if it is bound to the node",
}
