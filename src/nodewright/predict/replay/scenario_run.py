"""Replays the events of a scenario on a node, and collects the outcome of each."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    files_after_failed_start,
    stored_state,
    written_state_files,
)
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid
from nodewright.engine.core.config.complete_config import complete_config
from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.engine.core.eviction.eviction_policy import MONITORING_PERIOD_S
from nodewright.engine.core.eviction.eviction_state import EvictionPass
from nodewright.engine.core.eviction.usage_inputs import matched_usage
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.node.actions import Action, RejectPod
from nodewright.engine.node.events import (
    ConditionsObserved,
    DevicesAllocated,
    DevicesObserved,
    KillFailed,
    KubeletRestarted,
    PodAdded,
    PodRecovered,
    PodRemoved,
    PodResized,
    PodStarted,
    ReservationsObserved,
    UsageObserved,
)
from nodewright.engine.node.node_config import NodeParts, resources_from_facts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_of
from nodewright.engine.node.resize import ResizeAttempt
from nodewright.engine.node.restart.kubelet_startup import StoredState, start_kubelet
from nodewright.engine.node.step import Decision, Step, step
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import (
    DeviceAllocationOutcome,
    DeviceListing,
    KubeletRestart,
    ReservationObservation,
    ScenarioEvent,
    ScenarioObservation,
    UsageTable,
)
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.devices import DeviceAllocationFailed
from nodewright.model.reasons.kubelet_start import ConfigurationRefused
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.duration import Duration
from nodewright.predict.evict.node_usage import table_usage


class ReplayedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one event, without the node."""

    number: int
    """Number of the event, from 0."""
    event: ScenarioEvent
    pod: Pod | None
    """The pod concerned; None: there is no such pod."""
    was_present: bool
    """Whether the pod was already on the node; adding it again has no effect."""
    decision: Decision | None = None
    """The decision on an added pod."""
    because: tuple[Reason, ...] = ()
    """The reasons; the kubelet reports the first."""
    victims: PreemptionVictims | None = None
    placement: Placement | None = None
    """The pod's allocations; None: the event does not add a pod, or the pod is rejected."""
    relief: EvictionPass | None = None
    """The eviction manager's pass, if there was one."""
    resizes: tuple[ResizeAttempt, ...] = ()
    """Outcomes of the attempted resizes."""
    rejected: tuple[tuple[Pod, tuple[Reason, ...]], ...] = ()
    """For a restart: the pods that the new kubelet rejected, with the reasons."""
    actions: tuple[Action, ...] = ()
    kubelet_down_for: tuple[Reason, ...] = ()
    """Why the kubelet does not start; empty: it runs."""
    is_under_pressure: bool = False
    """Whether the node reports a condition afterwards."""


class EventOutcome(ReplayedEvent, frozen=True, kw_only=True):
    """The outcome of one event, with the node afterwards."""

    final_state: NodeState

    def without_state(self) -> ReplayedEvent:
        """The outcome alone, of which many can be kept."""
        fields = {name: getattr(self, name) for name in ReplayedEvent.__struct_fields__}
        fields["kubelet_down_for"] = self.final_state.kubelet_down_for
        fields["is_under_pressure"] = bool(self.final_state.conditions)
        return ReplayedEvent(**fields)


INITIAL_CLOCK_S = -float(MONITORING_PERIOD_S)
"""Chosen so that the first check is at zero."""


def observation_time_s(observation: ScenarioObservation, before_s: float) -> float:
    """When the eviction manager makes its check.

    Units: seconds since the beginning; ``before_s`` is the time of the previous check.
    """
    return (
        before_s + MONITORING_PERIOD_S
        if observation.at is None
        else Duration.parse(observation.at).nanoseconds / 10**9
    )


def observation_event(
    state: NodeState, observation: ScenarioObservation, clock_s: float, number: int
) -> ConditionsObserved | UsageObserved:
    """The observation of the event with this number as an event of this node.

    Units:  clock_s in seconds since the beginning.
    Errors: InputError for available amounts that exceed their capacity, or whose capacity is unknown.
    """
    if observation.conditions is not None:
        return ConditionsObserved(
            tuple(condition for condition in NodeCondition if condition in observation.conditions)
        )
    path = f"spec.events[{number}].observe"
    return UsageObserved(
        usage=None
        if observation.failed
        else _stats_summary(state, observation.summary or observation.usage or UsageTable(), path),
        now_s=clock_s,
        usage_after_reclaim=None
        if observation.after is None
        else _stats_summary(state, observation.after, path),
    )


