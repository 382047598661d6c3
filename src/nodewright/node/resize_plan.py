"""How a resize that is done is carried out: who starts again, and what is written to which cgroup, in what order."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.resize import RESIZABLE, Restart, counted, pairs, restarts
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.node.cgroups import PlacedPod, cgroup_rules, node_groups
from nodewright.node.resizing import Resize
from nodewright.node.state import NodeState

# A limit that is not there, as the kubelet reads it from the files of a pod's group.
_NO_QUOTA = -1
_NO_CEILING = {1: (1 << 63) - 4096, 2: -1}


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a cgroup that gets another value."""

    container: str
    """Empty: the pod's own group."""
    path: str
    file: str
    was: str
    """Empty: nothing was written there."""
    now: str


class LimitCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A memory limit that shrinks: nothing is done unless less is in use.

    Units: limit_bytes in bytes.
    """

    container: str
    """Empty: the pod's own group."""
    limit_bytes: int


class ResizePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is done for a resize: containers end, limits are checked, files are written, containers start again."""

    restarts: tuple[Restart, ...] = ()
    checks: tuple[LimitCheck, ...] = ()
    writes: tuple[Write, ...] = ()


def resize_plan(before: NodeState, after: NodeState, done: Resize) -> ResizePlan:
    """What the kubelet does for a resize of a pod whose containers all run; init containers have ended.

    ``before`` and ``after`` are the node without and with it.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, SyncPod, doPodResizeAction. Memory goes before
        CPU; the pod's group grows before its containers and shrinks after them.
    Departs: files whose value stays are left out. Sidecars that start again do so before files are written.
    """
    found = restarts(done.pod, done.before)
    rules = cgroup_rules(before.config)
    old = node_groups(before, [PlacedPod(done.before, before.held.memory)], rules)
    new = node_groups(after, [PlacedPod(done.pod, after.held.memory)], rules)
    changes = _Changes(_by_container(old, done), _by_container(new, done), rules.version)
    passed = {one.container for one in found}
    writes: list[Write] = []
    for resource in (MEMORY, CPU):
        order = [name for name in _updated(done, resource) if name not in passed]
        writes += changes.of(resource, order)
    told = {name for name in _updated(done, MEMORY) if name not in passed}
    checks = [*_pod_check(changes)] if told or found else []
    checks += [one for one in _container_checks(done) if one.container in told]
    return ResizePlan(restarts=found, checks=tuple(checks), writes=tuple(writes))


def _pod_check(changes: "_Changes") -> Iterator[LimitCheck]:
    """The check of the pod's own limit, if it shrinks.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, validateMemoryResizeAction.
    """
    files = _POD_FILES[MEMORY][0]
    if changes.direction(files, _NO_CEILING[changes.version]) < 0:
        limit = _number(changes.after.get(""), files, 0)
        assert limit is not None
        yield LimitCheck(container="", limit_bytes=limit)


def _container_checks(done: Resize) -> Iterator[LimitCheck]:
    """The checks of containers that get a limit where they had none, or a smaller one."""
    for one, other in pairs(done.pod, done.before, init_containers=False):
        limit, had = counted(done.pod, one)[MEMORY][1], counted(done.before, other)[MEMORY][1]
        if limit and (not had or limit < had):
            yield LimitCheck(container=one.name, limit_bytes=limit)


def _by_container(groups: Sequence[Group], done: Resize) -> Mapping[str, Group]:
    """The pod's groups by container; the pod's own by the empty name."""
    name = done.before.full_name
    levels = (Level.POD, Level.CONTAINER)
    return {one.container: one for one in groups if one.level in levels and one.pod == name}


def _updated(done: Resize, resource: str) -> list[str]:
    """The containers that are told of another amount of the resource: those that get less first, the last of them first.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction; sidecars are looked at
        from the last to the first, then containers.
    """
    assert resource in RESIZABLE
    everybody = list(pairs(done.pod, done.before, init_containers=False))
    sidecars = len(everybody) - len(done.pod.spec.containers)
    names: list[str] = []
    for one, other in (*reversed(everybody[:sidecars]), *everybody[sidecars:]):
        request, limit = counted(done.pod, one)[resource]
        had_request, had_limit = counted(done.before, other)[resource]
        now, was = (limit, had_limit) if limit != had_limit else (request, had_request)
        if now > was:
            names.append(one.name)
        elif now < was:
            names.insert(0, one.name)
    return names


class _Changes(msgspec.Struct, frozen=True):
    """The pod's groups before and after, by container."""

    before: Mapping[str, Group]
    after: Mapping[str, Group]
    version: int

    def of(self, resource: str, containers: Sequence[str]) -> Iterator[Write]:
        """What is written for a resource, in the kubelet's order."""
        limits, weights = _POD_FILES[resource]
        none = _NO_CEILING[self.version] if resource == MEMORY else _NO_QUOTA
        grows = self.direction(limits, none)
        is_heavier = self.direction(weights, 0)
        if grows > 0:
            yield from self._written("", limits)
        if is_heavier > 0:
            yield from self._written("", weights)
        for name in containers:
            yield from self._written(name, _CONTAINER_FILES[resource])
        if is_heavier < 0:
            yield from self._written("", weights)
        if grows < 0:
            yield from self._written("", limits)

    def direction(self, files: Sequence[str], none: int) -> int:
        """Whether a value of the pod's group grows: above 0 if it does; what is not set any more stays as it was."""
        was = _number(self.before.get(""), files, none)
        now = _number(self.after.get(""), files, none)
        return 0 if now is None else now - (none if was is None else was)

    def _written(self, container: str, files: Sequence[str]) -> Iterator[Write]:
        """The files of a group with another value."""
        before, after = self.before.get(container), self.after.get(container)
        if before is None or after is None:
            return
        was = {file.name: file.value for file in before.files}
        for file in after.files:
            if file.name.startswith(tuple(files)) and was.get(file.name) != file.value:
                yield Write(
                    container=container,
                    path=after.path,
                    file=file.name,
                    was=was.get(file.name, ""),
                    now=file.value,
                )


def _number(group: Group | None, files: Sequence[str], none: int) -> int | None:
    """What the kubelet reads from one of these files; None: nothing was written to any."""
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
