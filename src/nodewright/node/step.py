"""The node as one function: a state and an event in; the next state, what to do, and why, out."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from nodewright.core.devices.state import NOBODY_ASKED, Asking
from nodewright.core.eviction import Pass
from nodewright.core.preemption import Victims
from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.objects import ContainerState, Pod
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.verdict import Refused
from nodewright.node.actions import Action, AdmitPod, AskPlugin, EndKubelet, RejectPod
from nodewright.node.admission import admission, aligned, doubt, is_refused_anyway, without_victims
from nodewright.node.assumed import assumed_parts
from nodewright.node.devices import listed, served
from nodewright.node.events import (
    ConditionsObserved,
    DevicesObserved,
    DevicesServed,
    Event,
    KillFailed,
    PodArrived,
    PodFound,
    PodGone,
    PodResized,
    PodStarted,
    Restarted,
    UsageObserved,
)
from nodewright.node.judging import open_questions
from nodewright.node.preempting import preempting
from nodewright.node.pressure import gone_over, reasons_of, relief_actions, relieved
from nodewright.node.resizing import Resize, Resized, put_aside, resized, retried, taken_up
from nodewright.node.restart import begin, in_order, registered
from nodewright.node.state import NodeState


class Decision(StrEnum):
    """What became of a pod that arrived."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    UNDECIDED = "undecided"


class Step(msgspec.Struct, frozen=True):
    """What an event led to."""

    state: NodeState
    actions: tuple[Action, ...] = ()
    """To be done in this order, each when the one before is done."""
    because: tuple[Reason, ...] = ()
    """Why; the first reason is the one that the kubelet reports."""
    decision: Decision | None = None
    """On a pod that arrived or was found."""
    victims: Victims | None = None
    """Who makes way for it, and how they were chosen."""
    relief: Pass | None = None
    """What the eviction manager did, where it has been over the node."""
    resizes: tuple[Resize, ...] = ()
    """What became of the resizes that were tried, in this order."""


def step(state: NodeState, event: Event) -> Step:
    """The node after the event; same arguments, same result.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, AddPod; the handlers in the order of
        pkg/kubelet/kubelet.go, NewMainKubelet.
    """
    match event:
        case Restarted():
            return _restarted(state, event)
        case PodArrived(pod) if state.down_for:
            return _waiting(state, pod)
        case PodArrived():
            return _came(state, event)
        case PodFound(pod, is_placed):
            return Step(state.with_pod(pod)) if is_placed else _found(state, pod)
        case PodStarted(uid):
            return Step(state.started(uid))
        case KillFailed(pod):
            return Step(state.with_pod(pod))
        case PodGone(uid):
            return _gone(state, uid)
        case PodResized(pod):
            return _of_resizes(put_aside(state, pod) if state.down_for else resized(state, pod))
        case UsageObserved() | ConditionsObserved() if state.down_for:
            return Step(state)
        case UsageObserved():
            done = gone_over(state, event)
            return Step(relieved(state, done), relief_actions(done), reasons_of(done), relief=done)
        case ConditionsObserved(conditions):
            return Step(replace(state, conditions=conditions))
        case DevicesObserved():
            return Step(listed(state, event))
        case DevicesServed(uid=uid) if uid in state.pods:
            return _served(state, event)
        case DevicesServed():
            return Step(state)
        case _:
            assert_never(event)


def _gone(state: NodeState, uid: str) -> Step:
    after = state.without_pod(uid)
    is_tried = after.resizing and not after.down_for
    return _of_resizes(retried(after)) if is_tried else Step(after)


def _came(state: NodeState, event: PodArrived) -> Step:
    """The decision on a pod, or what a plugin has to be asked before: then all is as it was."""
    if not (event.can_ask or event.preferred):
        return _arrived(state, event.pod)
    asking = Asking(answers=event.preferred, can_ask=event.can_ask)
    done = _arrived(_with_asking(state, asking), event.pod)
    for reason in done.because:
        if isinstance(reason, PreferenceWanted):
            return Step(state, (AskPlugin(pod_uid=event.pod.uid, question=reason),))
    return replace(done, state=_with_asking(done.state, NOBODY_ASKED))


def _with_asking(state: NodeState, asking: Asking) -> NodeState:
    devices = replace(state.held.devices, asking=asking)
    return replace(state, held=replace(state.held, devices=devices))


def _served(state: NodeState, event: DevicesServed) -> Step:
    """The node with what plugins said of a pod's devices; one that failed turns the pod away.

    Follows: v1.36, devicemanager/manager.go, allocateContainerResources; pkg/kubelet/kubelet.go, rejectPod.
    Departs: the kubelet asks before it looks at the next container, and waits for as long as the plugin takes;
        here the pod holds its devices meanwhile, and pods that came after it are decided on.
    """
    if event.failure is None:
        return Step(served(state, event))
    gone = _gone(state, event.uid)
    reject = RejectPod(pod_uid=event.uid, because=(event.failure,))
    after = gone.state.turned_away(event.uid)
    return replace(
        gone,
        state=after,
        actions=(reject, *gone.actions),
        because=(event.failure, *gone.because),
        decision=Decision.REFUSED,
    )


def _of_resizes(done: Resized) -> Step:
    return Step(done.state, done.actions, resizes=done.resizes)