def _stats_summary(state: NodeState, usage: StatsSummary | UsageTable, path: str) -> StatsSummary:
    if isinstance(usage, UsageTable):
        usage = table_usage(usage, state, f"{path}.usage")
    return matched_usage(usage, state.pods.values()).usage


def replay(
    state: NodeState, events: Iterable[ScenarioEvent], *, live: bool = False
) -> Iterator[EventOutcome]:
    """The outcome of each event, one after the other.

    Departs: unless the events are ``live``, every admitted pod starts at once, before the next event.
    """
    known_pods = dict(state.pods)
    pending, clock_s = PendingRestart(), INITIAL_CLOCK_S
    for number, event in enumerate(events):
        pod = event.add if live and event.add is not None else _pod(event, state, known_pods)
        is_present = pod is not None and (pod.uid in state.pods or pod.uid in state.pending_pods)
        if event.restart is not None:
            result, pending = restart_step(state, event.restart, pending)
        elif event.observe is not None:
            clock_s = observation_time_s(event.observe, clock_s)
            result = step(state, observation_event(state, event.observe, clock_s, number))
        elif event.devices is not None:
            result = step(state, _devices_observed(event.devices))
        else:
            result = _pod_step(state, event, pod, is_present=is_present)
        final_state = result.state
        if pod is not None and event.resize is None:
            known_pods[pod.uid] = pod
        is_new = event.add is not None and not is_present and not live
        started = [pod.uid] if pod is not None and is_new else []
        for uid in state.pending_pods if event.restart is not None else started:
            final_state = step(final_state, PodStarted(uid)).state
        yield EventOutcome(
            number=number,
            event=event,
            pod=pod,
            was_present=is_present,
            decision=None if event.add is None else result.decision,
            because=result.because,
            victims=result.victims,
            placement=None if event.add is None else _placement(result, pod),
            relief=result.eviction_pass,
            resizes=result.resizes,
            rejected=_rejected_pods(state, result) if event.restart is not None else (),
            actions=result.actions,
            final_state=final_state,
        )
        state = final_state


def _placement(result: Step, pod: Pod | None) -> Placement | None:
    if result.decision is None or pod is None or pod.uid not in result.state.pods:
        return None
    return placement_of(result.state, pod)


def _rejected_pods(before: NodeState, result: Step) -> tuple[tuple[Pod, tuple[Reason, ...]], ...]:
    pods = {**before.pods, **before.pending_pods}
    rejected = (action for action in result.actions if isinstance(action, RejectPod))
    return tuple((pods[action.pod_uid], action.because) for action in rejected)


def _pod(event: ScenarioEvent, state: NodeState, known_pods: dict[str, Pod]) -> Pod | None:
    """The pod that the event concerns."""
    pod = event.add or event.found
    if pod is not None:
        return pod_as_stored(with_uid(pod), state.config.gates)
    served = event.served.pod if event.served is not None else None
    pod_name = event.remove or event.started or served
    if pod_name is not None:
        return _named(pod_name, {**state.pods, **state.pending_pods})
    if event.resize is not None:
        resized = event.resize
        current = _named(resized.uid or resized.full_name, state.pods) or _named(
            resized.full_name, state.pods
        )
        return current and replace(resized, metadata=replace(resized.metadata, uid=current.uid))
    return None if event.kill_failed is None else _named(event.kill_failed, known_pods)


def _named(name: str, pods: Mapping[str, Pod]) -> Pod | None:
    """The pod with this uid, otherwise the last with this namespace and name."""
    if name in pods:
        return pods[name]
    return next((pod for pod in reversed(tuple(pods.values())) if pod.full_name == name), None)


def _pod_step(state: NodeState, event: ScenarioEvent, pod: Pod | None, *, is_present: bool) -> Step:
    if event.lend is not None:
        return step(state, _reservations_observed(event.lend))
    if pod is None:
        return Step(state)
    if event.remove is not None:
        return step(state, PodRemoved(pod.uid))
    if event.started is not None:
        return step(state, PodStarted(pod.uid))
    if event.served is not None:
        return step(state, _devices_allocated(pod.uid, event.served))
    if event.resize is not None:
        return step(state, PodResized(pod))
    if is_present:
        return Step(state)
    if event.add is not None:
        preferred = {
            (answer.container, answer.resource): DevicePluginError(answer.error)
            if answer.error
            else answer.devices
            for answer in event.preferred or ()
        }
        return step(state, PodAdded(pod, preferred_devices=preferred))
    return step(state, PodRecovered(pod) if event.found is not None else KillFailed(pod))


