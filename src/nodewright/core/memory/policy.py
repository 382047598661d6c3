"""The memory manager as it is configured, and the state that it starts on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.core.memory.state import Block, Machine, MemoryState, MemoryTable, NUMAMemory, with_block
from nodewright.core.memory.wants import DEFAULT_MEMORY_GATES, WORD, MemoryGates, MemoryWants
from nodewright.model.machine import HugePages, NUMANode
from nodewright.model.memory_reasons import (
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
from nodewright.model.objects import Pod, ResourceList
from nodewright.model.reasons import Reason
from nodewright.model.resource_names import MEMORY, is_huge_page
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet
from nodewright.values.quantity import ZERO, Format, Quantity

KIB = 1024


@dataclass(frozen=True, slots=True)
class Reservation:
    """An entry of `reservedMemory`: what of one NUMA node is the system's."""

    numa: int
    limits: ResourceList


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """What the kubelet's configuration says about memory."""

    policy: str = "None"
    reserved: Sequence[Reservation] = ()
    node_allocatable: ResourceList = field(default_factory=dict)
    """What kube-reserved, system-reserved and hard eviction reserve together."""
    gates: MemoryGates = DEFAULT_MEMORY_GATES


@dataclass(frozen=True, slots=True)
class NonePolicy:
    """No container gets memory of its own, and there are no hints."""


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """The memory of Guaranteed pods is set aside on chosen NUMA nodes.

    Follows: v1.36, memorymanager/policy_static.go, staticPolicy.
    """

    idle: Machine
    """The machine when nothing is placed."""
    gates: MemoryGates

    def wants(self, pod: Pod) -> MemoryWants:
        """What the pod asks of this policy."""
        return MemoryWants.of(pod, self.gates)


MemoryPolicy: TypeAlias = NonePolicy | StaticPolicy


def create_policy(topology: Sequence[NUMANode], settings: MemorySettings) -> Verdict[MemoryPolicy]:
    """The policy that the settings make on this machine, or why the kubelet does not start.

    Follows: v1.36, memorymanager/memory_manager.go, NewManager; policy_static.go, NewPolicyStatic.
    """
    if settings.policy == "None":
        return Granted(NonePolicy())
    if settings.policy == "BestEffort":
        return Refused((MemoryPolicyNotOnLinux(policy=settings.policy),))
    if settings.policy != "Static":
        return Refused((MemoryPolicyUnknown(policy=settings.policy),))
    reserved = _reserved_bytes(topology, settings)
    if isinstance(reserved, Refused):
        return reserved
    # The sum is an unsigned 64-bit number there, too.
    if sum(amounts.get(MEMORY, 0) for amounts in reserved.value.values()) % WORD == 0:
        return Refused((NoReservedMemory(),))
    return Granted(StaticPolicy(_idle_machine(topology, reserved.value), settings.gates))


def start(policy: MemoryPolicy, stored: MemoryState) -> Verdict[MemoryState]:
    """The state to begin with: the stored one if it fits the machine, a fresh one if nothing is stored.

    Follows: v1.36, memorymanager/policy_static.go, Start, validateState.
    Departs: goes through pods, containers and nodes by name, where the kubelet walks maps in random order.
    """
    if isinstance(policy, NonePolicy):
        return Granted(stored)
    if not stored.machine:
        if stored.assignments:
            return Refused((MemoryAssignedWithoutMachine(),))
        return Granted(replace(stored, machine=policy.idle))
    expected = policy.idle
    for pod, containers in sorted(stored.assignments.items()):
        whole = stored.pods.get(pod) if policy.gates.pod_level_managers else None
        for name, blocks in [("", whole)] if whole else sorted(containers.items()):
            placed = _with_stored(expected, blocks, pod, name)
            if isinstance(placed, Refused):
                return placed
            expected = placed.value
    fault = _difference(stored.machine, expected)
    return Refused((fault,)) if fault else Granted(stored)


def allocatable_memory(machine: Machine) -> tuple[Block, ...]:
    """What containers can have of each kind on each NUMA node; kinds without a byte are left out.

    Follows: v1.36, memorymanager/policy_static.go, GetAllocatableMemory.
    """
    return tuple(
        Block((numa,), kind, table.allocatable)
        for numa, node in sorted(machine.items())
        for kind, table in sorted(node.tables.items())
        if table.allocatable
    )


def huge_pages_name(pages: HugePages) -> str:
    """The resource that pages of this size are, e.g. `hugepages-2Mi`."""
    return f"hugepages-{Quantity.of(pages.page_size * KIB, Format.BINARY_SI)}"


