"""What all of the kubelet's admission handlers say of a pod, one after the other."""

import msgspec
from msgspec.structs import replace

from nodewright.core.devices.allocate import in_use_counts
from nodewright.core.eviction import refused_under_pressure
from nodewright.core.podfeatures import disabled_pod_level_resources, forbidden_sysctl, missing_features
from nodewright.core.predicates import Judgement, judge
from nodewright.core.preemption import Victims, preempt
from nodewright.model.objects import Pod
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.verdict import Granted, Refused
from nodewright.node.alignment import Aligned, align
from nodewright.node.providers import Holdings
from nodewright.node.state import NodeState, as_counted


class Admission(msgspec.Struct, frozen=True):
    """What the handlers say of a pod: why it is turned away (nothing: it is not), and who has to go."""

    refused_for: tuple[Reason, ...] = ()
    victims: Victims | None = None
    held: Holdings | None = None
    """What is held after the managers have dealt with it; None: they were not asked."""
    because: tuple[Reason, ...] = ()
    """The hints and choices behind what the managers granted."""
    by_managers: bool = False
    """Whether it was the managers that turned the pod away."""


def admission(state: NodeState, pod: Pod) -> Admission:
    """The handlers, one after the other; the first that refuses decides."""
    config = state.config
    under_pressure = refused_under_pressure(
        state.conditions,
        as_counted(pod, config),
        comparisons=config.gates["TaintTolerationComparisonOperators"],
    )
    if under_pressure is not None:
        return Admission((under_pressure,))
    forbidden = forbidden_sysctl(pod, config.sysctls)
    if forbidden is not None:
        return Admission((forbidden,))
    served = aligned(state, pod)
    if served.refused_for:
        return Admission(served.refused_for, held=served.held, because=served.because, by_managers=True)
    room = _room(state, as_counted(pod, config), served.held)
    room = replace(room, held=served.held, because=served.because)
    if room.refused_for:
        return room
    late = disabled_pod_level_resources(pod, gate=config.gates["PodLevelResources"]) or missing_features(
        pod, config.declared_features
    )
    # Pods that had to make way are gone by now, whatever becomes of the one that they went for.
    return replace(room, refused_for=(late,)) if late else room


def aligned(state: NodeState, pod: Pod) -> Aligned:
    """What the resource managers make of a pod."""
    return align(state.config.managers, state.held, pod, state.unsettled(pod))


def _room(state: NodeState, pod: Pod, held: Holdings) -> Admission:
    """The predicates and, where a critical pod fails them, preemption."""
    judgement = judged(state, pod, held)
    if isinstance(judgement.verdict, Granted):
        return Admission()
    if not judgement.failures:
        return Admission(judgement.verdict.because)
    found = preempt(pod, tuple(state.pods.values()), judgement.failures)
    return Admission(found.because) if isinstance(found, Refused) else Admission(victims=found.value)


def judged(state: NodeState, pod: Pod, held: Holdings) -> Judgement:
    """What the predicates say of a pod when these holdings are on the node, its own among them."""
    config = state.config
    view = config.view.with_allocated_devices(in_use_counts(held.devices))
    return judge(pod, view, state.totals, fresh=view, rules=config.rules)


def doubt(state: NodeState, pod: Pod, judged: Admission) -> tuple[NotJudged, ...]:
    """The doubt that earlier undecided pods cast on this decision, if they do."""
    if not state.open_pods:
        return ()
    without = state
    for uid in state.open_pods:
        without = without.without_pod(uid)
    same = bool(judged.refused_for) == bool(admission(without, pod).refused_for)
    if same and judged.victims is None:
        return ()
    names = ", ".join(other.full_name for uid, other in state.pods.items() if uid in state.open_pods)
    return (NotJudged(what="the room that is left", because=f"undecided before it: {names}"),)


def is_refused_anyway(state: NodeState, pod: Pod, judged: Admission) -> bool:
    """Whether the pod is turned away wherever on the node it would be placed."""
    return not judged.by_managers or bool(_room(state, as_counted(pod, state.config), state.held).refused_for)


def without_victims(state: NodeState, victims: Victims | None) -> NodeState:
    """The node once the pods that make way are gone."""
    for victim in victims.victims if victims else ():
        state = state.without_pod(victim.pod.uid)
    return state
