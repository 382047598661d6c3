"""Family limitrange: the defaults and the limits of limit ranges."""

from collections.abc import Callable, Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.limit_ranger import (
    BeyondLimits,
    DefaultedByLimitRange,
    claim_limit_violations,
    limit_range_as_stored,
    limit_ranger_annotation,
    limit_ranger_verdict,
    pod_limit_violations,
    with_limit_range_defaults,
)
from nodewright.model.kubernetes.api_request import APIRequest, Operation
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    LimitRangeItem,
    PersistentVolumeClaim,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.api_server import LimitReason
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import amount_texts, plain_resources, question_gates

Question = dict[str, Any]
_ANNOTATION = "kubernetes.io/limit-ranger"


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The API server's result of the function in `function`."""
    return _FUNCTIONS[question["function"]](question, question_gates(question, release))


def _defaults(question: Question, _: FeatureGates) -> Any:
    limit_range = decode(question["limitRange"], LimitRange)
    metadata = question["limitRange"].get("metadata") or {}
    items = [_item(item) for item in limit_range_as_stored(limit_range).spec.limits]
    return {"limitRange": {"metadata": metadata, "spec": {"limits": items}}}


def _mutate(question: Question, _: FeatureGates) -> Any:
    pod = decode(question["pod"], Pod)
    return _pod(pod, (with_limit_range_defaults(pod, decode(question["limitRange"], LimitRange)),))


def _validate(question: Question, gates: FeatureGates) -> Any:
    limit_range = decode(question["limitRange"], LimitRange)
    if question.get("pod") is not None:
        errors = _errors(
            pod_limit_violations(
                decode(question["pod"], Pod), limit_range, pod_level=gates["PodLevelResources"]
            )
        )
    else:
        claim = decode(question["persistentVolumeClaim"], PersistentVolumeClaim)
        errors = _errors(claim_limit_violations(claim, limit_range))
    return {"allowed": not errors, "errors": errors}


def _admit(question: Question, gates: FeatureGates) -> Any:
    pod = decode(question["pod"], Pod)
    request = APIRequest(
        operation=Operation(question["operation"]),
        object=pod,
        subresource=question.get("subresource") or "",
    )
    verdict = limit_ranger_verdict(
        request, [decode(each, LimitRange) for each in question.get("limitRanges") or ()], gates
    )
    if isinstance(verdict, BeyondLimits):
        return {
            "handled": True,
            "allowed": False,
            "errors": _errors(verdict.because),
            "limitRange": verdict.limit_range,
            "pod": _pod(verdict.pod, verdict.defaulted),
        }
    return {"handled": verdict.handled, "allowed": True, "pod": _pod(verdict.pod, verdict.defaulted)}


_FUNCTIONS: dict[str, Callable[[Question, FeatureGates], Any]] = {
    "defaults": _defaults,
    "mutate": _mutate,
    "validate": _validate,
    "admit": _admit,
}


def _errors(because: tuple[LimitReason, ...]) -> list[str]:
    return sorted({reason.message() for reason in because})


def _item(item: LimitRangeItem) -> dict[str, Any]:
    lists = {
        "max": item.max,
        "min": item.min,
        "default": item.default,
        "defaultRequest": item.default_request,
        "maxLimitRequestRatio": item.max_limit_request_ratio,
    }
    return {"type": item.type, **{name: amount_texts(amounts) for name, amounts in lists.items() if amounts}}


def _pod(pod: Pod, filled: tuple[DefaultedByLimitRange, ...]) -> dict[str, Any]:
    """The resources of the pod after the last range, and the annotation of the last range that set a default."""
    if filled:
        pod = filled[-1].pod
    written: dict[str, Any] = {
        "containers": {each.name: plain_resources(each.resources) for each in pod.spec.containers},
        "initContainers": {each.name: plain_resources(each.resources) for each in pod.spec.init_containers},
    }
    if pod.spec.resources is not None:
        written["podResources"] = plain_resources(pod.spec.resources)
    notes = [
        pod.metadata.annotations.get(_ANNOTATION, ""),
        *(limit_ranger_annotation(each.defaults) for each in filled),
    ]
    if any(notes):
        written["annotation"] = [note for note in notes if note][-1]
    return written
