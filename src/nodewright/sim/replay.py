"""A node through a script of events: what came of each."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodewright.core.arrival import identified
from nodewright.core.devices.manager import PluginError
from nodewright.core.requests import with_defaults
from nodewright.model.device_reasons import DeviceAllocationFailed
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason
from nodewright.model.scenario import DeviceListing, DeviceService, ScenarioEvent
from nodewright.node.actions import RejectPod
from nodewright.node.events import (
    DevicesObserved,
    DevicesServed,
    KillFailed,
    PodArrived,
    PodFound,
    PodGone,
    PodResized,
    PodStarted,
)
from nodewright.node.state import NodeState
from nodewright.node.step import Step, step
from nodewright.sim.happened import Happened
from nodewright.sim.looks import BEFORE_ALL_S, looking, time_s
from nodewright.sim.restart import Standing, restarted


def replay(state: NodeState, events: Iterable[ScenarioEvent], *, live: bool = False) -> Iterator[Happened]:
    """What came of each event, one after the other.

    Departs: unless the events are ``live`` ones, every pod that is taken starts at once, before anything else
        happens.
    """
    seen = dict(state.pods)
    standing, clock_s = Standing(), BEFORE_ALL_S
    for number, event in enumerate(events):
        pod = event.add if live and event.add is not None else _pod(event, state, seen)
        is_there = pod is not None and (pod.uid in state.pods or pod.uid in state.waiting)
        if event.restart is not None:
            done, standing = restarted(state, event.restart, standing)
        elif event.observe is not None:
            clock_s = time_s(event.observe, clock_s)
            done = step(state, looking(state, event.observe, clock_s))
        elif event.devices is not None:
            done = step(state, _listed(event.devices))
        else:
            done = _done(state, event, pod, is_there=is_there)
        after = done.state
        if pod is not None and event.resize is None:
            seen[pod.uid] = pod
        if pod is not None and event.add is not None and not is_there and not live:
            after = step(after, PodStarted(pod.uid)).state
        for uid in state.waiting if event.restart is not None else ():
            after = step(after, PodStarted(uid)).state
        yield Happened(
            number=number,
            event=event,
            pod=pod,
            was_there=is_there,
            decision=None if event.add is None else done.decision,
            because=done.because,
            victims=done.victims,
            relief=done.relief,
            resizes=done.resizes,
            lost=_lost(state, done) if event.restart is not None else (),
            actions=done.actions,
            decided=done.state,
            after=after,
        )
        state = after


def _lost(before: NodeState, done: Step) -> tuple[tuple[Pod, tuple[Reason, ...]], ...]:
    pods = {**before.pods, **before.waiting}
    rejected = (action for action in done.actions if isinstance(action, RejectPod))
    return tuple((pods[action.pod_uid], action.because) for action in rejected)


def _pod(event: ScenarioEvent, state: NodeState, seen: dict[str, Pod]) -> Pod | None:
    """The pod that the event is about."""
    pod = event.add or event.found
    if pod is not None:
        return with_defaults(identified(pod))
    served = event.served.pod if event.served is not None else None
    going_on = event.remove or event.started or served
    if going_on is not None:
        return _named(going_on, {**state.pods, **state.waiting})
    if event.resize is not None:
        wanted = event.resize
        there = _named(wanted.uid or wanted.full_name, state.pods) or _named(wanted.full_name, state.pods)
        return there and replace(wanted, metadata=replace(wanted.metadata, uid=there.uid))
    return None if event.kill_failed is None else _named(event.kill_failed, seen)


def _named(name: str, pods: Mapping[str, Pod]) -> Pod | None:
    """The pod with this uid, else the last with this namespace and name."""
    if name in pods:
        return pods[name]
    return next((pod for pod in reversed(tuple(pods.values())) if pod.full_name == name), None)


def _done(state: NodeState, event: ScenarioEvent, pod: Pod | None, *, is_there: bool) -> Step:
    if pod is None:
        return Step(state)
    if event.remove is not None:
        return step(state, PodGone(pod.uid))
    if event.started is not None:
        return step(state, PodStarted(pod.uid))
    if event.served is not None:
        return step(state, _served(pod.uid, event.served))
    if event.resize is not None:
        return step(state, PodResized(pod))
    if is_there:
        return Step(state)
    if event.add is not None:
        said = {
            (one.container, one.resource): PluginError(one.error) if one.error else one.devices
            for one in event.preferred or ()
        }
        return step(state, PodArrived(pod, preferred=said))
    return step(state, PodFound(pod) if event.found is not None else KillFailed(pod))


def _listed(told: DeviceListing) -> DevicesObserved:
    return DevicesObserved(resource=told.resource, devices=told.devices, preference=told.preferred_allocation)


def _served(uid: str, told: DeviceService) -> DevicesServed:
    no = told.refused
    if no is None:
        return DevicesServed(uid=uid)
    failure = DeviceAllocationFailed(resource=no.resource, error=no.error, devices=no.devices)
    return DevicesServed(uid=uid, failure=failure)
