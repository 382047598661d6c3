"""Pods come and go: who is wanted, who waits for a name, whom the node takes, who is to end."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodewright.agent.advance import advance
from nodewright.agent.allocating import came, is_asking, next_stage, uses_of
from nodewright.agent.ending import ends, makes_way
from nodewright.agent.resizing import recognized, rewritten
from nodewright.agent.stages import STAYS
from nodewright.agent.turn import Turn
from nodewright.agent.values import Drained, PodRecord, Source, Stage
from nodewright.core.lifecycle import Override
from nodewright.model.objects import USUAL_GRACE_PERIOD_S, Pod
from nodewright.model.reasons import Reason
from nodewright.node.actions import AdmitPod, KillPod, RecordEvent, RejectPod
from nodewright.node.evidence import with_names
from nodewright.values.instant import Instant


def all_wanted(turn: Turn, source: Source, pods: Iterable[Pod]) -> None:
    """A source has these pods and no others."""
    by_uid = {pod.uid: pod for pod in recognized(turn, source, pods)}
    turn.unheard -= {source}
    turn.deferred = tuple(each for each in turn.deferred if each[0] is not source or each[1].uid in by_uid)
    for uid, record in tuple(turn.pods.items()):
        if record.source is source and record.is_wanted and uid not in by_uid:
            unwanted(turn, uid, None)
    # As the kubelet takes up several at once: the oldest first.
    for pod in sorted(by_uid.values(), key=_age):
        wanted(turn, source, pod)


def _age(pod: Pod) -> tuple[int, str, str]:
    created = pod.metadata.creation_timestamp
    return (created.nanoseconds if created is not None else 0), pod.full_name, pod.uid


def wanted(turn: Turn, source: Source, pod: Pod) -> None:
    """A source has this pod, new or known, perhaps with other resources."""
    known = turn.pods.get(pod.uid)
    if known is not None and known.source is not source:
        said = f"pod {pod.full_name} ({source}) is passed over: its uid is that of {known.pod.full_name} ({known.source})"
        turn.tell("", "PodRepeated", said, warning=True)
        return
    if known is not None:
        if known.is_wanted and known.stage in STAYS:
            rewritten(turn, known, pod)
        return
    if is_asking(turn, pod.uid):
        return
    others = (one for one in turn.pods.values() if one.pod.full_name == pod.full_name)
    if any(one.stage is not Stage.REFUSED for one in others):
        if all(one.uid != pod.uid for _, one in turn.deferred):
            turn.deferred = (*turn.deferred, (source, pod))
        return
    _arrived(turn, source, pod)


def deferred_come(turn: Turn) -> None:
    """Whoever waited for an older pod of the same name comes now, if that one is gone."""
    waiting, turn.deferred = turn.deferred, ()
    for source, pod in waiting:
        if is_asking(turn, pod.uid):
            turn.deferred = (*turn.deferred, (source, pod))
            continue
        before = len(turn.pods)
        wanted(turn, source, pod)
        if len(turn.pods) > before:
            advance(turn, pod.uid)
    _tell_waiting(turn)


def _tell_waiting(turn: Turn) -> None:
    """Who waits from now on for a pod of another source, which may stay for ever, is told of."""
    known = {pod.uid for _, pod in turn.before.deferred}
    for source, pod in turn.deferred:
        for one in turn.pods.values() if pod.uid not in known else ():
            if one.pod.full_name == pod.full_name and one.is_wanted and one.source is not source:
                said = (
                    f"pod {pod.full_name} ({source}) waits until the one of that name ({one.source}) is gone"
                )
                turn.tell("", "PodRepeated", said, warning=True)


def _arrived(turn: Turn, source: Source, pod: Pod) -> None:
    """The node decides on a pod."""
    memory = turn.node.held.memory
    # What runs of it already, though nobody knew why, is taken over.
    facts = turn.orphans.pop(pod.uid, None)
    record = PodRecord(pod=pod, source=source, stage=Stage.REFUSED, memory=memory, facts=facts)
    if turn.before.takes_no_pods:
        message = turn.before.takes_no_pods
        turn.put(replace(record, override=Override(phase="Failed", reason="NodeShutdown", message=message)))
        turn.tell(pod.uid, "NodeShutdown", message, warning=True)
        return
    done = came(turn, source, pod)
    if done is None:
        return
    record = replace(record, memory=turn.node.held.memory, because=_named(turn, done.because))
    victims: set[str] = set()
    for action in done.actions:
        match action:
            case KillPod():
                victims.add(action.pod_uid)
                makes_way(turn, action)
            case RecordEvent(pod_uid=uid, type=kind, reason=reason, message=message):
                turn.tell(uid, reason, message, warning=kind == "Warning")
            case RejectPod(because=refusals):
                override = turn.rules.words.refused(refusals)
                turn.tell(pod.uid, override.reason, override.message, warning=True)
                record = replace(record, override=override, because=_named(turn, refusals))
            case AdmitPod():
                record = replace(record, waits_for=frozenset(victims))
                stage = Stage.ALLOCATING if uses_of(turn.node, pod) else next_stage(record)
                record = replace(record, stage=stage)
            case _:
                pass
    turn.put(record)


def _named(turn: Turn, because: tuple[Reason, ...]) -> tuple[Reason, ...]:
    """The reasons with pods by namespace and name: those that are named may be gone when somebody reads it."""
    names = {uid: one.pod.full_name for uid, one in turn.pods.items()}
    return tuple(with_names(reason, names) for reason in because)


# ---------------------------------------------------------------- pods go


def unwanted(turn: Turn, uid: str, grace_period_s: int | None) -> None:
    """A pod is to go: from now on it counts as being deleted."""
    turn.deferred = tuple(each for each in turn.deferred if each[1].uid != uid)
    record = turn.pods.get(uid)
    if record is None:
        return
    if record.pod.metadata.deletion_timestamp is None:
        grace = grace_period_s
        if grace is None:
            own = record.pod.spec.termination_grace_period_seconds
            grace = USUAL_GRACE_PERIOD_S if own is None else own
        metadata = replace(
            record.pod.metadata,
            deletion_timestamp=Instant(turn.now.wall_ns),
            deletion_grace_period_seconds=grace,
        )
        record = replace(record, pod=replace(record.pod, metadata=metadata))
    turn.put(replace(record, is_wanted=False))
    ends(turn, uid, None, grace_period_s)


def drained(turn: Turn, seen: Drained) -> None:
    """No pod is taken any more, and these end."""
    turn.before = replace(turn.before, takes_no_pods=seen.why)
    for uid, grace_period_s in seen.grace_periods_s.items():
        ends(turn, uid, seen.override, grace_period_s)
