"""What would become of a node's pods if its kubelet were started anew, and what to do before?"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from nodewright.core.cpu.state import CPUState
from nodewright.core.devices import DeviceState
from nodewright.core.memory.policy import Reservation
from nodewright.core.memory.reserve import right_reservations
from nodewright.core.memory.state import MemoryState
from nodewright.model.kubelet_config import MemoryReservation
from nodewright.model.memory_reasons import (
    ReservedMemoryDiffers,
    ReservedMemoryElsewhere,
    ReservedMemoryInexact,
)
from nodewright.model.objects import Pod
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.state_reasons import StateFile, StateFileDamaged
from nodewright.model.verdict import Granted
from nodewright.node.config import NodeParts
from nodewright.node.placement import ContainerPlacement, Placement, placement_of
from nodewright.node.providers import Holdings
from nodewright.node.restart import Begun, Ending, StartStage, Stored, begin, registered
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, readmitted

NOBODY_SAID = NotJudged(
    what="the pods that hold CPUs, memory or devices", because="nobody said which pods run"
)
_FILES = {StartStage.CPU_STATE: StateFile.CPU, StartStage.MEMORY_STATE: StateFile.MEMORY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What becomes of a pod."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...] = ()
    """Why it is turned away, or what is not known; nothing: it is taken."""
    pushed_out_by: Pod | None = None
    """The critical pod for which it has to make way."""
    before: Placement
    after: Placement
    """What it holds then; of one that is lost, nothing."""

    @property
    def is_lost(self) -> bool:
        """Whether the kubelet fails it, though it runs."""
        return self.decision is Decision.REFUSED or self.pushed_out_by is not None

    @property
    def is_open(self) -> bool:
        """Whether it hangs on something that is not known of the node."""
        return self.decision is Decision.UNDECIDED

    @property
    def is_moved(self) -> bool:
        """Whether it goes on running, but its containers that run hold something else than before."""
        ended = {one.name for one in self.pod.spec.init_containers if not one.is_sidecar}
        if self.is_lost or self.is_open:
            return False
        return _held(self.before, ended) != _held(self.after, ended)


def _held(placement: Placement, ended: Container[str]) -> tuple[object, ...]:
    containers = [_of(one) for one in placement.containers if one.name not in ended]
    return placement.cpus, placement.memory, containers


def _of(one: ContainerPlacement) -> tuple[object, ...]:
    return one.name, one.cpus, one.memory, one.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """How a start of the kubelet would go."""

    endings: tuple[Ending, ...] = ()
    """All that keeps it from starting; it tells the first."""
    warnings: tuple[Reason, ...] = ()
    """What it passes over."""
    fates: tuple[Fate, ...] = ()
    """The pods in the order in which it looks at them; none if it does not start."""
    leftovers: tuple[str, ...] = ()
    """Uids of pods that hold something and are not there: what they hold is taken back."""
    not_judged: tuple[NotJudged, ...] = ()
    remedy: "Remedy | None" = None
    """What would let it start; None: it starts, or nothing is known that would."""

    @property
    def starts(self) -> bool:
        """Whether the kubelet would start."""
        return not self.endings

    @property
    def lost(self) -> tuple[Fate, ...]:
        """The pods that would not survive."""
        return tuple(fate for fate in self.fates if fate.is_lost)

    @property
    def is_well(self) -> bool:
        """Whether it would start and keep all its pods, for certain."""
        is_open = any(fate.is_open for fate in self.fates)
        return self.starts and not (self.lost or is_open or self.not_judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What lets the kubelet start."""

    delete: tuple[StateFile, ...] = ()
    """The files to delete while it is stopped."""
    reserved_memory: tuple[MemoryReservation, ...] | None = None
    """The `reservedMemory` to configure; None: as it is."""
    then: Rehearsal
    """How the start would go; all pods go on running meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What runs on a node while its kubelet is started anew."""

    pods: Sequence[Pod]
    containers: frozenset[tuple[str, str]]
    """Those that really run, by their pod's uid and their name."""
    held: Stored
    """What the pods hold, whatever the next kubelet reads of it."""
    are_known: bool = True
    """Whether these are all pods; else nobody said which there are."""


