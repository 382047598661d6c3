"""The node as one function: a state and an event in; the next state, what to do, and why, out."""

from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from nodewright.core.devices.allocate import in_use_counts
from nodewright.core.eviction import Pass, refused_under_pressure
from nodewright.core.podfeatures import disabled_pod_level_resources, forbidden_sysctl, missing_features
from nodewright.core.predicates import Judgement, judge
from nodewright.core.preemption import Victims, preempt
from nodewright.model.objects import ContainerState, Pod
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.verdict import Granted, Refused
from nodewright.node.actions import Action, AdmitPod, EndKubelet, RejectPod
from nodewright.node.alignment import Aligned, align
from nodewright.node.assumed import assumed_parts
from nodewright.node.events import (
    ConditionsObserved,
    Event,
    KillFailed,
    PodArrived,
    PodFound,
    PodGone,
    PodStarted,
    Restarted,
    UsageObserved,
)
from nodewright.node.judging import open_questions
from nodewright.node.preempting import preempting
from nodewright.node.pressure import gone_over, reasons_of, relief_actions, relieved
from nodewright.node.providers import Holdings
from nodewright.node.restart import begin, in_order, registered
from nodewright.node.state import NodeState, as_counted


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
        case PodArrived(pod):
            return _arrived(state, pod)
        case PodFound(pod, is_placed):
            return Step(state.with_pod(pod)) if is_placed else _found(state, pod)
        case PodStarted(uid):
            return Step(state.started(uid))
        case KillFailed(pod):
            return Step(state.with_pod(pod))
        case PodGone(uid):
            return Step(state.without_pod(uid))
        case UsageObserved() | ConditionsObserved() if state.down_for:
            return Step(state)
        case UsageObserved():
            done = gone_over(state, event)
            return Step(relieved(state, done), relief_actions(done), reasons_of(done), relief=done)
        case ConditionsObserved(conditions):
            return Step(replace(state, conditions=conditions))
        case _:
            assert_never(event)


class _Admission(msgspec.Struct, frozen=True):
    """What the handlers say of a pod: why it is turned away (nothing: it is not), and who has to go."""

    refused_for: tuple[Reason, ...] = ()
    victims: Victims | None = None
    held: Holdings | None = None
    """What is held after the managers have dealt with it; None: they were not asked."""
    because: tuple[Reason, ...] = ()
    """The hints and choices behind what the managers granted."""
    by_managers: bool = False
    """Whether it was the managers that turned the pod away."""


def _found(state: NodeState, pod: Pod) -> Step:
    """The state with a pod that runs, and what would be said of it if it came now; nobody makes way for it."""
    admission = _admission(state, pod)
    held = admission.held
    if held is None:
        held = _aligned(state, pod).held
    after = replace(state, held=held, settled=True).with_pod(pod).started(pod.uid)
    decision = Decision.REFUSED if admission.refused_for else Decision.ADMITTED
    return Step(after, because=(*admission.refused_for, *admission.because), decision=decision)


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
    return Step(after, actions, (*begun.warnings, *(reason for one in lost for reason in one.because)))


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
    nothing is taken back from anybody. ``known`` are the uids of those that ran before: what the node is
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
    return registered(state), tuple(taken)


