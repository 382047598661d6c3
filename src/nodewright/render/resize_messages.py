"""What the API server and the kubelet write of a resize that they do not do, to the letter; and in plain words."""

import json
from typing import assert_never

from nodewright.model.resize_reasons import (
    PodLevelResizeDisabled,
    ResizeBeyondNode,
    ResizeFeaturesMissing,
    ResizeForbidden,
    ResizeInvalid,
    ResizeOfField,
    ResizeOnOtherSystem,
    ResizeReason,
    StaticPolicyInTheWay,
    SwapInTheWay,
)
from nodewright.render.amounts import readable
from nodewright.render.forbidden import aggregate

INFEASIBLE, DEFERRED = "Infeasible", "Deferred"
_MANAGERS = {"cpu": ("CPU Manager", "static"), "memory": ("Memory Manager", "Static")}


def resize_reason(reason: ResizeReason) -> str:
    """The reason of the pod's condition, or of the API server's status."""
    match reason:
        case SwapInTheWay() | PodLevelResizeDisabled() | StaticPolicyInTheWay():
            return INFEASIBLE
        case ResizeInvalid():
            return "Invalid"
        case ResizeBeyondNode() | ResizeOnOtherSystem() | ResizeFeaturesMissing():
            return "Forbidden"
        case _:
            assert_never(reason)


def resize_message(reason: ResizeReason) -> str:
    """The message of the pod's condition; of the API server's, what follows the name of the pod.

    Follows: v1.36, pkg/kubelet/allocation/handlers.go; plugin/pkg/admission/podresize/admission.go;
        plugin/pkg/admission/nodedeclaredfeatures/admission.go; apimachinery/pkg/util/validation/field/errors.go.

    >>> resize_message(StaticPolicyInTheWay(resource="cpu", containers=("app",)))
    'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    """
    match reason:
        case SwapInTheWay():
            return "In-place resize of containers with swap is not supported."
        case PodLevelResizeDisabled():
            return "InPlacePodLevelResourcesVerticalScaling is disabled"
        case StaticPolicyInTheWay(resource=resource):
            manager, policy = _MANAGERS[resource]
            return f'Resize is infeasible for Guaranteed Pods alongside {manager} policy "{policy}"'
        case ResizeInvalid(faults=faults):
            return aggregate(map(_fault, faults))
        case ResizeBeyondNode(excesses=excesses):
            texts = (
                f"{one.resource}, requested: {one.requested}, allocatable: {one.allocatable}"
                for one in excesses
            )
            return f"node didn't have enough allocatable resources: {'; '.join(texts)}"
        case ResizeOnOtherSystem(node=node, os=system):
            return f'pod resize is only supported on linux nodes, node "{node}" is "{system}"'
        case ResizeFeaturesMissing(node=node, features=features):
            return (
                f'pod update requires features {", ".join(features)} which are not available on node "{node}"'
            )
        case _:
            assert_never(reason)


def api_error(reason: ResizeForbidden, name: str) -> str:
    """The whole text with which the API server refuses the request.

    Follows: v1.36, apimachinery/pkg/api/errors/errors.go, NewInvalid; apiserver/pkg/admission/errors.go,
        NewForbidden.
    """
    if isinstance(reason, ResizeInvalid):
        return f'Pod "{name}" is invalid: {resize_message(reason)}'
    return f'pods "{name}" is forbidden: {resize_message(reason)}'


def resize_sentence(reason: ResizeReason) -> str:
    """The reason in words, without a full stop."""
    match reason:
        case SwapInTheWay(container=name):
            return (
                f"container {name} may swap, and how much depends on the memory it requests: a resize policy "
                "RestartContainer for memory would do"
            )
        case PodLevelResizeDisabled():
            return "the kubelet's feature gate InPlacePodLevelResourcesVerticalScaling is off"
        case StaticPolicyInTheWay(resource=resource, containers=names):
            what = "CPUs" if resource == "cpu" else "memory"
            return (
                f"the pod is Guaranteed and the kubelet's static policy pins {what}: what container "
                f"{', '.join(names)} requests of {resource} stays as it is until the pod is made anew "
                f"(the gate {reason.gate} is off)"
            )
        case ResizeInvalid(faults=faults):
            return "; ".join(dict.fromkeys(map(_fault_sentence, faults)))
        case ResizeBeyondNode(excesses=excesses):
            return "; ".join(
                f"{one.resource}: {readable(one.resource, one.requested)} requested, the whole node has "
                f"{readable(one.resource, one.allocatable)} for pods"
                for one in excesses
            )
        case ResizeOnOtherSystem(node=node, os=system):
            return f"node {node} runs {system}; only Linux nodes resize pods"
        case ResizeFeaturesMissing(node=node, features=features):
            return f"node {node} does not declare {', '.join(features)}, which the resize needs"
        case _:
            assert_never(reason)


def _fault(fault: ResizeOfField) -> str:
    value = "" if fault.value is None else f": {json.dumps(fault.value, ensure_ascii=False)}"
    return f"{fault.path}: {fault.error}{value}{f': {fault.rule}' if fault.rule else ''}"


def _fault_sentence(fault: ResizeOfField) -> str:
    where = "" if fault.path == "[]" else f"{fault.path}: "
    return f"{where}{fault.rule or fault.error}"
