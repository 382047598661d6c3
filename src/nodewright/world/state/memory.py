"""`memory_manager_state`: the memory of each NUMA node, and who holds how much of it."""

from dataclasses import dataclass
from typing import Any

from nodewright.core.memory.state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.state_reasons import (
    FormatTried,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import LARGEST_ID, NUMASet
from nodewright.world.errors import Fault, InputError
from nodewright.world.state.formats import CHECKSUM_FIELD, Format
from nodewright.world.state.gotypes import (
    INT,
    RESOURCE_NAME,
    TEXT,
    UINT64,
    Field,
    ListOf,
    MapOf,
    Pointer,
    Struct,
    zero,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStateReading:
    """How a kubelet reads the file."""

    path: str
    policy: str
    pod_level: bool = False
    """Whether the gate PodLevelResourceManagers is on."""


def memory_state_file(state: MemoryState, policy: str, *, pod_level: bool = False) -> bytes:
    """The file as the kubelet writes it.

    One that names a pod without blocks the kubelet does not take back: it is left out there as an empty list,
    and comes back as none, which has another checksum.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, storeState.

    >>> memory_state_file(MemoryState(), "None").decode()
    '{"policyName":"None","machineState":{},"checksum":4236770233}'
    """
    return (_V2 if pod_level else _V1).written(content_of(state, policy))


def memory_state_hashed(state: MemoryState, policy: str, *, pod_level: bool = False) -> str:
    """The text that the file's checksum is taken of."""
    return (_V2 if pod_level else _V1).hashed_text(content_of(state, policy))


def read_memory_state(content: bytes, reading: MemoryStateReading) -> Verdict[MemoryState]:
    """What the file says, or why the kubelet does not start with it. It is left as it is.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, restoreState.
    Departs: null in place of a NUMA node is told as the crash that the static policy comes to; under the
        policy None nobody looks at it.
    Errors:  InputError for NUMA nodes below 0 or beyond 65535, which the kubelet would take.
    """
    found = _loaded(content, reading)
    if isinstance(found, Refused):
        return found
    value = found.value
    if value["PolicyName"] != reading.policy:
        differs = StatePolicyDiffers(
            file=StateFile.MEMORY, path=reading.path, configured=reading.policy, written=value["PolicyName"]
        )
        return Refused((differs,))
    machine = value["MachineState"] or {}
    for numa, node in sorted(machine.items()):
        for kind, table in sorted((node["MemoryMap"] or {}).items()) if node else (("", None),):
            if table is None:
                return Refused((StateEntryNull(path=reading.path, numa=numa, resource=kind),))
    return Granted(_restored(value, machine))


def _restored(value: dict[str, Any], machine: dict[int, Any]) -> MemoryState:
    return MemoryState(
        {_numa(numa): _node(machine[numa]) for numa in sorted(machine)},
        {
            pod: {name: _blocks(blocks) for name, blocks in sorted((containers or {}).items())}
            for pod, containers in sorted((value["Entries"] or {}).items())
        },
        {
            pod: _blocks(entry["MemoryBlocks"])
            for pod, entry in sorted((value.get("PodEntries") or {}).items())
        },
    )


def _loaded(content: bytes, reading: MemoryStateReading) -> Verdict[dict[str, Any]]:
    """The file's content in the newest format that the gate allows; what its failed reading left of pods stays.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, migrateV1CheckpointToV2Checkpoint.
    """
    tried: list[FormatTried] = []
    newest = {**zero(_V2.kind), "MachineState": {}, "Entries": {}, "PodEntries": {}}
    if reading.pod_level:
        failed = _V2.load(content, newest)
        if failed is None:
            return Granted(newest)
        tried.append(failed)
    value = {**zero(_V1.kind), "MachineState": {}, "Entries": {}}
    # A kubelet without pod-level managers takes the checksum under the older name, too.
    failed = _V1.load(content, value, () if reading.pod_level else (_V1.kind.name,))
    if failed is not None:
        damaged = StateFileDamaged(file=StateFile.MEMORY, path=reading.path, tried=(*tried, failed))
        return Refused((damaged,))
    if not reading.pod_level:
        return Granted(value)
    found = {name: value[name] for name in ("PolicyName", "Entries") if value[name]}
    if value["MachineState"] is not None:
        found["MachineState"] = value["MachineState"]
    return Granted({**newest, **found})


def _node(node: dict[str, Any]) -> NUMAMemory:
    return NUMAMemory(
        node["NumberOfAssignments"],
        NUMASet.from_ids(map(_numa, node["Cells"] or ())),
        {
            kind: MemoryTable(*(table[field.name] for field in _TABLE.fields))
            for kind, table in sorted((node["MemoryMap"] or {}).items())
        },
    )


def _blocks(blocks: list[dict[str, Any]] | None) -> tuple[Block, ...]:
    return tuple(
        Block(tuple(map(_numa, block["NUMAAffinity"] or ())), block["Type"], block["Size"])
        for block in blocks or ()
    )


def _numa(node: int) -> int:
    if not 0 <= node <= LARGEST_ID:
        raise InputError([Fault(rule=f"NUMA nodes are read from 0 to {LARGEST_ID}", value=node)])
    return node


def content_of(state: MemoryState, policy: str) -> dict[str, Any]:
    """The state as Go's structure, in the newest format."""
    return {
        "PolicyName": policy,
        "MachineState": {
            numa: {
                "NumberOfAssignments": node.assignments,
                "MemoryMap": {kind: _table(table) for kind, table in node.tables.items()},
                "Cells": list(node.cells),
            }
            for numa, node in state.machine.items()
        },
        "Entries": {
            pod: {name: _plain(blocks) for name, blocks in containers.items()}
            for pod, containers in state.assignments.items()
        },
        "PodEntries": {pod: {"MemoryBlocks": _plain(blocks)} for pod, blocks in state.pods.items()},
    }


def _table(table: MemoryTable) -> dict[str, int]:
    amounts = (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
    return {field.name: amount for field, amount in zip(_TABLE.fields, amounts, strict=True)}


def _plain(blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
    return [
        {"NUMAAffinity": list(block.numa), "Type": block.resource, "Size": block.size} for block in blocks
    ]


_INTS = ListOf("[]int", INT)
_TABLE = Struct(
    "state.MemoryTable",
    (
        Field("TotalMemSize", "total", UINT64),
        Field("SystemReserved", "systemReserved", UINT64),
        Field("Allocatable", "allocatable", UINT64),
        Field("Reserved", "reserved", UINT64),
        Field("Free", "free", UINT64),
    ),
)
_TABLES = MapOf("map[v1.ResourceName]*state.MemoryTable", RESOURCE_NAME, Pointer(_TABLE))
_NODE = Struct(
    "state.NUMANodeState",
    (
        Field("NumberOfAssignments", "numberOfAssignments", INT),
        Field("MemoryMap", "memoryMap", _TABLES),
        Field("Cells", "cells", _INTS),
    ),
)
_BLOCK = Struct(
    "state.Block",
    (
        Field("NUMAAffinity", "numaAffinity", _INTS),
        Field("Type", "type", RESOURCE_NAME),
        Field("Size", "size", UINT64),
    ),
)
_BLOCKS = ListOf("[]state.Block", _BLOCK)
_HEAD = (
    Field("PolicyName", "policyName", TEXT),
    Field("MachineState", "machineState", MapOf("state.NUMANodeMap", INT, Pointer(_NODE))),
    Field(
        "Entries",
        "entries",
        MapOf("state.ContainerMemoryAssignments", TEXT, MapOf("map[string][]state.Block", TEXT, _BLOCKS)),
        omits_empty=True,
    ),
)
_POD_ENTRY = Struct("state.PodEntry", (Field("MemoryBlocks", "memoryBlocks", _BLOCKS, omits_empty=True),))
_POD_ENTRIES = Field(
    "PodEntries", "podEntries", MapOf("state.PodMemoryAssignments", TEXT, _POD_ENTRY), omits_empty=True
)
_NAME = "state.MemoryManagerCheckpoint"
_V2 = Format(
    version=2,
    kind=Struct(_NAME, (*_HEAD, _POD_ENTRIES, CHECKSUM_FIELD)),
    hashed_as=_NAME,
    accepts_zero=False,
)
_V1 = Format(version=1, kind=Struct(f"{_NAME}V1", (*_HEAD, CHECKSUM_FIELD)), hashed_as=_NAME)
