"""`memory_manager_state`: the memory of each NUMA node, and the memory blocks of containers and pods."""

from typing import Any

import msgspec

from nodewright.documents.formats.go_checkpoint import CHECKSUM_FIELD, CheckpointFormat
from nodewright.documents.formats.go_json import (
    INT,
    RESOURCE_NAME,
    STRING,
    UINT64,
    Field,
    MapOf,
    Pointer,
    SliceOf,
    Struct,
    zero_value,
)
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.errors import Fault, InputError
from nodewright.model.reasons.kubelet_start import (
    FormatTried,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import ReleaseRules
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.idset import LARGEST_ID, NUMASet


class MemoryStateReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet settings that decide how the file is read."""

    path: str
    policy: str
    pod_level: bool = False
    """Whether the gate PodLevelResourceManagers is on."""
    rules: ReleaseRules = NEWEST.rules


def memory_state_file(state: MemoryState, policy: str, *, pod_level: bool = False) -> bytes:
    """The file as the kubelet writes it.

    The kubelet cannot read back a file that names a pod without blocks: the empty list is omitted, and is read
    back as nil, which has another checksum.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, storeState.

    >>> memory_state_file(MemoryState(), "None").decode()
    '{"policyName":"None","machineState":{},"checksum":4236770233}'
    """
    return (_V2 if pod_level else _V1).encoded(memory_checkpoint_content(state, policy))


def memory_state_checksum_text(state: MemoryState, policy: str, *, pod_level: bool = False) -> str:
    """The text that is hashed for the file's checksum."""
    return (_V2 if pod_level else _V1).checksum_text(memory_checkpoint_content(state, policy))


def read_memory_state(content: bytes, options: MemoryStateReadOptions) -> Verdict[MemoryState]:
    """The state in the file, or why the kubelet does not start with it; the file is not changed.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, restoreState.
    Departs: null in place of a NUMA node is always reported as the crash that it causes under the static policy;
        the policy None ignores it.
    Errors:  InputError for NUMA nodes below 0 or beyond 65535, which the kubelet would accept.
    """
    loaded = _loaded(content, options)
    if isinstance(loaded, Refused):
        return loaded
    value = loaded.value
    if value["PolicyName"] != options.policy:
        differs = StatePolicyDiffers(
            file=StateFile.MEMORY, path=options.path, configured=options.policy, written=value["PolicyName"]
        )
        return Refused((differs,))
    machine = value["MachineState"] or {}
    for numa, node in sorted(machine.items()):
        for kind, table in sorted((node["MemoryMap"] or {}).items()) if node else (("", None),):
            if table is None:
                return Refused((StateEntryNull(path=options.path, numa=numa, resource=kind),))
    return Granted(_memory_state(value, machine))


def _memory_state(value: dict[str, Any], machine: dict[int, Any]) -> MemoryState:
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


def _loaded(content: bytes, options: MemoryStateReadOptions) -> Verdict[dict[str, Any]]:
    """The content in the newest format that the gate allows; pod entries of its failed decoding are kept.

    Follows: v1.36, memorymanager/state/state_checkpoint.go, migrateV1CheckpointToV2Checkpoint.
    """
    if not options.rules.pod_entries_in_state_files:
        return _loaded_only_format(content, options)
    tried: list[FormatTried] = []
    newest = {**zero_value(_V2.kind), "MachineState": {}, "Entries": {}, "PodEntries": {}}
    if options.pod_level:
        failed = _V2.decode(content, newest)
        if failed is None:
            return Granted(newest)
        tried.append(failed)
    value = {**zero_value(_V1.kind), "MachineState": {}, "Entries": {}}
    # A kubelet without pod-level managers also accepts the checksum under the older name.
    failed = _V1.decode(content, value, () if options.pod_level else (_V1.kind.name,))
    if failed is not None:
        damaged = StateFileDamaged(file=StateFile.MEMORY, path=options.path, tried=(*tried, failed))
        return Refused((damaged,))
    if not options.pod_level:
        return Granted(value)
    migrated = {name: value[name] for name in ("PolicyName", "Entries") if value[name]}
    if value["MachineState"] is not None:
        migrated["MachineState"] = value["MachineState"]
    return Granted({**newest, **migrated})


def _loaded_only_format(content: bytes, options: MemoryStateReadOptions) -> Verdict[dict[str, Any]]:
    """The content as kubelets without pod entries load it.

    Follows: v1.35, memorymanager/state/checkpoint.go, VerifyChecksum.
    """
    value = {**zero_value(_V1_ONLY.kind), "MachineState": {}, "Entries": {}}
    failed = _V1_ONLY.decode(content, value)
    if failed is None:
        return Granted(value)
    return Refused((StateFileDamaged(file=StateFile.MEMORY, path=options.path, tried=(failed,)),))


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
        raise InputError([Fault(rule=f"NUMA nodes must be from 0 to {LARGEST_ID}", value=node)])
    return node


def memory_checkpoint_content(state: MemoryState, policy: str) -> dict[str, Any]:
    """The state as a Go struct, in the newest format."""
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
            pod: {name: _go_blocks(blocks) for name, blocks in containers.items()}
            for pod, containers in state.assignments.items()
        },
        "PodEntries": {pod: {"MemoryBlocks": _go_blocks(blocks)} for pod, blocks in state.pods.items()},
    }


def _table(table: MemoryTable) -> dict[str, int]:
    amounts = (table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
    return {field.name: amount for field, amount in zip(_TABLE.fields, amounts, strict=True)}


def _go_blocks(blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
    return [
        {"NUMAAffinity": list(block.numa), "Type": block.resource, "Size": block.size} for block in blocks
    ]


_INTS = SliceOf("[]int", INT)
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
_BLOCKS = SliceOf("[]state.Block", _BLOCK)
_HEAD = (
    Field("PolicyName", "policyName", STRING),
    Field("MachineState", "machineState", MapOf("state.NUMANodeMap", INT, Pointer(_NODE))),
    Field(
        "Entries",
        "entries",
        MapOf("state.ContainerMemoryAssignments", STRING, MapOf("map[string][]state.Block", STRING, _BLOCKS)),
        omits_empty=True,
    ),
)
_POD_ENTRY = Struct("state.PodEntry", (Field("MemoryBlocks", "memoryBlocks", _BLOCKS, omits_empty=True),))
_POD_ENTRIES = Field(
    "PodEntries", "podEntries", MapOf("state.PodMemoryAssignments", STRING, _POD_ENTRY), omits_empty=True
)
_NAME = "state.MemoryManagerCheckpoint"
_V2 = CheckpointFormat(
    version=2,
    kind=Struct(_NAME, (*_HEAD, _POD_ENTRIES, CHECKSUM_FIELD)),
    checksum_type_name=_NAME,
    accepts_zero=False,
)
_V1 = CheckpointFormat(
    version=1, kind=Struct(f"{_NAME}V1", (*_HEAD, CHECKSUM_FIELD)), checksum_type_name=_NAME
)
_V1_ONLY = CheckpointFormat(
    version=1, kind=Struct(_NAME, _V1.kind.fields), checksum_type_name=_NAME, accepts_zero=False
)
"""The same in kubelets that know no other."""
