"""What an agent does, a line each: for dry runs and for its log."""

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from nodewright.agent.device_values import AllocateDevices, AskPreference
from nodewright.agent.values import (
    AskProbe,
    CancelWork,
    CleanPod,
    EndPod,
    PodRecord,
    ReclaimNode,
    SyncPod,
    Tell,
    TuneContainer,
    TuneStart,
    Work,
    WriteGroups,
)
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Group


def work_lines(work: Work, pods: Mapping[str, PodRecord]) -> Iterator[str]:
    """The work in words; ``pods`` gives names to uids."""
    match work:
        case SyncPod():
            yield from _sync(work)
        case EndPod(pod=pod, grace_period_s=grace_s):
            within = "its own grace period" if grace_s is None else f"{grace_s} s"
            yield f"end pod {pod.full_name} within {within}"
        case CleanPod(pod=pod):
            yield f"remove what is left of pod {pod.full_name}"
        case CancelWork(uid):
            yield f"stop what is being done for pod {_name(uid, pods)}"
        case TuneContainer(uid=uid, container_id=id_, files=files):
            yield f"hold container {id_} of pod {_name(uid, pods)} to: {_files(files)}"
        case TuneStart(uid=uid, container=container, files=files):
            yield f"hold container {container}, which starts, of pod {_name(uid, pods)} to: {_files(files)}"
        case WriteGroups(groups):
            yield from _groups(groups)
        case AllocateDevices(pod=pod, uses=uses):
            for use in uses:
                ids = ", ".join(use.devices)
                yield f"hand out {use.resource} {ids} to container {use.container} of pod {pod.full_name}"
        case AskPreference(uid=uid, question=one):
            yield f"ask which {one.size} of {one.resource} its plugin prefers for pod {_name(uid, pods)}"
        case AskProbe(pod=pod, container=container, probe=probe):
            yield f"ask the {probe.kind} probe of container {container} of pod {pod.full_name}"
        case ReclaimNode(what):
            yield f"give back, without ending pods: {', '.join(map(str, what))}"
        case Tell():
            yield tell_line(work, _name(work.uid, pods) if work.uid else "")
        case _:
            assert_never(work)


def tell_line(told: Tell, name: str) -> str:
    """Something that happened, and to whom; no name: the node."""
    kind = "warning" if told.is_warning else "event"
    about = f"pod {name}: " if name else ""
    return f"{kind}: {about}{told.reason}: {told.message}"


def _sync(work: SyncPod) -> Iterator[str]:
    name, plan = work.pod.full_name, work.plan
    yield from _groups(work.groups[:1])
    for tune in work.tunes:
        yield f"hold container {tune.container_id} of pod {name} to: {_files(tune.files)}"
    if plan.ends and plan.sandbox_attempt != 0:
        yield f"end all containers of pod {name}"
    for kill in plan.kills:
        yield f"end container {kill.container.name} of pod {name}: {kill.reason}"
    for one in plan.removes:
        yield f"remove container {one.id} of pod {name}"
    if plan.sandbox_attempt is not None:
        yield f"make a sandbox for pod {name}, attempt {plan.sandbox_attempt}"
    files = {group.container: group.files for group in work.groups}
    for container in work.hooks:
        yield f"run the postStart hook of container {container} of pod {name} again"
    for container in plan.starts:
        held = _files(files.get(container, ()))
        yield f"start container {container} of pod {name}, attempt {work.attempts[container]}: {held}"


def _groups(groups: Iterable[Group]) -> Iterator[str]:
    for group in groups:
        yield f"write {group.path}: {_files(group.files)}"


def _files(files: Iterable[File]) -> str:
    """Without those that say the same again for huge pages that are set aside."""
    shown = (f"{file.name}={file.value}" for file in files if ".rsvd." not in file.name)
    return ", ".join(shown) or "nothing"


def _name(uid: str, pods: Mapping[str, PodRecord]) -> str:
    return pods[uid].pod.full_name if uid in pods else uid
