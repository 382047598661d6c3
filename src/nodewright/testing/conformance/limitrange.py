"""Family limitrange: what limit ranges fill in, and what they forbid."""

from collections.abc import Callable, Mapping
from typing import Any

from nodewright.core.limits import (
    BeyondLimits,
    Filled,
    claim_violations,
    filled_in,
    limited,
    pod_violations,
    stored,
)
from nodewright.model.api_request import APIRequest, Operation
from nodewright.model.limit_reasons import LimitReason
from nodewright.model.objects import Container, Pod, ResourceRequirements
from nodewright.model.quota_objects import LimitRange, LimitRangeItem, PersistentVolumeClaim
from nodewright.render.limit_messages import annotation, limit_message
from nodewright.testing.conformance.amounts import texts
from nodewright.world.decode import decode

Question = dict[str, Any]
_ANNOTATION = "kubernetes.io/limit-ranger"


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the API server would make of the function in `function`."""
    del machines
    return _FUNCTIONS[question["function"]](question)


def _defaults(question: Question) -> Any:
    limit_range = decode(question["limitRange"], LimitRange)
    metadata = question["limitRange"].get("metadata") or {}
    items = [_item(item) for item in stored(limit_range).spec.limits]
    return {"limitRange": {"metadata": metadata, "spec": {"limits": items}}}


def _mutate(question: Question) -> Any:
    pod = decode(question["pod"], Pod)
    return _pod(pod, (filled_in(pod, decode(question["limitRange"], LimitRange)),))


def _validate(question: Question) -> Any:
    limit_range = decode(question["limitRange"], LimitRange)
    if question.get("pod") is not None:
        errors = _errors(pod_violations(decode(question["pod"], Pod), limit_range))
    else:
        claim = decode(question["persistentVolumeClaim"], PersistentVolumeClaim)
        errors = _errors(claim_violations(claim, limit_range))
    return {"allowed": not errors, "errors": errors}


def _admit(question: Question) -> Any:
    pod = decode(question["pod"], Pod)
    request = APIRequest(
        operation=Operation(question["operation"]),
        object=pod,
        subresource=question.get("subresource") or "",
    )
    verdict = limited(request, [decode(each, LimitRange) for each in question.get("limitRanges") or ()])
    if isinstance(verdict, BeyondLimits):
        return {
            "handled": True,
            "allowed": False,
            "errors": _errors(verdict.because),
            "limitRange": verdict.limit_range,
            "pod": _pod(verdict.pod, verdict.filled),
        }
    return {"handled": verdict.handled, "allowed": True, "pod": _pod(verdict.pod, verdict.filled)}


_FUNCTIONS: dict[str, Callable[[Question], Any]] = {
    "defaults": _defaults,
    "mutate": _mutate,
    "validate": _validate,
    "admit": _admit,
}


def _errors(because: tuple[LimitReason, ...]) -> list[str]:
    return sorted(set(map(limit_message, because)))


def _item(item: LimitRangeItem) -> dict[str, Any]:
    lists = {
        "max": item.max,
        "min": item.min,
        "default": item.default,
        "defaultRequest": item.default_request,
        "maxLimitRequestRatio": item.max_limit_request_ratio,
    }
    return {"type": item.type, **{name: texts(amounts) for name, amounts in lists.items() if amounts}}


def _pod(pod: Pod, filled: tuple[Filled, ...]) -> dict[str, Any]:
    """The resources of the pod after the last range, and the annotation of the last that gave something."""
    if filled:
        pod = filled[-1].pod
    written: dict[str, Any] = {
        "containers": _containers(pod.spec.containers),
        "initContainers": _containers(pod.spec.init_containers),
    }
    if pod.spec.resources is not None:
        written["podResources"] = _resources(pod.spec.resources)
    notes = [pod.metadata.annotations.get(_ANNOTATION, ""), *(annotation(each.given) for each in filled)]
    if any(notes):
        written["annotation"] = [note for note in notes if note][-1]
    return written


def _containers(containers: tuple[Container, ...]) -> dict[str, Any]:
    return {container.name: _resources(container.resources) for container in containers}


def _resources(resources: ResourceRequirements) -> dict[str, dict[str, str]]:
    lists = {"requests": texts(resources.requests), "limits": texts(resources.limits)}
    return {name: amounts for name, amounts in lists.items() if amounts}