def _reservations_observed(lend: ReservationObservation) -> ReservationsObserved:
    return ReservationsObserved(
        cpu_milli=None if lend.cpu is None else lend.cpu.milli_value(),
        memory_bytes=None if lend.memory is None else lend.memory.value(),
        borrowed_bytes=0 if lend.borrowed is None else lend.borrowed.value(),
    )


def _devices_observed(outcome: DeviceListing) -> DevicesObserved:
    return DevicesObserved(
        resource=outcome.resource, devices=outcome.devices, preference=outcome.preferred_allocation
    )


def _devices_allocated(uid: str, outcome: DeviceAllocationOutcome) -> DevicesAllocated:
    refusal = outcome.refused
    if refusal is None:
        return DevicesAllocated(uid=uid)
    failure = DeviceAllocationFailed(resource=refusal.resource, error=refusal.error, devices=refusal.devices)
    return DevicesAllocated(uid=uid, failure=failure)


def changed_parts(parts: NodeParts, change: KubeletRestart) -> Verdict[NodeParts]:
    """The parts of the node after the change; refused if a kubelet rejects the configuration."""
    machine = change.machine_info or parts.machine
    facts = parts.facts if change.devices is None else replace(parts.facts, devices=change.devices)
    host = ConfigHost(machine=machine, cgroup_version=facts.cgroup_version, release=parts.release.table)
    if change.kubelet_configuration is None:
        completion = complete_config(
            parts.kubelet,
            release=parts.release.table,
            machine=machine,
            cgroup_version=facts.cgroup_version,
        )
        if completion.faults:
            return Refused(
                tuple(ConfigurationRefused(path=fault.path, error=fault.text) for fault in completion.faults)
            )
        kubelet, gates = parts.kubelet, parts.gates
    else:
        try:
            loaded = kubelet_config_from(change.kubelet_configuration, "", host=host)
        except InputError as error:
            return configuration_refusal(error)
        kubelet, gates = loaded.config, loaded.gates
    if kubelet != parts.kubelet or machine != parts.machine:
        facts = replace(facts, reported_allocatable={})
    resources = resources_from_facts(machine, kubelet, facts)
    settings = replace(parts, gates=gates, kubelet=kubelet)
    return Granted(replace(settings, machine=machine, facts=facts, resources=resources))


def configuration_refusal(error: InputError) -> Refused:
    """The error as a refusal with the kubelet's texts."""
    return Refused(tuple(ConfigurationRefused(path=fault.path, error=fault.rule) for fault in error.faults))


NO_CHANGE = KubeletRestart()


class PendingRestart(msgspec.Struct, frozen=True, kw_only=True):
    """Changes and files that a kubelet which does not start leaves for the next restart."""

    change: KubeletRestart = NO_CHANGE
    """The changes since a kubelet last started."""
    files: StateFiles | None = None
    """The state files; None: those that the running kubelet writes."""


def restart_step(
    state: NodeState, change: KubeletRestart, pending: PendingRestart
) -> tuple[Step, PendingRestart]:
    """Restarts the kubelet: the step, and what remains for the next restart.

    Errors: as `stored_in`.
    """
    merged_change = _merged(pending.change, change)
    files = (pending.files or written_state_files(state)).without(change.deleted_files)
    parts = changed_parts(state.config.parts, merged_change)
    if isinstance(parts, Refused):
        return step(state, KubeletRestarted(parts, StoredState())), PendingRestart(
            change=merged_change, files=files
        )
    stored = stored_state(files, parts.value)
    result = step(state, KubeletRestarted(parts, stored))
    if result.state.kubelet_down_for:
        files_left = files_after_failed_start(files, start_kubelet(parts.value, stored), parts.value)
        return result, PendingRestart(change=merged_change, files=files_left)
    return result, PendingRestart()


def _merged(before: KubeletRestart, after: KubeletRestart) -> KubeletRestart:
    changed_fields = {
        name: value
        for name in ("kubelet_configuration", "machine_info", "devices")
        if (value := getattr(after, name)) is not None
    }
    return msgspec.structs.replace(before, **changed_fields)
