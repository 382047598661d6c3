"""Rehearses a kubelet restart: whether it starts on existing state files, the outcome for each pod, and a remedy.

A node's pods can be placed under another configuration as well.
"""

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.config.complete_config import complete_config
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.core.memory.memory_policy import Reservation, valid_reservations
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.managers.hint_providers import Holdings
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import ContainerPlacement, Placement, placement_of
from nodewright.engine.node.restart.initial_node import initial_node, next_start_refusals
from nodewright.engine.node.restart.kubelet_startup import (
    KubeletStartResult,
    StartFailure,
    StartStage,
    StoredState,
    start_kubelet,
    with_plugins_registered,
)
from nodewright.engine.node.step import Decision, readmit_pods, step
from nodewright.model.kubernetes.kubelet_configuration import MemoryReservation
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.kubelet_start import StateFile, StateFileDamaged
from nodewright.model.reasons.memory import (
    ReservedMemoryDiffers,
    ReservedMemoryElsewhere,
    ReservedMemoryInexact,
)
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.verdict import Granted, Refused

PODS_UNKNOWN = NotJudged(
    what="the pods that hold CPUs, memory or devices", because="the list of running pods is unknown"
)


class PodRestartOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the restart for a pod."""

    pod: Pod
    decision: Decision
    because: tuple[Reason, ...] = ()
    """Why the pod is rejected or undecided; empty: it is admitted."""
    preempted_by: Pod | None = None
    """The critical pod that preempts it."""
    before: Placement
    after: Placement
    """Its allocations after the restart; empty if it is lost."""

    @property
    def is_lost(self) -> bool:
        """Whether the kubelet fails the pod although it runs."""
        return self.decision is Decision.REFUSED or self.preempted_by is not None

    @property
    def is_undecided(self) -> bool:
        """Whether the outcome depends on unknown facts of the node."""
        return self.decision is Decision.UNDECIDED

    @property
    def is_moved(self) -> bool:
        """Whether the pod keeps running, but with other allocations of its running containers."""
        ended = {container.name for container in self.pod.spec.init_containers if not container.is_sidecar}
        if self.is_lost or self.is_undecided:
            return False
        return _allocations(self.before, ended) != _allocations(self.after, ended)


class RestartRehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a rehearsed kubelet start."""

    start_failures: tuple[StartFailure, ...] = ()
    """All failures; the kubelet reports the first."""
    warnings: tuple[Reason, ...] = ()
    """The faults that the kubelet ignores."""
    outcomes: tuple[PodRestartOutcome, ...] = ()
    """The pods in the order in which the kubelet handles them; empty if it does not start."""
    stale_pods: tuple[str, ...] = ()
    """Uids of removed pods whose allocations are released."""
    not_judged: tuple[NotJudged, ...] = ()
    remedy: "StartRemedy | None" = None
    """What makes the start succeed; None: it succeeds anyway, or no remedy is known."""
    state: NodeState | None = None
    """The node after the restart, when all device plugins have registered; None: the kubelet does not start."""

    @property
    def starts(self) -> bool:
        """Whether the kubelet would start."""
        return not self.start_failures

    @property
    def next_failures(self) -> tuple[Reason, ...]:
        """Why the kubelet would not start the next time, with what its pods hold after this start."""
        return () if self.state is None else next_start_refusals(self.state)

    @property
    def lost(self) -> tuple[PodRestartOutcome, ...]:
        """The pods that the restart fails or preempts."""
        return tuple(outcome for outcome in self.outcomes if outcome.is_lost)

    @property
    def is_clean(self) -> bool:
        """Whether the kubelet certainly starts and keeps all its pods."""
        is_open = any(outcome.is_undecided for outcome in self.outcomes)
        return self.starts and not (self.lost or is_open or self.not_judged or self.next_failures)


