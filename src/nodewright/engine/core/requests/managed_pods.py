"""What the CPU and memory managers make of a pod: whether they manage it, and the amounts of its containers."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Generic, Self, TypeVar

import msgspec

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.qos_and_priority import QOS_RESOURCES, QOSClass, qos_class
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import (
    AllocatedInStatus,
    PodLevelPlacement,
    PodLevelQOS,
    ReleaseRules,
)
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.quantity import ZERO

AmountT = TypeVar("AmountT")


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


class ManagerGates(msgspec.Struct, frozen=True, kw_only=True):
    """The feature gates that the CPU and memory managers read, with their defaults."""

    pod_level_resources: bool = True
    """PodLevelResources."""
    qos: PodLevelQOS = PodLevelQOS.WHERE_SUPPORTED
    pod_level_managers: bool = False
    """PodLevelResourceManagers."""
    allocated_in_status: AllocatedInStatus = AllocatedInStatus.NO_CONTAINER
    """Whose allocated resources count, by release and InPlacePodVerticalScaling."""
    rules: ReleaseRules = NEWEST.rules

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """The managers' part of these feature gates."""
        return cls(
            pod_level_resources=gates["PodLevelResources"],
            qos=gates.pod_level_qos,
            pod_level_managers=gates["PodLevelResourceManagers"],
            allocated_in_status=allocated_in_status(gates),
            rules=gates.rules,
        )

    @property
    def ignores_pod_level(self) -> bool:
        """Whether the managers ignore pods with pod-level resources.

        Follows: v1.36, cpumanager/policy_static.go, Allocate, and the memory manager's; PR 133279, PR 134768.
        """
        match self.rules.pod_level_placement:
            case PodLevelPlacement.BY_CONTAINERS:
                return False
            case PodLevelPlacement.IGNORED_IF_GATED:
                return self.pod_level_resources
            case PodLevelPlacement.BY_GATE:
                return not (self.pod_level_managers and self.pod_level_resources)


DEFAULT_MANAGER_GATES = ManagerGates()


class ManagedPod(msgspec.Struct, Generic[AmountT], frozen=True):
    """A pod as a manager with a static policy sees it."""

    pod: Pod
    is_guaranteed: bool
    has_pod_level: bool
    """Whether the pod has pod-level resources."""
    is_pod_managed: bool
    """Whether the managers allocate at pod level: pod-level resources, and the gate PodLevelResourceManagers."""
    is_ignored: bool
    """Whether the managers ignore the pod, because it has pod-level resources."""
    allocated: AllocatedInStatus
    """Whose allocated resources count in place of requests."""
    by_container: Mapping[str, AmountT]
    """The amounts that each container requests, without ephemeral ones; empty unless the pod is Guaranteed."""

    @classmethod
    def of(cls, pod: Pod, gates: ManagerGates = DEFAULT_MANAGER_GATES) -> Self:
        """The pod under these gates."""
        has_pod_level = pod.spec.resources is not None and pod_level_resources_set(
            pod, huge_pages=gates.rules.pod_level_huge_pages
        )
        is_guaranteed = qos_class(pod, gates.qos) is QOSClass.GUARANTEED
        return cls(
            pod,
            is_guaranteed,
            has_pod_level,
            has_pod_level and gates.pod_level_managers,
            has_pod_level and gates.ignores_pod_level,
            gates.allocated_in_status,
            cls.amounts_by_container(pod, gates.allocated_in_status) if is_guaranteed else {},
        )

    @staticmethod
    @abstractmethod
    def amounts_by_container(pod: Pod, allocated: AllocatedInStatus) -> Mapping[str, AmountT]:
        """The amounts of each container; ``allocated``: whose allocated resources count in place of requests."""


def is_guaranteed_container(resources: ResourceRequirements) -> bool:
    """Whether requests equal limits and are not zero, for cpu and memory.

    Follows: v1.36, kubelet/cm/qos, IsContainerEquivalentQOSGuaranteed.
    """
    for name in QOS_RESOURCES:
        request = resources.requests.get(name, ZERO)
        if request.is_zero() or request != resources.limits.get(name, ZERO):
            return False
    return True
