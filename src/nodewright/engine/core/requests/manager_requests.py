"""What the CPU and memory managers count of a pod: its containers' requests, or what its status says is allocated."""

from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import AllocatedInStatus, PodLevelPlacement


def allocated_in_status(gates: FeatureGates) -> AllocatedInStatus:
    """Whose allocated resources the managers read: nobody's where the gate InPlacePodVerticalScaling is off."""
    is_on = gates["InPlacePodVerticalScaling"]
    return gates.rules.allocated_in_status if is_on else AllocatedInStatus.NO_CONTAINER


def manager_requests(pod: Pod, container: Container, allocated: AllocatedInStatus) -> ResourceList:
    """The container's requests as the managers count them.

    Follows: v1.36, cpumanager/policy_static.go, guaranteedCPUs; memorymanager/policy_static.go, getRequestedResources;
        up to v1.34 both read `allocatedResources` of the first status of the container's name.
    """
    if allocated is AllocatedInStatus.NO_CONTAINER:
        return container.resources.requests
    statuses = pod.status.container_statuses
    if allocated is AllocatedInStatus.ALL_STATUSES and container.is_sidecar:
        statuses += pod.status.init_container_statuses
    for status in statuses:
        if status.name == container.name:
            return status.allocated_resources
    return container.resources.requests


def managers_ignore_pod_level(
    placement: PodLevelPlacement, *, pod_level_resources: bool, pod_level_managers: bool
) -> bool:
    """Whether the managers ignore pods with pod-level resources under these gates.

    Follows: v1.36, cpumanager/policy_static.go, Allocate, and the memory manager's; PR 133279, PR 134768.
    """
    match placement:
        case PodLevelPlacement.BY_CONTAINERS:
            return False
        case PodLevelPlacement.IGNORED_IF_GATED:
            return pod_level_resources
        case PodLevelPlacement.BY_GATE:
            return not (pod_level_managers and pod_level_resources)