class StartRemedy(msgspec.Struct, frozen=True, kw_only=True):
    """Changes with which the kubelet starts."""

    delete: tuple[StateFile, ...] = ()
    """The files to delete while the kubelet is stopped."""
    drain: tuple[Pod, ...] = ()
    """The pods without which the kubelet starts the next time, too."""
    reserved_memory: tuple[MemoryReservation, ...] | None = None
    """The `reservedMemory` to configure; None: unchanged."""
    then: RestartRehearsal
    """The result of the start with these changes while all pods keep running."""


class RunningPods(msgspec.Struct, frozen=True, kw_only=True):
    """The pods that run during a kubelet restart."""

    pods: Sequence[Pod]
    containers: frozenset[tuple[str, str]]
    """The running containers by pod uid and name."""
    held: StoredState
    """The pods' actual allocations, independent of what the next kubelet reads."""
    is_complete: bool = True
    """Whether this is the complete list of pods."""


def rehearse_restart(parts: NodeParts, stored: StoredState, running: RunningPods) -> RestartRehearsal:
    """The result of starting a kubelet with these parts and files while pods keep running; changes nothing."""
    startup = start_kubelet(parts, stored, running.containers)
    if startup.state is None:
        remedy = _remedy(parts, stored, startup, running)
        return RestartRehearsal(start_failures=startup.failures, warnings=startup.warnings, remedy=remedy)
    return _rehearsal(startup, startup.state, running)


def invalid_configuration_rehearsal(because: Sequence[Reason]) -> RestartRehearsal:
    """The result of a start with an invalid configuration."""
    return RestartRehearsal(
        start_failures=tuple(StartFailure(StartStage.CONFIGURATION, reason) for reason in because)
    )


def reserved_memory(parts: NodeParts) -> tuple[MemoryReservation, ...] | None:
    """The valid `reservedMemory` for this node that is nearest to the configured one; None: there is none."""
    configured = [
        Reservation(reservation.numa_node, reservation.limits)
        for reservation in parts.kubelet.reserved_memory
    ]
    valid = valid_reservations(parts.machine.topology, parts.resources.total_reserved, configured)
    if valid is None:
        return None
    return tuple(
        MemoryReservation(numa_node=reservation.numa, limits=reservation.limits) for reservation in valid
    )


class ReconfiguredNode(msgspec.Struct, frozen=True):
    """The node with its pods placed in order of admission, and the pods that it would reject."""

    state: NodeState
    rejected: frozenset[str]
    """Uids of pods that a kubelet would reject; they are on the node nevertheless."""


def is_valid_configuration(parts: NodeParts) -> bool:
    """Whether the kubelet's validation accepts the configuration."""
    return not complete_config(parts.kubelet, release=parts.release.table, machine=parts.machine).faults


def reconfigured_node(parts: NodeParts, pods: Iterable[Pod]) -> ReconfiguredNode | None:
    """The node with these parts and its pods placed in order; None: the kubelet does not start."""
    started = initial_node(parts)
    if isinstance(started, Refused):
        return None
    state, rejected = started.value, set()
    for pod in pods:
        recovery = step(state, PodRecovered(pod))
        if recovery.decision is Decision.REFUSED:
            rejected.add(pod.uid)
        state = recovery.state
    return ReconfiguredNode(state, frozenset(rejected))


_FILES = {StartStage.CPU_STATE: StateFile.CPU, StartStage.MEMORY_STATE: StateFile.MEMORY}


def _allocations(placement: Placement, ended: Container[str]) -> tuple[object, ...]:
    containers = [
        _container_allocations(container) for container in placement.containers if container.name not in ended
    ]
    return placement.cpus, placement.memory, containers


def _container_allocations(container: ContainerPlacement) -> tuple[object, ...]:
    return container.name, container.cpus, container.memory, container.devices


