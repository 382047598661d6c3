"""The groups of a node, from daemons and all pods down to each container: where they stand, what is written."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.core.cgroups.container import Place, containers_settings
from nodewright.core.cgroups.facts import (
    MEMORY_MIN,
    CeilingMissing,
    GroupSettings,
    MemoryProtection,
    Origin,
    Pool,
    RunsOn,
)
from nodewright.core.cgroups.files import File, container_files, group_files
from nodewright.core.cgroups.levels import (
    class_memory_requests,
    class_shares,
    level_settings,
    with_protection,
    with_reserve,
    with_unbounded_huge_pages,
)
from nodewright.core.cgroups.names import (
    CgroupName,
    Parents,
    container_leaf,
    is_container_id,
    parse_name,
    pod_name,
    uid_on_node,
)
from nodewright.core.cgroups.pod import pod_settings
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.requests import OOMScore, QOSClass, qos_class
from nodewright.model.objects import Pod, ResourceList
from nodewright.values.idset import CPUSet
from nodewright.values.units import Bytes


class Level(StrEnum):
    """What a group is for."""

    DAEMONS = "daemons"
    NODE = "node"
    CLASS = "qosClass"
    POD = "pod"
    CONTAINER = "container"


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A cgroup and what is written to its files."""

    level: Level
    path: str
    """From the root of the tree, as the driver makes it."""
    files: tuple[File, ...]
    qos_class: QOSClass | None = None
    pod: str = ""
    """Namespace and name."""
    container: str = ""
    container_id: str = ""
    """As the pod's status has it; empty: not known, and the last element of the path stands for it."""
    is_passing: bool = False
    """An init container that ends, and its group with it."""
    missing: tuple[CeilingMissing, ...] = ()
    oom_score: OOMScore | None = None


class Daemons(msgspec.Struct, frozen=True, kw_only=True):
    """A group of daemons that the kubelet holds to what is kept for them."""

    path: str
    amounts: ResourceList
    origin: Origin
    compressible_only: bool = False


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """How a kubelet arranges its groups."""

    root: CgroupName
    """The group that all pods stand in."""
    per_qos: bool = True
    """Whether there are groups for classes and pods (`cgroupsPerQOS`)."""
    amounts: ResourceList
    """What all pods together are held to."""
    allocatable_memory: Bytes | None = None
    reserve_percent: int | None = None
    """`qosReserved` for memory, where its gate is on."""
    daemons: tuple[Daemons, ...] = ()
    all_cpus: CPUSet | None = None
    """All CPUs, where the CPU manager gives none away: then the groups at the top are told so."""


def level_groups(tree: Tree, rules: CgroupRules, pods: Collection[Pod]) -> tuple[Group, ...]:
    """The groups above those of pods, as they are once the kubelet has run for a minute with these active pods.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, enforceNodeAllocatableCgroups;
        kubelet/cm/qos_container_manager_linux.go, UpdateCgroups.
    """
    runs_on = RunsOn(tree.all_cpus, Pool.ALL) if tree.all_cpus else None
    found = [_daemon_group(daemons, rules, runs_on) for daemons in tree.daemons]
    top = level_settings(tree.amounts, Origin.NODE)
    assert top is not None
    top = replace(top, cpus=runs_on)
    if not tree.per_qos:
        # The root of the whole tree has no files that could be written.
        return (*found, _level(Level.NODE, tree.root, top, rules)) if tree.root.components else tuple(found)
    requested = class_memory_requests(pods)
    classes = with_protection(class_shares(pods), requested, rules)
    if tree.reserve_percent is not None:
        classes = with_reserve(classes, requested, tree.reserve_percent, tree.allocatable_memory)
    classes = with_unbounded_huge_pages(classes, rules)
    # Guaranteed pods stand in the group of all pods, which is the group of their class, too.
    everyone = classes.pop(QOSClass.GUARANTEED)
    top = replace(top, unified=everyone.unified, huge_pages=everyone.huge_pages)
    parents = Parents.below(tree.root)
    return (
        *found,
        _level(Level.NODE, tree.root, top, rules),
        *(
            _level(Level.CLASS, parents.of(decided), settings, rules, decided)
            for decided, settings in classes.items()
        ),
    )


def pod_groups(
    pod: Pod, tree: Tree, rules: CgroupRules, places: Mapping[str, Place], *, has_exclusive_cpus: bool
) -> Iterator[Group]:
    """The group of the pod, if pods have any, and those of its containers: containers in order, then init containers.

    Errors: CgroupNameError for a uid that no group can have in its name.
    """
    decided, parent = qos_class(pod), "/<runtime>"
    if tree.per_qos:
        on_node = replace(pod, metadata=replace(pod.metadata, uid=uid_on_node(pod)))
        parent = pod_name(on_node, Parents.below(tree.root)).path(rules.driver)
        settings = pod_settings(pod, rules, has_exclusive_cpus=has_exclusive_cpus)
        yield Group(
            level=Level.POD,
            path=parent,
            files=group_files(settings, rules),
            qos_class=decided,
            pod=pod.full_name,
            missing=settings.missing,
        )
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    ids = {each.name: each.container_id for each in statuses if is_container_id(each.container_id)}
    passing = {one.name for one in pod.spec.init_containers if not one.is_sidecar}
    for name, told in containers_settings(pod, rules, places).items():
        container_id = ids.get(name, "") if tree.per_qos else ""
        leaf = container_leaf(container_id, rules.driver) if container_id else f"<{name}>"
        yield Group(
            level=Level.CONTAINER,
            path=f"{parent}/{leaf}",
            files=container_files(told, rules),
            qos_class=decided,
            pod=pod.full_name,
            container=name,
            container_id=container_id,
            is_passing=name in passing,
            oom_score=told.oom_score,
        )


def _daemon_group(daemons: Daemons, rules: CgroupRules, runs_on: RunsOn | None) -> Group:
    """A group of daemons; with MemoryQoS its memory is its own.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, enforceExistingCgroup.
    """
    settings = level_settings(daemons.amounts, daemons.origin, compressible_only=daemons.compressible_only)
    assert settings is not None
    if rules.has_memory_qos and settings.memory is not None:
        protected = MemoryProtection(MEMORY_MIN, settings.memory.memory_bytes, daemons.origin)
        settings = replace(settings, unified=(protected,))
    name = parse_name(daemons.path, rules.driver)
    return _level(Level.DAEMONS, name, replace(settings, cpus=runs_on), rules)


def _level(
    level: Level,
    name: CgroupName,
    settings: GroupSettings,
    rules: CgroupRules,
    decided: QOSClass | None = None,
) -> Group:
    path, files = name.path(rules.driver), group_files(settings, rules)
    return Group(level=level, path=path, files=files, qos_class=decided)
