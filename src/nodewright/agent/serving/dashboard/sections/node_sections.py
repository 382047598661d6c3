"""The node's sections of a dashboard: machine, allocations, remaining resources, and setup."""

from collections.abc import Iterable, Iterator
from typing import Any

from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import unallocated_resources
from nodewright.model.hardware.machine_info import Core, NUMANode
from nodewright.model.kubernetes.resource_names import MEMORY, readable_amount
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node_report.report_parts import policy_notices, requested_and_allocatable


def machine_section(config: NodeConfig) -> dict[str, Any]:
    """The machine, which is constant.

    Units: bytes.
    """
    nodes = sorted(config.parts.machine.topology, key=lambda node: node.node_id)
    return {
        "cpus": sum(len(core.thread_ids) for node in nodes for core in node.cores),
        "memoryBytes": config.parts.machine.memory_capacity,
        "numa": [_numa(node) for node in nodes],
    }


def _numa(node: NUMANode) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "memoryBytes": node.memory,
        "distances": list(node.distances),
        "cpus": str(CPUSet.from_ids(id_ for core in node.cores for id_ in core.thread_ids)),
        "sockets": sorted({core.socket_id for core in node.cores}),
        "hugePages": [
            {"bytes": hugepage.page_size << 10, "count": hugepage.num_pages} for hugepage in node.hugepages
        ],
        "groups": _groups(node),
    }


def _groups(node: NUMANode) -> list[dict[str, Any]]:
    """The cores that share a socket and the cache next to memory, in the order of their first CPUs."""
    groups: dict[tuple[int, int | None], list[Core]] = {}
    for core in sorted(node.cores, key=lambda core: (min(core.thread_ids, default=0), core.core_id)):
        cache = core.uncore_caches[0].id if core.uncore_caches else None
        groups.setdefault((core.socket_id, cache), []).append(core)
    return [
        {
            "socket": socket,
            "cache": cache,
            "cacheBytes": cores[0].uncore_caches[0].size if cache is not None else 0,
            "cores": [{"id": core.core_id, "cpus": sorted(core.thread_ids)} for core in cores],
        }
        for (socket, cache), cores in groups.items()
    ]


def holdings_section(state: NodeState) -> dict[str, Any]:
    """The exclusive CPUs, memory and devices of each pod, by uid.

    Units: bytes.
    """
    left = unallocated_resources(state)
    return {
        "reservedCPUs": str(left.reserved_cpus),
        "sharedCPUs": None if left.shared_cpus is None else str(left.shared_cpus),
        "cpus": [
            {"pod": holder.pod, "container": holder.container, "cpus": str(holder.cpus)}
            for holder in state.held.cpu.holders()
            if holder.pod in state.pods and holder.cpus
        ],
        "memory": [
            {
                "numa": memory_state.numa,
                "with": [other for other in memory_state.group if other != memory_state.numa],
                "kinds": [
                    {"type": kind, "total": table.total, "allocatable": table.allocatable, "free": table.free}
                    for kind, table in sorted(
                        state.held.memory.machine[memory_state.numa].tables.items(),
                        key=lambda kind: (kind[0] != MEMORY, kind[0]),
                    )
                ],
            }
            for memory_state in left.memory
        ],
        "blocks": list(_blocks(state)),
        "devices": list(_devices(state)),
    }


def _blocks(state: NodeState) -> Iterator[dict[str, Any]]:
    held = state.held.memory
    for uid in state.pods:
        own = (
            [("", held.pods.get(uid, ()))]
            if uid in held.pods
            else list(held.assignments.get(uid, {}).items())
        )
        for container, blocks in own:
            for block in blocks:
                if block.size:
                    yield {
                        "pod": uid,
                        "container": container,
                        "type": block.resource,
                        "numa": list(block.numa),
                        "bytes": block.size,
                    }


def _devices(state: NodeState) -> Iterator[dict[str, Any]]:
    owners = {
        (resource, device): (uid, container)
        for uid, containers in state.held.devices.pod_devices.items()
        if uid in state.pods
        for container, resources in containers.items()
        for resource, devices in resources.items()
        for device in devices
    }
    for resource, listed in sorted(state.config.facts.devices.items()):
        for device in sorted(listed, key=lambda device: device.id):
            uid, container = owners.get((resource, device.id), (None, ""))
            yield {
                "resource": resource,
                "id": device.id,
                "numa": sorted(device.numa_nodes or ()),
                "healthy": device.healthy,
                "pod": uid,
                "container": container,
            }


def pods_by_exclusive_use(uids: Iterable[str], state: NodeState) -> list[str]:
    """The pods, those with exclusive resources first, so that they get the first marks."""
    held = state.held
    having = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.pod_devices}
    return sorted(uids, key=lambda uid: uid not in having)


def resources_section(state: NodeState) -> list[dict[str, Any]]:
    """The allocatable, requested and remaining amount of each resource.

    Units: cpu in thousandths, memory and storage in bytes, everything else as counts.
    """
    return [
        {
            "name": name,
            "allocatable": allocatable,
            "requested": requested,
            "texts": [
                readable_amount(name, requested),
                readable_amount(name, allocatable),
                readable_amount(name, allocatable - requested),
            ],
        }
        for name, allocatable, requested in requested_and_allocatable(state)
        if allocatable or requested
    ]


def setup_section(config: NodeConfig) -> dict[str, Any]:
    """The applied release rules, policies, labels and taints of the node."""
    kubelet = config.parts.kubelet
    settings = {
        "topology manager": f"{kubelet.topology_manager_policy}, by {kubelet.topology_manager_scope}",
        "CPU manager": kubelet.cpu_manager_policy,
        "memory manager": kubelet.memory_manager_policy,
    }
    return {
        "node": config.facts.name,
        "release": config.release.release.text,
        "rulesOf": config.release.rules_of,
        "settings": [[name, value] for name, value in settings.items()],
        "policies": policy_notices(config).splitlines(),
        "labels": dict(sorted(config.facts.labels.items())),
        "taints": [
            f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
            for taint in config.facts.taints
        ],
    }
