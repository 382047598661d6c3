"""Pods that run and are to have other resources: recognized, decided on by the node, carried out, told."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from nodewright.agent.ending import makes_way
from nodewright.agent.stages import STAYS
from nodewright.agent.turn import Turn
from nodewright.agent.values import PodDone, PodRecord, Source, SyncPod
from nodewright.core.lifecycle import Kill, KillReason, PodPlan, Resizing
from nodewright.core.resize import merged, restarts
from nodewright.model.objects import Pod
from nodewright.model.running import ContainerPhase
from nodewright.node.actions import KillPod
from nodewright.node.events import PodResized
from nodewright.node.resizing import Outcome, Resize, forbidden_resize

RESIZE_ERROR = "ResizeError"
"""Of a failure to tell the machine."""
_CHANGEABLE = (Source.WORKLOAD, Source.API)
"""Static pods are made anew, as a kubelet makes them."""


def recognized(turn: Turn, source: Source, pods: Iterable[Pod]) -> Iterator[Pod]:
    """The pods of a source; one that is there already but for its resources has the uid that it has there.

    Departs: files have no identity of their own; one of which more has changed is another pod.
    """
    there = {
        one.pod.full_name: one
        for one in turn.pods.values()
        if one.source is source and one.is_wanted and one.stage in STAYS
    }
    for pod in pods:
        record = there.get(pod.full_name)
        if record is None or pod.uid == record.pod.uid:
            yield pod
            continue
        same = replace(pod, metadata=replace(pod.metadata, uid=record.pod.uid))
        is_same = pod.uid == record.written_as
        if not is_same and same != record.pod and is_resize(turn, record, same):
            is_same = True
            turn.put(replace(record, written_as=pod.uid))
        yield same if is_same else pod


def is_resize(turn: Turn, record: PodRecord, written: Pod) -> bool:
    """Whether nothing but resources is written otherwise, and an API server would take that."""
    return (
        record.source in _CHANGEABLE
        and written.uid in turn.node.pods
        and written.metadata == record.pod.metadata
        and differs_only_in_resources(written, record.pod)
        and forbidden_resize(turn.node, written) is None
    )


def differs_only_in_resources(written: Pod, current: Pod) -> bool:
    """Whether nothing but resources is written otherwise."""
    pairs = zip(written.spec.containers, current.spec.containers, strict=False)
    return merged(written, current).spec == written.spec and all(
        one.resize_policy == other.resize_policy for one, other in pairs
    )


def rewritten(turn: Turn, record: PodRecord, written: Pod) -> None:
    """A pod that is there is written again, perhaps with other resources."""
    asked = record.resizing.desired
    if written == record.pod:
        if asked is not None:
            _ask(turn, record, written)
    elif not is_resize(turn, record, written):
        turn.put(replace(record, pod=written))
    elif asked is None or asked.spec != written.spec:
        _ask(turn, record, written)


def asked_again(turn: Turn) -> None:
    """The agent has begun anew: resizes that waited are tried again.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions.
    """
    for uid, record in tuple(turn.pods.items()):
        waits = record.resizing.desired is not None and record.stage in STAYS
        if waits and record.resizing.desired is not None and uid not in turn.node.resizing:
            turn.step(PodResized(record.resizing.desired))


def _ask(turn: Turn, record: PodRecord, written: Pod) -> None:
    desired = merged(written, record.pod)
    turn.put(replace(record, resizing=replace(record.resizing, desired=desired)))
    turn.step(PodResized(desired))


# ---------------------------------------------------------------- what the node says


def follow_resizes(turn: Turn) -> None:
    """What became of the resizes that the node tried in this turn; who makes way for them ends."""
    for stepped in turn.stepped:
        if not stepped.step.resizes:
            continue
        for action in stepped.step.actions:
            if isinstance(action, KillPod):
                makes_way(turn, action)
        for one in stepped.step.resizes:
            _became(turn, one)


def _became(turn: Turn, one: Resize) -> None:
    record = turn.pods.get(one.pod.uid)
    if record is None or record.stage not in STAYS:
        return
    if one.outcome is Outcome.DONE:
        _granted(turn, record, one)
        return
    reason, message = turn.rules.words.resize_put_off(one)
    before = record.resizing
    after = replace(before, reason=reason, message=message)
    if one.outcome is Outcome.FORBIDDEN:
        # Only who looks away from the API server's own checks gets here.
        after = replace(before, desired=None, reason="", message="")
    if (reason, message) != (before.reason, before.message):
        said = turn.rules.words.resize_summary(before.desired or one.pod, message)
        turn.tell(record.pod.uid, f"Resize{reason}", f"Pod resize {reason}: {said}", warning=True)
    turn.put(replace(record, resizing=after))


def _granted(turn: Turn, record: PodRecord, one: Resize) -> None:
    """The pod has what it is to have; the machine has to be told."""
    before, desired = record.resizing, record.resizing.desired or one.pod
    if not one.changes:
        turn.put(replace(record, resizing=replace(before, desired=None, reason="", message="")))
        return
    pod = merged(desired, record.pod)
    anew = dict.fromkeys((*before.restarts, *(each.container for each in restarts(pod, record.pod))))
    said = turn.rules.words.resize_summary(pod, "")
    turn.tell(pod.uid, "ResizeStarted", f"Pod resize started: {said}")
    resizing = Resizing(is_in_progress=True, restarts=tuple(anew))
    turn.put(replace(record, pod=pod, resizing=resizing, retry_at_ns=None))


# ---------------------------------------------------------------- what the machine says


def with_restarts(wanted: PodPlan, record: PodRecord) -> PodPlan:
    """The plan with the containers that have to start again for a resize."""
    facts = record.facts
    if wanted.ends or wanted.sandbox_attempt is not None or facts is None:
        return wanted
    ending = {one.container.name for one in wanted.kills}
    kills = [
        Kill(container=newest, reason=KillReason.CHANGED)
        for name in record.resizing.restarts
        if name not in ending
        and (newest := facts.newest(name)) is not None
        and newest.phase is ContainerPhase.RUNNING
    ]
    starts = (one.container.name for one in kills if one.container.name not in wanted.starts)
    return replace(wanted, kills=(*wanted.kills, *kills), starts=(*wanted.starts, *starts))


def after_resize(turn: Turn, record: PodRecord, seen: PodDone, work: SyncPod) -> PodRecord:
    """The record once the machine was told of a resize, or was not."""
    if not work.is_resize:
        return record
    failed = {one.container: one.message for one in seen.failures if one.reason == RESIZE_ERROR}
    told = {one.container_id: one.files for one in work.tunes if one.container_id not in failed}
    record = replace(record, told={**record.told, **told})
    words, resizing = turn.rules.words, record.resizing
    if failed:
        error = next(iter(failed.values()))
        if error != resizing.error:
            said = words.resize_summary(record.pod, error)
            turn.tell(seen.uid, RESIZE_ERROR, f"Pod resize error: {said}", warning=True)
        return replace(record, resizing=replace(resizing, error=error))
    was_cut_off = seen.is_cancelled or any(not one.container for one in seen.failures)
    if was_cut_off or record.pod.spec != work.pod.spec:
        return record
    turn.tell(seen.uid, "ResizeCompleted", f"Pod resize completed: {words.resize_summary(record.pod, '')}")
    return replace(record, resizing=replace(resizing, is_in_progress=False, restarts=(), error=""))
