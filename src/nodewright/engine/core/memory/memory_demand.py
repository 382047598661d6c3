"""The memory that a pod and its containers request from the static memory policy."""

from collections.abc import Mapping
from typing import Self, TypeAlias

import msgspec

from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.requests.manager_requests import (
    allocated_in_status,
    manager_requests,
    managers_ignore_pod_level,
)
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.core.requests.spec_cache import cached_by_spec
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, is_huge_page
from nodewright.model.reasons.memory import MemoryRequestInexact, PodSharedMemoryEmpty
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import AllocatedInStatus, ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.quantity import ZERO

MemoryAmounts: TypeAlias = Mapping[str, int]
"""Bytes by kind of memory."""

UINT64_MODULUS = 2**64


class MemoryGates(msgspec.Struct, frozen=True):
    """The feature gates that the memory manager depends on."""

    pod_level_resources: bool = True
    pod_level_managers: bool = False
    allocated_in_status: AllocatedInStatus = AllocatedInStatus.NO_CONTAINER
    """Whose allocated resources count, by release and InPlacePodVerticalScaling."""
    rules: ReleaseRules = NEWEST.rules

    @classmethod
    def of(cls, gates: FeatureGates) -> Self:
        """The memory manager's part of these feature gates."""
        return cls(
            pod_level_resources=gates["PodLevelResources"],
            pod_level_managers=gates["PodLevelResourceManagers"],
            allocated_in_status=allocated_in_status(gates),
            rules=gates.rules,
        )


DEFAULT_MEMORY_GATES = MemoryGates()


class PodMemoryDemand(msgspec.Struct, frozen=True):
    """The memory that a pod requests from the static policy. Only Guaranteed pods get exclusive memory.

    Units:   bytes.
    Follows: v1.36, memorymanager/policy_static.go, getContainerRequestedResources, getPodRequestedResources.
    """

    pod: Pod
    is_guaranteed: bool
    is_pod_managed: bool
    """Whether there are pod-level resources and the gate PodLevelResourceManagers is on."""
    is_ignored: bool
    """Whether the manager ignores the pod, because it has pod-level resources."""
    allocated: AllocatedInStatus
    """Whose allocated resources count in place of requests."""
    by_container: Mapping[str, MemoryAmounts | MemoryRequestInexact]
    """The amounts that each container requests, without ephemeral ones; empty unless the pod is Guaranteed."""

    @classmethod
    def of(cls, pod: Pod, gates: MemoryGates = DEFAULT_MEMORY_GATES) -> Self:
        """The demand of the pod under these gates."""
        has_pod_level = pod.spec.resources is not None and pod_level_resources_set(
            pod, huge_pages=gates.rules.pod_level_huge_pages
        )
        is_ignored = has_pod_level and managers_ignore_pod_level(
            gates.rules.pod_level_placement,
            pod_level_resources=gates.pod_level_resources,
            pod_level_managers=gates.pod_level_managers,
        )
        is_guaranteed = qos_class(pod, gates.pod_level_resources) is QOSClass.GUARANTEED
        return cls(
            pod,
            is_guaranteed,
            has_pod_level and gates.pod_level_managers,
            is_ignored,
            gates.allocated_in_status,
            _amounts_by_container(pod, gates.allocated_in_status) if is_guaranteed else {},
        )

    def container(self, container: Container) -> MemoryAmounts | MemoryRequestInexact:
        """The container's memory requests; empty if it shares the pod's memory, or the pod is not Guaranteed."""
        if not self.is_guaranteed:
            return {}
        if self.is_pod_managed and not _is_guaranteed_by_itself(container.resources):
            return {}
        requested = self.by_container.get(container.name)
        if requested is None:
            return _amounts(manager_requests(self.pod, container, self.allocated))
        return requested

    def whole_pod(self) -> MemoryAmounts | MemoryRequestInexact:
        """The pod's memory requests at their maximum; kinds that only init containers request do not count."""
        if self.is_pod_managed:
            pod_level = self.pod.spec.resources
            return _amounts(pod_level.requests if pod_level else {}, positive_only=True)
        sidecars: dict[str, int] = {}
        init_maximum: dict[str, int] = {}
        for container in self.pod.spec.init_containers:
            requested = self.container(container)
            if isinstance(requested, MemoryRequestInexact):
                return requested
            for kind, size in requested.items():
                if container.is_sidecar:
                    sidecars[kind] = (sidecars.get(kind, 0) + size) % UINT64_MODULUS
                else:
                    needed = (sidecars.get(kind, 0) + size) % UINT64_MODULUS
                    init_maximum[kind] = max(init_maximum.get(kind, 0), needed)
        apps: dict[str, int] = {}
        for container in self.pod.spec.containers:
            requested = self.container(container)
            if isinstance(requested, MemoryRequestInexact):
                return requested
            for kind, size in requested.items():
                apps[kind] = apps.get(kind, 0) + size
        return {
            kind: max((size + sidecars.get(kind, 0)) % UINT64_MODULUS, init_maximum.get(kind, 0))
            for kind, size in apps.items()
        }

    def shared_memory_error(self, total: MemoryAmounts) -> PodSharedMemoryEmpty | MemoryRequestInexact | None:
        """Why pod-level memory does not suffice: containers that share it would get none; None if it does.

        Follows: v1.36, memorymanager/policy_static.go, validatePodScopeResources.
        Departs: iterates over the kinds of memory by name, where the kubelet walks a map in random order.
        """
        exclusive: dict[str, int] = {}
        has_sharers = False
        for container in self.pod.spec.init_containers:
            requested = self.container(container)
            if isinstance(requested, MemoryRequestInexact):
                return msgspec.structs.replace(requested, in_pod=True)
            if not container.is_sidecar:
                error = None if requested else _shared_memory_empty(total, exclusive, init=True)
                if error:
                    return error
                continue
            has_sharers = has_sharers or not requested
            _add(exclusive, requested)
        for container in self.pod.spec.containers:
            requested = self.container(container)
            if isinstance(requested, MemoryRequestInexact):
                return msgspec.structs.replace(requested, in_pod=True)
            has_sharers = has_sharers or not requested
            _add(exclusive, requested)
        return _shared_memory_empty(total, exclusive, init=False) if has_sharers else None


