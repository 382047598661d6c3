"""Changes that would let a pod in, as sentences."""

from collections.abc import Mapping
from typing import assert_never

from nodewright.model.resource_names import CPU, in_order
from nodewright.node.changes import (
    Amount,
    AmountsRewritten,
    Change,
    ConditionsPass,
    CPULimitDropped,
    Label,
    LabelsChanged,
    PodLeaves,
    RequestsChanged,
    Setting,
    SettingsChanged,
    TaintsRemoved,
    TaintsTolerated,
)
from nodewright.node.counterfactual import Counterfactuals, Suggestion
from nodewright.node.node_kinds import MANAGER_KINDS
from nodewright.render.amounts import amount_text, readable
from nodewright.render.sentences import taint_text


def suggestion_text(suggestion: Suggestion) -> str:
    """The change in words, and what else comes with it.

    >>> from nodewright.node.changes import Setting
    >>> scope = Setting(name="topologyManagerScope", was="container", now="pod")
    >>> suggestion_text(Suggestion(kind="scope", change=SettingsChanged(settings=(scope,)), placed_anew=2))
    "topologyManagerScope: pod instead of container (the node's 2 pods placed anew, in their order)"
    """
    asides = []
    if isinstance(suggestion.change, SettingsChanged) and suggestion.change.places_anew:
        count = suggestion.placed_anew
        whose = "1 pod" if count == 1 else f"{count} pods"
        asides += (
            [f"the node's {whose} placed anew{', in their order' if count > 1 else ''}"] if count else []
        )
    if suggestion.preempts:
        asides.append(f"{', '.join(pod.full_name for pod in suggestion.preempts)} preempted for it")
    aside = f" ({'; '.join(asides)})" if asides else ""
    return change_text(suggestion.change) + aside


def change_text(change: Change) -> str:
    """The change in words, without a full stop."""
    match change:
        case RequestsChanged(amounts=amounts):
            return "; ".join(map(_amount, amounts))
        case AmountsRewritten(amounts=amounts):
            return "; ".join(
                f"{_whose(one.container)}: {one.resource} written as {one.now}" for one in amounts
            )
        case CPULimitDropped(container=container):
            return (
                f"{_whose(container)}: no CPU limit, so that the pod is Burstable and holds no CPUs or memory "
                "of its own"
            )
        case TaintsTolerated(taints=taints):
            return f"a toleration for {', '.join(map(taint_text, taints))}"
        case TaintsRemoved(taints=taints):
            return f"the node without the taint {', '.join(map(taint_text, taints))}"
        case LabelsChanged(labels=labels):
            return f"the node {', '.join(map(_label, labels))}"
        case SettingsChanged(settings=settings):
            return ", ".join(map(_setting, settings))
        case ConditionsPass(conditions=conditions, transition_period=period):
            return f"the node without {' and '.join(conditions)}, {period} after that was last seen"
        case PodLeaves(pod=pod, requests=requests):
            return f"without the pod {pod.full_name} ({requests_text(requests)})"
        case _:
            assert_never(change)


def vain_text(others: Counterfactuals, *, wide: bool = False) -> str:
    """What does not help alone; empty if all that was tried helped. Wide: with the name of every setting."""
    settings = () if wide else tuple(one for one in others.in_vain if one in MANAGER_KINDS)
    kinds = [one for one in others.in_vain if one not in settings]
    if settings:
        kinds.append(
            f"{len(settings)} other setting{'s' if len(settings) > 1 else ''} of the resource managers"
        )
    return f"Tried in vain: {', '.join(kinds)}." if kinds else ""


def cut_text(others: Counterfactuals) -> str:
    """What was not tried to the end, so that there may be more; empty if all was."""
    if not others.cut_short:
        return ""
    kinds = ", ".join(others.cut_short)
    return f"Not tried to the end, for want of budget after {others.decisions} decisions: {kinds}."


def requests_text(requests: Mapping[str, int]) -> str:
    """What a pod asks for, e.g. `2 CPUs, 1Gi memory`."""
    asked = [one for one in sorted(requests.items(), key=lambda one: in_order(one[0])) if one[1]]
    return ", ".join(quantity(name, amount) for name, amount in asked) or "nothing requested"


def quantity(resource: str, amount: int) -> str:
    """An amount with the name of its resource.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.

    >>> quantity("cpu", 1000), quantity("cpu", 1500), quantity("memory", 1 << 30)
    ('1 CPU', '1.5 CPUs', '1Gi memory')
    """
    if resource == CPU:
        return f"{readable(CPU, amount)} CPU{'' if amount == 1000 else 's'}"
    return f"{readable(resource, amount)} {resource}"


def _amount(one: Amount) -> str:
    now = quantity(one.resource, one.now) if one.resource == CPU else f"{one.resource} {_exact(one, one.now)}"
    was = readable(CPU, one.was) if one.resource == CPU else _exact(one, one.was)
    return f"{_whose(one.container)}: {now} instead of {was}"


def _exact(one: Amount, amount: int) -> str:
    return amount_text(one.resource, amount)


def _whose(container: str) -> str:
    return f"container {container}" if container else "the pod's own resources"


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
