"""Does the kubelet start on what an earlier one left, and with what does it begin?"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

import msgspec

from nodewright.core.cpu.policy import start as start_cpus
from nodewright.core.cpu.state import CPUState
from nodewright.core.devices import DeviceState
from nodewright.core.memory.policy import start as start_memory
from nodewright.core.memory.state import MemoryState
from nodewright.core.requests import is_mirror, is_static
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason
from nodewright.model.start_reasons import ReservedBeyondCapacity
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.config import NodeParts
from nodewright.node.providers import Holdings
from nodewright.node.start import create_managers, node_config
from nodewright.node.state import NodeState
from nodewright.values.instant import Instant

T = TypeVar("T")
_BEGINNING = Instant(0)


class StartStage(StrEnum):
    """How far a kubelet gets, in its order."""

    CONFIGURATION = "configuration"
    MANAGERS = "managers"
    """They are made of the configuration and the machine."""
    RESOURCES = "pod resources"
    """The files with what pods were allocated are read."""
    CPU_STATE = "cpu manager"
    """Its file is read and held against configuration and machine."""
    MEMORY_STATE = "memory manager"
    """The same."""
    ALLOCATABLE = "node allocatable"


class Ending(msgspec.Struct, frozen=True):
    """Why a kubelet ends at a stage of its start."""

    stage: StartStage
    because: Reason


class Stored(msgspec.Struct, frozen=True):
    """What the managers' files say, as the new kubelet reads them; refused: it cannot; None: there is no file."""

    cpu: Verdict[CPUState] | None = None
    memory: Verdict[MemoryState] | None = None
    devices: Verdict[DeviceState] | None = None
    resources: tuple[Reason, ...] = ()
    """What speaks against the files with what pods were allocated."""


class Begun(msgspec.Struct, frozen=True):
    """How far the kubelet came."""

    endings: tuple[Ending, ...] = ()
    """All that keeps it from starting, in its order; it finds the first and ends."""
    state: NodeState | None = None
    """The node before any pod is looked at; None: the kubelet does not start."""
    cpu: CPUState | None = None
    """What the CPU manager began with, if the kubelet came so far."""
    memory: MemoryState | None = None
    """The same for the memory manager."""
    warnings: tuple[Reason, ...] = ()
    """What it passes over: a file of the device manager that cannot be read."""


def begin(parts: NodeParts, stored: Stored, running: Iterable[tuple[str, str]] = ()) -> Begun:
    """The kubelet of these parts when its managers have started on the files.

    ``running`` are the containers (pod uid, name) that the runtime reports as running.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager, Start; kubelet.go, NewMainKubelet.
    Departs: beside what the kubelet ends with, what it would end with next is told, as far as that can be known.
    """
    made = create_managers(parts)
    endings = [Ending(StartStage.RESOURCES, reason) for reason in stored.resources]
    cpus, memory = _or(stored.cpu, CPUState()), _or(stored.memory, MemoryState())
    if isinstance(made, Refused):
        endings = [*(Ending(StartStage.MANAGERS, reason) for reason in made.because), *endings]
    else:
        cpus = cpus if isinstance(cpus, Refused) else start_cpus(made.value.cpu, cpus.value)
        memory = memory if isinstance(memory, Refused) else start_memory(made.value.memory, memory.value)
    if isinstance(cpus, Refused):
        endings.append(Ending(StartStage.CPU_STATE, cpus.because[0]))
    if isinstance(memory, Refused):
        endings.append(Ending(StartStage.MEMORY_STATE, memory.because[0]))
    if parts.resources.over_reserved:
        beyond = ReservedBeyondCapacity(over=parts.resources.over_reserved)
        endings.append(Ending(StartStage.ALLOCATABLE, beyond))
    devices = _or(stored.devices, DeviceState())
    warnings = devices.because[:1] if isinstance(devices, Refused) else ()
    if isinstance(made, Refused) or isinstance(cpus, Refused) or isinstance(memory, Refused) or endings:
        return _ended(tuple(endings), cpus, memory, warnings)
    found = DeviceState() if isinstance(devices, Refused) else devices.value
    held = Holdings(cpu=cpus.value, memory=memory.value, devices=found.restarted(tuple(running)))
    state = NodeState(node_config(parts, made.value), held)
    return Begun((), state, cpus.value, memory.value, warnings)


def _ended(
    endings: tuple[Ending, ...],
    cpus: Verdict[CPUState],
    memory: Verdict[MemoryState],
    warnings: tuple[Reason, ...],
) -> Begun:
    """How far a kubelet came that does not start."""
    stages = [one.stage for one in endings]
    has_managers = StartStage.MANAGERS not in stages and StartStage.RESOURCES not in stages
    own = cpus.value if has_managers and isinstance(cpus, Granted) else None
    reached = own is not None and isinstance(memory, Granted)
    return Begun(
        endings, None, own, memory.value if reached and isinstance(memory, Granted) else None, warnings
    )


def _or(stored: Verdict[T] | None, empty: T) -> Verdict[T]:
    return Granted(empty) if stored is None else stored


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods in the order in which a kubelet that has started looks at them.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; util/sliceutils, PodsByCreationTime.
    Departs: static pods come first: their files are mostly read before the API server answers. Pods created
        at one moment stay in their order, which the kubelet does not promise.
    """
    return tuple(sorted(pods, key=_begin_key))


def _begin_key(pod: Pod) -> tuple[bool, Instant]:
    return not (is_static(pod) or is_mirror(pod)), pod.metadata.creation_timestamp or _BEGINNING


def all_known(state: NodeState) -> NodeState:
    """The node once the kubelet knows all its pods: from now on it takes back what nobody holds any more."""
    held = msgspec.structs.replace(state.held, devices=state.held.devices.with_all_pods_known())
    return msgspec.structs.replace(state, held=held, settled=False)


def registered(state: NodeState) -> NodeState:
    """The node once the kubelet knows all its pods and all device plugins have listed their devices again."""
    state = all_known(state)
    lists = DeviceState.of(state.config.facts.devices).lists
    held = msgspec.structs.replace(
        state.held, devices=msgspec.structs.replace(state.held.devices, lists=lists)
    )
    return msgspec.structs.replace(state, held=held)
