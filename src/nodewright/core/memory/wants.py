"""How much memory, and of which kinds, do a pod's containers get for themselves?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import msgspec

from nodewright.core.requests import QOSClass, pod_level_resources_set, qos_class
from nodewright.model.memory_reasons import MemoryRequestInexact, PodSharedMemoryEmpty
from nodewright.model.objects import Container, Pod, ResourceList, ResourceRequirements
from nodewright.model.resource_names import CPU, MEMORY, is_huge_page
from nodewright.values.quantity import ZERO

Amounts: TypeAlias = Mapping[str, int]
"""Bytes by kind of memory."""

WORD = 2**64


@dataclass(frozen=True, slots=True)
class MemoryGates:
    """The feature gates that the memory manager asks for."""

    pod_level_resources: bool = True
    pod_level_managers: bool = False


DEFAULT_MEMORY_GATES = MemoryGates()


class MemoryWants(msgspec.Struct, frozen=True):
    """What a pod asks of the static policy. Only Guaranteed pods get memory of their own.

    Units:   bytes.
    Follows: v1.36, memorymanager/policy_static.go, getContainerRequestedResources, getPodRequestedResources.
    """

    pod: Pod
    is_guaranteed: bool
    is_pod_managed: bool
    """Whether there are pod-level resources and the gate PodLevelResourceManagers is on."""
    is_skipped: bool
    """Whether the manager leaves the pod alone: it has pod-level resources and a gate is off."""

    @classmethod
    def of(cls, pod: Pod, gates: MemoryGates = DEFAULT_MEMORY_GATES) -> Self:
        """The wants of the pod under these gates."""
        has_pod_level = pod_level_resources_set(pod)
        judged = pod
        if not gates.pod_level_resources and pod.spec.resources is not None:
            judged = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))
        return cls(
            pod,
            qos_class(judged) is QOSClass.GUARANTEED,
            has_pod_level and gates.pod_level_managers,
            has_pod_level and not (gates.pod_level_managers and gates.pod_level_resources),
        )

    def container(self, container: Container) -> Amounts | MemoryRequestInexact:
        """What the container asks for; nothing if it shares the pod's memory."""
        if self.is_pod_managed and not _is_guaranteed_alone(container.resources):
            return {}
        return _amounts(container.resources.requests)

    def whole_pod(self) -> Amounts | MemoryRequestInexact:
        """What the pod needs at once; kinds that only init containers ask for do not count."""
        if self.is_pod_managed:
            level = self.pod.spec.resources
            return _amounts(level.requests if level else {}, positive_only=True)
        sidecars: dict[str, int] = {}
        most_at_init: dict[str, int] = {}
        for container in self.pod.spec.init_containers:
            wanted = self.container(container)
            if isinstance(wanted, MemoryRequestInexact):
                return wanted
            for kind, size in wanted.items():
                if container.is_sidecar:
                    sidecars[kind] = (sidecars.get(kind, 0) + size) % WORD
                else:
                    needed = (sidecars.get(kind, 0) + size) % WORD
                    most_at_init[kind] = max(most_at_init.get(kind, 0), needed)
        apps: dict[str, int] = {}
        for container in self.pod.spec.containers:
            wanted = self.container(container)
            if isinstance(wanted, MemoryRequestInexact):
                return wanted
            for kind, size in wanted.items():
                apps[kind] = apps.get(kind, 0) + size
        return {
            kind: max((size + sidecars.get(kind, 0)) % WORD, most_at_init.get(kind, 0))
            for kind, size in apps.items()
        }

    def shared_memory_fault(self, total: Amounts) -> PodSharedMemoryEmpty | MemoryRequestInexact | None:
        """Why a pod that holds memory as a whole cannot run: some containers would be left without any.

        Follows: v1.36, memorymanager/policy_static.go, validatePodScopeResources.
        Departs: goes through the kinds of memory by name, where the kubelet walks a map in random order.
        """
        exclusive: dict[str, int] = {}
        has_sharers = False
        for container in self.pod.spec.init_containers:
            wanted = self.container(container)
            if isinstance(wanted, MemoryRequestInexact):
                return msgspec.structs.replace(wanted, in_pod=True)
            if not container.is_sidecar:
                fault = None if wanted else _used_up(total, exclusive, init=True)
                if fault:
                    return fault
                continue
            has_sharers = has_sharers or not wanted
            _add(exclusive, wanted)
        for container in self.pod.spec.containers:
            wanted = self.container(container)
            if isinstance(wanted, MemoryRequestInexact):
                return msgspec.structs.replace(wanted, in_pod=True)
            has_sharers = has_sharers or not wanted
            _add(exclusive, wanted)
        return _used_up(total, exclusive, init=False) if has_sharers else None


def _add(sums: dict[str, int], amounts: Amounts) -> None:
    for kind, size in amounts.items():
        sums[kind] = (sums.get(kind, 0) + size) % WORD


def _used_up(total: Amounts, exclusive: Amounts, *, init: bool) -> PodSharedMemoryEmpty | None:
    for kind, size in sorted(total.items()):
        if exclusive.get(kind, 0) >= size:
            return PodSharedMemoryEmpty(
                resource=kind, pod_total=size, exclusive=exclusive.get(kind, 0), init=init
            )
    return None


def _amounts(requests: ResourceList, *, positive_only: bool = False) -> Amounts | MemoryRequestInexact:
    """Bytes by kind of memory, as unsigned 64-bit numbers."""
    found = {}
    for kind, amount in sorted(requests.items()):
        if kind != MEMORY and not is_huge_page(kind):
            continue
        size = amount.as_int64()
        if size is None:
            return MemoryRequestInexact(resource=kind, amount=amount)
        if size > 0 or not positive_only:
            found[kind] = size % WORD
    return found


def _is_guaranteed_alone(resources: ResourceRequirements) -> bool:
    """Whether the container by itself would make its pod Guaranteed.

    Follows: v1.36, cm/qos/helpers.go, IsContainerEquivalentQOSGuaranteed.
    """
    for name in (CPU, MEMORY):
        request = resources.requests.get(name, ZERO)
        if request.is_zero() or request != resources.limits.get(name, ZERO):
            return False
    return True
