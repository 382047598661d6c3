"""In-place resize of a running pod: its outcome, and that of the resizes that were pending before it; plan and report.

The plan of an accepted resize has restarts, checks and cgroup writes. No recorded decisions of a real kubelet cover the outcome;
each rule follows the source named with it.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.validation.resize_rules import resize_violations
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.core.resize import (
    INIT_CONTAINERS_GATE,
    POD_LEVEL_GATE,
    RESIZABLE,
    PendingResize,
    ResizeRestart,
    as_allocated,
    comparable_resources,
    container_restarts,
    exceeded_allocatable,
    has_resource_changes,
    increases_requests,
    infeasibility,
    merged_resize,
    missing_resize_features,
    resizable_containers,
    sorted_pending_resizes,
    unsupported_os,
)
from nodewright.engine.node.actions import Action, DeferResize, MarkResizeInfeasible, ResizePod
from nodewright.engine.node.events import PodResized
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, node_and_pod_cgroups
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, QueuedResize, without_ungated_resources
from nodewright.engine.node.pod_admission import (
    admission_doubts,
    admission_result,
    is_rejected_regardless,
    preemption_actions,
    without_victims,
)
from nodewright.engine.node.step import step
from nodewright.engine.node.unknowns import assumptions_for
from nodewright.engine.node.what_if.changes import Amount, Change, PodLeaves, RequestsChanged, changed_pod
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.kubernetes.objects import Pod, ResourceList
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.reasons.fact import KubeletText
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import NotJudged, Reason, kubelet_text
from nodewright.model.reasons.resize import (
    RESIZE_DEFERRED_REASON,
    ResizeBeyondNode,
    ResizeForbidden,
    ResizeInfeasible,
    ResizeInvalid,
    ResizeOfField,
    StaticPolicyInTheWay,
    resize_api_error,
)
from nodewright.model.values.quantity import ZERO

# The values that the kubelet reads from the files of a pod cgroup without limit.
_NO_QUOTA = -1
_NO_CEILING = {1: (1 << 63) - 4096, 2: -1}


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


class CgroupWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup file that gets a new value."""

    container: str
    """Empty: the pod cgroup."""
    path: str
    file: str
    was: str
    """Empty: the file was not written before."""
    now: str


class MemoryLimitCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A decreased memory limit: the resize proceeds only if less memory is in use.

    Units: limit_bytes in bytes.
    """

    container: str
    """Empty: the pod cgroup."""
    limit_bytes: int


class ResizePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a resize: stop containers, check limits, write files, start containers."""

    restarts: tuple[ResizeRestart, ...] = ()
    checks: tuple[MemoryLimitCheck, ...] = ()
    writes: tuple[CgroupWrite, ...] = ()


def resize_plan(before: NodeState, after: NodeState, attempt: ResizeAttempt) -> ResizePlan:
    """The kubelet's steps for a resize of a pod with running containers and finished init containers.

    ``before`` and ``after`` are the node without and with the resize.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, SyncPod, doPodResizeAction. Memory precedes
        CPU; the pod cgroup grows before its containers and shrinks after them.
    Departs: files with an unchanged value are left out. Restarted sidecars start before files are written.
    """
    restarts = container_restarts(attempt.pod, attempt.before)
    rules = cgroup_rules(before.config)
    old = node_and_pod_cgroups(before, [AllocatedPod(attempt.before, before.held.memory)], rules)
    new = node_and_pod_cgroups(after, [AllocatedPod(attempt.pod, after.held.memory)], rules)
    changes = _Changes(_by_container(old, attempt), _by_container(new, attempt), rules.version)
    restarted = {restart.container for restart in restarts}
    writes: list[CgroupWrite] = []
    for resource in (MEMORY, CPU):
        order = [name for name in _changed_containers(attempt, resource) if name not in restarted]
        writes += changes.writes(resource, order)
    resized_containers = {name for name in _changed_containers(attempt, MEMORY) if name not in restarted}
    checks = [*_pod_check(changes)] if resized_containers or restarts else []
    checks += [check for check in _container_checks(attempt) if check.container in resized_containers]
    return ResizePlan(restarts=restarts, checks=tuple(checks), writes=tuple(writes))


class ResizeReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report on a requested resize."""

    requested: ResizeAttempt
    others: tuple[ResizeAttempt, ...] = ()
    """Pending resizes of other pods that were attempted with it."""
    plan: ResizePlan | None = None
    """The steps; None: the resize is not applied."""
    suggestions: tuple[Suggestion, ...] = ()
    """The smallest tested change of each kind with which the resize would be applied immediately."""
    actions: tuple[Action, ...] = ()
    after: NodeState


def resize_report(state: NodeState, written: Pod) -> ResizeReport:
    """The report on the resize of a pod of the node, identified by its uid."""
    result = step(state, PodResized(written))
    attempt = next(resize for resize in result.resizes if resize.pod.uid == written.uid)
    is_done = attempt.outcome is ResizeOutcome.DONE
    return ResizeReport(
        requested=attempt,
        others=tuple(resize for resize in result.resizes if resize is not attempt),
        plan=resize_plan(state, result.state, attempt) if is_done else None,
        suggestions=() if is_done else tuple(_suggestions(state, attempt)),
        actions=result.actions,
        after=result.state,
    )


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


def _pod_check(changes: "_Changes") -> Iterator[MemoryLimitCheck]:
    """The check of the pod cgroup's limit, if it decreases.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, validateMemoryResizeAction.
    """
    files = _POD_FILES[MEMORY][0]
    if changes.direction(files, _NO_CEILING[changes.version]) < 0:
        limit = _number(changes.after.get(""), files, 0)
        assert limit is not None
        yield MemoryLimitCheck(container="", limit_bytes=limit)


def _container_checks(attempt: ResizeAttempt) -> Iterator[MemoryLimitCheck]:
    """The checks of containers that get a new or a smaller limit."""
    for container, previous in resizable_containers(attempt.pod, attempt.before, init_containers=False):
        limit, previous_limit = (
            comparable_resources(attempt.pod, container)[MEMORY][1],
            comparable_resources(attempt.before, previous)[MEMORY][1],
        )
        if limit and (not previous_limit or limit < previous_limit):
            yield MemoryLimitCheck(container=container.name, limit_bytes=limit)


def _by_container(groups: Sequence[PlannedCgroup], attempt: ResizeAttempt) -> Mapping[str, PlannedCgroup]:
    """The pod's cgroups by container; the pod cgroup by the empty name."""
    name = attempt.before.full_name
    levels = (CgroupLevel.POD, CgroupLevel.CONTAINER)
    return {group.container: group for group in groups if group.level in levels and group.pod == name}


def _changed_containers(attempt: ResizeAttempt, resource: str) -> list[str]:
    """The containers with a changed amount of the resource: decreases first, in reverse order, then increases.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction; sidecars are visited
        from the last to the first, then containers.
    """
    assert resource in RESIZABLE
    containers = list(resizable_containers(attempt.pod, attempt.before, init_containers=False))
    sidecars = len(containers) - len(attempt.pod.spec.containers)
    names: list[str] = []
    for container, previous in (*reversed(containers[:sidecars]), *containers[sidecars:]):
        request, limit = comparable_resources(attempt.pod, container)[resource]
        previous_request, previous_limit = comparable_resources(attempt.before, previous)[resource]
        now, was = (limit, previous_limit) if limit != previous_limit else (request, previous_request)
        if now > was:
            names.append(container.name)
        elif now < was:
            names.insert(0, container.name)
    return names


class _Changes(msgspec.Struct, frozen=True):
    """The pod's cgroups before and after the resize, by container."""

    before: Mapping[str, PlannedCgroup]
    after: Mapping[str, PlannedCgroup]
    version: int

    def writes(self, resource: str, containers: Sequence[str]) -> Iterator[CgroupWrite]:
        """The writes for a resource, in the kubelet's order."""
        limits, weights = _POD_FILES[resource]
        none = _NO_CEILING[self.version] if resource == MEMORY else _NO_QUOTA
        limit_change = self.direction(limits, none)
        weight_change = self.direction(weights, 0)
        if limit_change > 0:
            yield from self._writes("", limits)
        if weight_change > 0:
            yield from self._writes("", weights)
        for name in containers:
            yield from self._writes(name, _CONTAINER_FILES[resource])
        if weight_change < 0:
            yield from self._writes("", weights)
        if limit_change < 0:
            yield from self._writes("", limits)

    def direction(self, files: Sequence[str], none: int) -> int:
        """The difference of a value of the pod cgroup: above 0 if it grows; 0 if it is no longer set."""
        was = _number(self.before.get(""), files, none)
        now = _number(self.after.get(""), files, none)
        return 0 if now is None else now - (none if was is None else was)

    def _writes(self, container: str, files: Sequence[str]) -> Iterator[CgroupWrite]:
        """The writes for the changed files of a cgroup."""
        before, after = self.before.get(container), self.after.get(container)
        if before is None or after is None:
            return
        was = {file.name: file.value for file in before.files}
        for file in after.files:
            if file.name.startswith(tuple(files)) and was.get(file.name) != file.value:
                yield CgroupWrite(
                    container=container,
                    path=after.path,
                    file=file.name,
                    was=was.get(file.name, ""),
                    now=file.value,
                )


def _number(group: PlannedCgroup | None, files: Sequence[str], none: int) -> int | None:
    """The number that the kubelet reads from one of these files; None: none was written."""
    for file in group.files if group else ():
        if file.name in files:
            first = file.value.split()[0]
            return none if first in ("max", "-1") else int(first)
    return None


_POD_FILES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    MEMORY: (("memory.max", "memory.limit_in_bytes"), ()),
    CPU: (("cpu.max", "cpu.cfs_quota_us"), ("cpu.weight", "cpu.shares")),
}
_CONTAINER_FILES = {MEMORY: ("memory.",), CPU: ("cpu.",)}

