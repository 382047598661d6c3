"""Writes the managers' state files of a node as a kubelet does, and reads them as a restarted kubelet does."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.state_files.cpu_manager_state import (
    ContainerName,
    CPUStateReadOptions,
    cpu_state_file,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.device_checkpoint import (
    device_checkpoint,
    device_checkpoint_bytes,
    device_state_from_checkpoint,
    read_device_checkpoint,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    memory_state_file,
    read_memory_state,
)
from nodewright.documents.profiles.state_files.pod_resource_state import (
    read_resources_state,
    resource_files_read,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.kubelet_startup import KubeletStartResult, StoredState
from nodewright.model.reasons.kubelet_start import StateFile, StateFileDamaged, StatePolicyDiffers
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_table import NEWEST

DEFAULT_KUBELET_ROOT = "/var/lib/kubelet"
_POD_LEVEL = "PodLevelResourceManagers"
_PATHS = {StateFile.DEVICES: f"device-plugins/{StateFile.DEVICES}"}


class StateFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The managers' state files as bytes; missing files are left out."""

    contents: Mapping[StateFile, bytes]
    root: str = DEFAULT_KUBELET_ROOT
    container_names: Mapping[str, ContainerName] = msgspec.field(default_factory=dict)
    """The runtime's containers by id: CPU state files of the oldest format name containers only by id."""

    def path(self, file: StateFile) -> str:
        """The path of the file."""
        return str(PurePath(self.root) / _PATHS.get(file, file))

    def without(self, names: Collection[str]) -> "StateFiles":
        """The files without those of these names."""
        remaining = {file: content for file, content in self.contents.items() if file not in names}
        return StateFiles(contents=remaining, root=self.root, container_names=self.container_names)


def written_state_files(state: NodeState) -> StateFiles:
    """The files that the kubelet of this node writes."""
    parts, held = state.config.parts, state.held
    return StateFiles(
        contents={
            StateFile.CPU: _cpu_file(held.cpu, parts),
            StateFile.MEMORY: _memory_file(held.memory, parts),
            StateFile.DEVICES: device_checkpoint_bytes(device_checkpoint(held.devices)),
        }
    )


def _cpu_file(state: CPUState, parts: NodeParts) -> bytes:
    policy, gates = parts.kubelet.cpu_manager_policy, parts.gates
    return cpu_state_file(state, policy, pod_level=gates[_POD_LEVEL], rules=gates.rules)


def _memory_file(state: MemoryState, parts: NodeParts) -> bytes:
    policy, gates = parts.kubelet.memory_manager_policy, parts.gates
    return memory_state_file(state, policy, pod_level=gates[_POD_LEVEL], rules=gates.rules)


def stored_state(files: StateFiles, parts: NodeParts, *, pod_level: bool | None = None) -> StoredState:
    """The files as a kubelet with these parts reads them; ``pod_level`` overrides the gate, then of the newest release.

    Errors: InputError for CPU numbers and NUMA nodes beyond 65535, which the kubelet would accept.
    """
    cpu, memory, devices = (
        files.contents.get(file) for file in (StateFile.CPU, StateFile.MEMORY, StateFile.DEVICES)
    )
    kubelet = parts.kubelet
    rules = parts.gates.rules if pod_level is None else NEWEST.rules
    pod_level = parts.gates[_POD_LEVEL] if pod_level is None else pod_level
    cpus = CPUStateReadOptions(
        path=files.path(StateFile.CPU),
        policy=kubelet.cpu_manager_policy,
        pod_level=pod_level,
        container_names=files.container_names,
        rules=rules,
    )
    blocks = MemoryStateReadOptions(
        path=files.path(StateFile.MEMORY),
        policy=kubelet.memory_manager_policy,
        pod_level=pod_level,
        rules=rules,
    )
    return StoredState(
        cpu=None if cpu is None else read_cpu_state(cpu, cpus),
        memory=None if memory is None else read_memory_state(memory, blocks),
        devices=None if devices is None else _devices(devices, files.path(StateFile.DEVICES)),
        resources=tuple(_resource_faults(files, parts)),
    )


def _resource_faults(files: StateFiles, parts: NodeParts) -> Iterator[Reason]:
    """Why files with the pods' resources stop the start of a kubelet that reads them."""
    for file in resource_files_read(parts.gates):
        content = files.contents.get(file)
        verdict = None if content is None else read_resources_state(content, files.path(file), file=file)
        if isinstance(verdict, Refused):
            yield verdict.because[0]


def state_as_written(files: StateFiles, parts: NodeParts) -> StoredState:
    """The files read under the policies and in the format with which they were written."""
    newer = stored_state(files, parts, pod_level=True)
    stored = stored_state(files, parts)
    stored = StoredState(
        cpu=stored.cpu if _is_damaged(newer.cpu) else newer.cpu,
        memory=stored.memory if _is_damaged(newer.memory) else newer.memory,
        devices=stored.devices,
    )
    written = {
        name: reason.written
        for name, read in (("cpu_manager_policy", stored.cpu), ("memory_manager_policy", stored.memory))
        if isinstance(read, Refused) and isinstance(reason := read.because[0], StatePolicyDiffers)
    }
    if not written:
        return stored
    written_parts = replace(parts, kubelet=msgspec.structs.replace(parts.kubelet, **written))
    return state_as_written(files, written_parts)


def unread_pod_level(stored: StoredState, written: StoredState) -> Mapping[StateFile, frozenset[str]]:
    """By file the uids of pods whose allocations of the pod level are written and not read; files that are read only."""
    pairs = ((StateFile.CPU, stored.cpu, written.cpu), (StateFile.MEMORY, stored.memory, written.memory))
    return {
        file: frozenset(held.value.pods.keys() - read.value.pods.keys())
        for file, read, held in pairs
        if isinstance(read, Granted) and isinstance(held, Granted)
    }


def _is_damaged(verdict: Verdict[CPUState] | Verdict[MemoryState] | None) -> bool:
    return isinstance(verdict, Refused) and isinstance(verdict.because[0], StateFileDamaged)


def _devices(content: bytes, path: str) -> Verdict[DeviceState]:
    checkpoint = read_device_checkpoint(content, path)
    return (
        checkpoint
        if isinstance(checkpoint, Refused)
        else Granted(device_state_from_checkpoint(checkpoint.value))
    )


def files_after_failed_start(files: StateFiles, result: KubeletStartResult, parts: NodeParts) -> StateFiles:
    """The files after a failed start: a manager that started has created its file if it was missing.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, NewCheckpointState, storeState.
    """
    contents = dict(files.contents)
    if result.cpu is not None and StateFile.CPU not in contents:
        contents[StateFile.CPU] = _cpu_file(result.cpu, parts)
    if result.memory is not None and StateFile.MEMORY not in contents:
        contents[StateFile.MEMORY] = _memory_file(result.memory, parts)
    return StateFiles(contents=contents, root=files.root, container_names=files.container_names)
