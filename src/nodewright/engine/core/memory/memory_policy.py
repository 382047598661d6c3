"""The memory policy, the state that the memory manager starts with, and valid values for `reservedMemory`."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.memory.memory_state import (
    UINT64_MODULUS,
    Block,
    MemoryState,
    MemoryTable,
    NUMAMemory,
    NUMANodeMap,
    PodMemoryDemand,
    with_blocks,
)
from nodewright.engine.core.requests.managed_pods import DEFAULT_MANAGER_GATES, ManagerGates
from nodewright.model.hardware import HugePages, NUMANode
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import MEMORY, is_huge_page
from nodewright.model.reasons.memory import (
    MachineMemoryChanged,
    MemoryAssignedElsewhere,
    MemoryAssignedWithoutMachine,
    MemoryPolicyNotOnLinux,
    MemoryPolicyUnknown,
    MemoryTypeMissing,
    MemoryTypeNotThere,
    NoReservedMemory,
    ReservedMemoryDiffers,
    ReservedMemoryElsewhere,
    ReservedMemoryInexact,
)
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat

KIB = 1024


class Reservation(msgspec.Struct, frozen=True):
    """An entry of `reservedMemory`: the memory of one NUMA node that is reserved for the system."""

    numa: int
    limits: ResourceList


class MemorySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The memory manager's part of the kubelet configuration."""

    policy: str = "None"
    reserved: Sequence[Reservation] = ()
    node_allocatable: ResourceList = msgspec.field(default_factory=dict)
    """The sum of kube-reserved, system-reserved and the hard eviction thresholds."""
    gates: ManagerGates = DEFAULT_MANAGER_GATES
    follow_defects: bool = True


class NoneMemoryPolicy(msgspec.Struct, frozen=True):
    """No exclusive memory and no hints."""


class StaticMemoryPolicy(msgspec.Struct, frozen=True):
    """Exclusive memory for Guaranteed pods on chosen NUMA nodes.

    Follows: v1.36, memorymanager/policy_static.go, staticPolicy.
    """

    initial_machine: NUMANodeMap
    """The machine without any allocation."""
    gates: ManagerGates
    follows_defects: bool = True

    def demand(self, pod: Pod) -> PodMemoryDemand:
        """The memory that the pod requests from this policy."""
        return PodMemoryDemand.of(pod, self.gates)


MemoryPolicy: TypeAlias = NoneMemoryPolicy | StaticMemoryPolicy


def create_memory_policy(topology: Sequence[NUMANode], settings: MemorySettings) -> Verdict[MemoryPolicy]:
    """The policy of these settings on this machine, or why the kubelet does not start.

    Follows: v1.36, memorymanager/memory_manager.go, NewManager; policy_static.go, NewPolicyStatic.
    """
    if settings.policy == "None":
        return Granted(NoneMemoryPolicy())
    if settings.policy == "BestEffort":
        return Refused((MemoryPolicyNotOnLinux(policy=settings.policy),))
    if settings.policy != "Static":
        return Refused((MemoryPolicyUnknown(policy=settings.policy),))
    reserved = _reserved_bytes(topology, settings)
    if isinstance(reserved, Refused):
        return reserved
    # The sum is an unsigned 64-bit number in the kubelet, too.
    if sum(amounts.get(MEMORY, 0) for amounts in reserved.value.values()) % UINT64_MODULUS == 0:
        return Refused((NoReservedMemory(),))
    machine = _idle_machine(topology, reserved.value)
    return Granted(StaticMemoryPolicy(machine, settings.gates, settings.follow_defects))


def start_memory_manager(policy: MemoryPolicy, stored: MemoryState) -> Verdict[MemoryState]:
    """The state to start with: the stored one if it matches the machine, an empty one if nothing is stored.

    Follows: v1.36, memorymanager/policy_static.go, Start, validateState.
    Departs: iterates over pods, containers and nodes by name, where the kubelet walks maps in random order. With
        `follows_defects` off, the groups of nodes are those of the blocks: the kubelet keeps the group of a removed
        block on a single node of a group, and refuses its own state at the next start.
    """
    if isinstance(policy, NoneMemoryPolicy):
        return Granted(stored)
    if not stored.machine:
        if stored.assignments:
            return Refused((MemoryAssignedWithoutMachine(),))
        return Granted(replace(stored, machine=policy.initial_machine))
    allocated: list[Block] = []
    for pod, containers in sorted(stored.assignments.items()):
        pod_blocks = stored.pods.get(pod) if policy.gates.pod_level_managers else None
        for name, blocks in [("", pod_blocks)] if pod_blocks else sorted(containers.items()):
            fault = _misplaced(policy.initial_machine, blocks, pod, name)
            if fault is not None:
                return Refused((fault,))
            allocated += blocks
    expected = with_blocks(policy.initial_machine, *allocated)
    machine = stored.machine if policy.follows_defects else _regrouped(stored.machine, expected)
    difference = _difference(machine, expected)
    return Refused((difference,)) if difference else Granted(replace(stored, machine=machine))


