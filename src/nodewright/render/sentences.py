"""Each reason as a plain sentence with its numbers."""

from typing import assert_never

from nodewright.model.cpu_reasons import CPUReason
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
from nodewright.render.amounts import amount_text
from nodewright.render.cpu_messages import cpu_message


def sentence(reason: Reason) -> str:
    """The reason in words, without a full stop.

    >>> sentence(InsufficientResource(resource="cpu", requested=2000, used=500, capacity=2000))
    'cpu: 2 asked for, 1500m of 2 left: 500m short'
    """
    return cpu_message(reason) if isinstance(reason, CPUReason) else _of_admission(reason)


def _of_admission(reason: AdmissionReason) -> str:
    match reason:
        case InsufficientResource():
            return _shortage(reason)
        case NodeUnavailable(error=error):
            return f"the node object cannot be had: {error}"
        case OSLabelMismatch(wanted=wanted, actual=actual):
            return f"the pod's label kubernetes.io/os says {wanted}, the kubelet runs on {actual}"
        case OSFieldMismatch(wanted=wanted, actual=actual):
            return f"spec.os.name is {wanted}, the kubelet runs on {actual}"
        case SupplementalGroupsPolicyUnsupported(policy=policy):
            return f"the node's runtime does not support supplementalGroupsPolicy: {policy}"
        case PluginUpdateFailed(error=error):
            return f"the device manager could not bring its resources up to date: {error}"
        case NodeAffinityMismatch():
            return _mismatch(reason)
        case NodeNameMismatch(wanted=wanted, actual=actual):
            return f"spec.nodeName is {wanted}, this node is {actual}"
        case HostPortsTaken(conflicts=conflicts):
            return "; ".join(map(_conflict, conflicts))
        case UntoleratedTaints(taints=taints):
            return f"not tolerated: {', '.join(map(taint_text, taints))}"
        case OtherPredicate(predicate=name, description=description):
            return f"{name}: {description}"
        case NoVictimsSuffice(unmet=unmet):
            lacking = ", ".join(f"{name} {amount_text(name, amount)}" for name, amount in unmet)
            return f"all the pods that it may push out together leave missing: {lacking}"
        case SysctlForbidden(sysctl=name, host_namespace=""):
            return f"sysctl {name} is neither safe nor among allowedUnsafeSysctls"
        case SysctlForbidden(sysctl=name, host_namespace=shared):
            return f"sysctl {name} cannot be set by a pod that shares the host's {shared} namespace"
        case PodLevelResourcesDisabled():
            return "the pod has pod-level resources and the feature gate PodLevelResources is off"
        case NodeFeaturesMissing(features=features):
            return f"the node does not declare what the pod needs: {', '.join(features)}"
        case NotJudged(what=what, because=because):
            return f"not judged: {what} ({because})"
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
    name = short.resource
    asked, left, has, missing = (
        amount_text(name, amount)
        for amount in (short.requested, short.capacity - short.used, short.capacity, short.missing)
    )
    return f"{name}: {asked} asked for, {left} of {has} left: {missing} short"


def _mismatch(mismatch: NodeAffinityMismatch) -> str:
    parts = [_label(one) for one in mismatch.selector]
    if mismatch.terms:
        parts.append(
            "no term of the required node affinity holds: " + " or ".join(map(_term, mismatch.terms))
        )
    return f"node {mismatch.node}: {'; '.join(parts)}"


def _label(missing: LabelMissing) -> str:
    return (
        f"nodeSelector wants {missing.key}={missing.wanted}, the node has {missing.actual or 'no such label'}"
    )


def _term(term: TermUnmet) -> str:
    return " and ".join(map(_requirement, term.unmet)) or "(an empty term holds nowhere)"


def _requirement(unmet: RequirementUnmet) -> str:
    values = f" [{', '.join(unmet.values)}]" if unmet.values else ""
    return f"{unmet.key} {unmet.operator}{values} (the node has {unmet.actual or 'none'})"


def _conflict(taken: PortConflict) -> str:
    return f"host port {taken.host_ip}:{taken.port}/{taken.protocol} is held by {taken.holder} on {taken.holder_ip}"
