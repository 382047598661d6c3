"""Effects as text, one line each: for dry runs and the agent's log."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from nodewright.agent.state.agent_state import PodRecord
from nodewright.agent.state.effects import (
    AllocateDevices,
    CancelEffect,
    CleanUpPod,
    Effect,
    QueryPreferredAllocation,
    ReclaimNodeResources,
    RunProbe,
    SyncPod,
    TerminatePod,
    UpdateContainerResources,
    UpdateStartingContainer,
    WriteCgroups,
)
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, PlannedCgroup
from nodewright.model.kubernetes.recorded_events import RecordEvent


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
