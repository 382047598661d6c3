"""A node through a script of events: what came of each."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from nodewright.core.arrival import identified
from nodewright.core.preemption import Victims
from nodewright.core.requests import with_defaults
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason
from nodewright.model.scenario import ScenarioEvent
from nodewright.node.actions import Action
from nodewright.node.events import KillFailed, PodArrived, PodFound, PodGone, PodStarted
from nodewright.node.placement import Placement, placement_of
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step, step


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What came of one event."""

    number: int
    """Of the event, from 0."""
    event: ScenarioEvent
    pod: Pod | None
    """The pod in question; None: there is no such pod."""
    was_there: bool
    """Whether the node had the pod before. If one that it has arrives again, nothing happens."""
    decision: Decision | None = None
    """On a pod that arrived."""
    because: tuple[Reason, ...] = ()
    """Why; the first refusal is the one that the kubelet reports."""
    victims: Victims | None = None
    actions: tuple[Action, ...] = ()
    decided: NodeState
    """The node when the decision had fallen, before any container started."""
    after: NodeState

    @property
    def placement(self) -> Placement | None:
        """What the pod was given for itself; None: it did not arrive, or is not taken."""
        if self.decision is None or self.pod is None or self.pod.uid not in self.decided.pods:
            return None
        return placement_of(self.decided, self.pod)


def replay(state: NodeState, events: Iterable[ScenarioEvent]) -> Iterator[Happened]:
    """What came of each event, one after the other.

    Departs: every pod that is taken starts at once, before anything else happens.
    """
    seen = dict(state.pods)
    for number, event in enumerate(events):
        pod = _pod(event, state, seen)
        is_there = pod is not None and pod.uid in state.pods
        done = _done(state, event, pod, is_there=is_there)
        after = done.state
        if pod is not None:
            seen[pod.uid] = pod
            if event.add is not None and not is_there:
                after = step(after, PodStarted(pod.uid)).state
        yield Happened(
            number=number,
            event=event,
            pod=pod,
            was_there=is_there,
            decision=None if event.add is None else done.decision,
            because=done.because,
            victims=done.victims,
            actions=done.actions,
            decided=done.state,
            after=after,
        )
        state = after


def _pod(event: ScenarioEvent, state: NodeState, seen: dict[str, Pod]) -> Pod | None:
    """The pod that the event is about."""
    pod = event.add or event.found
    if pod is not None:
        return with_defaults(identified(pod))
    if event.remove is not None:
        return _named(event.remove, state.pods)
    assert event.kill_failed is not None
    return _named(event.kill_failed, seen)


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
    if is_there:
        return Step(state)
    if event.add is not None:
        return step(state, PodArrived(pod))
    return step(state, PodFound(pod) if event.found is not None else KillFailed(pod))
