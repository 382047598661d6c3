"""A node as a NodeResourceTopology object (v1alpha2), as written by NFD's topology updater, with what its managers hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of
from nodewright.model.hardware import MachineInfo, NUMANode
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.pod_resources_api import AllocatableResources, PodResources
from nodewright.model.kubernetes.resource_names import CPU, HUGE_PAGES_PREFIX, MEMORY, is_huge_page
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity, QuantityFormat

API_VERSION, KIND = "topology.node.k8s.io/v1alpha2", "NodeResourceTopology"
FREE_CPUS = "nodewright.dev/free-exclusive-cpus"
"""Attribute of a zone: its CPUs that the CPU manager can still give to one container alone."""
MEMORY_GROUP = "nodewright.dev/memory-group"
"""Attribute of a zone: the NUMA nodes that the memory manager uses together with it, itself included."""
MEMORY_IN_USE = "nodewright.dev/memory-in-use"
"""Attribute of a zone: whether containers hold memory of it, which fixes its group."""

_LEVELS = {"container": "ContainerLevel", "pod": "PodLevel"}
_POLICIES = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}


class TopologySource(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of the object."""

    name: str
    machine: MachineInfo
    allocatable: AllocatableResources
    pods: tuple[PodResources, ...]
    policy: str = ""
    """The topology manager's policy; empty: unknown."""
    scope: str = "container"
    used_groups: Mapping[int, NUMASet] | None = None
    """The groups of the NUMA nodes with memory in use; None: those of the pods' blocks."""


def topology_source(state: NodeState) -> TopologySource:
    """The inputs for a node with its pods."""
    parts = state.config.parts
    kubelet = parts.kubelet
    memory = state.without_stale().held.memory.machine
    return TopologySource(
        name=state.config.facts.name,
        machine=parts.machine,
        allocatable=allocatable_resources(state),
        pods=tuple(pod_resources_of(state, pod) for pod in state.pods.values()),
        policy=kubelet.topology_manager_policy,
        scope=kubelet.topology_manager_scope,
        used_groups={numa: node.cells for numa, node in memory.items() if node.assignments > 0},
    )


def node_resource_topology(source: TopologySource) -> dict[str, Any]:
    """The object with capacity, allocatable and available amounts of each NUMA node.

    Units:   CPUs, bytes, units.
    Follows: node-feature-discovery v0.18, pkg/resourcemonitor/noderesourcesaggregator.go, Aggregate;
        pkg/topologypolicy/topology-policy.go; pkg/nfd-topology-updater/nfd-topology-updater.go.
    Departs: zones and resources are sorted. A used device of several NUMA nodes is subtracted from each of them,
        where NFD subtracts it from one of them once for each. No pod fingerprint, no core kinds. Zones have attributes
        of nodewright: free exclusive CPUs under the static CPU policy, and the groups of the Static memory policy, with
        which amounts alone do not tell whether a pod fits.
    """
    attributes, policies = _policy(source.policy, source.scope)
    allocatable = _allocatable(source)
    available = _available(source, allocatable)
    used_groups = _used_groups(source)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": source.name},
        **policies,
        **attributes,
        "zones": [
            {
                "name": _zone_name(numa.node_id),
                "type": "Node",
                **_costs(numa, source.machine.topology),
                **_zone_attributes(source, numa, used_groups),
                "resources": [
                    _amounts(name, _capacity(name, numa, amount), amount, available[numa.node_id][name])
                    for name, amount in sorted(allocatable[numa.node_id].items())
                ],
            }
            for numa in sorted(source.machine.topology, key=lambda node: node.node_id)
        ],
    }


