"""Family pod-resources: what a pod as a whole asks for, and its QoS class."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.requests import (
    InUse,
    RequestOptions,
    computed_qos_class,
    container_limits,
    container_requests,
    per_container_limits,
    per_container_requests,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    qos_class,
)
from nodewright.model.objects import Pod
from nodewright.testing.conformance.amounts import texts
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """Every sum over the pod's containers, and its class."""
    del machines
    pod = decode(question["pod"], Pod)
    options = decode(question.get("options") or {}, RequestOptions)
    return {
        "podRequests": texts(pod_requests(pod, options)),
        "podLimits": texts(pod_limits(pod, options)),
        "containerRequests": texts(container_requests(pod, options)),
        "containerLimits": texts(container_limits(pod, options)),
        "perContainerRequests": _per_container(per_container_requests(pod, options)),
        "perContainerLimits": _per_container(per_container_limits(pod, options)),
        "podLevelResourcesSet": pod_level_resources_set(pod),
        "podLevelRequestsSet": pod_level_requests_set(pod),
        "podLevelLimitsSet": pod_level_limits_set(pod),
        "computedQOSClass": computed_qos_class(pod).value,
        "qosClass": qos_class(pod).value,
    }


def _per_container(found: tuple[InUse, ...]) -> list[dict[str, Any]] | None:
    return [{"type": each.type, "resources": texts(each.resources)} for each in found] or None
