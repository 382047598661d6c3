"""The report on a requested resize: its plan, and the smallest changes with which it would be applied immediately.

The plan of an accepted resize has restarts, checks and cgroup writes.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.engine.core.resize import (
    RESIZABLE,
    ResizeRestart,
    comparable_resources,
    container_restarts,
    resizable_containers,
)
from nodewright.engine.node.actions import Action
from nodewright.engine.node.events import PodResized
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, node_and_pod_cgroups
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.resize import ResizeAttempt, ResizeOutcome
from nodewright.engine.node.step import step
from nodewright.engine.node.what_if.changes import Amount, Change, PodLeaves, RequestsChanged, changed_pod
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, counted_amount
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.resize import (
    ResizeBeyondNode,
    StaticPolicyInTheWay,
)
from nodewright.model.values.quantity import ZERO

# The values that the kubelet reads from the files of a pod cgroup without limit.
_NO_QUOTA = -1
_NO_CEILING = {1: (1 << 63) - 4096, 2: -1}


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
        limit = comparable_resources(attempt.pod, container)[MEMORY][1]
        previous_limit = comparable_resources(attempt.before, previous)[MEMORY][1]
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
        name: {resource: counted_amount(resource, amounts.get(resource, ZERO)) for resource in RESIZABLE}
        for name, amounts in requests.items()
    }