def _reserved_bytes(
    topology: Sequence[NUMANode], settings: MemorySettings
) -> Verdict[Mapping[int, Mapping[str, int]]]:
    """The reservation by NUMA node and kind of memory; of a node listed twice the last entry counts.

    Follows: v1.36, memorymanager/memory_manager.go, validateReservedMemory, convertReserved.
    """
    reserved: dict[int, dict[str, int]] = {node.node_id: {} for node in topology}
    sums: dict[str, Quantity] = {}
    for entry in settings.reserved:
        if entry.numa not in reserved:
            return Refused((ReservedMemoryElsewhere(numa=entry.numa),))
        for kind, amount in entry.limits.items():
            sums[kind] = amount + sums[kind] if kind in sums else amount
    others = {kind for kind in settings.node_allocatable if kind == MEMORY or is_huge_page(kind)}
    for kind in sorted(sums.keys() | others):
        ours, theirs = (Quantity.of(0) + one.get(kind, ZERO) for one in (sums, settings.node_allocatable))
        if ours != theirs:
            return Refused((ReservedMemoryDiffers(resource=kind, over_numa=ours, node_allocatable=theirs),))
    for entry in settings.reserved:
        for kind, amount in entry.limits.items():
            size = amount.as_int64()
            if size is None:
                return Refused((ReservedMemoryInexact(numa=entry.numa, resource=kind, amount=amount),))
            reserved[entry.numa][kind] = size % WORD
    return Granted(reserved)


def _idle_machine(topology: Sequence[NUMANode], reserved: Mapping[int, Mapping[str, int]]) -> Machine:
    """The tables of a machine on which nothing is placed; reserving more than there is wraps around.

    Follows: v1.36, memorymanager/policy_static.go, getDefaultMachineState.
    """
    machine = {}
    for node in topology:
        own, tables, in_huge_pages = reserved[node.node_id], {}, 0
        for pages in node.hugepages:
            kind = huge_pages_name(pages)
            total = pages.num_pages * pages.page_size * KIB % WORD
            tables[kind] = _idle_table(total, own.get(kind, 0), 0)
            in_huge_pages += total
        tables[MEMORY] = _idle_table(node.memory, own.get(MEMORY, 0), in_huge_pages)
        machine[node.node_id] = NUMAMemory(0, NUMASet.of(node.node_id), tables)
    return machine


def _idle_table(total: int, system_reserved: int, elsewhere: int) -> MemoryTable:
    allocatable = (total - system_reserved - elsewhere) % WORD
    return MemoryTable(total, system_reserved, allocatable, reserved=0, free=allocatable)


def _with_stored(machine: Machine, blocks: Sequence[Block], pod: str, container: str) -> Verdict[Machine]:
    for block in blocks:
        for numa in block.numa:
            if numa not in machine:
                return Refused((MemoryAssignedElsewhere(pod=pod, container=container, numa=numa),))
            if block.resource not in machine[numa].tables:
                fault = MemoryTypeNotThere(pod=pod, container=container, numa=numa, resource=block.resource)
                return Refused((fault,))
        machine = with_block(machine, block)
    return Granted(machine)


def _difference(stored: Machine, expected: Machine) -> Reason | None:
    """The first difference that counts; free and reserved memory count by group of nodes only.

    Follows: v1.36, memorymanager/policy_static.go, areMachineStatesEqual.
    """
    for numa in sorted(stored.keys() | expected.keys()):
        if numa not in stored or numa not in expected:
            return _changed(numa, "NUMA node", numa in stored, numa in expected)
        left, right = stored[numa], expected[numa]
        facts: list[tuple[str, object, object]] = [
            ("number of assignments", left.assignments, right.assignments),
            ("group", left.cells, right.cells),
            ("kinds of memory", sorted(left.tables), sorted(right.tables)),
        ]
        for what, ours, theirs in facts:
            if ours != theirs:
                return _changed(numa, what, ours, theirs)
        for kind in sorted(left.tables):
            fault = _table_difference(stored, expected, numa, kind)
            if fault:
                return fault
    return None


def _table_difference(stored: Machine, expected: Machine, numa: int, kind: str) -> Reason | None:
    left, right = stored[numa].tables[kind], expected[numa].tables[kind]
    for field_name in ("total", "system_reserved", "allocatable"):
        ours, theirs = getattr(left, field_name), getattr(right, field_name)
        if ours != theirs:
            return _changed(numa, f"{kind} {field_name}", ours, theirs)
    group = list(stored[numa].cells)
    for machine in (stored, expected):
        for other in group:
            if other not in machine or kind not in machine[other].tables:
                return MemoryTypeMissing(numa=other, resource=kind)
    for field_name in ("free", "reserved"):
        ours, theirs = (
            sum(getattr(machine[other].tables[kind], field_name) for other in group) % WORD
            for machine in (stored, expected)
        )
        if ours != theirs:
            return _changed(numa, f"{kind} {field_name} of the group", ours, theirs)
    return None


def _changed(numa: int, what: str, ours: object, theirs: object) -> MachineMemoryChanged:
    return MachineMemoryChanged(numa=numa, what=what, stored=str(ours), expected=str(theirs))
