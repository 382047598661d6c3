"""The cgroups of pods as they should be, and the updates that bring running containers there."""

from collections.abc import Iterable, Iterator, Mapping
from weakref import ref

from msgspec.structs import replace

from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.agent.state.effects import UpdateContainerResources, UpdateStartingContainer
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings, MemoryFrom, RunsOn
from nodewright.engine.core.cgroups.cgroup_plan import (
    CgroupFile,
    CgroupLayout,
    CgroupLevel,
    PlannedCgroup,
    container_files,
    pod_cgroups,
    top_level_cgroups,
)
from nodewright.engine.core.cgroups.cgroup_settings import settings_by_container
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_cgroups import (
    AllocatedPod,
    cgroup_rules,
    cgroup_tree,
    cgroups_of_pod,
    container_cpusets,
    with_borrowers,
)
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import ContainerPhase

ContainerUpdate = UpdateContainerResources | UpdateStartingContainer


def node_level_cgroups(node: NodeState) -> tuple[PlannedCgroup, ...]:
    """The cgroups above those of pods."""
    cgroup_config, layout = _cgroup_layout(node.config)
    return top_level_cgroups(with_borrowers(layout, node), cgroup_config, tuple(node.pods.values()))


def cgroups_of_record(
    node: NodeState, record: PodRecord
) -> tuple[tuple[PlannedCgroup, ...], Mapping[str, ContainerSettings]]:
    """The cgroups of a pod and its containers, and the settings of the containers."""
    cgroup_config, layout = _cgroup_layout(node.config)
    pod = without_ungated_resources(record.pod, node.config)
    layout = with_borrowers(layout, node)
    cgroups = cgroups_of_pod(node, AllocatedPod(record.pod, record.memory), layout, cgroup_config)
    return tuple(cgroups), settings_by_container(
        pod, cgroup_config, container_cpusets(pod, node, record.memory)
    )


def cgroups_of_borrowers(node: NodeState, records: Iterable[PodRecord]) -> Iterator[PlannedCgroup]:
    """The cgroups of the BestEffort pods that run already."""
    for record in records:
        if record.stage is PodStage.ACTIVE and record.sandboxes and record.pod.uid in node.pods:
            for planned in cgroups_of_record(node, record)[0]:
                if planned.level is CgroupLevel.POD and planned.qos_class is QOSClass.BEST_EFFORT:
                    yield planned


def pod_cgroup(pod: Pod, config: NodeConfig) -> str:
    """The path of a pod's cgroup on the node; empty where pods have none."""
    cgroup_config, layout = _cgroup_layout(config)
    cgroups = pod_cgroups(
        without_ungated_resources(pod, config), layout, cgroup_config, {}, has_exclusive_cpus=False
    )
    return next((cgroup.path for cgroup in cgroups if cgroup.level is CgroupLevel.POD), "")


def with_updates(node: NodeState, record: PodRecord) -> tuple[PodRecord, tuple[ContainerUpdate, ...]]:
    """The updates that a pod's containers need because allocations have changed, and the record that notes them."""
    if record.resizing.is_in_progress and record.has_running_effect:
        # The pod is looked at again when the running effect completes.
        return record, ()
    updates, starting_updates = pending_updates(node, record), _starting_updates(node, record)
    applied = {**record.applied_resources, **{update.container_id: update.files for update in updates}}
    if record.resizing.is_in_progress:
        # Other amounts wait until the pod's cgroup is resized; CPUs do not, another pod may own them by now.
        updates = tuple(_placement_updates(updates, record.applied_resources))
        applied = {
            **record.applied_resources,
            **{
                update.container_id: _files_after_move(record.applied_resources, update) for update in updates
            },
        }
    if not updates and not starting_updates:
        return record, ()
    starting = {
        **record.starting_resources,
        **{update.container: update.files for update in starting_updates},
    }
    record = replace(record, applied_resources=applied, starting_resources=starting)
    return record, (*updates, *starting_updates)


def pending_updates(node: NodeState, record: PodRecord) -> tuple[UpdateContainerResources, ...]:
    """The updates that the running containers of a pod have not received yet."""
    files, settings = _target_resources(node, record)
    updates = []
    for status in record.containers:
        # The ids of containers that are just being started are not known yet.
        is_known = status.id in record.applied_resources or status.name not in record.starting_resources
        if status.phase is not ContainerPhase.RUNNING or status.name not in files or not is_known:
            continue
        target = files[status.name]
        if record.applied_resources.get(status.id) != target:
            updates.append(
                UpdateContainerResources(
                    uid=record.pod.uid,
                    container_id=status.id,
                    settings=settings[status.name],
                    files=target,
                )
            )
    return tuple(updates)


def _starting_updates(node: NodeState, record: PodRecord) -> tuple[UpdateStartingContainer, ...]:
    """The updates for containers that the running effect is just starting."""
    if not record.starting_resources:
        return ()
    files, settings = _target_resources(node, record)
    return tuple(
        UpdateStartingContainer(
            uid=record.pod.uid, container=name, settings=settings[name], files=files[name]
        )
        for name, starting in record.starting_resources.items()
        if starting != files[name]
    )


def _target_resources(
    node: NodeState, record: PodRecord
) -> tuple[dict[str, tuple[CgroupFile, ...]], Mapping[str, ContainerSettings]]:
    """By name the resources that the containers of a pod should have: as cgroup files, and as settings."""
    cgroup_config, _ = _cgroup_layout(node.config)
    pod = without_ungated_resources(record.pod, node.config)
    settings = settings_by_container(pod, cgroup_config, container_cpusets(pod, node, record.memory))
    files = {name: container_files(container, cgroup_config) for name, container in settings.items()}
    return files, settings


def _placement_updates(
    updates: Iterable[UpdateContainerResources], applied: Mapping[str, tuple[CgroupFile, ...]]
) -> Iterator[UpdateContainerResources]:
    """The part of the updates that moves containers to CPUs and NUMA nodes that they do not have yet."""
    for update in updates:
        values = {file.name: file.value for file in applied.get(update.container_id, ())}
        placement = (file for file in update.files if isinstance(file.because, RunsOn | MemoryFrom))
        files = tuple(file for file in placement if file.value != values.get(file.name))
        if files:
            settings = ContainerSettings(cpus=update.settings.cpus, mems=update.settings.mems)
            yield replace(update, settings=settings, files=files)


def _files_after_move(
    applied: Mapping[str, tuple[CgroupFile, ...]], move: UpdateContainerResources
) -> tuple[CgroupFile, ...]:
    """All cgroup files of a container after a placement update."""
    files = (*applied.get(move.container_id, ()), *move.files)
    return tuple({file.name: file for file in files}.values())


_layouts: dict[int, tuple[ref[NodeConfig], CgroupConfig, CgroupLayout]] = {}
"""By identity of the configuration, which a node keeps for long, and as long as it: hollow nodes have one each."""


def _cgroup_layout(config: NodeConfig) -> tuple[CgroupConfig, CgroupLayout]:
    """The settings that the values in the node's cgroups depend on, and the layout of the cgroups."""
    number = id(config)
    entry = _layouts.get(number)
    if entry is None or entry[0]() is not config:
        known = ref(config, lambda _: _layouts.pop(number, None))
        entry = _layouts[number] = known, cgroup_rules(config), cgroup_tree(config)
    return entry[1:]
