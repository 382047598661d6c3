"""What the agent does: a closed union of values, ordered by `decide`; and its text, a line each."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, assert_never

import msgspec

from nodewright.agent.rules.pod_actions import PodActions
from nodewright.agent.rules.probe_state import Probe
from nodewright.agent.state.agent_state import PodRecord
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, PlannedCgroup
from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.reasons.devices import PreferenceWanted


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Devices of a resource that a container holds."""

    container: str
    resource: str
    devices: tuple[str, ...]
    """Their ids, ascending."""
    response: bytes = b""
    """The plugin's ContainerAllocateResponse, encoded as protobuf."""


class SyncPod(msgspec.Struct, frozen=True, kw_only=True):
    """Brings a pod to the state that its plan describes: cgroups, kills, a sandbox, starts."""

    uid: str
    pod: Pod
    plan: PodActions
    cgroups: tuple[PlannedCgroup, ...]
    """Of the pod and its containers."""
    settings: Mapping[str, ContainerSettings]
    attempts: Mapping[str, int]
    """The attempt number of each container to start."""
    updates: tuple["UpdateContainerResources", ...] = ()
    """Resource updates of running containers, because the pod is resized."""
    is_resize: bool = False
    post_start_retries: tuple[str, ...] = ()
    """Running containers for which an interrupted postStart hook is run again, before any start."""
    devices: tuple[AllocatedDevices, ...] = ()
    """The devices that its containers hold."""


class TerminatePod(msgspec.Struct, frozen=True, kw_only=True):
    """Ends all containers of a pod and removes its cgroups.

    Units: grace_period_s in seconds; None: the pod spec's.
    """

    uid: str
    pod: Pod
    grace_period_s: int | None
    cgroup: str
    is_eviction: bool = False
    """Whether the node needs what the pod has: its memory is freed without waiting for CPU time of its own."""


class CleanUpPod(msgspec.Struct, frozen=True, kw_only=True):
    """Removes all that is left of a pod: containers, sandboxes, volumes, logs."""

    uid: str
    pod: Pod
    cgroup: str


class AllocateDevices(msgspec.Struct, frozen=True, kw_only=True):
    """Calls Allocate of the plugins for all devices that a pod holds, one after the other, until one fails."""

    uid: str
    pod: Pod
    devices: tuple[AllocatedDevices, ...]


class QueryPreferredAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """Calls GetPreferredAllocation of a plugin for a pod."""

    uid: str
    query: PreferenceWanted


PodEffect: TypeAlias = AllocateDevices | SyncPod | TerminatePod | CleanUpPod


class CancelEffect(msgspec.Struct, frozen=True):
    """Stops the running effect of a pod; PodEffectCompleted then reports it as cancelled."""

    uid: str


class UpdateContainerResources(msgspec.Struct, frozen=True, kw_only=True):
    """Changes the resources of a running container."""

    uid: str
    container_id: str
    settings: ContainerSettings
    files: tuple[CgroupFile, ...]


class UpdateStartingContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Changes the resources of a container that the running effect starts, or has just started."""

    uid: str
    container: str
    settings: ContainerSettings
    files: tuple[CgroupFile, ...]


class WriteCgroups(msgspec.Struct, frozen=True):
    """Writes the cgroups above those of pods."""

    cgroups: tuple[PlannedCgroup, ...]


class RunProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Probes a container."""

    uid: str
    pod: Pod
    container: str
    container_id: str
    probe: Probe
    pod_ip: str


class ReclaimNodeResources(msgspec.Struct, frozen=True):
    """Reclaims what the node can give back without ending pods, then reads its usage again."""

    targets: tuple[NodeReclaim, ...]


QueryEffect: TypeAlias = RunProbe | QueryPreferredAllocation
Effect: TypeAlias = (
    PodEffect
    | CancelEffect
    | UpdateContainerResources
    | UpdateStartingContainer
    | WriteCgroups
    | QueryEffect
    | ReclaimNodeResources
    | RecordEvent
)


# ---------------------------------------------------------------- text