_ATTEMPTS = 3
"""Number of reductions of an amount: the API server checks the node's allocatable, then the kubelet its remainder."""


def _suggestions(state: NodeState, attempt: ResizeAttempt) -> Iterator[Suggestion]:
    # Suggestions concern this resize only, so other pending resizes are ignored.
    alone = replace(state, pending_resizes={})
    reduction = _largest_reduction(alone, attempt)
    if reduction is not None:
        yield Suggestion(kind="less", change=reduction, reallocated_pods=0)
    short = [reason.resource for reason in attempt.because if isinstance(reason, InsufficientResource)]
    if attempt.outcome is not ResizeOutcome.DEFERRED or not short:
        return
    for pod in _by_size(alone, attempt.pod.uid, short):
        if _would_succeed(alone.without_pod(pod.uid), attempt.pod):
            usage = {name: amount for name, amount in scheduler_usage(pod).items() if amount}
            change = PodLeaves(pod=pod, requests=usage)
            yield Suggestion(kind="pod leaves", change=change, reallocated_pods=0)
            return


def _by_size(state: NodeState, uid: str, resources: Sequence[str]) -> list[Pod]:
    """The other pods, sorted by their usage of the missing resources."""
    pods = [pod for key, pod in state.pods.items() if key != uid]
    usage = {pod.uid: scheduler_usage(pod) for pod in pods}
    return sorted(pods, key=lambda pod: (*(usage[pod.uid].get(name, 0) for name in resources), pod.full_name))


def _would_succeed(state: NodeState, desired: Pod) -> bool:
    return _attempt(state, desired).outcome is ResizeOutcome.DONE


def _attempt(state: NodeState, desired: Pod) -> ResizeAttempt:
    attempts = step(state, PodResized(desired)).resizes
    return next(attempt for attempt in attempts if attempt.pod.uid == desired.uid)


def _largest_reduction(state: NodeState, attempt: ResizeAttempt) -> Change | None:
    """The largest part of the requested resize that would be applied immediately; None: no part of it."""
    pod, retried = attempt.pod, attempt
    for _ in range(_ATTEMPTS):
        amounts = _reduced(retried)
        if not amounts:
            return None
        pod = changed_pod(pod, RequestsChanged(amounts=amounts))
        retried = _attempt(state, pod)
        if retried.outcome is ResizeOutcome.DONE:
            return RequestsChanged(amounts=_differences(pod, attempt.pod)) if retried.changes else None
    return None


def _reduced(attempt: ResizeAttempt) -> tuple[Amount, ...]:
    """The exceeding amounts, reduced to fit; empty if no single container's growth covers the shortage."""
    desired, current = _requests(attempt.pod), _requests(attempt.before)
    reductions = []
    for resource, missing in _missing(attempt.because):
        growth = {name: amounts[resource] - current[name][resource] for name, amounts in desired.items()}
        name = max(growth, key=lambda container: growth[container])
        if growth[name] < missing:
            return ()
        was = desired[name][resource]
        reductions.append(Amount(container=name, resource=resource, was=was, now=was - missing))
    for reason in attempt.because:
        if isinstance(reason, StaticPolicyInTheWay):
            resource = reason.resource
            reductions += [
                Amount(
                    container=name,
                    resource=resource,
                    was=desired[name][resource],
                    now=current[name][resource],
                )
                for name in reason.containers
            ]
    return tuple(reductions)


def _missing(because: Sequence[Reason]) -> Iterator[tuple[str, int]]:
    """The shortage of each resizable resource."""
    for reason in because:
        if isinstance(reason, InsufficientResource) and reason.resource in RESIZABLE:
            yield reason.resource, reason.missing
        elif isinstance(reason, ResizeBeyondNode):
            yield from (
                (excess.resource, excess.requested - excess.allocatable) for excess in reason.excesses
            )


def _differences(pod: Pod, other: Pod) -> tuple[Amount, ...]:
    requests, original = _requests(pod), _requests(other)
    return tuple(
        Amount(container=name, resource=resource, was=original[name][resource], now=amounts[resource])
        for name, amounts in requests.items()
        for resource in RESIZABLE
        if amounts[resource] != original[name][resource]
    )


def _requests(pod: Pod) -> Mapping[str, Mapping[str, int]]:
    """The requests by container and resource, or those of the pod level if it sets any."""
    level = pod.spec.resources.requests if pod.spec.resources else {}
    requests = {"": level} if any(name in level for name in RESIZABLE) else {}
    if not requests:
        containers = (*pod.spec.containers, *pod.spec.init_containers)
        requests = {container.name: container.resources.requests for container in containers}
    return {
        name: {resource: _integer(amounts, resource) for resource in RESIZABLE}
        for name, amounts in requests.items()
    }


def _integer(amounts: ResourceList, resource: str) -> int:
    amount = amounts.get(resource, ZERO)
    return amount.milli_value() if resource == CPU else amount.value()
