"""Which cgroups should there be, what should they say, and do they?"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.audit.values import Evidence, Finding, GroupsTold, Kind, Source, Standing, Text, ToRead, Value
from nodewright.core.cgroups.compare import Difference, compared, files_to_read
from nodewright.core.cgroups.container import Place
from nodewright.core.cgroups.facts import CPUShares
from nodewright.core.cgroups.names import is_container_id
from nodewright.core.cgroups.plan import Group, Level, level_groups, pod_groups
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.requests import pod_level_resources_set
from nodewright.model.objects import ContainerState, ContainerStatus, Pod
from nodewright.node.cgroups import cgroup_tree
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs
from nodewright.node.state import as_counted
from nodewright.values.cpu_time import kubelet_weight, runtime_weight

CPUS, MEMS = "cpuset.cpus", "cpuset.mems"
_WEIGHT = "cpu.weight"


class FileFindings(NamedTuple):
    """What came out of a comparison of files."""

    findings: list[Finding]
    compared: int
    lacking: tuple[str, ...]
    """Files that the machine does not have."""


def groups_to_read(config: NodeConfig, pods: Iterable[Pod], rules: CgroupRules) -> ToRead:
    """The groups of the node, its active pods and their running containers, with what their files should say.

    Where a container runs is not among it: that hangs on what others hold.

    Errors: CgroupNameError for a uid that no group can have in its name.
    """
    tree, found, untold = cgroup_tree(config), list[Group](), list[str]()
    everybody = [as_counted(pod, config) for pod in pods]
    found += [one for one in level_groups(tree, rules, everybody) if one.level in (Level.NODE, Level.CLASS)]
    for pod in everybody:
        places = _places(pod, config)
        pinned = [place.is_unquoted for place in places.values()]
        as_whole = config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod)
        running = _running(pod)
        for group in pod_groups(
            pod, tree, rules, places, has_exclusive_cpus=all(pinned) if as_whole else any(pinned)
        ):
            if group.level is Level.POD:
                found.append(replace(group, is_passing=not running or _ends(pod)))
            elif group.container in running:
                placed = _found_by(group, running[group.container], pod.uid)
                if placed is None:
                    untold.append(f"{pod.full_name}, container {group.container}")
                else:
                    found.append(replace(placed, is_passing=group.is_passing or _ends(pod)))
    return ToRead(groups=tuple(found), untold=tuple(untold))


def names_to_read(group: Group, version: int) -> tuple[str, ...]:
    """The files of a group that an audit looks at."""
    more = (CPUS, MEMS) if group.level is Level.CONTAINER else ()
    return tuple(dict.fromkeys((*files_to_read(group, version), *more)))


def file_findings(asked: ToRead, told: GroupsTold) -> FileFindings:
    """Groups that are missing, and files that say something else than they should."""
    texts: dict[str, Mapping[str, str] | None] = {
        path: None
        if found is None
        else {name: text for name, text in found.items() if name not in (CPUS, MEMS)}
        for path, found in told.texts.items()
    }
    groups = [
        replace(one, files=tuple(file for file in one.files if file.name not in (CPUS, MEMS)))
        for one in asked.groups
    ]
    # What is missing as a whole is told once, and not for everything inside it, too.
    gone = {one.pod for one in groups if one.level is Level.POD and texts.get(one.path) is None}
    groups = [one for one in groups if one.level is not Level.CONTAINER or one.pod not in gone]
    found = compared(groups, texts, told.rules)
    lacking = {one.file for one in found.differences if one.file and one.found is None}
    findings = [
        _finding(one)
        for one in found.differences
        if not (one.file and one.found is None) and not _is_other_weight(one)
    ]
    return FileFindings(findings, found.agreeing + len(findings), tuple(sorted(lacking)))


def strange_groups(evidence: Evidence, uids: Iterable[str]) -> Iterator[Finding]:
    """Groups of pods that nobody knows."""
    assert evidence.groups is not None
    for uid in sorted((evidence.groups.uids or frozenset()) - {*uids}):
        is_known = uid in evidence.ended
        yield Finding(
            kind=Kind.GROUP,
            pod=uid,
            field="cgroup",
            said={
                Source.CGROUPS: Standing.THERE,
                Source.PODS: Standing.ENDED if is_known else Standing.MISSING,
            },
        )


def _places(pod: Pod, config: NodeConfig) -> dict[str, Place]:
    """Which containers have no quota, as their specs have it: who was promised CPUs of his own."""
    policy = next(one.policy for one in config.managers.providers if isinstance(one, CPUs))
    if not isinstance(policy, StaticPolicy) or not config.gates["DisableCPUQuotaWithExclusiveCPUs"]:
        return {}
    wants = policy.wants(pod)
    return {
        one.name: Place(is_unquoted=not wants.is_skipped and wants.container(one) > 0)
        for one in (*pod.spec.containers, *pod.spec.init_containers)
    }


def _running(pod: Pod) -> dict[str, ContainerStatus]:
    """The containers that run, as the pod's status has it; where it has no states, those that were made."""
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    untold = ContainerState()
    return {
        one.name: one
        for one in statuses
        if one.state.running is not None or (one.state == untold and one.container_id)
    }


def _ends(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _found_by(group: Group, status: ContainerStatus, uid: str) -> Group | None:
    """The group under the path at which it stands; None: that cannot be told.

    The agent calls containers that are plain processes by pod, name and attempt, and their groups by the last two.
    """
    attempt = f"{status.name}-{status.restart_count}"
    if status.container_id.rpartition("://")[2] == f"{uid}_{status.name}_{status.restart_count}":
        path = f"{group.path.rpartition('/')[0]}/{attempt}"
        return replace(group, path=path, container_id=status.container_id)
    return group if is_container_id(status.container_id) else None


def _finding(one: Difference) -> Finding:
    group = one.group
    assert group is not None
    said: dict[Source, Value] = {Source.CGROUPS: Standing.MISSING, Source.PODS: Standing.RUNNING}
    if one.file:
        expected = Source.PODS if group.pod else Source.CONFIGURATION
        said = {Source.CGROUPS: Text(one.found or ""), expected: Text(one.expected)}
    return Finding(
        kind=Kind.FILE if one.file else Kind.GROUP,
        pod=group.pod,
        container=group.container,
        field=one.file or "cgroup",
        said=said,
        path=one.path,
    )


def _is_other_weight(one: Difference) -> bool:
    """Whether a weight is right as older runtimes make it of shares, or newer ones: nobody tells which it is."""
    if one.file != _WEIGHT or not isinstance(one.because, CPUShares):
        return False
    return one.found in {str(kubelet_weight(one.because.shares)), str(runtime_weight(one.because.shares))}
