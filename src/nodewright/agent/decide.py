"""What the agent makes of what it sees: one pure function, from the mind and an observation to the mind and works."""

from collections.abc import Iterable, Iterator
from typing import assert_never

from msgspec.structs import replace

from nodewright.agent.advance import advance
from nodewright.agent.allocating import allocated, devices_seen
from nodewright.agent.coming import all_wanted, deferred_come, drained, unwanted, wanted
from nodewright.agent.device_values import AllocateDevices, DevicesSeen, PreferenceAnswered
from nodewright.agent.ending import ends, tell_late
from nodewright.agent.found import orphans_end, runtime_seen, with_facts
from nodewright.agent.news import failed
from nodewright.agent.outcome import Decided
from nodewright.agent.relief import patience_ns, still_leaving
from nodewright.agent.resizing import RESIZE_ERROR, after_resize, follow_resizes
from nodewright.agent.turn import Turn
from nodewright.agent.values import (
    HOOK_ERROR,
    MOUNT_ERROR,
    CleanPod,
    Drained,
    EndPod,
    Failure,
    Mind,
    Now,
    PodDone,
    PodRecord,
    PodSeen,
    PodsWanted,
    PodUnwanted,
    PodWanted,
    ProbeAnswered,
    ReclaimNode,
    Rules,
    RuntimeSeen,
    Seen,
    Stage,
    SyncPod,
    Ticked,
    TuneFailed,
    UsageSeen,
)
from nodewright.core.eviction import Eviction, Situation, look, relieve
from nodewright.core.lifecycle import Health, ProbeState, answered
from nodewright.model.objects import Waiting
from nodewright.node.events import ConditionsObserved
from nodewright.node.state import container_names


def decide(mind: Mind, seen: Seen, now: Now, rules: Rules) -> Decided:
    """The mind after an observation and what is to be done; same arguments, same result."""
    turn = Turn(mind, now, rules)
    match seen:
        case PodsWanted(source, pods):
            all_wanted(turn, source, pods)
        case PodWanted(source, pod):
            wanted(turn, source, pod)
        case PodUnwanted(uid, grace_period_s):
            unwanted(turn, uid, grace_period_s)
        case PodSeen(uid, facts, asked_ns):
            if uid in turn.pods:
                turn.put(with_facts(turn.pods[uid], facts, asked_ns))
        case RuntimeSeen():
            runtime_seen(turn, seen)
        case PodDone():
            _done(turn, seen)
        case TuneFailed():
            _tune_failed(turn, seen)
        case ProbeAnswered():
            _probe_answered(turn, seen)
        case UsageSeen():
            _pressure(turn, seen)
        case DevicesSeen() | PreferenceAnswered():
            devices_seen(turn, seen)
        case Drained():
            drained(turn, seen)
        case Ticked():
            pass
        case _:
            assert_never(seen)
    orphans_end(turn)
    follow_resizes(turn)
    tell_late(turn)
    for uid in [uid for uid, record in turn.pods.items() if uid in turn.touched or _is_due(record, now)]:
        advance(turn, uid)
    deferred_come(turn)
    return turn.decided()


def _is_due(record: PodRecord, now: Now) -> bool:
    """Whether something is to be done for a pod of which nothing was seen."""
    return record.stage is Stage.WAITING or any(moment <= now.steady_ns for moment in _moments(record))


def _moments(record: PodRecord) -> Iterator[int]:
    if record.late_at_ns is not None:
        yield record.late_at_ns
    if not record.is_busy:
        yield from record.asks_at_ns.values()
        for moment in (record.look_at_ns, record.retry_at_ns):
            if moment is not None:
                yield moment


def wake_at_ns(mind: Mind) -> int | None:
    """When there is something to be done though nothing has been seen; None: never.

    Units: nanoseconds on the steady clock.
    """
    moments = (moment for one in mind.pods.values() for moment in _moments(one))
    return min(moments, default=None)


# ---------------------------------------------------------------- what came of works


def _done(turn: Turn, seen: PodDone) -> None:
    """Work for a pod has ended: what failed holds its containers back for a while."""
    record = turn.pods.get(seen.uid)
    if record is None:
        return
    record = replace(with_facts(record, seen.facts, seen.asked_ns), is_busy=False)
    match seen.work:
        case AllocateDevices():
            record = allocated(turn, record, seen)
        case SyncPod():
            record = _after_sync(turn, record, seen, seen.work)
        case EndPod():
            if seen.failures and not seen.is_cancelled:
                record = _retry(turn, record, seen.failures)
            elif not seen.is_cancelled:
                record = replace(record, stage=Stage.ENDED, is_clean=True)
                turn.gone(record)
        case CleanPod():
            if not seen.failures and not seen.is_cancelled:
                turn.forget(seen.uid)
                return
            record = _retry(turn, record, seen.failures)
        case _:
            assert_never(seen.work)
    turn.put(record)