def _policy(policy: str, scope: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if not policy:
        return {}, {}
    attributes = [
        {"name": "topologyManagerPolicy", "value": policy},
        {"name": "topologyManagerScope", "value": scope},
    ]
    name = _POLICIES[policy] + _LEVELS[scope] if policy in _POLICIES and scope in _LEVELS else "None"
    return {"attributes": attributes}, {"topologyPolicies": [name]}


def _used_groups(source: TopologySource) -> Mapping[int, NUMASet]:
    """The groups of the NUMA nodes with memory in use."""
    if source.used_groups is not None:
        return source.used_groups
    blocks = [block for pod in source.pods for container in pod.containers for block in container.memory]
    return {numa: NUMASet.from_ids(block.numa_nodes) for block in blocks for numa in block.numa_nodes}


def _zone_attributes(
    source: TopologySource, numa: NUMANode, used_groups: Mapping[int, NUMASet]
) -> dict[str, Any]:
    """What the CPU manager and the memory manager can still give on the NUMA node; empty without their static policies."""
    values: dict[str, object] = {}
    if source.allocatable.cpus:
        held = {cpu for pod in source.pods for container in pod.containers for cpu in container.cpus}
        values[FREE_CPUS] = CPUSet.from_ids(_cpus(numa) & {*source.allocatable.cpus} - held)
    if source.allocatable.memory:
        values[MEMORY_GROUP] = used_groups.get(numa.node_id, NUMASet.of(numa.node_id))
        values[MEMORY_IN_USE] = "true" if numa.node_id in used_groups else "false"
    attributes = [{"name": name, "value": str(value)} for name, value in values.items()]
    return {"attributes": attributes} if attributes else {}


def _zone_name(numa: int) -> str:
    return f"node-{numa}"


def _costs(numa: NUMANode, nodes: Sequence[NUMANode]) -> dict[str, Any]:
    """The distances to all NUMA nodes; empty if unknown."""
    if len(numa.distances) != len(nodes):
        return {}
    names = (_zone_name(node.node_id) for node in nodes)
    return {
        "costs": [{"name": name, "value": cost} for name, cost in zip(names, numa.distances, strict=True)]
    }


def _amounts(name: str, capacity: int, allocatable: int, available: int) -> dict[str, str]:
    amounts = {"capacity": capacity, "allocatable": allocatable, "available": available}
    return {"name": name} | {
        field: str(Quantity.of(amount, QuantityFormat.DECIMAL_SI)) for field, amount in amounts.items()
    }


def _capacity(name: str, numa: NUMANode, allocatable: int) -> int:
    if name == CPU:
        return len(_cpus(numa))
    if name == MEMORY:
        return numa.memory or allocatable
    if is_huge_page(name):
        size = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
        sizes = [pages.num_pages * size for pages in numa.hugepages if pages.page_size * 1024 == size]
        return sizes[0] if sizes else allocatable
    return allocatable


def _cpus(numa: NUMANode) -> set[int]:
    return {cpu for core in numa.cores for cpu in core.thread_ids}


def _allocatable(source: TopologySource) -> dict[int, dict[str, int]]:
    """The allocatable amounts of each NUMA node; `cpu: 0` for a node without any."""
    allocatable = {numa.node_id: Counter[str]() for numa in source.machine.topology}
    for numa in source.machine.topology:
        if count := len(_cpus(numa) & {*source.allocatable.cpus}):
            allocatable[numa.node_id][CPU] = count
    for device in source.allocatable.devices:
        for place in device.numa_nodes or ():
            if place in allocatable:
                allocatable[place][device.resource] += len(device.ids)
    for block in source.allocatable.memory:
        for place in block.numa_nodes:
            if place in allocatable:
                allocatable[place][block.type] += block.size
    return {place: amounts or {CPU: 0} for place, amounts in allocatable.items()}


def _available(
    source: TopologySource, allocatable: Mapping[int, Mapping[str, int]]
) -> dict[int, dict[str, int]]:
    """The allocatable amounts minus those in use; resources that are not allocatable do not count."""
    available = {place: dict(amounts) for place, amounts in allocatable.items()}
    containers = [container for pod in source.pods for container in pod.containers]
    exclusive_cpus = {cpu for container in containers for cpu in container.cpus} & {*source.allocatable.cpus}
    for numa in source.machine.topology:
        if used_cpus := len(_cpus(numa) & exclusive_cpus):
            available[numa.node_id][CPU] -= used_cpus
    used_devices = {
        (resource, name)
        for container in containers
        for resource, ids in container.device_ids.items()
        for name in ids
    }
    for device in source.allocatable.devices:
        for place in device.numa_nodes or ():
            if place in available:
                available[place][device.resource] -= sum(
                    (device.resource, name) in used_devices for name in device.ids
                )
    for container in containers:
        for block in container.memory:
            _subtract(available, block)
    return available


def _subtract(available: Mapping[int, dict[str, int]], block: MemoryBlock) -> None:
    """Subtract a block's memory from its nodes in order, as the memory manager fills them."""
    missing = block.size
    for place in block.numa_nodes:
        free = available.get(place, {}).get(block.type, 0)
        amount = min(free, missing)
        if amount:
            available[place][block.type] = free - amount
            missing -= amount