def allocatable_memory(machine: NUMANodeMap) -> tuple[Block, ...]:
    """The allocatable memory by NUMA node and kind; kinds without a byte are left out.

    Follows: v1.36, memorymanager/policy_static.go, GetAllocatableMemory.
    """
    return tuple(
        Block((numa,), kind, table.allocatable)
        for numa, node in sorted(machine.items())
        for kind, table in sorted(node.tables.items())
        if table.allocatable
    )


def huge_pages_name(pages: HugePages) -> str:
    """The resource name of pages of this size, e.g. `hugepages-2Mi`."""
    return f"hugepages-{Quantity.of(pages.page_size * KIB, QuantityFormat.BINARY_SI)}"


def _reserved_bytes(
    topology: Sequence[NUMANode], settings: MemorySettings
) -> Verdict[Mapping[int, Mapping[str, int]]]:
    """The reservation by NUMA node and kind of memory; the last entry for a node counts.

    Follows: v1.36, memorymanager/memory_manager.go, validateReservedMemory, convertReserved.
    """
    reserved: dict[int, dict[str, int]] = {node.node_id: {} for node in topology}
    sums: dict[str, Quantity] = {}
    for entry in settings.reserved:
        if entry.numa not in reserved:
            return Refused((ReservedMemoryElsewhere(numa=entry.numa),))
        for kind, amount in entry.limits.items():
            sums[kind] = amount + sums[kind] if kind in sums else amount
    node_kinds = {kind for kind in settings.node_allocatable if kind == MEMORY or is_huge_page(kind)}
    for kind in sorted(sums.keys() | node_kinds):
        over_numa, over_node = (
            Quantity.of(0) + amounts.get(kind, ZERO) for amounts in (sums, settings.node_allocatable)
        )
        if over_numa != over_node:
            difference = ReservedMemoryDiffers(resource=kind, over_numa=over_numa, node_allocatable=over_node)
            return Refused((difference,))
    for entry in settings.reserved:
        for kind, amount in entry.limits.items():
            size = amount.as_int64()
            if size is None:
                return Refused((ReservedMemoryInexact(numa=entry.numa, resource=kind, amount=amount),))
            reserved[entry.numa][kind] = size % UINT64_MODULUS
    return Granted(reserved)


def _idle_machine(topology: Sequence[NUMANode], reserved: Mapping[int, Mapping[str, int]]) -> NUMANodeMap:
    """The tables of a machine without any allocation; reserving more than the total wraps around.

    Follows: v1.36, memorymanager/policy_static.go, getDefaultMachineState.
    """
    machine = {}
    for node in topology:
        node_reserved, tables, in_huge_pages = reserved[node.node_id], {}, 0
        for pages in node.hugepages:
            kind = huge_pages_name(pages)
            total = pages.num_pages * pages.page_size * KIB % UINT64_MODULUS
            tables[kind] = _idle_table(total, node_reserved.get(kind, 0), 0)
            in_huge_pages += total
        tables[MEMORY] = _idle_table(node.memory, node_reserved.get(MEMORY, 0), in_huge_pages)
        machine[node.node_id] = NUMAMemory(0, NUMASet.of(node.node_id), tables)
    return machine


def _idle_table(total: int, system_reserved: int, in_huge_pages: int) -> MemoryTable:
    allocatable = (total - system_reserved - in_huge_pages) % UINT64_MODULUS
    return MemoryTable(total, system_reserved, allocatable, reserved=0, free=allocatable)


def _misplaced(
    machine: NUMANodeMap, blocks: Sequence[Block], pod: str, container: str
) -> MemoryAssignedElsewhere | MemoryTypeNotThere | None:
    for block in blocks:
        for numa in block.numa:
            if numa not in machine:
                return MemoryAssignedElsewhere(pod=pod, container=container, numa=numa)
            if block.resource not in machine[numa].tables:
                return MemoryTypeNotThere(pod=pod, container=container, numa=numa, resource=block.resource)
    return None


def _regrouped(stored: NUMANodeMap, expected: NUMANodeMap) -> NUMANodeMap:
    return {
        numa: replace(node, cells=expected[numa].cells) if numa in expected else node
        for numa, node in stored.items()
    }


