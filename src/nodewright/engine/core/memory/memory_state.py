"""The memory manager's state: the memory of each NUMA node and the blocks of each container.

Also the memory that a pod and its containers request from the static memory policy.

Units: all sizes are bytes, unsigned 64-bit numbers as in the kubelet.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.managed_pods import ManagedPod, is_guaranteed_container, manager_requests
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, cached_by_spec
from nodewright.model.kubernetes.resource_names import MEMORY, is_huge_page
from nodewright.model.reasons.memory import MemoryRequestInexact, NUMAMemoryLeft, PodSharedMemoryEmpty
from nodewright.model.releases.release_rules import AllocatedInStatus
from nodewright.model.values.idset import NUMASet

NO_BLOCKS: Mapping[str, "tuple[Block, ...]"] = MappingProxyType({})

MemoryAmounts: TypeAlias = Mapping[str, int]
"""Bytes by kind of memory."""

UINT64_MODULUS = 2**64


class Block(msgspec.Struct, frozen=True):
    """Memory of one kind that a container or pod holds on a set of NUMA nodes.

    Units: size in bytes.
    """

    numa: tuple[int, ...]
    resource: str
    size: int

    @property
    def mask(self) -> int:
        """The NUMA nodes as a bit mask: bit i is node i."""
        mask = 0
        for node in self.numa:
            mask |= 1 << node
        return mask


class MemoryTable(msgspec.Struct, frozen=True):
    """One kind of memory on one NUMA node.

    Units: bytes.
    """

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int

    def with_reserved(self, size: int) -> "MemoryTable":
        """The table with this amount more in use."""
        return replace(self, reserved=self.reserved + size, free=self.free - size)


class NUMAMemory(msgspec.Struct, frozen=True):
    """The memory of one NUMA node."""

    assignments: int
    """The number of blocks that name the node, also those without a byte on it."""
    cells: NUMASet
    """The group of nodes that are used together, this one included."""
    tables: Mapping[str, MemoryTable]
    """By kind: `memory` and each size of huge pages."""


NUMANodeMap: TypeAlias = Mapping[int, NUMAMemory]
"""The memory of each NUMA node."""


class ReusableMemory(msgspec.Struct, frozen=True):
    """Memory of finished init containers that later containers of the last placed pod can reuse.

    Units: bytes.
    """

    pod: str = ""
    sizes: Mapping[tuple[int, str], int] = {}
    """Bytes by exact set of NUMA nodes (bit i is node i) and kind of memory."""

    def of(self, pod: str) -> Mapping[tuple[int, str], int]:
        """The memory that this pod can reuse."""
        return self.sizes if pod == self.pod else {}


NO_REUSABLE_MEMORY = ReusableMemory()


class MemoryState(msgspec.Struct, frozen=True):
    """The memory manager's state; only `reusable` does not survive a restart."""

    machine: NUMANodeMap = {}
    assignments: Mapping[str, Mapping[str, tuple[Block, ...]]] = {}
    """Blocks by pod uid and container."""
    pods: Mapping[str, tuple[Block, ...]] = {}
    """Blocks of pods that hold memory as a whole."""
    reusable: ReusableMemory = NO_REUSABLE_MEMORY

    def blocks(self, pod: str, container: str) -> tuple[Block, ...] | None:
        """The container's blocks; None: there is no entry (an entry may be empty)."""
        return self.assignments.get(pod, NO_BLOCKS).get(container)

    def with_blocks(
        self, pod: str, container: str, blocks: tuple[Block, ...], machine: NUMANodeMap | None = None
    ) -> "MemoryState":
        """The state with these blocks for the container, and with this machine; None: it is unchanged."""
        held = {**self.assignments.get(pod, NO_BLOCKS), container: blocks}
        return replace(
            self,
            machine=self.machine if machine is None else machine,
            assignments={**self.assignments, pod: held},
        )

    def without(self, pod: str, container: str) -> "MemoryState":
        """The state without the container's entry; `machine` is unchanged."""
        remaining = {
            name: blocks for name, blocks in self.assignments.get(pod, NO_BLOCKS).items() if name != container
        }
        others = {uid: held for uid, held in self.assignments.items() if uid != pod}
        return replace(self, assignments={**others, pod: remaining} if remaining else others)


def with_blocks(machine: NUMANodeMap, *blocks: Block) -> NUMANodeMap:
    """The machine with these blocks allocated: the nodes of each are filled one after another and become its group.

    An amount that exceeds the free memory of all nodes is not subtracted anywhere.

    Follows: v1.36, memorymanager/policy_static.go, updateMachineState.
    """
    changed = dict(machine)
    for block in blocks:
        missing, cells = block.size, NUMASet(block.mask)
        for numa in block.numa:
            node = changed[numa]
            tables = node.tables
            if missing:
                table = tables[block.resource]
                size = min(table.free, missing)
                missing -= size
                tables = {**tables, block.resource: table.with_reserved(size)}
            changed[numa] = NUMAMemory(node.assignments + 1, cells, tables)
    return changed


def without_block(machine: NUMANodeMap, block: Block) -> NUMANodeMap:
    """The machine with a block released: subtracted from the nodes in order, as far as memory is reserved there.

    Follows: v1.36, memorymanager/policy_static.go, releaseMemory.
    """
    changed, remaining = dict(machine), block.size
    for numa in block.numa:
        node = changed[numa]
        count, tables = node.assignments - 1, node.tables
        if remaining:
            table = tables[block.resource]
            size = min(table.reserved, remaining)
            remaining -= size
            tables = {**tables, block.resource: table.with_reserved(-size)}
        changed[numa] = NUMAMemory(count, NUMASet.of(numa) if count == 0 else node.cells, tables)
    return changed


def free_memory(machine: NUMANodeMap, resources: Mapping[str, int]) -> tuple[NUMAMemoryLeft, ...]:
    """The free memory of every NUMA node for these kinds of memory."""
    return tuple(
        NUMAMemoryLeft(
            numa=numa,
            resource=resource,
            free=node.tables[resource].free,
            allocatable=node.tables[resource].allocatable,
            group=node.cells,
            is_used=node.assignments > 0,
        )
        for numa, node in sorted(machine.items())
        for resource in sorted(resources)
        if resource in node.tables
    )


class PodMemoryDemand(ManagedPod[MemoryAmounts | MemoryRequestInexact], frozen=True):
    """The memory that a pod requests from the static policy. Only Guaranteed pods get exclusive memory.

    Units:   bytes.
    Follows: v1.36, memorymanager/policy_static.go, getContainerRequestedResources, getPodRequestedResources.
    """

    @staticmethod
    def amounts_by_container(
        pod: Pod, allocated: AllocatedInStatus
    ) -> Mapping[str, MemoryAmounts | MemoryRequestInexact]:
        """The amounts that each container requests."""
        return _amounts_by_container(pod, allocated)

    def container(self, container: Container) -> MemoryAmounts | MemoryRequestInexact:
        """The container's memory requests; empty if it shares the pod's memory, or the pod is not Guaranteed."""
        if not self.is_guaranteed:
            return {}
        if self.is_pod_managed and not is_guaranteed_container(container.resources):
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
