"""Replays the events of a scenario on a node, and collects the outcome of each."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid
from nodewright.engine.core.devices.device_manager import DevicePluginError
from nodewright.engine.core.eviction.eviction_forecast import MONITORING_PERIOD_S
from nodewright.engine.core.eviction.eviction_state import EvictionPass
from nodewright.engine.core.eviction.usage_inputs import matched_usage, usage_from_table
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.node.actions import Action, RejectPod
from nodewright.engine.node.events import (
    ConditionsObserved,
    DevicesAllocated,
    DevicesObserved,
    KillFailed,
    PodAdded,
    PodRecovered,
    PodRemoved,
    PodResized,
    PodStarted,
    UsageObserved,
)
from nodewright.engine.node.eviction_pass import eviction_capacities, eviction_claims
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import Placement, placement_of
from nodewright.engine.node.resize.resize_attempts import ResizeAttempt
from nodewright.engine.node.step import Decision, Step, step
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.scenario import (
    DeviceAllocationOutcome,
    DeviceListing,
    ScenarioEvent,
    ScenarioObservation,
    UsageTable,
)
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.devices import DeviceAllocationFailed
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.duration import Duration
from nodewright.predict.replay.scenario_run import PendingRestart, restart_step


class EventOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one event."""

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
    relief: EvictionPass | None = None
    """The eviction manager's pass, if there was one."""
    resizes: tuple[ResizeAttempt, ...] = ()
    """Outcomes of the attempted resizes."""
    rejected: tuple[tuple[Pod, tuple[Reason, ...]], ...] = ()
    """For a restart: the pods that the new kubelet rejected, with the reasons."""
    actions: tuple[Action, ...] = ()
    decided_state: NodeState
    """The node after the decision, before any container started."""
    final_state: NodeState

    @property
    def placement(self) -> Placement | None:
        """The pod's allocations; None: the event does not add a pod, or the pod is rejected."""
        if self.decision is None or self.pod is None or self.pod.uid not in self.decided_state.pods:
            return None
        return placement_of(self.decided_state, self.pod)


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
    state: NodeState, observation: ScenarioObservation, clock_s: float
) -> ConditionsObserved | UsageObserved:
    """The observation as an event of this node.

    Units: clock_s in seconds since the beginning.
    """
    if observation.conditions is not None:
        return ConditionsObserved(
            tuple(condition for condition in NodeCondition if condition in observation.conditions)
        )
    return UsageObserved(
        usage=None
        if observation.failed
        else _stats_summary(state, observation.summary or observation.usage or UsageTable()),
        now_s=clock_s,
        usage_after_reclaim=None if observation.after is None else _stats_summary(state, observation.after),
    )


def _stats_summary(state: NodeState, usage: StatsSummary | UsageTable) -> StatsSummary:
    if isinstance(usage, UsageTable):
        usage = usage_from_table(usage, eviction_capacities(state.config), eviction_claims(state))
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
            result = step(state, observation_event(state, event.observe, clock_s))
        elif event.devices is not None:
            result = step(state, _devices_observed(event.devices))
        else:
            result = _pod_step(state, event, pod, is_present=is_present)
        final_state = result.state
        if pod is not None and event.resize is None:
            known_pods[pod.uid] = pod
        if pod is not None and event.add is not None and not is_present and not live:
            final_state = step(final_state, PodStarted(pod.uid)).state
        for uid in state.pending_pods if event.restart is not None else ():
            final_state = step(final_state, PodStarted(uid)).state
        yield EventOutcome(
            number=number,
            event=event,
            pod=pod,
            was_present=is_present,
            decision=None if event.add is None else result.decision,
            because=result.because,
            victims=result.victims,
            relief=result.eviction_pass,
            resizes=result.resizes,
            rejected=_rejected_pods(state, result) if event.restart is not None else (),
            actions=result.actions,
            decided_state=result.state,
            final_state=final_state,
        )
        state = final_state


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