def rehearse(parts: NodeParts, stored: Stored, what: Running) -> Rehearsal:
    """How the kubelet of these parts starts on these files, while all that goes on running. Nothing is changed."""
    begun = begin(parts, stored, what.containers)
    if begun.state is None:
        remedy = _remedy(parts, stored, begun, what)
        return Rehearsal(endings=begun.endings, warnings=begun.warnings, remedy=remedy)
    return _started(begun, begun.state, what)


def not_configured(because: Sequence[Reason]) -> Rehearsal:
    """How a start goes with a configuration that no kubelet takes."""
    return Rehearsal(endings=tuple(Ending(StartStage.CONFIGURATION, reason) for reason in because))


def _started(begun: Begun, state: NodeState, what: Running) -> Rehearsal:
    """What becomes of the pods."""
    pods = what.pods
    before = msgspec.structs.replace(state, held=_holdings(what.held))
    after, taken = readmitted(state, pods, {pod.uid for pod in pods})
    gone_for = {
        victim.pod.uid: one.pod
        for one in taken
        for victim in (one.step.victims.victims if one.step.victims else ())
    }
    settled = registered(after).collected()
    fates = tuple(
        Fate(
            pod=one.pod,
            decision=one.step.decision or Decision.ADMITTED,
            because=one.step.because if one.step.decision is not Decision.ADMITTED else (),
            pushed_out_by=gone_for.get(one.pod.uid),
            before=placement_of(before, one.pod),
            after=placement_of(settled, one.pod),
        )
        for one in taken
    )
    known = {pod.uid for pod in pods}
    held = before.held
    holders = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.held}
    leftovers = tuple(sorted(holders - known))
    unknown = (NOBODY_SAID,) if leftovers and not what.are_known else ()
    return Rehearsal(warnings=begun.warnings, fates=fates, leftovers=leftovers, not_judged=unknown)


def _holdings(stored: Stored) -> Holdings:
    """What is held as far as the files can be read."""
    return Holdings(
        cpu=stored.cpu.value if isinstance(stored.cpu, Granted) else CPUState(),
        memory=stored.memory.value if isinstance(stored.memory, Granted) else MemoryState(),
        devices=stored.devices.value if isinstance(stored.devices, Granted) else DeviceState(),
    )


_RESERVED_WRONG = ReservedMemoryDiffers | ReservedMemoryElsewhere | ReservedMemoryInexact


def _remedy(parts: NodeParts, stored: Stored, begun: Begun, what: Running) -> Remedy | None:
    """The right `reservedMemory`, and the files that have to go one after the other until it starts."""
    reserved = None
    if any(isinstance(ending.because, _RESERVED_WRONG) for ending in begun.endings):
        reserved = reserved_memory(parts)
    if reserved is not None:
        parts = replace(parts, kubelet=msgspec.structs.replace(parts.kubelet, reserved_memory=reserved))
        begun = begin(parts, stored, what.containers)
    deleted: dict[StateFile, None] = {}
    while begun.state is None:
        files = {file for ending in begun.endings if (file := _file(ending)) is not None}
        if len(files) < len({ending.stage for ending in begun.endings}) or files <= deleted.keys():
            return None
        deleted |= dict.fromkeys(sorted(files))
        stored = _without(stored, deleted)
        begun = begin(parts, stored, what.containers)
    then = _started(begun, begun.state, what)
    return Remedy(delete=tuple(deleted), reserved_memory=reserved, then=then)


def _file(ending: Ending) -> StateFile | None:
    """The file without which the kubelet would not end so."""
    if ending.stage is StartStage.RESOURCES and isinstance(ending.because, StateFileDamaged):
        return ending.because.file
    return _FILES.get(ending.stage)


def _without(stored: Stored, files: Mapping[StateFile, None]) -> Stored:
    left = tuple(
        one for one in stored.resources if not (isinstance(one, StateFileDamaged) and one.file in files)
    )
    return Stored(
        cpu=None if StateFile.CPU in files else stored.cpu,
        memory=None if StateFile.MEMORY in files else stored.memory,
        devices=stored.devices,
        resources=left,
    )


def reserved_memory(parts: NodeParts) -> tuple[MemoryReservation, ...] | None:
    """The `reservedMemory` with which the memory manager is made on this node, near to what is configured."""
    given = [Reservation(one.numa_node, one.limits) for one in parts.kubelet.reserved_memory]
    right = right_reservations(parts.machine.topology, parts.resources.reservation, given)
    if right is None:
        return None
    return tuple(MemoryReservation(numa_node=one.numa, limits=one.limits) for one in right)
