"""Tables of pods' exclusive allocations, of a node's free resources, and of its allocatable amounts."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from nodewright.documents.output.text_layout import table
from nodewright.engine.core.allocatable import AllocatableDerivation
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import (
    ContainerPlacement,
    Placement,
    UnallocatedResources,
    placement_of,
    unallocated_resources,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY, readable_amount
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.topology_hints import Hint

NOTHING = "-"

Row: TypeAlias = tuple[str, ...]
PodPlacements: TypeAlias = tuple[Pod, Placement | None]
"""A pod and its allocations; None: the pod is not admitted."""

_ALLOCATED_HEADERS = ("POD", "CONTAINER", "CPUS", "NUMA", "MEMORY", "DEVICES")
_FREE_HEADERS = ("NUMA", "SHARED CPUS", "RESERVED", "FREE MEMORY", "TOGETHER WITH", "FREE DEVICES")


def placement_tables(placements: Sequence[PodPlacements], after: NodeState, *, wide: bool) -> list[str]:
    """A table of the pods' allocations and one of each NUMA node's free resources; empty tables are left out.

    ``wide`` adds the other pods of the node and the ids of free devices.
    """
    if wide:
        judged = {pod.uid for pod, _ in placements}
        other_pods = [pod for uid, pod in after.pods.items() if uid not in judged]
        placements = [*((pod, placement_of(after, pod)) for pod in other_pods), *placements]
    allocated_rows = [
        row for pod, placement in placements if placement is not None for row in _rows(pod, placement)
    ]
    free_rows = list(_free_rows(after, wide=wide))
    return [
        _without_empty_columns(headers, rows)
        for headers, rows in ((_ALLOCATED_HEADERS, allocated_rows), (_FREE_HEADERS, free_rows))
        if rows
    ]


# ---------------------------------------------------------------- allocations


def _rows(pod: Pod, placement: Placement) -> Iterator[Row]:
    if placement.cpus or placement.memory:
        cpus = _cpus(placement.cpus)
        yield pod.full_name, "(the whole pod)", cpus, NOTHING, _memory(placement.memory or ()), NOTHING
    for container in placement.containers:
        if container.holds_anything:
            yield (
                pod.full_name,
                container.name,
                _cpus(container.cpus),
                _hint(container.hint),
                _memory(container.memory),
                _devices(container),
            )


def holding_sentences(placement: Placement) -> Iterator[str]:
    """What each container holds exclusively, one sentence each."""
    for container in placement.containers:
        parts = {
            "CPUs": _cpus(container.cpus),
            "memory": _memory(container.memory),
            "devices": _devices(container),
        }
        held = [f"{name} {text}" for name, text in parts.items() if text != NOTHING]
        if held:
            yield f"container {container.name} holds {'; '.join(held)}"


def _cpus(cpus: CPUSet | None) -> str:
    return str(cpus) if cpus else NOTHING


def _hint(hint: Hint | None) -> str:
    if hint is None:
        return NOTHING
    where = "any" if hint.numa is None else str(hint.numa)
    return where if hint.preferred or hint.numa is None else f"{where} (not preferred)"


def _memory(blocks: Sequence[Block]) -> str:
    """The blocks with their NUMA nodes; without the blocks of init containers that later containers reuse."""
    return ", ".join(
        f"{_kind(block.resource)}{readable_amount(MEMORY, block.size)} on {NUMASet.from_ids(block.numa)}"
        for block in blocks
        if block.size
    ) or NOTHING  # fmt: skip


def _kind(resource: str) -> str:
    return "" if resource == MEMORY else f"{resource} "


def _devices(container: ContainerPlacement) -> str:
    parts = (f"{resource}={','.join(devices)}" for resource, devices in container.devices.items() if devices)
    return " ".join(parts) or NOTHING


def _without_empty_columns(headers: Row, rows: Sequence[Row]) -> str:
    columns = [index for index in range(len(headers)) if any(row[index] != NOTHING for row in rows)]
    return table([headers[index] for index in columns], [[row[index] for index in columns] for row in rows])


# ---------------------------------------------------------------- free resources


def _free_rows(after: NodeState, *, wide: bool) -> Iterator[Row]:
    """A row for each NUMA node with free resources, then devices of several nodes and of none."""
    free = unallocated_resources(after)
    memory = {numa_memory.numa: numa_memory for numa_memory in free.memory}
    devices = _devices_by_place(after, free)
    for node in sorted(after.config.parts.machine.topology, key=lambda node: node.node_id):
        node_cpus = CPUSet.from_ids(thread for core in node.cores for thread in core.thread_ids)
        node_memory = memory.get(node.node_id)
        group = node_memory.group - NUMASet.of(node.node_id) if node_memory else NUMASet()
        row = (
            str(node.node_id),
            NOTHING if free.shared_cpus is None else _cpus(free.shared_cpus & node_cpus),
            _cpus(free.reserved_cpus & node_cpus) if wide else NOTHING,
            _free_memory(node_memory.free) if node_memory else NOTHING,
            str(group) or NOTHING,
            _free_devices(devices.pop(str(node.node_id), {}), wide=wide),
        )
        if any(cell != NOTHING for cell in row[1:]):
            yield row
    for place, resource_devices in sorted(devices.items()):
        yield place, NOTHING, NOTHING, NOTHING, NOTHING, _free_devices(resource_devices, wide=wide)


def _free_memory(free: Any) -> str:
    kinds = sorted(free, key=lambda kind: (kind != MEMORY, kind))
    return ", ".join(f"{_kind(kind)}{readable_amount(MEMORY, free[kind])}" for kind in kinds)


def _free_devices(free: dict[str, list[str]], *, wide: bool) -> str:
    parts = (
        f"{resource}={','.join(ids) or NOTHING}" if wide else f"{len(ids)} {resource}"
        for resource, ids in sorted(free.items())
    )
    return (" " if wide else ", ").join(parts) or NOTHING


def _devices_by_place(after: NodeState, unallocated: UnallocatedResources) -> dict[str, dict[str, list[str]]]:
    """The free devices by NUMA nodes and resource; a resource without free devices has an empty list."""
    by_place: dict[str, dict[str, list[str]]] = {}
    for resource, devices in after.config.facts.devices.items():
        free = set(unallocated.devices.get(resource, ()))
        for device in sorted(devices, key=lambda listed: listed.id):
            place = str(NUMASet.from_ids(device.numa_nodes or ())) or NOTHING
            ids = by_place.setdefault(place, {}).setdefault(resource, [])
            if device.id in free:
                ids.append(device.id)
    return by_place


_COLUMNS = (
    ("KUBE-RESERVED", "kube_reserved"),
    ("SYSTEM-RESERVED", "system_reserved"),
    ("EVICTION-HARD", "eviction_hard"),
    ("HUGE-PAGES", "huge_pages"),
    ("UNAVAILABLE", "unavailable"),
)


def allocatable_table(derivations: Sequence[AllocatableDerivation]) -> str:
    """For each resource the capacity, the reservations and the allocatable amount; empty columns are left out.

    A star marks amounts that would be negative and count as zero.

    >>> from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
    >>> from nodewright.engine.core.allocatable import node_resources
    >>> from nodewright.model.hardware.machine_info import MachineInfo
    >>> resources = node_resources(MachineInfo(num_cores=2, memory_capacity=2**30), 0, KubeletConfiguration())
    >>> print(allocatable_table(resources.derivations), end="")
    RESOURCE            CAPACITY   EVICTION-HARD   ALLOCATABLE
    cpu                 2          -               2
    ephemeral-storage   0          -               0
    memory              1Gi        100Mi           924Mi
    pods                110        -               110
    """
    shown = [(title, name) for title, name in _COLUMNS if any(_amount(row, name) for row in derivations)]
    rows = [
        (
            row.resource,
            str(row.capacity),
            *(_cell(_amount(row, name)) for _, name in shown),
            f"{row.allocatable}{'*' if row.is_over_reserved else ''}",
        )
        for row in derivations
    ]
    return table(("RESOURCE", "CAPACITY", *(title for title, _ in shown), "ALLOCATABLE"), rows)


def _amount(row: AllocatableDerivation, name: str) -> Quantity | None:
    amount: Quantity = getattr(row, name)
    return None if amount.is_zero() else amount


def _cell(amount: Quantity | None) -> str:
    return "-" if amount is None else str(amount)
