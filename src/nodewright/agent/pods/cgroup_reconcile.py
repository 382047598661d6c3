"""Restores cgroups that another program changed: limits, weights, CPUs and memory; removes those of unknown pods."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.engine.core.cgroups.cgroup_comparison import (
    FileDifference,
    FileTexts,
    cgroup_comparison,
    files_to_read,
    value_matches,
)
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin, CgroupFact, MemoryCeiling
from nodewright.engine.core.cgroups.cgroup_names import QOSCgroupNames, pod_uid_from_cgroup
from nodewright.engine.core.cgroups.cgroup_plan import UNLIMITED, CgroupFile, CgroupLevel, PlannedCgroup
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, cgroup_tree, node_and_pod_cgroups
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimePodStatus
from nodewright.model.values.cpu_time import CFS_PERIOD
from nodewright.model.values.quantity import Bytes

PERIOD_S = 10.0
"""The kubelet's interval for reconciling the CPUs of containers."""

_NO_LIMIT: CgroupFact = MemoryCeiling(Bytes(-1), AmountOrigin.UNSET)
"""The fact of a file that no limit is written to."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """What was restored, and what could not be."""

    differences: tuple[FileDifference, ...]
    errors: tuple[str, ...]


async def run_cgroup_reconciler(
    state: Callable[[], AgentState],
    cgroups: CgroupManager,
    record_event: Callable[[RecordEvent], None],
    clock: Clock,
    period_s: float = PERIOD_S,
) -> None:
    """Reconciles the cgroups until it is cancelled; reports repairs, and each error or missing file once.

    Reading and writing happen without an await in between, so a newer decision is never overwritten.
    """
    reported_errors: frozenset[str] = frozenset()
    reported_missing: frozenset[str] = frozenset()
    emptied = _EmptiedCgroups()
    while True:
        await clock.sleep(period_s)
        for uid, path in emptied.newly_found(state(), cgroups):
            message = f"{path} has no process any more, although the pod runs: its limits do not apply"
            record_event(RecordEvent.warning("CgroupEmpty", message, uid=uid))
        # Reading the cgroups of many pods twice takes long: servers answer in between.
        await asyncio.sleep(0)
        result = reconcile_cgroups(state(), cgroups)
        for difference in result.differences:
            message = _restored_message(difference)
            record_event(RecordEvent.warning("CgroupChanged", message))
        for error in sorted({*result.errors} - reported_errors):
            record_event(RecordEvent.warning("CgroupNotWritten", error))
        reported_errors = frozenset(result.errors)
        for name in sorted(cgroups.unsupported - reported_missing):
            message = f"this machine has no {name}: the limit is not enforced"
            record_event(RecordEvent.warning("CgroupLacking", message))
        reported_missing = frozenset(cgroups.unsupported)


class _EmptiedCgroups:
    """Finds cgroups of running pods whose processes were moved away."""

    def __init__(self) -> None:
        self._occupied: set[str] = set()
        self._empty: set[str] = set()

    def newly_found(self, state: AgentState, cgroups: CgroupManager) -> list[tuple[str, str]]:
        """The uids and cgroups of pods that had processes there once, and have had none at two looks in a row.

        A container that has just ended has no process either; its end is known by the next look.
        """
        newly_found, empty = [], set()
        for uid, path in _running_pod_cgroups(state):
            if cgroups.has_processes(path):
                self._occupied.add(path)
            elif path in self._occupied:
                empty.add(path)
                if path in self._empty:
                    self._occupied.discard(path)
                    newly_found.append((uid, path))
        self._empty = empty
        return newly_found


def _running_pod_cgroups(state: AgentState) -> list[tuple[str, str]]:
    return sorted(
        {
            (record.pod.uid, container.cgroup.rpartition("/")[0])
            for record in state.pods.values()
            if record.stage is PodStage.ACTIVE
            for container in record.containers
            if container.phase is ContainerPhase.RUNNING
            and container.cgroup
            and not record.has_running_effect
        }
    )


def reconcile_cgroups(state: AgentState, cgroups: CgroupManager) -> ReconcileResult:
    """Compares all cgroups once with what they should be, and restores those that differ."""
    cgroup_config = cgroup_rules(state.node.config)
    planned_cgroups = tuple(desired_cgroups(state))
    actual: dict[str, FileTexts | None] = {
        planned.path: cgroups.read_files(planned.path, files_to_read(planned, cgroup_config.version))
        for planned in planned_cgroups
    }
    by_path: dict[str, list[FileDifference]] = {}
    for difference in cgroup_comparison(planned_cgroups, actual, cgroup_config).differences:
        if difference.actual is not None or not difference.file:
            by_path.setdefault(difference.path, []).append(difference)
    to_write = {
        planned.path: (*planned.files, *_restored_files(by_path[planned.path]))
        for planned in planned_cgroups
        if planned.path in by_path
    }
    # cgroup v1 rejects values above the parent's, so a child may have to be written before its parent: try twice.
    errors = _write_errors(to_write, cgroups)
    errors = _write_errors({path: to_write[path] for path in errors}, cgroups)
    restored = tuple(
        difference
        for path, differences in by_path.items()
        if path not in errors
        for difference in differences
    )
    return ReconcileResult(restored, tuple(errors.values()))


def _restored_files(differences: list[FileDifference]) -> Iterator[CgroupFile]:
    """Files that no plan sets, with their unlimited values."""
    return (
        CgroupFile(difference.file, difference.expected, _NO_LIMIT)
        for difference in differences
        if difference.because is None and difference.file
    )


def _write_errors(
    files_by_path: Mapping[str, tuple[CgroupFile, ...]], cgroups: CgroupManager
) -> dict[str, str]:
    """Writes the files; what could not be written, and why, by the cgroup's path."""
    errors = {}
    for path, files in files_by_path.items():
        try:
            cgroups.ensure(path, files)
        except HostError as error:
            errors[path] = str(error)
    return errors


