"""The resources of a pod as a whole in its status."""

from collections.abc import Iterable

from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.objects import Pod, ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import CPU, MEMORY

_CGROUP_RESOURCES = (CPU, MEMORY)


def pod_level_status(pod: Pod, *, is_running: bool) -> ResourceRequirements:
    """The resources that a pod has as a whole: before it runs its effective ones, then those of its cgroup.

    Follows: v1.36, kubelet/kubelet_pods.go, convertToAPIPodLevelResourcesStatus, getEffectiveAllocatedResources.
    Departs: amounts are those of the spec, where the kubelet converts them to values of the cgroup and back.
    """
    requests, limits = pod_requests(pod), pod_limits(pod)
    written = pod.spec.resources or ResourceRequirements()
    if not is_running:
        return ResourceRequirements(requests=requests, limits=limits, claims=written.claims)
    in_cgroup = [name for name in _CGROUP_RESOURCES if _is_limit_in_cgroup(pod, name)]
    return ResourceRequirements(
        requests={**written.requests, **_chosen(requests, _CGROUP_RESOURCES)},
        limits={**written.limits, **_chosen(limits, in_cgroup)},
        claims=written.claims,
    )


def _is_limit_in_cgroup(pod: Pod, name: str) -> bool:
    """Whether the pod's cgroup limits a resource: the pod level does, or all containers do.

    Follows: v1.36, kubelet/cm/helpers_linux.go, ResourceConfigForPod.
    """
    if qos_class(pod) is QOSClass.GUARANTEED:
        return True
    if pod.spec.resources is not None and name in pod.spec.resources.limits:
        return True
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return all(name in container.resources.limits for container in containers)


def _chosen(amounts: ResourceList, names: Iterable[str]) -> ResourceList:
    return {name: amounts[name] for name in names if name in amounts}