def _found(state: NodeState, pod: Pod) -> Step:
    """The state with a pod that runs, and what would be said of it if it came now; nobody makes way for it."""
    judged = admission(state, pod)
    held = judged.held
    if held is None:
        held = aligned(state, pod).held
    after = replace(state, held=held, settled=True).with_pod(pod).started(pod.uid)
    decision = Decision.REFUSED if judged.refused_for else Decision.ADMITTED
    return Step(after, because=(*judged.refused_for, *judged.because), decision=decision)


def _waiting(state: NodeState, pod: Pod) -> Step:
    """A pod that comes while there is no kubelet to look at it."""
    nobody = NotJudged(what="the pod", because="the kubelet does not run")
    after = replace(state, waiting={**state.waiting, pod.uid: pod})
    return Step(after, because=(nobody,), decision=Decision.UNDECIDED)


def _restarted(state: NodeState, event: Restarted) -> Step:
    """The node under another kubelet, if that one starts: it looks at all pods as if they were new.

    Follows: v1.36, pkg/kubelet/kubelet.go, syncLoopIteration, HandlePodAdditions, initializeRuntimeDependentModules.
    """
    if isinstance(event.parts, Refused):
        return _down(state, event.parts.because)
    begun = begin(event.parts.value, event.stored, running(state.pods.values()))
    if begun.state is None:
        return _down(state, tuple(ending.because for ending in begun.endings))
    known = state.pods.keys() - state.open_pods
    after, taken = readmitted(begun.state, (*state.pods.values(), *state.waiting.values()), known)
    actions = tuple(action for one in taken for action in one.step.actions)
    lost = (one.step for one in taken if one.step.decision is not Decision.ADMITTED)
    because = (*begun.warnings, *(reason for one in lost for reason in one.because))
    again = taken_up(registered(after), state.resizing)
    return Step(again.state, (*actions, *again.actions), because, resizes=again.resizes)


def _down(state: NodeState, because: tuple[Reason, ...]) -> Step:
    return Step(replace(state, down_for=because), (EndKubelet(because=because),), because)


def running(pods: Iterable[Pod]) -> frozenset[tuple[str, str]]:
    """The containers that run, by uid and name: as statuses say, else all but those that run before the others."""
    return frozenset((pod.uid, name) for pod in pods for name in _running(pod))


def _running(pod: Pod) -> Iterator[str]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    told = {one.name: one.state.running is not None for one in statuses if one.state != ContainerState()}
    for one in pod.spec.init_containers:
        if told.get(one.name, one.is_sidecar):
            yield one.name
    for one in pod.spec.containers:
        if told.get(one.name, True):
            yield one.name


class Readmitted(msgspec.Struct, frozen=True):
    """What a kubelet that has started made of a pod."""

    pod: Pod
    step: Step


def readmitted(
    state: NodeState, pods: Iterable[Pod], known: Collection[str]
) -> tuple[NodeState, tuple[Readmitted, ...]]:
    """The node after its kubelet has looked at all pods, and what it made of each.

    Each goes through all handlers, as a new one does; what it holds already it keeps. Until all are known,
    nothing is taken back from anybody; `restart` knows what becomes of the node then. ``known`` are the uids of those that ran before: what the node is
    like for them is no question.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; allocation/allocation_manager.go, AddPod.
    Departs: pods are judged by what the new configuration leaves them; a kubelet that is slow to write its
        node object judges by what the former one left.
    """
    taken = []
    for pod in in_order(pods):
        found = _arrived(replace(state, settled=True), pod, is_known=pod.uid in known)
        taken.append(Readmitted(pod, found))
        state = found.state
    return state, tuple(taken)


def _arrived(state: NodeState, pod: Pod, *, is_known: bool = False) -> Step:
    """The decision on a pod, the same in every world that the open questions leave possible.

    Where earlier pods are only assumed to be in, the node is judged with all of them and with none of them:
    an answer that is the same both times stands.
    """
    # A pod that the node has already is not its own neighbour.
    state = state.without_pod(pod.uid)
    judged = admission(state, pod)
    refused = judged.refused_for
    unknown = () if is_known else open_questions(state.config, pod)
    doubts = doubt(state, pod, judged)
    assumed = assumed_parts(state.config, pod)
    if refused and assumed and is_refused_anyway(state, pod, judged):
        unknown, assumed = (*assumed, *unknown), ()
    doubts = (*assumed, *doubts)
    # What is not known of a pod could only turn it away: for one that is turned away it changes no more than the reason.
    if not refused:
        doubts = (*unknown, *doubts)
    after = state if judged.held is None else replace(state, held=judged.held, settled=True)
    after = without_victims(after, judged.victims)
    if doubts:
        because = (*doubts, *refused, *judged.because)
        return Step(after.with_pod(pod, assumed=True), (), because, Decision.UNDECIDED, judged.victims)
    killing = preempting(judged.victims) if judged.victims else ()
    if refused:
        actions = (*killing, RejectPod(pod_uid=pod.uid, because=refused))
        because = (*refused, *unknown, *judged.because)
        return Step(after.turned_away(pod.uid), actions, because, Decision.REFUSED, judged.victims)
    actions = (*killing, AdmitPod(pod_uid=pod.uid))
    return Step(after.with_pod(pod), actions, judged.because, Decision.ADMITTED, judged.victims)