def desired_cgroups(state: AgentState) -> Iterator[PlannedCgroup]:
    """The cgroups as they should be: those above pods, of pods without a running effect, of running containers."""
    settled = {
        record.pod.full_name: record
        for record in state.pods.values()
        if record.stage is PodStage.ACTIVE
        and not record.has_running_effect
        and not record.resizing.is_in_progress
        and record.runtime_status is not None
        and record.pod.uid in state.node.pods
    }
    allocated = [AllocatedPod(record.pod, record.memory) for record in settled.values()]
    for planned in node_and_pod_cgroups(state.node, allocated, cgroup_rules(state.node.config)):
        if planned.level is CgroupLevel.POD:
            yield planned
        elif planned.level is CgroupLevel.CONTAINER:
            yield from _running_cgroup(planned, settled[planned.pod])
    yield from state.node_cgroups


def _running_cgroup(planned: PlannedCgroup, record: PodRecord) -> Iterator[PlannedCgroup]:
    """The cgroup of a running container with known resources, under the path that its runtime chose."""
    newest = record.running_container(planned.container)
    if newest is not None and newest.cgroup and newest.id in record.applied_resources:
        files = record.applied_resources[newest.id]
        # A container that ends takes its cgroup along: its absence is no error.
        yield replace(planned, path=newest.cgroup, container_id=newest.id, files=files, is_transient=True)


def _restored_message(difference: FileDifference) -> str:
    if not difference.file:
        return f"{difference.path} was missing and has been created again"
    return (
        f"{difference.file} of {difference.path} was {difference.actual} instead of {difference.expected} "
        "and has been restored"
    )


# ---------------------------------------------------------------- what an earlier agent has left


_UNLIMITED_CLASS = {
    1: {"cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"},
    2: {"cpu.max": f"{UNLIMITED} {CFS_PERIOD}", "memory.high": UNLIMITED},
}


def end_loans(state: AgentState, cgroups: CgroupManager) -> tuple[RecordEvent, ...]:
    """Takes the limits off BestEffort pods that an earlier agent has set; an event about an error.

    They were right for a usage that is not known any more; this agent limits them again once it lends.
    """
    rules, tree = cgroup_rules(state.node.config), cgroup_tree(state.node.config)
    if not tree.cgroups_per_qos:
        return ()
    path = QOSCgroupNames.for_root(tree.root).best_effort.path(rules.driver)
    defaults = _UNLIMITED_CLASS[cgroups.version]
    texts = cgroups.read_files(path, tuple(defaults)) or {}
    files = (CgroupFile(name, defaults[name], _NO_LIMIT) for name in texts)
    limited = tuple(file for file in files if not value_matches(file, texts[file.name], rules.page_bytes))
    try:
        if limited:
            cgroups.ensure(path, limited)
    except HostError as error:
        return (RecordEvent.warning("CgroupNotWritten", str(error)),)
    return ()


def end_orphaned_cgroups(
    state: AgentState, runtime_pods: Iterable[RuntimePodStatus], cgroups: CgroupManager
) -> tuple[RecordEvent, ...]:
    """Kills what runs in orphaned pod cgroups, and removes them; events about what was found.

    A cgroup is orphaned where the records of agent and runtime are removed, damaged or replaced by older ones while its
    runs: nothing would ever end it, its CPUs are given to others, and its source starts it again.

    Follows: v1.36, kubelet/kubelet_pods.go, cleanupOrphanedPodCgroups.
    Departs: runs before the first pod starts, too; a cgroup in which nothing runs is removed without an event.
    """
    events = []
    for path in orphaned_pod_cgroups(state, runtime_pods, cgroups):
        count = len(cgroups.processes(path))
        message = f"{path} belongs to no known pod: its {count} processes were killed"
        try:
            if count:
                cgroups.kill(path)
            cgroups.remove(path)
        except HostError as error:
            message = str(error)
        if count:
            events.append(RecordEvent.warning("StrayProcesses", message))
    return tuple(events)


def orphaned_pod_cgroups(
    state: AgentState, runtime_pods: Iterable[RuntimePodStatus], cgroups: CgroupManager
) -> tuple[str, ...]:
    """The paths of pod cgroups that belong to no pod of the agent or its runtime."""
    config = state.node.config
    layout, driver = cgroup_tree(config), config.parts.kubelet.cgroup_driver
    if not layout.cgroups_per_qos:
        return ()
    parents = QOSCgroupNames.for_root(layout.root)
    runtime_uids = {status.uid for status in (*runtime_pods, *state.orphans.values())}
    orphaned_paths = []
    for parent in (parents.guaranteed, parents.burstable, parents.best_effort):
        for path in cgroups.children(parent.path(driver)):
            uid = pod_uid_from_cgroup(path, parents, driver)
            if uid is None or uid in runtime_uids:
                continue
            record = state.pods.get(uid)
            if record is None or not _may_use(record, path, state):
                orphaned_paths.append(path)
    return tuple(orphaned_paths)


def _may_use(record: PodRecord, path: str, state: AgentState) -> bool:
    """Whether processes of the pod may be in the cgroup."""
    if record.stage is PodStage.REJECTED:
        return False
    if record.runtime_status is not None:
        return True
    return path == (record.cgroup or pod_cgroup(record.pod, state.node.config))
