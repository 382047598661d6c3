"""The managers' files of a node, as a kubelet writes them and as the next one reads them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath

import msgspec

from nodewright.core.cpu.state import CPUState
from nodewright.core.devices import DeviceState
from nodewright.core.memory.state import MemoryState
from nodewright.model.state_reasons import StateFile, StateFileDamaged, StatePolicyDiffers
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.config import NodeParts
from nodewright.node.restart import Begun, Stored
from nodewright.node.state import NodeState
from nodewright.world.state.cpu import ContainerName, CPUStateReading, cpu_state_file, read_cpu_state
from nodewright.world.state.devices import device_file, device_state, device_state_file, read_device_state
from nodewright.world.state.memory import MemoryStateReading, memory_state_file, read_memory_state

USUAL_ROOT = "/var/lib/kubelet"
_POD_LEVEL = "PodLevelResourceManagers"
_PLACES = {StateFile.DEVICES: f"device-plugins/{StateFile.DEVICES}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFiles:
    """The managers' files as bytes; those that are not there are missing."""

    contents: Mapping[StateFile, bytes]
    root: str = USUAL_ROOT
    running: Mapping[str, ContainerName] = field(default_factory=dict)
    """The containers that the runtime has, by id: CPU files of the oldest format name no others."""

    def path(self, file: StateFile) -> str:
        """Where the file is."""
        return str(PurePath(self.root) / _PLACES.get(file, file))

    def without(self, names: Collection[str]) -> "StateFiles":
        """The files when those of these names have been deleted."""
        left = {file: content for file, content in self.contents.items() if file not in names}
        return StateFiles(contents=left, root=self.root, running=self.running)


def files_of(state: NodeState) -> StateFiles:
    """The files that the kubelet of this node has written."""
    parts, held = state.config.parts, state.held
    pod_level = parts.gates[_POD_LEVEL]
    kubelet = parts.kubelet
    return StateFiles(
        contents={
            StateFile.CPU: cpu_state_file(held.cpu, kubelet.cpu_manager_policy, pod_level=pod_level),
            StateFile.MEMORY: memory_state_file(
                held.memory, kubelet.memory_manager_policy, pod_level=pod_level
            ),
            StateFile.DEVICES: device_state_file(device_file(held.devices)),
        }
    )


def stored_in(files: StateFiles, parts: NodeParts, *, pod_level: bool | None = None) -> Stored:
    """The files as a kubelet of these parts reads them; ``pod_level`` takes the gate's place.

    Errors: InputError for CPU numbers and NUMA nodes beyond 65535, which the kubelet would take.
    """
    cpu, memory, devices = (
        files.contents.get(file) for file in (StateFile.CPU, StateFile.MEMORY, StateFile.DEVICES)
    )
    kubelet = parts.kubelet
    pod_level = parts.gates[_POD_LEVEL] if pod_level is None else pod_level
    cpus = CPUStateReading(
        path=files.path(StateFile.CPU),
        policy=kubelet.cpu_manager_policy,
        pod_level=pod_level,
        running=files.running,
    )
    blocks = MemoryStateReading(
        path=files.path(StateFile.MEMORY), policy=kubelet.memory_manager_policy, pod_level=pod_level
    )
    return Stored(
        cpu=None if cpu is None else read_cpu_state(cpu, cpus),
        memory=None if memory is None else read_memory_state(memory, blocks),
        devices=None if devices is None else _devices(devices, files.path(StateFile.DEVICES)),
    )


def written_in(files: StateFiles, parts: NodeParts) -> Stored:
    """The files as they were meant: under the policies and in the format in which they were written."""
    newer = stored_in(files, parts, pod_level=True)
    stored = stored_in(files, parts)
    stored = Stored(
        cpu=newer.cpu if _is_damaged(stored.cpu) else stored.cpu,
        memory=newer.memory if _is_damaged(stored.memory) else stored.memory,
        devices=stored.devices,
    )
    written = {
        name: reason.written
        for name, read in (("cpu_manager_policy", stored.cpu), ("memory_manager_policy", stored.memory))
        if isinstance(read, Refused) and isinstance(reason := read.because[0], StatePolicyDiffers)
    }
    if not written:
        return stored
    meant = replace(parts, kubelet=msgspec.structs.replace(parts.kubelet, **written))
    return written_in(files, meant)


def _is_damaged(read: Verdict[CPUState] | Verdict[MemoryState] | None) -> bool:
    return isinstance(read, Refused) and isinstance(read.because[0], StateFileDamaged)


def _devices(content: bytes, path: str) -> Verdict[DeviceState]:
    found = read_device_state(content, path)
    return found if isinstance(found, Refused) else Granted(device_state(found.value))


def left_by(files: StateFiles, begun: Begun, parts: NodeParts) -> StateFiles:
    """The files after a start that failed: where one was missing, a manager that came so far has made it.

    Follows: v1.36, cpumanager/state/state_checkpoint.go, NewCheckpointState, storeState.
    """
    contents, kubelet, pod_level = dict(files.contents), parts.kubelet, parts.gates[_POD_LEVEL]
    if begun.cpu is not None and StateFile.CPU not in contents:
        contents[StateFile.CPU] = cpu_state_file(begun.cpu, kubelet.cpu_manager_policy, pod_level=pod_level)
    if begun.memory is not None and StateFile.MEMORY not in contents:
        contents[StateFile.MEMORY] = memory_state_file(
            begun.memory, kubelet.memory_manager_policy, pod_level=pod_level
        )
    return StateFiles(contents=contents, root=files.root, running=files.running)
