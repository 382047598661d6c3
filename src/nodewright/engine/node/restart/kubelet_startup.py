"""Kubelet startup on existing state files: whether it succeeds, and the initial state."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

import msgspec

from nodewright.engine.core.cpu.cpu_policy import validated_state as start_cpus
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_policy import start_memory_manager as start_memory
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.core.requests.qos_and_priority import is_mirror, is_static
from nodewright.engine.node.managers.hint_providers import Holdings
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.initial_node import create_managers, node_config
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.kubelet_start import ReservedBeyondCapacity
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.instant import Instant

T = TypeVar("T")


_EPOCH = Instant(0)


class StartStage(StrEnum):
    """The stages of a kubelet start, in order."""

    CONFIGURATION = "configuration"
    MANAGERS = "managers"
    """Creating the managers from the configuration and the machine."""
    RESOURCES = "pod resources"
    """Reading the files with the pods' allocated resources."""
    CPU_STATE = "cpu manager"
    """Reading the CPU manager's state file and validating it against configuration and machine."""
    MEMORY_STATE = "memory manager"
    """The same for the memory manager."""
    ALLOCATABLE = "node allocatable"


class StartFailure(msgspec.Struct, frozen=True):
    """The reason why a kubelet exits at a stage of its start."""

    stage: StartStage
    because: Reason


class StoredState(msgspec.Struct, frozen=True):
    """The managers' state files as the new kubelet reads them; Refused: unreadable; None: no file."""

    cpu: Verdict[CPUState] | None = None
    memory: Verdict[MemoryState] | None = None
    devices: Verdict[DeviceState] | None = None
    resources: tuple[Reason, ...] = ()
    """The faults of the files with the pods' allocated resources."""


class KubeletStartResult(msgspec.Struct, frozen=True):
    """The result of a kubelet start."""

    failures: tuple[StartFailure, ...] = ()
    """All failures in order; the kubelet exits at the first."""
    state: NodeState | None = None
    """The node before any pod is handled; None: the kubelet does not start."""
    cpu: CPUState | None = None
    """The CPU manager's initial state, if the kubelet reaches that stage."""
    memory: MemoryState | None = None
    """The same for the memory manager."""
    warnings: tuple[Reason, ...] = ()
    """The faults that the kubelet ignores: an unreadable device manager file."""


def start_kubelet(
    parts: NodeParts, stored: StoredState, running: Iterable[tuple[str, str]] = ()
) -> KubeletStartResult:
    """The result of starting a kubelet with these parts and state files.

    ``running`` are the containers (pod uid, name) that the runtime reports as running.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager, Start; kubelet.go, NewMainKubelet.
    Departs: reports the later failures as well, as far as they can be determined.
    """
    managers = create_managers(parts)
    failures = [StartFailure(StartStage.RESOURCES, reason) for reason in stored.resources]
    cpus, memory = _or(stored.cpu, CPUState()), _or(stored.memory, MemoryState())
    if isinstance(managers, Refused):
        failures = [*(StartFailure(StartStage.MANAGERS, reason) for reason in managers.because), *failures]
    else:
        cpus = cpus if isinstance(cpus, Refused) else start_cpus(managers.value.cpu, cpus.value)
        memory = memory if isinstance(memory, Refused) else start_memory(managers.value.memory, memory.value)
    if isinstance(cpus, Refused):
        failures.append(StartFailure(StartStage.CPU_STATE, cpus.because[0]))
    if isinstance(memory, Refused):
        failures.append(StartFailure(StartStage.MEMORY_STATE, memory.because[0]))
    if parts.resources.over_reserved:
        beyond = ReservedBeyondCapacity(over=parts.resources.over_reserved)
        failures.append(StartFailure(StartStage.ALLOCATABLE, beyond))
    devices = _or(stored.devices, DeviceState())
    warnings = devices.because[:1] if isinstance(devices, Refused) else ()
    if isinstance(managers, Refused) or isinstance(cpus, Refused) or isinstance(memory, Refused) or failures:
        return _failed_start(tuple(failures), cpus, memory, warnings)
    device_state = DeviceState() if isinstance(devices, Refused) else devices.value
    held = Holdings(cpu=cpus.value, memory=memory.value, devices=device_state.after_restart(tuple(running)))
    config = node_config(parts, managers.value)
    state = NodeState(config, held, usage=config.rules.no_usage)
    return KubeletStartResult((), state, cpus.value, memory.value, warnings)


def pods_in_sync_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods in the order in which a started kubelet handles them.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; util/sliceutils, PodsByCreationTime.
    Departs: static pods are first, as their files are usually read before the API server answers. Pods created
        at the same time keep their order, which the kubelet does not guarantee.
    """
    return tuple(sorted(pods, key=_sync_order_key))


def with_all_pods_known(state: NodeState) -> NodeState:
    """The node after the kubelet knows all its pods; from now on it releases stale allocations."""
    held = msgspec.structs.replace(state.held, devices=state.held.devices.with_all_pods_known())
    return msgspec.structs.replace(state, held=held, is_collected=False)


def with_plugins_registered(state: NodeState) -> NodeState:
    """The node after the kubelet knows all its pods and all device plugins have listed their devices again."""
    state = with_all_pods_known(state)
    lists = DeviceState.of(state.config.facts.devices).device_lists
    held = msgspec.structs.replace(
        state.held, devices=msgspec.structs.replace(state.held.devices, device_lists=lists)
    )
    return msgspec.structs.replace(state, held=held)


def _failed_start(
    failures: tuple[StartFailure, ...],
    cpus: Verdict[CPUState],
    memory: Verdict[MemoryState],
    warnings: tuple[Reason, ...],
) -> KubeletStartResult:
    """The result of a start that fails."""
    stages = [ending.stage for ending in failures]
    has_managers = StartStage.MANAGERS not in stages and StartStage.RESOURCES not in stages
    cpu_state = cpus.value if has_managers and isinstance(cpus, Granted) else None
    reached = cpu_state is not None and isinstance(memory, Granted)
    return KubeletStartResult(
        failures, None, cpu_state, memory.value if reached and isinstance(memory, Granted) else None, warnings
    )


def _or(stored: Verdict[T] | None, empty: T) -> Verdict[T]:
    return Granted(empty) if stored is None else stored


def _sync_order_key(pod: Pod) -> tuple[bool, Instant]:
    return not (is_static(pod) or is_mirror(pod)), pod.metadata.creation_timestamp or _EPOCH