def _difference(stored: NUMANodeMap, expected: NUMANodeMap) -> Reason | None:
    """The first difference that matters; free and reserved memory are compared by group of nodes only.

    Follows: v1.36, memorymanager/policy_static.go, areMachineStatesEqual.
    """
    for numa in sorted(stored.keys() | expected.keys()):
        if numa not in stored or numa not in expected:
            return _changed(numa, "NUMA node", numa in stored, numa in expected)
        stored_node, expected_node = stored[numa], expected[numa]
        comparisons: list[tuple[str, object, object]] = [
            ("number of assignments", stored_node.assignments, expected_node.assignments),
            ("group", stored_node.cells, expected_node.cells),
            ("kinds of memory", sorted(stored_node.tables), sorted(expected_node.tables)),
        ]
        for what, stored_value, expected_value in comparisons:
            if stored_value != expected_value:
                return _changed(numa, what, stored_value, expected_value)
        for kind in sorted(stored_node.tables):
            difference = _table_difference(stored, expected, numa, kind)
            if difference:
                return difference
    return None


def _table_difference(stored: NUMANodeMap, expected: NUMANodeMap, numa: int, kind: str) -> Reason | None:
    stored_table, expected_table = stored[numa].tables[kind], expected[numa].tables[kind]
    for field_name in ("total", "system_reserved", "allocatable"):
        stored_value, expected_value = getattr(stored_table, field_name), getattr(expected_table, field_name)
        if stored_value != expected_value:
            return _changed(numa, f"{kind} {field_name}", stored_value, expected_value)
    group = list(stored[numa].cells)
    for machine in (stored, expected):
        for other in group:
            if other not in machine or kind not in machine[other].tables:
                return MemoryTypeMissing(numa=other, resource=kind)
    for field_name in ("free", "reserved"):
        stored_value, expected_value = (
            sum(getattr(machine[other].tables[kind], field_name) for other in group) % UINT64_MODULUS
            for machine in (stored, expected)
        )
        if stored_value != expected_value:
            return _changed(numa, f"{kind} {field_name} of the group", stored_value, expected_value)
    return None


def _changed(numa: int, what: str, stored: object, expected: object) -> MachineMemoryChanged:
    return MachineMemoryChanged(numa=numa, what=what, stored=str(stored), expected=str(expected))


def valid_reservations(
    topology: Sequence[NUMANode], node_allocatable: ResourceList, current: Sequence[Reservation] = ()
) -> tuple[Reservation, ...] | None:
    """`reservedMemory` that adds up to the node's reservation, as close to the current one as possible.

    A missing amount is added to the first NUMA nodes with room, an excess is taken from the last ones.
    None: nothing is reserved, or an amount is not a whole number of bytes.

    Follows: v1.36, memorymanager/memory_manager.go, validateReservedMemory.
    """
    kinds = [kind for kind in node_allocatable if kind == MEMORY or is_huge_page(kind)]
    totals = {kind: node_allocatable[kind].as_int64() for kind in sorted(kinds)}
    if not totals.get(MEMORY):
        return None
    reserved: dict[int, dict[str, Quantity]] = {node.node_id: {} for node in topology}
    for kind, amount in totals.items():
        if amount is None:
            return None
        capacity = {node.node_id: _capacity(node, kind) for node in topology}
        for numa, share in _shares(amount, capacity, _reserved_by_node(current, kind)).items():
            reserved[numa][kind] = Quantity.of(share, QuantityFormat.BINARY_SI)
    return tuple(Reservation(numa, limits) for numa, limits in sorted(reserved.items()) if limits)


def _reserved_by_node(reservations: Sequence[Reservation], kind: str) -> Mapping[int, int]:
    """The reservation of each NUMA node in bytes."""
    return {entry.numa: entry.limits.get(kind, ZERO).value() for entry in reservations}


def _capacity(node: NUMANode, kind: str) -> int:
    pages = {
        huge_pages_name(hugepage): hugepage.num_pages * hugepage.page_size * KIB
        for hugepage in node.hugepages
    }
    return max(node.memory - sum(pages.values()), 0) if kind == MEMORY else pages.get(kind, 0)


def _shares(amount: int, capacity: Mapping[int, int], current: Mapping[int, int]) -> dict[int, int]:
    """The amount divided among the NUMA nodes, without zeros; what fits nowhere is added to the first node."""
    shares = {numa: min(max(current.get(numa, 0), 0), size) for numa, size in sorted(capacity.items())}
    missing = amount - sum(shares.values())
    for numa in shares if missing > 0 else reversed(shares):
        moved = min(missing, capacity[numa] - shares[numa]) if missing > 0 else max(missing, -shares[numa])
        shares[numa] += moved
        missing -= moved
    if missing and shares:
        shares[min(shares)] += missing
    return {numa: share for numa, share in shares.items() if share}
