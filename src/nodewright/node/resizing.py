"""The resize of a pod that runs: what becomes of it, and of those that waited before it.

No recording of a real kubelet backs this: each rule follows the source that is named.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.core.preemption import Victims
from nodewright.core.requests import with_defaults
from nodewright.core.resize import (
    Pending,
    allocated,
    beyond_node,
    differs,
    features_missing,
    in_order,
    increases,
    infeasible,
    merged,
    on_other_system,
)
from nodewright.core.resize.forbidden import INIT_CONTAINERS, POD_LEVEL
from nodewright.core.validation.resize import resize_violations
from nodewright.model.objects import Pod
from nodewright.model.reasons import NotJudged, Reason
from nodewright.model.resize_reasons import ResizeForbidden, ResizeInfeasible, ResizeInvalid, ResizeOfField
from nodewright.node.actions import Action, PutOffResize, ResizePod, TurnDownResize
from nodewright.node.admission import admission, doubt, is_refused_anyway, without_victims
from nodewright.node.assumed import assumed_parts
from nodewright.node.config import NodeConfig
from nodewright.node.preempting import preempting
from nodewright.node.state import NodeState, Waiting, as_counted


class Outcome(StrEnum):
    """What becomes of a resize."""

    DONE = "Done"
    DEFERRED = "Deferred"
    """Not now: the kubelet tries again when something changes, and every three minutes."""
    INFEASIBLE = "Infeasible"
    """Never, as the node and the pod are."""
    FORBIDDEN = "Forbidden"
    """The API server does not take the request; the kubelet never hears of it."""
    UNDECIDED = "Undecided"


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a resize that was tried."""

    pod: Pod
    """As it is to be."""
    before: Pod
    """As it was allocated."""
    outcome: Outcome
    because: tuple[Reason, ...] = ()
    """What speaks against it; the first is what the API server or the kubelet reports."""
    victims: Victims | None = None
    """Who makes way for it, where the pod is critical."""

    @property
    def changes(self) -> bool:
        """Whether anything is asked for that is not there already."""
        return self.pod.spec != self.before.spec


class Resized(msgspec.Struct, frozen=True):
    """The node after resizes were tried."""

    state: NodeState
    resizes: tuple[Resize, ...] = ()
    actions: tuple[Action, ...] = ()


def resized(state: NodeState, written: Pod) -> Resized:
    """The node after a resize was asked for: with it all that wait are tried, in the kubelet's order.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodUpdates; pkg/kubelet/allocation/allocation_manager.go,
        PushPendingResize.
    """
    current = state.pods.get(written.uid)
    if current is None:
        return Resized(state)
    desired = merged(as_counted(with_defaults(written), state.config), current)
    forbidden = _forbidden(state.config, desired, current)
    if forbidden is not None:
        refused = Resize(pod=desired, before=current, outcome=Outcome.FORBIDDEN, because=(forbidden,))
        return Resized(state, (refused,))
    if not _is_other(state.config, desired, current):
        done = Resize(pod=desired, before=current, outcome=Outcome.DONE)
        return Resized(_settled(state, written.uid), (done,))
    return retried(_pushed(state, desired))


def put_aside(state: NodeState, written: Pod) -> Resized:
    """The node after a resize was asked for while there is no kubelet to look at it."""
    current = state.pods.get(written.uid)
    if current is None:
        return Resized(state)
    desired = merged(as_counted(with_defaults(written), state.config), current)
    nobody = NotJudged(what="the resize", because="the kubelet does not run")
    one = Resize(pod=desired, before=current, outcome=Outcome.UNDECIDED, because=(nobody,))
    return Resized(_pushed(state, desired), (one,))


def taken_up(state: NodeState, waiting: Mapping[str, Waiting]) -> Resized:
    """The node under a kubelet that has started, after it has tried what waited under the one before.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions.
    """
    for uid, one in waiting.items():
        if uid in state.pods:
            state = _pushed(state, one.desired)
    return retried(state)


def retried(state: NodeState) -> Resized:
    """The node after all resizes that wait were tried, again and again while one sets free what another may want.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, retryPendingResizes; pkg/kubelet/kubelet.go,
        HandlePodReconcile.
    Departs: tries when a resize is asked for, when a pod is gone and when a resize has set something free; not
        after three minutes, for events have no time here.
    """
    found: dict[str, Resize] = {}
    actions: list[Action] = []
    goes_on = True
    while goes_on:
        goes_on = False
        for uid in tuple(state.resizing):
            if uid not in state.resizing:
                continue
            state, one, done = _tried(state, state.resizing[uid].desired)
            if found.get(uid) != one:
                actions += done
            found.pop(uid, None)
            found[uid] = one
            frees = one.outcome is Outcome.DONE and increases(one.before, one.pod)
            goes_on = goes_on or (frees and bool(state.resizing))
    return Resized(state, tuple(found.values()), tuple(actions))


