"""The node of a dashboard: its machine, who holds what of it, what is left, how it is set up."""

from collections.abc import Iterable, Iterator
from typing import Any

from nodewright.model.machine import Core, NUMANode
from nodewright.model.resource_names import MEMORY
from nodewright.node.config import NodeConfig
from nodewright.node.placement import left_of
from nodewright.node.state import NodeState
from nodewright.render.admission import amounts
from nodewright.render.amounts import readable
from nodewright.render.policies import policies_text
from nodewright.values.idset import CPUSet


def machine_section(config: NodeConfig) -> dict[str, Any]:
    """The machine, which does not change.

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
        "cpus": str(CPUSet.from_ids(one for core in node.cores for one in core.thread_ids)),
        "sockets": sorted({core.socket_id for core in node.cores}),
        "hugePages": [{"bytes": one.page_size << 10, "count": one.num_pages} for one in node.hugepages],
        "groups": _groups(node),
    }


def _groups(node: NUMANode) -> list[dict[str, Any]]:
    """The cores that share a socket and the cache next to memory, in the order of their first CPUs."""
    found: dict[tuple[int, int | None], list[Core]] = {}
    for core in sorted(node.cores, key=lambda one: (min(one.thread_ids, default=0), one.core_id)):
        cache = core.uncore_caches[0].id if core.uncore_caches else None
        found.setdefault((core.socket_id, cache), []).append(core)
    return [
        {
            "socket": socket,
            "cache": cache,
            "cacheBytes": cores[0].uncore_caches[0].size if cache is not None else 0,
            "cores": [{"id": one.core_id, "cpus": sorted(one.thread_ids)} for one in cores],
        }
        for (socket, cache), cores in found.items()
    ]


def holdings_section(state: NodeState) -> dict[str, Any]:
    """Who holds which CPUs, memory and devices for itself; pods are known by uid.

    Units: bytes.
    """
    left = left_of(state)
    return {
        "reservedCPUs": str(left.reserved_cpus),
        "sharedCPUs": None if left.shared_cpus is None else str(left.shared_cpus),
        "cpus": [
            {"pod": one.pod, "container": one.container, "cpus": str(one.cpus)}
            for one in state.held.cpu.holders()
            if one.pod in state.pods and one.cpus
        ],
        "memory": [
            {
                "numa": one.numa,
                "with": [other for other in one.group if other != one.numa],
                "kinds": [
                    {"type": kind, "total": table.total, "allocatable": table.allocatable, "free": table.free}
                    for kind, table in sorted(
                        state.held.memory.machine[one.numa].tables.items(),
                        key=lambda kind: (kind[0] != MEMORY, kind[0]),
                    )
                ],
            }
            for one in left.memory
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
            for one in blocks:
                if one.size:
                    yield {
                        "pod": uid,
                        "container": container,
                        "type": one.resource,
                        "numa": list(one.numa),
                        "bytes": one.size,
                    }


def _devices(state: NodeState) -> Iterator[dict[str, Any]]:
    owners = {
        (resource, device): (uid, container)
        for uid, containers in state.held.devices.held.items()
        if uid in state.pods
        for container, resources in containers.items()
        for resource, devices in resources.items()
        for device in devices
    }
    for resource, listed in sorted(state.config.facts.devices.items()):
        for device in sorted(listed, key=lambda one: one.id):
            uid, container = owners.get((resource, device.id), (None, ""))
            yield {
                "resource": resource,
                "id": device.id,
                "numa": sorted(device.numa_nodes or ()),
                "healthy": device.healthy,
                "pod": uid,
                "container": container,
            }


def holders_first(uids: Iterable[str], state: NodeState) -> list[str]:
    """The pods, those that hold something for themselves first: the plainest marks are to be theirs."""
    held = state.held
    having = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.held}
    return sorted(uids, key=lambda uid: uid not in having)


def resources_section(state: NodeState) -> list[dict[str, Any]]:
    """What pods can have, what they ask for, and what is left, a resource each.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.
    """
    return [
        {
            "name": name,
            "allocatable": has,
            "requested": used,
            "texts": [readable(name, used), readable(name, has), readable(name, has - used)],
        }
        for name, has, used in amounts(state)
        if has or used
    ]


def setup_section(config: NodeConfig) -> dict[str, Any]:
    """Whose rules are applied, and how the node is set up."""
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
        "policies": policies_text(config).splitlines(),
        "labels": dict(sorted(config.facts.labels.items())),
        "taints": [
            f"{one.key}{'=' if one.value else ''}{one.value}:{one.effect}" for one in config.facts.taints
        ],
    }
