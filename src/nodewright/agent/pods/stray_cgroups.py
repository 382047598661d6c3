"""Cgroups of pods that neither the agent nor its runtime knows: what runs in them is ended, before any pod starts."""

from collections.abc import Iterable

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.documents.files.cgroup_files import CgroupManager
from nodewright.engine.core.cgroups.cgroup_names import QOSCgroupNames, pod_uid_from_cgroup
from nodewright.engine.node.node_cgroups import cgroup_tree
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus


def end_stray_pods(
    state: AgentState, runtime_pods: Iterable[RuntimePodStatus], cgroups: CgroupManager
) -> tuple[RecordEvent, ...]:
    """Kills what runs in stray pod cgroups, and removes them; events about what was found.

    A pod becomes stray where the records of agent and runtime are removed, damaged or replaced by older ones while it
    runs: nothing would ever end it, its CPUs are given to others, and its source starts it again.

    Follows: v1.36, kubelet/kubelet_pods.go, cleanupOrphanedPodCgroups.
    Departs: runs before the first pod starts, too; a cgroup in which nothing runs is removed without an event.
    """
    events = []
    for path in stray_pod_cgroups(state, runtime_pods, cgroups):
        count = len(cgroups.processes(path))
        message = f"{path} belongs to no known pod: its {count} processes were killed"
        try:
            if count:
                cgroups.kill(path)
            cgroups.remove(path)
        except HostError as error:
            message = str(error)
        if count:
            events.append(RecordEvent(uid="", is_warning=True, reason="StrayProcesses", message=message))
    return tuple(events)


def stray_pod_cgroups(
    state: AgentState, runtime_pods: Iterable[RuntimePodStatus], cgroups: CgroupManager
) -> tuple[str, ...]:
    """The paths of pod cgroups that belong to no pod of the agent or its runtime."""
    config = state.node.config
    layout, driver = cgroup_tree(config), config.parts.kubelet.cgroup_driver
    if not layout.cgroups_per_qos:
        return ()
    parents = QOSCgroupNames.for_root(layout.root)
    runtime_uids = {status.uid for status in (*runtime_pods, *state.orphans.values())}
    stray_paths = []
    for parent in (parents.guaranteed, parents.burstable, parents.best_effort):
        for path in cgroups.children(parent.path(driver)):
            uid = pod_uid_from_cgroup(path, parents, driver)
            if uid is None or uid in runtime_uids:
                continue
            record = state.pods.get(uid)
            if record is None or not _may_use(record, path, state):
                stray_paths.append(path)
    return tuple(stray_paths)


def _may_use(record: PodRecord, path: str, state: AgentState) -> bool:
    """Whether processes of the pod may be in the cgroup."""
    if record.stage is PodStage.REJECTED:
        return False
    if record.runtime_status is not None:
        return True
    return path == (record.cgroup or pod_cgroup(record.pod, state.node.config))
