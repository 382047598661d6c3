"""In-place resize of a running pod: its outcome, and that of the resizes that were pending before it.

No recorded decisions of a real kubelet cover the outcome; each rule follows the source named with it.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.validation.resize_rules import resize_violations
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.core.resize import (
    INIT_CONTAINERS_GATE,
    POD_LEVEL_GATE,
    PendingResize,
    as_allocated,
    exceeded_allocatable,
    has_resource_changes,
    increases_requests,
    infeasibility,
    merged_resize,
    missing_resize_features,
    sorted_pending_resizes,
    unsupported_os,
)
from nodewright.engine.node.actions import Action, DeferResize, MarkResizeInfeasible, ResizePod
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, QueuedResize, without_ungated_resources
from nodewright.engine.node.pod_admission import (
    admission_doubts,
    admission_result,
    is_rejected_regardless,
    preemption_actions,
    without_victims,
)
from nodewright.engine.node.unknowns import assumptions_for
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.reason import NotJudged, Reason, kubelet_text
from nodewright.model.reasons.resize import (
    RESIZE_DEFERRED_REASON,
    ResizeForbidden,
    ResizeInfeasible,
    ResizeInvalid,
    ResizeOfField,
    resize_api_error,
)


class ResizeOutcome(StrEnum):
    """The outcome of a resize."""

    DONE = "Done"
    DEFERRED = "Deferred"
    """Not possible now: the kubelet retries on changes and every three minutes."""
    INFEASIBLE = "Infeasible"
    """Not possible with this node and this pod."""
    FORBIDDEN = "Forbidden"
    """The API server rejects the request, so the kubelet does not see it."""
    UNDECIDED = "Undecided"


class ResizeAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempted resize and its outcome."""

    pod: Pod
    """The desired pod."""
    before: Pod
    """The pod with its allocated resources."""
    outcome: ResizeOutcome
    because: tuple[Reason, ...] = ()
    """The reasons against the resize; the API server or the kubelet reports the first."""
    victims: PreemptionVictims | None = None
    """The pods that are preempted for it, if the pod is critical."""

    @property
    def changes(self) -> bool:
        """Whether the desired resources differ from the allocated ones."""
        return self.pod.spec != self.before.spec


class ResizeStep(msgspec.Struct, frozen=True):
    """The node after attempted resizes."""

    state: NodeState
    resizes: tuple[ResizeAttempt, ...] = ()
    actions: tuple[Action, ...] = ()


def request_resize(state: NodeState, written: Pod) -> ResizeStep:
    """The node after a resize request: the resize and all pending ones are attempted in the kubelet's order.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodUpdates; pkg/kubelet/allocation/allocation_manager.go,
        PushPendingResize.
    """
    current = state.pods.get(written.uid)
    if current is None:
        return ResizeStep(state)
    desired = merged_resize(without_ungated_resources(with_defaults(written), state.config), current)
    forbidden = _forbidden(state.config, desired, current)
    if forbidden is not None:
        refused = ResizeAttempt(
            pod=desired, before=current, outcome=ResizeOutcome.FORBIDDEN, because=(forbidden,)
        )
        return ResizeStep(state, (refused,))
    if not _differs(state.config, desired, current):
        unchanged = ResizeAttempt(pod=desired, before=current, outcome=ResizeOutcome.DONE)
        return ResizeStep(_without_pending(state, written.uid), (unchanged,))
    return retry_pending_resizes(_with_pending(state, desired))


def defer_resize(state: NodeState, written: Pod) -> ResizeStep:
    """The node after a resize request while the kubelet is down."""
    current = state.pods.get(written.uid)
    if current is None:
        return ResizeStep(state)
    desired = merged_resize(without_ungated_resources(with_defaults(written), state.config), current)
    not_judged = NotJudged(what="the resize", because="the kubelet does not run")
    attempt = ResizeAttempt(
        pod=desired, before=current, outcome=ResizeOutcome.UNDECIDED, because=(not_judged,)
    )
    return ResizeStep(_with_pending(state, desired), (attempt,))


