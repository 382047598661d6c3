"""`memory_manager_state`: the memory of each NUMA node, and the memory blocks of containers and pods."""

from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.go_checkpoint import (
    CHECKSUM_FIELD,
    CheckpointFormat,
    DataCheckpointFormat,
    load_checkpoint,
)
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
)
from nodewright.engine.core.memory.memory_state import Block, MemoryState, MemoryTable, NUMAMemory
from nodewright.model.errors import Fault, InputError
from nodewright.model.reasons.kubelet_start import (
    StateEntryNull,
    StateFile,
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


def memory_state_file(
    state: MemoryState, policy: str, *, pod_level: bool = False, rules: ReleaseRules = NEWEST.rules
) -> bytes:
    """The file as the kubelet writes it.

    A kubelet of 1.36 cannot read back a file that names a pod without blocks: the empty list is omitted, and is read
    back as nil, which has another checksum.

    Follows: v1.36, v1.37, memorymanager/state/state_checkpoint.go, storeState.

    >>> from nodewright.model.releases.v1_36 import RULES
    >>> memory_state_file(MemoryState(), "None", rules=RULES).decode()
    '{"policyName":"None","machineState":{},"checksum":4236770233}'
    """
    content = memory_checkpoint_content(state, policy, pod_level=pod_level)
    return _written_format(rules, pod_level=pod_level).encoded(content)


def memory_state_checksum_text(state: MemoryState, policy: str, *, pod_level: bool = False) -> str:
    """The text that is hashed for the checksum of a file without `data`."""
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
    pods = value.get("PodEntries") if options.pod_level else None
    return Granted(_memory_state(value["Entries"], machine, pods))


def _memory_state(
    entries: dict[str, Any] | None, machine: dict[int, Any], pods: dict[str, Any] | None
) -> MemoryState:
    return MemoryState(
        {_numa(numa): _node(machine[numa]) for numa in sorted(machine)},
        {
            pod: {name: _blocks(blocks) for name, blocks in sorted((containers or {}).items())}
            for pod, containers in sorted((entries or {}).items())
        },
        {pod: _blocks(entry["MemoryBlocks"]) for pod, entry in sorted((pods or {}).items())},
    )


def _loaded(content: bytes, options: MemoryStateReadOptions) -> Verdict[dict[str, Any]]:
    """The content in the newest format that the gate allows, migrated from older formats.

    Follows: v1.35, memorymanager/state/checkpoint.go, VerifyChecksum; v1.36, state_checkpoint.go,
        migrateV1CheckpointToV2Checkpoint; v1.37, loadAndMigrateCheckpointV3.
    """
    formats = _read_formats(options.rules, pod_level=options.pod_level)
    loaded = load_checkpoint(content, formats, StateFile.MEMORY, options.path)
    if isinstance(loaded, Refused):
        return loaded
    value, _, newest = loaded.value
    if formats[0] is not _V2:
        return Granted(value)
    # Pod entries of the failed decoding in the newest format are kept.
    migrated = {name: value[name] for name in ("PolicyName", "Entries") if value[name]}
    if value["MachineState"] is not None:
        migrated["MachineState"] = value["MachineState"]
    return Granted({**newest, **migrated})


def _read_formats(
    rules: ReleaseRules, *, pod_level: bool
) -> tuple[CheckpointFormat | DataCheckpointFormat, ...]:
    """The formats in the order in which the kubelet tries them."""
    if rules.state_files_with_data:
        return _V3, _V2, _V1
    if not rules.pod_entries_in_state_files:
        return (_V1_ONLY,)
    return (_V2, _V1) if pod_level else (_V1_UNGATED,)


def _written_format(rules: ReleaseRules, *, pod_level: bool) -> CheckpointFormat | DataCheckpointFormat:
    if rules.state_files_with_data:
        return _V3
    return _V2 if pod_level else _V1


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


def memory_checkpoint_content(state: MemoryState, policy: str, *, pod_level: bool = True) -> dict[str, Any]:
    """The state as a Go struct, in the newest format; of the pod level only if it is kept."""
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
        "PodEntries": {
            pod: {"MemoryBlocks": _go_blocks(blocks)} for pod, blocks in state.pods.items() if pod_level
        },
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
_V1_UNGATED = replace(_V1, other_type_name=_V1.kind.name)
"""The same in kubelets of 1.36 without pod-level managers."""
_V3 = DataCheckpointFormat(
    version=3,
    name=_NAME,
    legacy=_V1,
    data=Struct(f"{_NAME}Data", (*_HEAD, _POD_ENTRIES)),
    manager="memory manager",
)
_V1_ONLY = CheckpointFormat(
    version=1, kind=Struct(_NAME, _V1.kind.fields), checksum_type_name=_NAME, accepts_zero=False
)
"""The same in kubelets that know no other."""