def _after_sync(turn: Turn, record: PodRecord, seen: PodDone, work: SyncPod) -> PodRecord:
    """Who started is held back no longer, and was told what its group was set to; who could not be started waits."""
    held_back = {name: why for name, why in record.held_back.items() if name not in work.plan.starts}
    failures = tuple(one for one in seen.failures if one.reason != RESIZE_ERROR)
    for failure in failures:
        if failure.reason == MOUNT_ERROR:
            # Until its volumes are there a container is just being created; why that takes so long, events say.
            continue
        names = (failure.container,) if failure.container else container_names(record.pod)
        held_back |= dict.fromkeys(names, Waiting(failure.reason, failure.message))
    told = dict(record.told)
    for name in work.plan.starts:
        newest = seen.facts.newest(name) if seen.facts is not None else None
        if newest is not None and name in record.starting:
            told[newest.id] = record.starting[name]
    turn.to_tune.add(seen.uid)
    record = replace(
        record, held_back=held_back, told=told, starting={}, hooks=_unhooked(record, seen.failures)
    )
    record = after_resize(turn, record, seen, work)
    return _retry(turn, record, failures) if seen.failures else record


def _unhooked(record: PodRecord, failures: Iterable[Failure]) -> dict[str, int]:
    """The containers that may run by now though their hooks did not: their starts were given up before."""
    names = {one.container for one in failures if one.reason != HOOK_ERROR}
    return {name: attempt for name, attempt in record.hooks.items() if names & {name, ""}}


def _retry(turn: Turn, record: PodRecord, failures: Iterable[Failure]) -> PodRecord:
    for failure in failures:
        turn.works += failed(record, failure)
    return replace(record, retry_at_ns=turn.now.steady_ns + turn.rules.retry_ns)


def _tune_failed(turn: Turn, seen: TuneFailed) -> None:
    """It is told again, after a while."""
    record = turn.pods.get(seen.uid)
    if record is None:
        return
    told = {id_: files for id_, files in record.told.items() if id_ != seen.container_id}
    retry_at_ns = record.retry_at_ns or turn.now.steady_ns + turn.rules.retry_ns
    turn.put(replace(record, told=told, retry_at_ns=retry_at_ns))


def _probe_answered(turn: Turn, seen: ProbeAnswered) -> None:
    record = turn.pods.get(seen.uid)
    key = (seen.container, seen.probe.kind)
    if record is None or key not in record.probes:
        return
    state: ProbeState = record.probes[key]
    asks = {**record.asks_at_ns, key: turn.now.steady_ns + seen.probe.period_s * 10**9}
    if seen.answer is not Health.SUCCESS:
        outcome = "failed" if seen.answer is not None else "errored and resulted in unknown state"
        message = f"{seen.probe.kind.value.capitalize()} probe {outcome}: {seen.said}"
        turn.tell(seen.uid, "Unhealthy", message, warning=True)
    elif seen.is_odd:
        kind = seen.probe.kind.value.capitalize()
        turn.tell(seen.uid, "ProbeWarning", f"{kind} probe warning: {seen.said}", warning=True)
    if seen.answer is not None and state.container_id == seen.container_id:
        state = answered(seen.probe, state, seen.answer)
    turn.put(replace(record, probes={**record.probes, key: state}, asks_at_ns=asks))


# ---------------------------------------------------------------- pressure


def _pressure(turn: Turn, seen: UsageSeen) -> None:
    """A pass of the eviction manager; where the node may give something back first, it is asked to.

    Follows: v1.36, eviction/eviction_manager.go, synchronize, waitForPodsCleanup.
    """
    config, now_ns = turn.node.config, turn.now.steady_ns
    situation = look(config.eviction, turn.eviction, seen.observation, now_ns / 10**9)
    turn.eviction = situation.state
    if not still_leaving(turn.leaving, turn.pods, now_ns):
        _relief(turn, situation, seen)
    before, after = turn.node.conditions, turn.eviction.conditions
    if after != before:
        turn.step(ConditionsObserved(after))
        for reason, message in turn.rules.words.conditions(before, after, config.parts.facts.name):
            turn.tell("", reason, message)


def _relief(turn: Turn, situation: Situation, seen: UsageSeen) -> None:
    """What ends the pressure: what the node can give back, and then pods."""
    if situation.target is not None and not seen.is_after_reclaim:
        reason, message = turn.rules.words.reclaiming(situation.target)
        turn.tell("", reason, message, warning=True)
    if situation.reclaim and not seen.is_after_reclaim:
        turn.works.append(ReclaimNode(situation.reclaim))
        return
    done = relieve(turn.node.config.eviction, situation, seen.observation.usage)
    turn.eviction = done.state
    for eviction in done.evictions:
        _evicted(turn, eviction)


def _evicted(turn: Turn, eviction: Eviction) -> None:
    uid, grace_period_s = eviction.claim.uid, eviction.grace_period_s
    override = turn.rules.words.evicted(eviction)
    turn.tell(uid, override.reason, override.message, warning=True)
    turn.evictions += 1
    turn.evicted.append(eviction)
    turn.leaving[uid] = turn.now.steady_ns + patience_ns(grace_period_s)
    ends(turn, uid, override, grace_period_s)