def _add(sums: dict[str, int], amounts: MemoryAmounts) -> None:
    for kind, size in amounts.items():
        sums[kind] = (sums.get(kind, 0) + size) % UINT64_MODULUS


def _shared_memory_empty(
    total: MemoryAmounts, exclusive: MemoryAmounts, *, init: bool
) -> PodSharedMemoryEmpty | None:
    for kind, size in sorted(total.items()):
        if exclusive.get(kind, 0) >= size:
            return PodSharedMemoryEmpty(
                resource=kind, pod_total=size, exclusive=exclusive.get(kind, 0), init=init
            )
    return None


@cached_by_spec
def _amounts_by_container(
    pod: Pod, allocated: AllocatedInStatus
) -> Mapping[str, MemoryAmounts | MemoryRequestInexact]:
    """The amounts of each container; ``allocated``: whose allocated resources count in place of requests."""
    return {
        container.name: _amounts(manager_requests(pod, container, allocated))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }


def _amounts(requests: ResourceList, *, positive_only: bool = False) -> MemoryAmounts | MemoryRequestInexact:
    """Bytes by kind of memory, as unsigned 64-bit numbers."""
    sizes = {}
    for kind, amount in sorted(requests.items()):
        if kind != MEMORY and not is_huge_page(kind):
            continue
        size = amount.as_int64()
        if size is None:
            return MemoryRequestInexact(resource=kind, amount=amount)
        if size > 0 or not positive_only:
            sizes[kind] = size % UINT64_MODULUS
    return sizes


def _is_guaranteed_by_itself(resources: ResourceRequirements) -> bool:
    """Whether the container's own resources are those of a Guaranteed pod.

    Follows: v1.36, cm/qos/helpers.go, IsContainerEquivalentQOSGuaranteed.
    """
    for name in (CPU, MEMORY):
        request = resources.requests.get(name, ZERO)
        if request.is_zero() or request != resources.limits.get(name, ZERO):
            return False
    return True
