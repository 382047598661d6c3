"""Family checkpoint: the kubelet's state files, written and read."""

import base64
from collections.abc import Mapping
from typing import Any

from nodewright.documents.profiles.state_files.cpu_manager_state import (
    ContainerName,
    CPUStateReadOptions,
    cpu_state_checksum_text,
    cpu_state_file,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    PodDevicesEntry,
    device_checkpoint_bytes,
    device_checkpoint_checksum_text,
    read_device_checkpoint,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    memory_state_checksum_text,
    memory_state_file,
    read_memory_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import Block, MemoryState
from nodewright.model.reasons.kubelet_start import StateFile, StateFileReason
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import CPUSet
from nodewright.testing.conformance.memory_manager import (
    plain_block,
    plain_machine,
    read_blocks,
    read_machine,
)
from nodewright.testing.conformance.vectors import by_container

_DIRECTORY = "STATEDIR"


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The bytes of a file and the text of its checksum, or the state restored from a file."""
    ask = {
        StateFile.CPU: {"write": _write_cpus, "read": _read_cpus},
        StateFile.MEMORY: {"write": _write_memory, "read": _read_memory},
        StateFile.DEVICES: {"write": _write_devices, "read": _read_devices},
    }
    return ask[StateFile(question["file"])][question["op"]](question | {"rules": release.rules})


def _written(content: bytes, hashed: str) -> dict[str, str]:
    return {"bytes": content.decode(), "hashedText": hashed}


def _path(file: StateFile) -> str:
    return f"{_DIRECTORY}/{file}"


def _error(refused: Refused) -> dict[str, str]:
    (reason,) = refused.because
    assert isinstance(reason, StateFileReason)
    return {"error": reason.kubelet().message}


def _write_cpus(question: dict[str, Any]) -> dict[str, str]:
    content, pod_level = question["content"], question["podLevelResourceManagers"]
    state = CPUState(
        CPUSet.parse(content.get("defaultCPUSet") or ""),
        by_container(CPUSet.parse, content.get("assignments")),
        {pod: CPUSet.parse(cpus) for pod, cpus in (content.get("podAssignments") or {}).items()},
    )
    policy, rules = content["policyName"], question["rules"]
    file = cpu_state_file(state, policy, pod_level=pod_level, rules=rules)
    if rules.state_files_with_data:
        return {"bytes": file.decode()}
    return _written(file, cpu_state_checksum_text(state, policy, pod_level=pod_level))


def _read_cpus(question: dict[str, Any]) -> dict[str, Any]:
    reading = CPUStateReadOptions(
        path=_path(StateFile.CPU),
        policy=question["policyName"],
        pod_level=question["podLevelResourceManagers"],
        rules=question["rules"],
        container_names={
            container_id: ContainerName(name["pod"], name["container"])
            for container_id, name in (question.get("runningContainers") or {}).items()
        },
    )
    restored = read_cpu_state(question["bytes"].encode(), reading)
    if isinstance(restored, Refused):
        return _error(restored)
    return {
        "defaultCPUSet": str(restored.value.default),
        "assignments": by_container(str, restored.value.assignments),
        "podAssignments": {pod: str(cpus) for pod, cpus in restored.value.pods.items()},
        "bytesAfterRead": question["bytes"],
    }


def _write_memory(question: dict[str, Any]) -> dict[str, str]:
    content, pod_level = question["content"], question["podLevelResourceManagers"]
    state = MemoryState(
        read_machine(content.get("machineState")),
        by_container(read_blocks, content.get("entries")),
        {
            pod: read_blocks(entry.get("memoryBlocks"))
            for pod, entry in (content.get("podEntries") or {}).items()
        },
    )
    policy, rules = content["policyName"], question["rules"]
    file = memory_state_file(state, policy, pod_level=pod_level, rules=rules)
    if rules.state_files_with_data:
        return {"bytes": file.decode()}
    return _written(file, memory_state_checksum_text(state, policy, pod_level=pod_level))


def _read_memory(question: dict[str, Any]) -> dict[str, Any]:
    reading = MemoryStateReadOptions(
        path=_path(StateFile.MEMORY),
        policy=question["policyName"],
        pod_level=question["podLevelResourceManagers"],
        rules=question["rules"],
    )
    restored = read_memory_state(question["bytes"].encode(), reading)
    if isinstance(restored, Refused):
        return _error(restored)
    state = restored.value
    return {
        "machineState": plain_machine(state),
        "assignments": by_container(_plain_blocks, state.assignments),
        "podAssignments": {
            pod: {"memoryBlocks": _plain_blocks(blocks)} if blocks else {}
            for pod, blocks in state.pods.items()
        },
        "bytesAfterRead": question["bytes"],
    }


def _plain_blocks(blocks: tuple[Block, ...]) -> list[dict[str, Any]]:
    return list(map(plain_block, blocks))


def _write_devices(question: dict[str, Any]) -> dict[str, str]:
    content = question["content"]
    entries = tuple(
        PodDevicesEntry(
            pod=entry["podUID"],
            container=entry["containerName"],
            resource=entry["resourceName"],
            devices={int(numa): tuple(ids) for numa, ids in (entry.get("deviceIDs") or {}).items()},
            response=base64.b64decode(entry.get("allocResp") or ""),
        )
        for entry in content.get("podDeviceEntries") or ()
    )
    is_null = content.get("podDeviceEntriesIsNull")
    registered = {resource: tuple(ids) for resource, ids in (content.get("registeredDevices") or {}).items()}
    file = DeviceCheckpoint(None if is_null else entries, registered)
    return _written(device_checkpoint_bytes(file), device_checkpoint_checksum_text(file))


def _read_devices(question: dict[str, Any]) -> dict[str, Any]:
    restored = read_device_checkpoint(question["bytes"].encode(), _path(StateFile.DEVICES))
    if isinstance(restored, Refused):
        return _error(restored)
    return {
        "podDeviceEntries": [
            {
                "podUID": entry.pod,
                "containerName": entry.container,
                "resourceName": entry.resource,
                "deviceIDs": {str(numa): list(ids) for numa, ids in entry.devices.items()},
                "allocResp": base64.b64encode(entry.response).decode(),
            }
            for entry in restored.value.entries or ()
        ],
        "registeredDevices": {resource: list(ids) for resource, ids in restored.value.registered.items()},
    }
