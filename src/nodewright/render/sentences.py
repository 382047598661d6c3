"""Reasons as plain sentences, with the numbers that decided in readable units."""

from typing import assert_never

from nodewright.model.cpu_reasons import CPUReason
from nodewright.model.device_reasons import DeviceReason
from nodewright.model.eviction_reasons import EvictionReason
from nodewright.model.memory_reasons import MemoryReason
from nodewright.model.objects import Taint
from nodewright.model.reasons import (
    AdmissionReason,
    HostPortsTaken,
    InsufficientResource,
    LabelMissing,
    NodeAffinityMismatch,
    NodeFeaturesMissing,
    NodeNameMismatch,
    NodeUnavailable,
    NotJudged,
    NoVictimsSuffice,
    OSFieldMismatch,
    OSLabelMismatch,
    OtherPredicate,
    PluginUpdateFailed,
    PodLevelResourcesDisabled,
    PortConflict,
    Reason,
    RequirementUnmet,
    SupplementalGroupsPolicyUnsupported,
    SysctlForbidden,
    TermUnmet,
    UntoleratedTaints,
)
from nodewright.model.resize_reasons import ResizeReason
from nodewright.model.resource_names import PODS
from nodewright.model.start_reasons import StartReason
from nodewright.model.state_reasons import StateFileReason
from nodewright.model.topology_reasons import TopologyReason
from nodewright.render.amounts import readable, told_apart
from nodewright.render.cpu_sentences import cpu_sentence
from nodewright.render.device_messages import device_sentence
from nodewright.render.eviction_sentences import eviction_sentence
from nodewright.render.memory_sentences import memory_sentence
from nodewright.render.resize_messages import resize_sentence
from nodewright.render.start_messages import start_sentence
from nodewright.render.state_messages import state_sentence
from nodewright.render.topology_sentences import topology_sentence

_EVERYWHERE = "0.0.0.0"  # noqa: S104 - compared, not bound to


def sentence(reason: Reason) -> str:
    """The reason in words, without a full stop.

    >>> sentence(InsufficientResource(resource="cpu", requested=2000, used=2500, capacity=4000))
    'cpu: 2 asked for, 1.5 of 4 left: 0.5 short'
    """
    if isinstance(reason, CPUReason):
        return cpu_sentence(reason)
    if isinstance(reason, DeviceReason):
        return device_sentence(reason)
    if isinstance(reason, EvictionReason):
        return eviction_sentence(reason)
    if isinstance(reason, MemoryReason):
        return memory_sentence(reason)
    if isinstance(reason, ResizeReason):
        return resize_sentence(reason)
    if isinstance(reason, TopologyReason):
        return topology_sentence(reason)
    if isinstance(reason, StateFileReason):
        return state_sentence(reason)
    if isinstance(reason, StartReason):
        return start_sentence(reason)
    return _of_admission(reason)


def _of_admission(reason: AdmissionReason) -> str:
    match reason:
        case InsufficientResource():
            return _shortage(reason)
        case NoVictimsSuffice(unmet=unmet):
            lacking = ", ".join(f"{name} {readable(name, amount)}" for name, amount in unmet)
            return f"all the pods that it may push out together leave missing: {lacking}"
        case NodeAffinityMismatch():
            return _affinity(reason)
        case NodeNameMismatch(wanted=wanted, actual=actual):
            return f"spec.nodeName is {wanted}, this node is {actual}"
        case HostPortsTaken(conflicts=conflicts):
            return "; ".join(map(_port, conflicts))
        case UntoleratedTaints(taints=taints):
            return f"not tolerated: {', '.join(map(taint_text, taints))}"
        case OtherPredicate(predicate=predicate, description=description):
            return f"{predicate}: {description}"
        case NotJudged(what=what, because=because):
            return f"not judged: {what} ({because})"
        case _:
            return _before_and_after(reason)


def _before_and_after(
    reason: NodeUnavailable
    | OSLabelMismatch
    | OSFieldMismatch
    | SupplementalGroupsPolicyUnsupported
    | PluginUpdateFailed
    | SysctlForbidden
    | PodLevelResourcesDisabled
    | NodeFeaturesMissing,
) -> str:
    match reason:
        case NodeUnavailable(error=error):
            return f"the node object cannot be had: {error}"
        case OSLabelMismatch(wanted=wanted, actual=actual):
            return f"the pod's label kubernetes.io/os is {wanted}, this kubelet runs on {actual}"
        case OSFieldMismatch(wanted=wanted, actual=actual):
            return f"spec.os.name is {wanted}, this kubelet runs on {actual}"
        case SupplementalGroupsPolicyUnsupported(policy=policy):
            return f"supplementalGroupsPolicy is {policy}, which the node's runtime does not declare"
        case PluginUpdateFailed(error=error):
            return f"the device manager could not update its resources: {error}"
        case SysctlForbidden(sysctl=name, host_namespace=""):
            return f"sysctl {name} is neither safe nor among allowedUnsafeSysctls"
        case SysctlForbidden(sysctl=name, host_namespace=shared):
            return f"sysctl {name} cannot be set by a pod that shares the host's {shared} namespace"
        case PodLevelResourcesDisabled():
            return "the pod has pod-level resources and the feature gate PodLevelResources is off"
        case NodeFeaturesMissing(features=features):
            return f"the node does not declare what the pod needs: {', '.join(features)}"
        case _:
            assert_never(reason)


def taint_text(taint: Taint) -> str:
    """A taint as kubectl writes it.

    >>> taint_text(Taint(key="dedicated", value="db", effect="NoExecute"))
    'dedicated=db:NoExecute'
    """
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _shortage(short: InsufficientResource) -> str:
    name, left = short.resource, short.capacity - short.used
    if name == PODS:
        return f"pods: {short.used} are here, the node takes {short.capacity}"
    if short.capacity == short.used == 0:
        return f"{name}: {readable(name, short.requested)} asked for, the node has none"
    asked, remaining, has = told_apart(name, short.requested, max(left, 0), short.capacity)
    missing = readable(name, short.missing)
    return f"{name}: {asked} asked for, {remaining if left > 0 else 'nothing'} of {has} left: {missing} short"


def _affinity(reason: NodeAffinityMismatch) -> str:
    parts = [_label(one) for one in reason.selector]
    if reason.terms:
        terms = "; or ".join(map(_term, reason.terms))
        parts.append(f"required node affinity: {terms}")
    # A mismatch without any detail is an affinity that was required and lists no terms.
    return "; ".join(parts) or "required node affinity lists no terms, so it matches no node"


def _label(missing: LabelMissing) -> str:
    have = "the node has no such label" if missing.actual is None else f"the node has {missing.actual}"
    return f"node selector {missing.key}={missing.wanted}: {have}"


def _term(term: TermUnmet) -> str:
    return " and ".join(map(_requirement, term.unmet)) or "an empty term, which matches no node"


def _requirement(unmet: RequirementUnmet) -> str:
    wanted = " ".join(filter(None, (unmet.key, unmet.operator, ",".join(unmet.values))))
    if unmet.invalid:
        return f"{wanted} (not valid, so it matches no node)"
    kind = "field" if unmet.on_field else "label"
    have = f"no such {kind}" if unmet.actual is None else unmet.actual
    return f"{wanted} (the node has {have})"


def _port(conflict: PortConflict) -> str:
    return (
        f"host port {conflict.port}/{conflict.protocol}{_on(conflict.host_ip)}: "
        f"{conflict.holder} has it{_on(conflict.holder_ip)}"
    )


def _on(address: str) -> str:
    return "" if address == _EVERYWHERE else f" on {address}"