def _rehearsal(startup: KubeletStartResult, state: NodeState, running: RunningPods) -> RestartRehearsal:
    """The outcomes for the pods after a successful start."""
    pods = running.pods
    before = msgspec.structs.replace(state, held=_holdings(running.held))
    after, readmitted_pods = readmit_pods(state, pods, {pod.uid for pod in pods})
    preempted_by = {
        victim.pod.uid: readmitted.pod
        for readmitted in readmitted_pods
        for victim in (readmitted.step.victims.victims if readmitted.step.victims else ())
    }
    settled = with_plugins_registered(after).without_stale()
    outcomes = tuple(
        PodRestartOutcome(
            pod=readmitted.pod,
            decision=readmitted.step.decision or Decision.ADMITTED,
            because=readmitted.step.because if readmitted.step.decision is not Decision.ADMITTED else (),
            preempted_by=preempted_by.get(readmitted.pod.uid),
            before=placement_of(before, readmitted.pod),
            after=placement_of(settled, readmitted.pod),
        )
        for readmitted in readmitted_pods
    )
    pod_uids = {pod.uid for pod in pods}
    held = before.held
    holders = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.pod_devices}
    leftovers = tuple(sorted(holders - pod_uids))
    unknown = (PODS_UNKNOWN,) if leftovers and not running.is_complete else ()
    return RestartRehearsal(
        warnings=startup.warnings,
        outcomes=outcomes,
        stale_pods=leftovers,
        not_judged=unknown,
        state=settled,
    )


def _holdings(stored: StoredState) -> Holdings:
    """The allocations in the readable files."""
    return Holdings(
        cpu=stored.cpu.value if isinstance(stored.cpu, Granted) else CPUState(),
        memory=stored.memory.value if isinstance(stored.memory, Granted) else MemoryState(),
        devices=stored.devices.value if isinstance(stored.devices, Granted) else DeviceState(),
    )


_RESERVED_WRONG = ReservedMemoryDiffers | ReservedMemoryElsewhere | ReservedMemoryInexact


def _remedy(
    parts: NodeParts, stored: StoredState, startup: KubeletStartResult, running: RunningPods
) -> StartRemedy | None:
    """The valid `reservedMemory`, and the files to delete, found one after the other until the kubelet starts."""
    reserved = None
    if any(isinstance(failure.because, _RESERVED_WRONG) for failure in startup.failures):
        reserved = reserved_memory(parts)
    if reserved is not None:
        parts = replace(parts, kubelet=msgspec.structs.replace(parts.kubelet, reserved_memory=reserved))
        startup = start_kubelet(parts, stored, running.containers)
    deleted: dict[StateFile, None] = {}
    while startup.state is None:
        files = {file for failure in startup.failures if (file := _file(failure)) is not None}
        if len(files) < len({failure.stage for failure in startup.failures}) or files <= deleted.keys():
            return None
        deleted |= dict.fromkeys(sorted(files))
        stored = _without(stored, deleted)
        startup = start_kubelet(parts, stored, running.containers)
    then, drained = _rehearsal(startup, startup.state, running), list[Pod]()
    while then.next_failures:
        holder = next((out.pod for out in reversed(then.outcomes) if _holds(out.after)), None)
        if holder is None:
            return None
        drained.append(holder)
        remaining = tuple(pod for pod in running.pods if pod.uid != holder.uid)
        running = msgspec.structs.replace(running, pods=remaining)
        then = _rehearsal(startup, startup.state, running)
    ended = {pod.uid for pod in drained}
    then = replace(then, stale_pods=tuple(uid for uid in then.stale_pods if uid not in ended))
    return StartRemedy(delete=tuple(deleted), drain=tuple(drained), reserved_memory=reserved, then=then)


def _holds(placement: Placement) -> bool:
    return bool(placement.cpus or any(container.cpus for container in placement.containers))


def _file(failure: StartFailure) -> StateFile | None:
    """The file that causes the failure."""
    if failure.stage is StartStage.RESOURCES and isinstance(failure.because, StateFileDamaged):
        return failure.because.file
    return _FILES.get(failure.stage)


def _without(stored: StoredState, files: Mapping[StateFile, None]) -> StoredState:
    resource_errors = tuple(
        resource
        for resource in stored.resources
        if not (isinstance(resource, StateFileDamaged) and resource.file in files)
    )
    return StoredState(
        cpu=None if StateFile.CPU in files else stored.cpu,
        memory=None if StateFile.MEMORY in files else stored.memory,
        devices=stored.devices,
        resources=resource_errors,
    )
