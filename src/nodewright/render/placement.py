"""What pods hold for themselves and what is left of the node, as tables and as documents."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from nodewright.core.memory.state import Block
from nodewright.model.hints import Hint
from nodewright.model.objects import Pod
from nodewright.model.resource_names import MEMORY
from nodewright.node.placement import ContainerPlacement, Left, Placement, left_of, placement_of
from nodewright.node.state import NodeState
from nodewright.render.amounts import readable
from nodewright.render.tables import table
from nodewright.values.idset import CPUSet, NUMASet

NOTHING = "-"

Row: TypeAlias = tuple[str, ...]
Placed: TypeAlias = tuple[Pod, Placement | None]
"""A pod and what it was given; None: it is not taken."""

_HELD = ("POD", "CONTAINER", "CPUS", "NUMA", "MEMORY", "DEVICES")
_LEFT = ("NUMA", "SHARED CPUS", "RESERVED", "FREE MEMORY", "TOGETHER WITH", "FREE DEVICES")


def placement_texts(placed: Sequence[Placed], after: NodeState, *, wide: bool) -> list[str]:
    """What the pods hold, and what is left on each NUMA node: a table each, none where there is nothing to tell.

    Wide: with the other pods of the node, and with the ids of free devices.
    """
    if wide:
        judged = {pod.uid for pod, _ in placed}
        others = [pod for uid, pod in after.pods.items() if uid not in judged]
        placed = [*((pod, placement_of(after, pod)) for pod in others), *placed]
    held = [row for pod, placement in placed if placement is not None for row in _rows(pod, placement)]
    left = list(_left_rows(after, wide=wide))
    return [_without_empty_columns(headers, rows) for headers, rows in ((_HELD, held), (_LEFT, left)) if rows]


def placement_document(placement: Placement) -> dict[str, Any]:
    """What a pod holds as a document; containers are as `spec.allocations` of a NodeProfile has them, and more.

    Units: sizes in bytes.
    """
    document: dict[str, Any] = {"containers": [_container_document(one) for one in placement.containers]}
    if placement.cpus is not None:
        document["podCPUs"] = str(placement.cpus)
    if placement.memory is not None:
        document["podMemory"] = _block_documents(placement.memory)
    return document


def left_document(after: NodeState) -> dict[str, Any]:
    """What nobody has for himself, as members of a document: `sharedCPUs`, `freeDevices`, `freeMemory`.

    Units: sizes in bytes.
    """
    left = left_of(after)
    document: dict[str, Any] = {}
    if left.shared_cpus is not None:
        document |= {"sharedCPUs": str(left.shared_cpus), "reservedCPUs": str(left.reserved_cpus)}
    document["freeDevices"] = {resource: list(devices) for resource, devices in left.devices.items()}
    if left.memory:
        document["freeMemory"] = [
            {"numaNode": one.numa, "group": list(one.group), "free": dict(one.free)} for one in left.memory
        ]
    return document


def _container_document(one: ContainerPlacement) -> dict[str, Any]:
    document: dict[str, Any] = {"container": one.name, "cpus": None if one.cpus is None else str(one.cpus)}
    if one.hint is not None:
        numa = one.hint.numa
        document |= {"numa": None if numa is None else list(numa), "preferred": one.hint.preferred}
    document["memory"] = _block_documents(one.memory)
    document["devices"] = {resource: list(devices) for resource, devices in one.devices.items()}
    return document


def _block_documents(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    return [{"numaNodes": list(one.numa), "type": one.resource, "size": one.size} for one in blocks]


# ---------------------------------------------------------------- what pods hold


def _rows(pod: Pod, placement: Placement) -> Iterator[Row]:
    if placement.cpus or placement.memory:
        cpus = _cpus(placement.cpus)
        yield pod.full_name, "(the whole pod)", cpus, NOTHING, _memory(placement.memory or ()), NOTHING
    for one in placement.containers:
        if one.holds_anything:
            yield (
                pod.full_name,
                one.name,
                _cpus(one.cpus),
                _hint(one.hint),
                _memory(one.memory),
                _devices(one),
            )


def _cpus(cpus: CPUSet | None) -> str:
    return str(cpus) if cpus else NOTHING


def _hint(hint: Hint | None) -> str:
    if hint is None:
        return NOTHING
    where = "any" if hint.numa is None else str(hint.numa)
    return where if hint.preferred or hint.numa is None else f"{where} (not preferred)"


def _memory(blocks: Sequence[Block]) -> str:
    """The blocks with the NUMA nodes that they are on; without those that init containers left to others."""
    return ", ".join(
        f"{_kind(block.resource)}{readable(MEMORY, block.size)} on {NUMASet.from_ids(block.numa)}"
        for block in blocks
        if block.size
    ) or NOTHING  # fmt: skip


def _kind(resource: str) -> str:
    return "" if resource == MEMORY else f"{resource} "


def _devices(container: ContainerPlacement) -> str:
    parts = (f"{resource}={','.join(devices)}" for resource, devices in container.devices.items() if devices)
    return " ".join(parts) or NOTHING


def _without_empty_columns(headers: Row, rows: Sequence[Row]) -> str:
    kept = [at for at in range(len(headers)) if any(row[at] != NOTHING for row in rows)]
    return table([headers[at] for at in kept], [[row[at] for at in kept] for row in rows])


# ---------------------------------------------------------------- what is left


def _left_rows(after: NodeState, *, wide: bool) -> Iterator[Row]:
    """A row for each NUMA node that has anything, then devices of several nodes and of none."""
    left = left_of(after)
    memory = {one.numa: one for one in left.memory}
    devices = _devices_by_place(after, left)
    for node in sorted(after.config.parts.machine.topology, key=lambda node: node.node_id):
        own = CPUSet.from_ids(thread for core in node.cores for thread in core.thread_ids)
        rest = memory.get(node.node_id)
        group = rest.group - NUMASet.of(node.node_id) if rest else NUMASet()
        row = (
            str(node.node_id),
            NOTHING if left.shared_cpus is None else _cpus(left.shared_cpus & own),
            _cpus(left.reserved_cpus & own) if wide else NOTHING,
            _free_memory(rest.free) if rest else NOTHING,
            str(group) or NOTHING,
            _free_devices(devices.pop(str(node.node_id), {}), wide=wide),
        )
        if any(cell != NOTHING for cell in row[1:]):
            yield row
    for place, found in sorted(devices.items()):
        yield place, NOTHING, NOTHING, NOTHING, NOTHING, _free_devices(found, wide=wide)


def _free_memory(free: Any) -> str:
    kinds = sorted(free, key=lambda kind: (kind != MEMORY, kind))
    return ", ".join(f"{_kind(kind)}{readable(MEMORY, free[kind])}" for kind in kinds)


def _free_devices(found: dict[str, list[str]], *, wide: bool) -> str:
    parts = (
        f"{resource}={','.join(ids) or NOTHING}" if wide else f"{len(ids)} {resource}"
        for resource, ids in sorted(found.items())
    )
    return (" " if wide else ", ").join(parts) or NOTHING


def _devices_by_place(after: NodeState, left: Left) -> dict[str, dict[str, list[str]]]:
    """The free devices by NUMA nodes and resource; resources of which none is free there are empty."""
    found: dict[str, dict[str, list[str]]] = {}
    for resource, devices in after.config.facts.devices.items():
        free = set(left.devices.get(resource, ()))
        for device in sorted(devices, key=lambda one: one.id):
            place = str(NUMASet.from_ids(device.numa_nodes or ())) or NOTHING
            ids = found.setdefault(place, {}).setdefault(resource, [])
            if device.id in free:
                ids.append(device.id)
    return found
