"""A node as a NodeResourceTopology object (v1alpha2), as NFD's topology updater writes it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nodewright.model.machine import MachineInfo, NUMANode
from nodewright.model.pod_resources import AllocatableResources, PodResources
from nodewright.model.profile import MemoryBlock
from nodewright.model.resource_names import CPU, HUGE_PAGES_PREFIX, MEMORY, is_huge_page
from nodewright.values.quantity import Format, Quantity

API_VERSION, KIND = "topology.node.k8s.io/v1alpha2", "NodeResourceTopology"

_LEVELS = {"container": "ContainerLevel", "pod": "PodLevel"}
_POLICIES = {
    "best-effort": "BestEffort",
    "restricted": "Restricted",
    "single-numa-node": "SingleNUMANode",
}


class TopologySource(msgspec.Struct, frozen=True, kw_only=True):
    """What the object is made of."""

    name: str
    machine: MachineInfo
    allocatable: AllocatableResources
    pods: tuple[PodResources, ...]
    policy: str = ""
    """Of the topology manager; empty: it is not known."""
    scope: str = "container"


def topology_document(source: TopologySource) -> dict[str, Any]:
    """The object: for each NUMA node what it has, what pods can have of it for themselves, and what is left of that.

    Units:   CPUs, bytes, pieces.
    Follows: node-feature-discovery v0.18, pkg/resourcemonitor/noderesourcesaggregator.go, Aggregate;
        pkg/topologypolicy/topology-policy.go; pkg/nfd-topology-updater/nfd-topology-updater.go.
    Departs: zones and resources in order. A device of several NUMA nodes that is in use is taken off each of them,
        where NFD takes it off one of them once for each. No fingerprint of the pods, no kinds of cores.
    """
    attributes, policies = _policy(source.policy, source.scope)
    there = _allocatable(source)
    left = _left(source, there)
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
                "resources": [
                    _amounts(name, _capacity(name, numa, amount), amount, left[numa.node_id][name])
                    for name, amount in sorted(there[numa.node_id].items())
                ],
            }
            for numa in sorted(source.machine.topology, key=lambda one: one.node_id)
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


def _zone_name(numa: int) -> str:
    return f"node-{numa}"


def _costs(numa: NUMANode, nodes: Sequence[NUMANode]) -> dict[str, Any]:
    """Nothing where the machine's distances are not known."""
    if len(numa.distances) != len(nodes):
        return {}
    others = (_zone_name(one.node_id) for one in nodes)
    return {
        "costs": [{"name": name, "value": cost} for name, cost in zip(others, numa.distances, strict=True)]
    }


def _amounts(name: str, capacity: int, allocatable: int, available: int) -> dict[str, str]:
    amounts = {"capacity": capacity, "allocatable": allocatable, "available": available}
    return {"name": name} | {
        what: str(Quantity.of(amount, Format.DECIMAL_SI)) for what, amount in amounts.items()
    }


def _capacity(name: str, numa: NUMANode, allocatable: int) -> int:
    if name == CPU:
        return len(_cpus(numa))
    if name == MEMORY:
        return numa.memory or allocatable
    if is_huge_page(name):
        size = Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value()
        found = [pages.num_pages * size for pages in numa.hugepages if pages.page_size * 1024 == size]
        return found[0] if found else allocatable
    return allocatable


def _cpus(numa: NUMANode) -> set[int]:
    return {cpu for core in numa.cores for cpu in core.thread_ids}


def _allocatable(source: TopologySource) -> dict[int, dict[str, int]]:
    """What pods can have of each NUMA node; of one of which they can have nothing, no CPU."""
    found: dict[int, dict[str, int]] = {numa.node_id: {} for numa in source.machine.topology}
    for numa in source.machine.topology:
        if count := len(_cpus(numa) & {*source.allocatable.cpus}):
            found[numa.node_id][CPU] = count
    for device in source.allocatable.devices:
        for place in device.numa_nodes or ():
            if place in found:
                amounts = found[place]
                amounts[device.resource] = amounts.get(device.resource, 0) + len(device.ids)
    for block in source.allocatable.memory:
        for place in block.numa_nodes:
            if place in found:
                found[place][block.type] = found[place].get(block.type, 0) + block.size
    return {place: amounts or {CPU: 0} for place, amounts in found.items()}


def _left(source: TopologySource, there: Mapping[int, Mapping[str, int]]) -> dict[int, dict[str, int]]:
    """What nobody has of it; what is not told to be allocatable is not counted."""
    left = {place: dict(amounts) for place, amounts in there.items()}
    containers = [one for pod in source.pods for one in pod.containers]
    own = {cpu for one in containers for cpu in one.cpus} & {*source.allocatable.cpus}
    for numa in source.machine.topology:
        if taken := len(_cpus(numa) & own):
            left[numa.node_id][CPU] -= taken
    held = {
        (resource, name) for one in containers for resource, ids in one.device_ids.items() for name in ids
    }
    for device in source.allocatable.devices:
        for place in device.numa_nodes or ():
            if place in left:
                left[place][device.resource] -= sum((device.resource, name) in held for name in device.ids)
    for one in containers:
        for block in one.memory:
            _take(left, block)
    return left


def _take(left: Mapping[int, dict[str, int]], block: MemoryBlock) -> None:
    """Take memory off the nodes one after the other, as the memory manager fills them."""
    missing = block.size
    for place in block.numa_nodes:
        free = left.get(place, {}).get(block.type, 0)
        taken = min(free, missing)
        if taken:
            left[place][block.type] = free - taken
            missing -= taken
