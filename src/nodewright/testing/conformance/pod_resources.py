"""Family pod-resources: the requests of a whole pod, and its QoS class."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.requests.effective_resources import (
    ContainerConsumption,
    RequestOptions,
    ResourceField,
    container_limits,
    container_requests,
    per_container,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import computed_qos_class, qos_class
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.testing.conformance.vectors import amount_texts, question_gates


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """Every sum over the pod's containers, and its class."""
    pod = decode(question["pod"], Pod)
    gates = question_gates(question, release)
    options = _options(question.get("options") or {}, release)
    huge_pages, pod_level = options.pod_level_huge_pages, gates.pod_level_qos
    return {
        "podRequests": amount_texts(pod_requests(pod, options)),
        "podLimits": amount_texts(pod_limits(pod, options)),
        "containerRequests": amount_texts(container_requests(pod, options)),
        "containerLimits": amount_texts(container_limits(pod, options)),
        "perContainerRequests": _per_container(per_container(pod, ResourceField.REQUESTS, options)),
        "perContainerLimits": _per_container(per_container(pod, ResourceField.LIMITS, options)),
        "podLevelResourcesSet": pod_level_resources_set(pod, huge_pages=huge_pages),
        "podLevelRequestsSet": pod_level_requests_set(pod, huge_pages=huge_pages),
        "podLevelLimitsSet": pod_level_limits_set(pod, huge_pages=huge_pages),
        "computedQOSClass": computed_qos_class(pod, pod_level).value,
        "qosClass": qos_class(pod, pod_level).value,
    }


_GATED_OPTIONS = {
    "inPlacePodLevelResourcesVerticalScaling": "InPlacePodLevelResourcesVerticalScaling",
    "useDRANodeAllocatableResourceClaimStatus": "DRANodeAllocatableResources",
}
"""Options that exist from the release on that has their gate."""


def _options(plain: Mapping[str, Any], release: ReleaseTable) -> RequestOptions:
    known = {
        name: value
        for name, value in plain.items()
        if name not in _GATED_OPTIONS or _GATED_OPTIONS[name] in release.gates
    }
    return replace(
        decode(known, RequestOptions),
        pod_level_huge_pages=release.rules.pod_level_huge_pages,
        resize_in_conditions=release.rules.resize_in_conditions,
        status_requests_by_sums=release.rules.status_requests_by_sums,
    )


def _per_container(consumptions: tuple[ContainerConsumption, ...]) -> list[dict[str, Any]] | None:
    return [
        {"type": consumption.type, "resources": amount_texts(consumption.resources)}
        for consumption in consumptions
    ] or None