def _arrived(state: NodeState, pod: Pod, *, is_known: bool = False) -> Step:
    """The decision on a pod, the same in every world that the open questions leave possible.

    Where earlier pods are only assumed to be in, the node is judged with all of them and with none of them:
    an answer that is the same both times stands.
    """
    # A pod that the node has already is not its own neighbour.
    state = state.without_pod(pod.uid)
    admission = _admission(state, pod)
    refused = admission.refused_for
    unknown = () if is_known else open_questions(state.config, pod)
    doubts = _doubts(state, pod, admission)
    assumed = assumed_parts(state.config, pod)
    if refused and assumed and _is_refused_anyway(state, pod, admission):
        unknown, assumed = (*assumed, *unknown), ()
    doubts = (*assumed, *doubts)
    # What is not known of a pod could only turn it away: for one that is turned away it changes no more than the reason.
    if not refused:
        doubts = (*unknown, *doubts)
    after = state if admission.held is None else replace(state, held=admission.held, settled=True)
    after = _without_victims(after, admission.victims)
    if doubts:
        because = (*doubts, *refused, *admission.because)
        return Step(after.with_pod(pod, assumed=True), (), because, Decision.UNDECIDED, admission.victims)
    killing = preempting(admission.victims) if admission.victims else ()
    if refused:
        actions = (*killing, RejectPod(pod_uid=pod.uid, because=refused))
        because = (*refused, *unknown, *admission.because)
        return Step(after.turned_away(pod.uid), actions, because, Decision.REFUSED, admission.victims)
    actions = (*killing, AdmitPod(pod_uid=pod.uid))
    return Step(after.with_pod(pod), actions, admission.because, Decision.ADMITTED, admission.victims)


def _is_refused_anyway(state: NodeState, pod: Pod, admission: _Admission) -> bool:
    """Whether the pod is turned away wherever on the node it would be placed."""
    return not admission.by_managers or bool(
        _room(state, as_counted(pod, state.config), state.held).refused_for
    )


def _without_victims(state: NodeState, victims: Victims | None) -> NodeState:
    for victim in victims.victims if victims else ():
        state = state.without_pod(victim.pod.uid)
    return state


def _doubts(state: NodeState, pod: Pod, admission: _Admission) -> tuple[NotJudged, ...]:
    """The doubt that earlier undecided pods cast on this decision, if they do."""
    if not state.open_pods:
        return ()
    without = state
    for uid in state.open_pods:
        without = without.without_pod(uid)
    if (
        bool(admission.refused_for) == bool(_admission(without, pod).refused_for)
        and admission.victims is None
    ):
        return ()
    names = ", ".join(other.full_name for uid, other in state.pods.items() if uid in state.open_pods)
    return (NotJudged(what="the room that is left", because=f"undecided before it: {names}"),)


def _admission(state: NodeState, pod: Pod) -> _Admission:
    """The handlers, one after the other; the first that refuses decides."""
    config = state.config
    under_pressure = refused_under_pressure(
        state.conditions,
        as_counted(pod, config),
        comparisons=config.gates["TaintTolerationComparisonOperators"],
    )
    if under_pressure is not None:
        return _Admission((under_pressure,))
    forbidden = forbidden_sysctl(pod, config.sysctls)
    if forbidden is not None:
        return _Admission((forbidden,))
    aligned = _aligned(state, pod)
    if aligned.refused_for:
        return _Admission(aligned.refused_for, held=aligned.held, because=aligned.because, by_managers=True)
    room = _room(state, as_counted(pod, config), aligned.held)
    room = replace(room, held=aligned.held, because=aligned.because)
    if room.refused_for:
        return room
    late = disabled_pod_level_resources(pod, gate=config.gates["PodLevelResources"]) or missing_features(
        pod, config.declared_features
    )
    # Pods that had to make way are gone by now, whatever becomes of the one that they went for.
    return replace(room, refused_for=(late,)) if late else room


def _aligned(state: NodeState, pod: Pod) -> Aligned:
    return align(state.config.managers, state.held, pod, state.unsettled(pod))


def _room(state: NodeState, pod: Pod, held: Holdings) -> _Admission:
    """The predicates and, where a critical pod fails them, preemption."""
    judgement = judged(state, pod, held)
    if isinstance(judgement.verdict, Granted):
        return _Admission()
    if not judgement.failures:
        return _Admission(judgement.verdict.because)
    found = preempt(pod, tuple(state.pods.values()), judgement.failures)
    return _Admission(found.because) if isinstance(found, Refused) else _Admission(victims=found.value)


def judged(state: NodeState, pod: Pod, held: Holdings) -> Judgement:
    """What the predicates say of a pod when these holdings are on the node, its own among them."""
    config = state.config
    view = config.view.with_allocated_devices(in_use_counts(held.devices))
    return judge(pod, view, state.totals, fresh=view, rules=config.rules)