def effect_lines(effect: Effect, pods: Mapping[str, PodRecord]) -> Iterator[str]:
    """The effect as text; ``pods`` maps uids to names."""
    match effect:
        case SyncPod():
            yield from _sync_lines(effect)
        case TerminatePod(pod=pod, grace_period_s=grace_s):
            within = "its own grace period" if grace_s is None else f"{grace_s} s"
            yield f"terminate pod {pod.full_name} within {within}"
        case CleanUpPod(pod=pod):
            yield f"remove what is left of pod {pod.full_name}"
        case CancelEffect(uid):
            yield f"cancel the running effect of pod {_pod_name(uid, pods)}"
        case UpdateContainerResources(uid=uid, container_id=id_, files=files):
            yield f"update container {id_} of pod {_pod_name(uid, pods)}: {_file_values(files)}"
        case UpdateStartingContainer(uid=uid, container=container, files=files):
            yield f"update starting container {container} of pod {_pod_name(uid, pods)}: {_file_values(files)}"
        case WriteCgroups(cgroups):
            yield from _cgroup_lines(cgroups)
        case AllocateDevices(pod=pod, devices=allocations):
            for allocation in allocations:
                ids = ", ".join(allocation.devices)
                yield f"allocate {allocation.resource} {ids} to container {allocation.container} of pod {pod.full_name}"
        case QueryPreferredAllocation(uid=uid, query=query):
            yield f"query which {query.size} of {query.resource} its plugin prefers for pod {_pod_name(uid, pods)}"
        case RunProbe(pod=pod, container=container, probe=probe):
            yield f"run the {probe.kind} probe of container {container} of pod {pod.full_name}"
        case ReclaimNodeResources(targets):
            yield f"reclaim without ending pods: {', '.join(map(str, targets))}"
        case RecordEvent():
            yield event_line(effect, _pod_name(effect.uid, pods) if effect.uid else "")
        case _:
            assert_never(effect)


def event_line(event: RecordEvent, name: str) -> str:
    """An event and the pod that it concerns; an empty name: the node."""
    kind = "warning" if event.is_warning else "event"
    about = f"pod {name}: " if name else ""
    return f"{kind}: {about}{event.reason}: {event.message}"


def _sync_lines(effect: SyncPod) -> Iterator[str]:
    name, plan = effect.pod.full_name, effect.plan
    yield from _cgroup_lines(effect.cgroups[:1])
    for update in effect.updates:
        yield f"update container {update.container_id} of pod {name}: {_file_values(update.files)}"
    if plan.kill_pod and plan.sandbox_attempt != 0:
        yield f"stop all containers of pod {name}"
    for kill in plan.containers_to_kill:
        yield f"stop container {kill.container.name} of pod {name}: {kill.reason}"
    for container in plan.containers_to_reset:
        yield f"remove container {container.id} of pod {name}"
    if plan.sandbox_attempt is not None:
        yield f"create a sandbox for pod {name}, attempt {plan.sandbox_attempt}"
    files = {cgroup.container: cgroup.files for cgroup in effect.cgroups}
    for container_name in effect.post_start_retries:
        yield f"run the postStart hook of container {container_name} of pod {name} again"
    for container_name in plan.containers_to_start:
        resources = _file_values(files.get(container_name, ()))
        yield f"start container {container_name} of pod {name}, attempt {effect.attempts[container_name]}: {resources}"


def _cgroup_lines(cgroups: Iterable[PlannedCgroup]) -> Iterator[str]:
    for cgroup in cgroups:
        yield f"write {cgroup.path}: {_file_values(cgroup.files)}"


def _file_values(files: Iterable[CgroupFile]) -> str:
    """The files' values, without the rsvd files of huge pages, which repeat the same limits."""
    shown = (f"{file.name}={file.value}" for file in files if ".rsvd." not in file.name)
    return ", ".join(shown) or "nothing"


def _pod_name(uid: str, pods: Mapping[str, PodRecord]) -> str:
    return pods[uid].pod.full_name if uid in pods else uid