def resume_resizes(state: NodeState, pending: Mapping[str, QueuedResize]) -> ResizeStep:
    """The node after a kubelet restart and the retry of all pending resizes.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions.
    """
    for uid, queued in pending.items():
        if uid in state.pods:
            state = _with_pending(state, queued.desired)
    return retry_pending_resizes(state)


def retry_pending_resizes(state: NodeState) -> ResizeStep:
    """The node after all pending resizes were attempted, repeated while a resize frees resources for another.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, retryPendingResizes; pkg/kubelet/kubelet.go,
        HandlePodReconcile.
    Departs: retries when a resize is requested, when a pod is removed and when a resize has freed resources; not
        every three minutes, as events carry no time.
    """
    attempts: dict[str, ResizeAttempt] = {}
    actions: list[Action] = []
    must_retry = True
    while must_retry:
        must_retry = False
        for uid in tuple(state.pending_resizes):
            if uid not in state.pending_resizes:
                continue
            state, attempt, attempt_actions = _attempted(state, state.pending_resizes[uid].desired)
            if attempts.get(uid) != attempt:
                actions += attempt_actions
            attempts.pop(uid, None)
            attempts[uid] = attempt
            frees_resources = attempt.outcome is ResizeOutcome.DONE and increases_requests(
                attempt.before, attempt.pod
            )
            must_retry = must_retry or (frees_resources and bool(state.pending_resizes))
    return ResizeStep(state, tuple(attempts.values()), tuple(actions))


def api_server_rejection(state: NodeState, written: Pod) -> ResizeForbidden | None:
    """Why an API server would reject these resources for a pod of the node; None: it accepts them."""
    current = state.pods[written.uid]
    return _forbidden(
        state.config,
        merged_resize(without_ungated_resources(with_defaults(written), state.config), current),
        current,
    )


def resize_condition(attempt: ResizeAttempt) -> KubeletText:
    """Reason and message of the condition `PodResizePending` or of the API server's error; empty: neither.

    Follows: v1.36, pkg/kubelet/status/status_manager.go, SetPodResizePendingCondition: the condition's reason is
        `Deferred` for every handler's reason.
    """
    match attempt.outcome:
        case ResizeOutcome.DEFERRED:
            return KubeletText(RESIZE_DEFERRED_REASON, kubelet_text(attempt.because[0]).message)
        case ResizeOutcome.INFEASIBLE:
            return kubelet_text(attempt.because[0])
        case ResizeOutcome.FORBIDDEN:
            reason = attempt.because[0]
            assert isinstance(reason, ResizeForbidden)
            return KubeletText(
                kubelet_text(reason).reason, resize_api_error(reason, attempt.pod.metadata.name)
            )
        case ResizeOutcome.DONE | ResizeOutcome.UNDECIDED:
            return KubeletText("", "")
        case _:
            assert_never(attempt.outcome)


def _attempted(state: NodeState, desired: Pod) -> tuple[NodeState, ResizeAttempt, tuple[Action, ...]]:
    """The node after one attempted resize.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, handlePodResourcesResize, canAdmitPod: a refusal
        by the admission handlers defers the resize.
    """
    uid, config = desired.uid, state.config
    current = state.pods[uid]
    infeasible = _infeasible(config, desired, current)
    if infeasible is not None:
        attempt = ResizeAttempt(
            pod=desired, before=current, outcome=ResizeOutcome.INFEASIBLE, because=(infeasible,)
        )
        return (
            _without_pending(state, uid),
            attempt,
            (MarkResizeInfeasible(pod_uid=uid, because=(infeasible,)),),
        )
    without_pod = state.without_pod(uid)
    admission = admission_result(without_pod, desired)
    doubts = admission_doubts(without_pod, desired, admission)
    assumed = assumptions_for(config, desired)
    if assumed and not (admission.rejected_for and is_rejected_regardless(without_pod, desired, admission)):
        doubts = (*assumed, *doubts)
    kills = preemption_actions(admission.victims) if admission.victims else ()
    if admission.held is not None:
        state = replace(state, held=admission.held, is_collected=True)
    state = without_victims(state, admission.victims)
    because = (*doubts, *admission.rejected_for)
    if because:
        outcome = ResizeOutcome.UNDECIDED if doubts else ResizeOutcome.DEFERRED
        attempt = ResizeAttempt(
            pod=desired, before=current, outcome=outcome, because=because, victims=admission.victims
        )
        deferral = () if doubts else (DeferResize(pod_uid=uid, because=because),)
        return _deferred(state, uid), attempt, (*kills, *deferral)
    after = _without_pending(state, uid).with_resized(as_allocated(desired))
    attempt = ResizeAttempt(
        pod=desired, before=current, outcome=ResizeOutcome.DONE, victims=admission.victims
    )
    return after, attempt, (*kills, ResizePod(pod_uid=uid))


