"""The pod's requests as whole numbers, as the kubelet's admission counts them.

Units: cpu in thousandths, everything else in units (bytes, pieces).
"""

from collections.abc import Mapping

from nodewright.core.requests.effective import (
    WITH_STATUS,
    RequestOptions,
    pod_level_resources_set,
    pod_requests,
)
from nodewright.core.requests.remembered import remembered
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_scalar

_PREEMPTION = RequestOptions(exclude_overhead=True)
_PREEMPTION_POD_LEVEL = RequestOptions(exclude_overhead=True, skip_container_level_resources=True)


@remembered
def scheduler_requests(pod: Pod) -> Mapping[str, int]:
    """What a pod that wants in is measured by; never negative; names that are not counted are left out.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, computePodResourceRequest.
    """
    return {name: max(amount, 0) for name, amount in _counted(pod_requests(pod)).items()}


@remembered
def scheduler_usage(pod: Pod) -> Mapping[str, int]:
    """What a pod that is already admitted takes, resizes in flight included.

    Follows: v1.36, pkg/scheduler/framework/types.go, PodInfo.CalculateResource.
    """
    return _counted(pod_requests(pod, WITH_STATUS))


def preemption_request(pod: Pod, resource: str) -> int:
    """What the pod would free of a resource if it made way.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequest.
    """
    return preemption_requests(pod).get(resource, 0)


def preemption_requests(pod: Pod) -> dict[str, int]:
    """What the pod would free if it made way, by resource; what is not in it is 0.

    It differs from what admission counts: a pod level takes the place of all container requests, also of
    resources that it cannot name; overhead counts only where something is requested.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequest.
    """
    options = _PREEMPTION_POD_LEVEL if pod_level_resources_set(pod) else _PREEMPTION
    total = pod_requests(pod, options)
    for name, amount in pod.spec.overhead.items():
        requested = total.get(name)
        if requested is not None and not requested.is_zero():
            total[name] = requested + amount
    return {**_integers(total), PODS: 1}


def _counted(requests: ResourceList) -> dict[str, int]:
    counted = {CPU, MEMORY, EPHEMERAL_STORAGE}
    return _integers(
        {name: amount for name, amount in requests.items() if name in counted or is_scalar(name)}
    )


def _integers(requests: ResourceList) -> dict[str, int]:
    return {
        name: amount.milli_value() if name == CPU else amount.value() for name, amount in requests.items()
    }