def _tried(state: NodeState, desired: Pod) -> tuple[NodeState, Resize, tuple[Action, ...]]:
    """The node after one resize was tried.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, handlePodResourcesResize, canAdmitPod: what the
        handlers of arriving pods say of it puts it off.
    """
    uid, config = desired.uid, state.config
    current = state.pods[uid]
    never = _infeasible(config, desired, current)
    if never is not None:
        one = Resize(pod=desired, before=current, outcome=Outcome.INFEASIBLE, because=(never,))
        return _settled(state, uid), one, (TurnDownResize(pod_uid=uid, because=(never,)),)
    others = state.without_pod(uid)
    said = admission(others, desired)
    doubts = doubt(others, desired, said)
    assumed = assumed_parts(config, desired)
    if assumed and not (said.refused_for and is_refused_anyway(others, desired, said)):
        doubts = (*assumed, *doubts)
    killing = preempting(said.victims) if said.victims else ()
    if said.held is not None:
        state = replace(state, held=said.held, settled=True)
    state = without_victims(state, said.victims)
    because = (*doubts, *said.refused_for)
    if because:
        outcome = Outcome.UNDECIDED if doubts else Outcome.DEFERRED
        one = Resize(pod=desired, before=current, outcome=outcome, because=because, victims=said.victims)
        off = () if doubts else (PutOffResize(pod_uid=uid, because=because),)
        return _put_off(state, uid), one, (*killing, *off)
    after = _settled(state, uid).with_resized(allocated(desired))
    one = Resize(pod=desired, before=current, outcome=Outcome.DONE, victims=said.victims)
    return after, one, (*killing, ResizePod(pod_uid=uid))


def forbidden_resize(state: NodeState, written: Pod) -> ResizeForbidden | None:
    """Why an API server would not take other resources for a pod that is there; None: it would."""
    current = state.pods[written.uid]
    return _forbidden(
        state.config, merged(as_counted(with_defaults(written), state.config), current), current
    )


def _forbidden(config: NodeConfig, desired: Pod, current: Pod) -> ResizeForbidden | None:
    """Why the API server does not take the request; None: it does.

    Follows: v1.36, apiserver/pkg/registry/generic/registry/store.go, Update: validation, then admission.
    """
    faults = tuple(
        ResizeOfField(path=one.path, error=str(one.type), value=one.value, rule=one.rule)
        for one in resize_violations(desired, current)
    )
    if faults:
        return ResizeInvalid(faults=faults)
    if desired.spec == current.spec:
        return None
    name = config.facts.name
    declared = {gate for gate in (INIT_CONTAINERS, POD_LEVEL) if config.gates[gate]}
    return (
        features_missing(desired, current, node=name, declared=declared)
        or on_other_system(config.facts.labels, node=name)
        or beyond_node(desired, config.resources.allocatable)
    )


def _infeasible(config: NodeConfig, desired: Pod, current: Pod) -> ResizeInfeasible | None:
    kubelet = config.parts.kubelet
    swaps = kubelet.memory_swap.swap_behavior == "LimitedSwap" and config.gates["NodeSwap"]
    return infeasible(
        desired,
        current,
        gates=config.gates,
        static=tuple(_static(config)),
        has_swap=swaps and config.facts.cgroup_version == 2,
    )


def _static(config: NodeConfig) -> Iterator[str]:
    """The resources whose manager has the policy that pins."""
    if config.parts.kubelet.cpu_manager_policy == "static":
        yield "cpu"
    if config.parts.kubelet.memory_manager_policy == "Static":
        yield "memory"


def _is_other(config: NodeConfig, desired: Pod, current: Pod) -> bool:
    return differs(desired, current, init_containers=config.gates[INIT_CONTAINERS])


def _pushed(state: NodeState, desired: Pod) -> NodeState:
    """The node with one more resize that waits; one that waited already keeps its place."""
    uid = desired.uid
    before = state.resizing.get(uid)
    if before is not None:
        return replace(state, resizing={**state.resizing, uid: replace(before, desired=desired)})
    everybody = {**state.resizing, uid: Waiting(desired=desired)}
    ordered = in_order(
        Pending(desired=one.desired, current=state.pods[key], since=one.since)
        for key, one in everybody.items()
    )
    return replace(state, resizing={one.desired.uid: everybody[one.desired.uid] for one in ordered})


def _put_off(state: NodeState, uid: str) -> NodeState:
    waiting = state.resizing.get(uid)
    if waiting is None or waiting.since is not None:
        return state
    latest = max((one.since for one in state.resizing.values() if one.since is not None), default=-1)
    return replace(state, resizing={**state.resizing, uid: replace(waiting, since=latest + 1)})


def _settled(state: NodeState, uid: str) -> NodeState:
    """The node in which nothing waits for this pod any more."""
    if uid not in state.resizing:
        return state
    return replace(state, resizing={key: one for key, one in state.resizing.items() if key != uid})