def _forbidden(config: NodeConfig, desired: Pod, current: Pod) -> ResizeForbidden | None:
    """Why the API server rejects the request; None: it accepts it.

    Follows: v1.36, apiserver/pkg/registry/generic/registry/store.go, Update: validation, then admission.
    """
    faults = tuple(
        ResizeOfField(
            path=violation.path, error=str(violation.type), value=violation.value, rule=violation.rule
        )
        for violation in resize_violations(desired, current)
    )
    if faults:
        return ResizeInvalid(faults=faults)
    if desired.spec == current.spec:
        return None
    name = config.facts.name
    declared = {gate for gate in (INIT_CONTAINERS_GATE, POD_LEVEL_GATE) if config.gates[gate]}
    return (
        missing_resize_features(desired, current, node=name, declared=declared)
        or unsupported_os(config.facts.labels, node=name)
        or exceeded_allocatable(desired, config.resources.allocatable)
    )


def _infeasible(config: NodeConfig, desired: Pod, current: Pod) -> ResizeInfeasible | None:
    kubelet = config.parts.kubelet
    swaps = kubelet.memory_swap.swap_behavior == "LimitedSwap" and config.gates["NodeSwap"]
    return infeasibility(
        desired,
        current,
        gates=config.gates,
        static=tuple(_static(config)),
        has_swap=swaps and config.facts.cgroup_version == 2,
    )


def _static(config: NodeConfig) -> Iterator[str]:
    """The resources whose manager has the static policy."""
    if config.parts.kubelet.cpu_manager_policy == "static":
        yield "cpu"
    if config.parts.kubelet.memory_manager_policy == "Static":
        yield "memory"


def _differs(config: NodeConfig, desired: Pod, current: Pod) -> bool:
    return has_resource_changes(desired, current, init_containers=config.gates[INIT_CONTAINERS_GATE])


def _with_pending(state: NodeState, desired: Pod) -> NodeState:
    """The node with one more pending resize; a resize that is already pending keeps its position."""
    uid = desired.uid
    queued_before = state.pending_resizes.get(uid)
    if queued_before is not None:
        return replace(
            state, pending_resizes={**state.pending_resizes, uid: replace(queued_before, desired=desired)}
        )
    pending = {**state.pending_resizes, uid: QueuedResize(desired=desired)}
    ordered = sorted_pending_resizes(
        PendingResize(desired=queued.desired, current=state.pods[key], deferred_since=queued.deferred_since)
        for key, queued in pending.items()
    )
    return replace(
        state, pending_resizes={queued.desired.uid: pending[queued.desired.uid] for queued in ordered}
    )


def _deferred(state: NodeState, uid: str) -> NodeState:
    pending = state.pending_resizes.get(uid)
    if pending is None or pending.deferred_since is not None:
        return state
    latest = max(
        (
            resize.deferred_since
            for resize in state.pending_resizes.values()
            if resize.deferred_since is not None
        ),
        default=-1,
    )
    return replace(
        state, pending_resizes={**state.pending_resizes, uid: replace(pending, deferred_since=latest + 1)}
    )


def _without_pending(state: NodeState, uid: str) -> NodeState:
    """The node without a pending resize of this pod."""
    if uid not in state.pending_resizes:
        return state
    return replace(
        state, pending_resizes={key: pending for key, pending in state.pending_resizes.items() if key != uid}
    )
