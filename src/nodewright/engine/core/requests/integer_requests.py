"""The pod's requests as integers, as the kubelet's admission counts them.

Units: cpu in thousandths, everything else in units (bytes, pieces).
"""

from collections.abc import Mapping

from nodewright.engine.core.requests.effective_resources import (
    pod_level_resources_set,
    pod_requests,
)
from nodewright.engine.core.requests.request_options import NEWEST_REQUEST_RULES, RequestOptions, RequestRules
from nodewright.engine.core.requests.spec_cache import cached_by_spec
from nodewright.model.kubernetes.objects import Pod, PodStatus, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar

_NO_STATUS = PodStatus()
_COUNTED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})
"""The resources that are counted beside the scalar ones."""


def scheduler_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The requests that admission compares; never negative; names that are not counted are left out.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, computePodResourceRequest.
    """
    requests = _spec_requests(pod, rules)
    if min(requests.values(), default=0) >= 0:
        return requests
    return {name: max(amount, 0) for name, amount in requests.items()}


def scheduler_usage(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The usage of a pod that is already admitted, resizes in progress included.

    Follows: v1.36, pkg/scheduler/framework/types.go, PodInfo.CalculateResource.
    """
    if pod.status == _NO_STATUS:
        # No resize is in progress.
        return _spec_requests(pod, rules)
    return _status_requests(pod, rules)


@cached_by_spec
def _spec_requests(pod: Pod, rules: RequestRules) -> Mapping[str, int]:
    return _counted_integers(pod_requests(pod, rules.options(use_claims=True)))


@cached_by_spec
def _status_requests(pod: Pod, rules: RequestRules) -> Mapping[str, int]:
    return _counted_integers(pod_requests(pod, rules.options(use_status=True, use_claims=True)))


@cached_by_spec
def preemption_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> Mapping[str, int]:
    """The amounts that preempting the pod frees, by resource; 0 for resources that are not in it.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequest.
    """
    return {**_integers(reclaimable_requests(pod, rules)), PODS: 1}


def reclaimable_requests(pod: Pod, rules: RequestRules = NEWEST_REQUEST_RULES) -> ResourceList:
    """The requests by which preemption and eviction judge the pod.

    They differ from what admission counts: pod-level requests replace all container requests, even of
    resources that the pod level does not support; overhead counts only where something is requested.
    With the gate PodLevelResources off, they still replace the sums of the same names.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity; up to v1.33 without the pod level, and
        every init container, sidecars as well, by itself.
    """
    if rules.reclaimable_as_scheduled:
        replaced = rules.pod_level and pod_level_resources_set(pod, huge_pages=rules.pod_level_huge_pages)
        options = RequestOptions(exclude_overhead=True, skip_container_level_resources=replaced)
        total = pod_requests(pod, options)
    else:
        total = _largest_by_container(pod)
    for name, amount in (pod.spec.overhead or {}).items():
        requested = total.get(name)
        if requested is not None and not requested.is_zero():
            total[name] = requested + amount
    return total


def _largest_by_container(pod: Pod) -> ResourceList:
    """The sum of the containers' requests, or that of an init container where it is larger."""
    total: ResourceList = {}
    for container in pod.spec.containers:
        for name, amount in container.resources.requests.items():
            total[name] = total[name] + amount if name in total else amount
    for container in pod.spec.init_containers:
        for name, amount in container.resources.requests.items():
            if name not in total or amount.compare(total[name]) > 0:
                total[name] = amount
    return total


def _counted_integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value()
        for name, amount in requests.items()
        if name in _COUNTED or is_scalar(name)
    }


def _integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value() for name, amount in requests.items()
    }
