"""What a pod is due for now: the next work for it, and when to look again."""

from msgspec.structs import replace

from nodewright.agent.allocating import allocation, uses_of
from nodewright.agent.resizing import with_restarts
from nodewright.agent.stages import THERE
from nodewright.agent.turn import Turn, has_hook, probed, unhooked
from nodewright.agent.values import (
    AskProbe,
    CleanPod,
    EndPod,
    PodRecord,
    PodWork,
    Stage,
    SyncPod,
    TuneContainer,
)
from nodewright.core.lifecycle import (
    BackOff,
    PodPlan,
    ProbeKind,
    ProbeState,
    fresh,
    is_due,
    overdue,
    plan,
    probes_of,
)
from nodewright.model.objects import Container, Pod, Waiting
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.node.events import PodStarted
from nodewright.values.duration import Duration
from nodewright.values.instant import Instant

CRASH_LOOP = "CrashLoopBackOff"


def advance(turn: Turn, uid: str) -> None:
    """Give out the next work for a pod, unless some is under way."""
    record = turn.pods.get(uid)
    if record is None or record.is_busy:
        return
    if record.retry_at_ns is not None and record.retry_at_ns <= turn.now.steady_ns:
        record = turn.put(replace(record, retry_at_ns=None))
        turn.to_tune.add(uid)
    if record.stage is Stage.ALLOCATING:
        _work(turn, record, allocation(turn, record))
        return
    if record.stage is Stage.WAITING:
        record = _waited(turn, record)
    if record.stage is Stage.ACTIVE:
        record = _active(turn, record)
    if record.is_busy or (record.retry_at_ns is not None and record.retry_at_ns > turn.now.steady_ns):
        return
    if record.stage is Stage.ENDING:
        _work(
            turn,
            record,
            EndPod(
                uid=uid,
                pod=record.pod,
                grace_period_s=record.grace_period_s,
                cgroup=record.cgroup or turn.pod_cgroup(record.pod),
            ),
        )
    elif record.stage in (Stage.ENDED, Stage.REFUSED) and not record.is_wanted:
        if record.stage is Stage.REFUSED and record.facts is None:
            turn.forget(uid)
        else:
            cgroup = record.cgroup or turn.pod_cgroup(record.pod)
            _work(turn, record, CleanPod(uid=uid, pod=record.pod, cgroup=cgroup))


def _waited(turn: Turn, record: PodRecord) -> PodRecord:
    """A pod whose victims may be gone by now."""
    there = {uid for uid in record.waits_for if uid in turn.pods and turn.pods[uid].stage in THERE}
    if there:
        return record
    return turn.put(replace(record, stage=Stage.ACTIVE, waits_for=frozenset()))


def _active(turn: Turn, record: PodRecord) -> PodRecord:
    """A pod that is to run: its probes, its end by itself, and its plan."""
    record = _started(turn, _probing(turn, record))
    late = overdue(record.pod, record.status, Instant(turn.now.wall_ns))
    if late is not None:
        turn.tell(record.pod.uid, late.reason, late.message)
        return _ending(turn, replace(record, override=late))
    wanted = plan(record.pod, record.facts, probed(record))
    has_ended = record.status.phase in ("Succeeded", "Failed")
    if has_ended or (wanted.ends and wanted.sandbox_attempt is None):
        return _ending(turn, record)
    if record.retry_at_ns is not None and record.retry_at_ns > turn.now.steady_ns:
        return _waiting_to_retry(turn, record)
    wanted, record = _backed_off(turn, wanted, record)
    hooks = {one.name: one.attempt for one in unhooked(record)}
    is_resize = record.resizing.is_in_progress
    if is_resize:
        wanted = with_restarts(wanted, record)
    elif wanted.is_nothing and not hooks:
        return turn.put(replace(record, hooks={}))
    groups, settings = turn.groups_of(record)
    work = SyncPod(
        uid=record.pod.uid,
        pod=record.pod,
        plan=wanted,
        groups=groups,
        settings=settings,
        attempts={name: _attempt(record, name) for name in wanted.starts},
        hooks=tuple(hooks),
        tunes=_tunes(turn, record, wanted) if is_resize else (),
        is_resize=is_resize,
        uses=uses_of(turn.node, record.pod),
    )
    files = {group.container: group.files for group in groups}
    record = replace(
        record,
        hooks=hooks | {name: work.attempts[name] for name in wanted.starts if has_hook(record.pod, name)},
        starting={name: files[name] for name in wanted.starts},
    )
    return _work(turn, record, work)


def _tunes(turn: Turn, record: PodRecord, wanted: PodPlan) -> tuple[TuneContainer, ...]:
    """What those are to be told that go on running."""
    ending = {one.container.id for one in wanted.kills}
    return tuple(one for one in turn.tunes_of(record) if one.container_id not in ending)


def _waiting_to_retry(turn: Turn, record: PodRecord) -> PodRecord:
    """A pod for which something failed: what came due meanwhile is looked at when it is tried again."""
    if record.look_at_ns is None or record.look_at_ns > turn.now.steady_ns:
        return record
    return turn.put(replace(record, look_at_ns=None))


def _ending(turn: Turn, record: PodRecord) -> PodRecord:
    return turn.put(replace(record, stage=Stage.ENDING, look_at_ns=None, retry_at_ns=None, asks_at_ns={}))


def _work(turn: Turn, record: PodRecord, work: PodWork) -> PodRecord:
    record = turn.put(replace(record, is_busy=True, retry_at_ns=None))
    turn.works.append(work)
    return record


def _started(turn: Turn, record: PodRecord) -> PodRecord:
    """A pod all of whose main containers have run tells the node so, once."""
    facts = record.facts
    if record.has_started or facts is None:
        return record
    ran = (ContainerPhase.RUNNING, ContainerPhase.EXITED)
    newest = [facts.newest(one.name) for one in record.pod.spec.containers]
    if not all(one is not None and one.phase in ran for one in newest):
        return record
    turn.step(PodStarted(record.pod.uid))
    return turn.put(replace(record, has_started=True))


def _attempt(record: PodRecord, name: str) -> int:
    """The number of the next attempt at a container: no number is ever used twice."""
    facts = record.facts
    made = [one.attempt + 1 for one in facts.containers if one.name == name] if facts is not None else []
    statuses = (*record.status.container_statuses, *record.status.init_container_statuses)
    counts = [one.restart_count + bool(one.container_id) for one in statuses if one.name == name]
    return max((*made, *counts), default=0)


def _backed_off(turn: Turn, wanted: PodPlan, record: PodRecord) -> tuple[PodPlan, PodRecord]:
    """The plan without what has to wait, and when that may go on.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, doBackOff.
    """
    rule, wall_ns = turn.rules.back_off, turn.now.wall_ns
    starts, held_back = [], dict(record.held_back)
    back_offs, waits = dict(record.back_offs), []
    for name in wanted.starts:
        ended = _last_end(record, name)
        if ended is None:
            starts.append(name)
            continue
        left_ns = rule.remaining_ns(back_offs.get(name), ended.finished_ns, wall_ns)
        if left_ns == 0:
            back_offs[name] = rule.after(back_offs.get(name), ended.finished_ns, wall_ns)
            starts.append(name)
            continue
        waits.append(left_ns)
        held_back[name] = Waiting(CRASH_LOOP, _back_off_text(record.pod, name, back_offs[name]))
        # An init container holds up all that come after it; sidecars and main containers hold up nobody.
        if any(one.name == name and not one.is_sidecar for one in record.pod.spec.init_containers):
            break
    deadline_ns = _deadline_in_ns(record, wall_ns)
    waits += [] if deadline_ns is None else [deadline_ns]
    look_at = turn.now.steady_ns + min(waits) if waits else None
    record = replace(record, back_offs=back_offs, held_back=held_back, look_at_ns=look_at)
    return replace(wanted, starts=tuple(starts)), record


def _deadline_in_ns(record: PodRecord, wall_ns: int) -> int | None:
    """How long the pod may still be active; None: for ever."""
    limit = record.pod.spec.active_deadline_seconds
    if limit is None:
        return None
    since = Instant.parse(record.status.start_time)
    return max(0, since.nanoseconds + limit * 10**9 - wall_ns)


def _last_end(record: PodRecord, name: str) -> ContainerFacts | None:
    facts = record.facts.containers if record.facts is not None else ()
    ended = (one for one in facts if one.name == name and one.phase is ContainerPhase.EXITED)
    return next(ended, None)


def _back_off_text(pod: Pod, name: str, held: BackOff) -> str:
    where = f"{pod.metadata.name}_{pod.metadata.namespace}({pod.uid})"
    return f"back-off {Duration(held.delay_ns)} restarting failed container={name} pod={where}"


# ---------------------------------------------------------------- probes


def _probing(turn: Turn, record: PodRecord) -> PodRecord:
    """Ask every probe whose turn has come; those of containers that do not run, or start, are left alone."""
    pod = record.pod
    facts = record.facts or PodFacts(uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
    probes, asks = dict(record.probes), dict[tuple[str, ProbeKind], int]()
    starting = unhooked(record)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        running = facts.newest(container.name)
        if running is not None and running.phase is ContainerPhase.RUNNING and running not in starting:
            _ask(turn, record, container, running, (probes, asks))
    if probes == record.probes and asks == record.asks_at_ns:
        return record
    return turn.put(replace(record, probes=probes, asks_at_ns=asks))


def _ask(
    turn: Turn,
    record: PodRecord,
    container: Container,
    running: ContainerFacts,
    books: tuple[dict[tuple[str, ProbeKind], ProbeState], dict[tuple[str, ProbeKind], int]],
) -> None:
    """The probes of one container that runs."""
    probes, asks = books
    statuses = {
        one.name: one for one in (*record.status.container_statuses, *record.status.init_container_statuses)
    }
    status = statuses.get(container.name)
    if status is None:
        return
    for probe in probes_of(container):
        key = (container.name, probe.kind)
        state = probes.get(key)
        if state is None or state.container_id != running.id:
            ran_before = running.started_ns < turn.rules.started_ns
            probes[key] = state = fresh(
                probe, running.id, ran_before=ran_before, had_started=bool(status.started)
            )
        elif record.asks_at_ns.get(key, 0) > turn.now.steady_ns:
            asks[key] = record.asks_at_ns[key]
            continue
        asks[key] = turn.now.steady_ns + probe.period_s * 10**9
        if is_due(probe, state, status, turn.now.wall_ns, is_ending=False):
            turn.works.append(
                AskProbe(
                    uid=record.pod.uid,
                    pod=record.pod,
                    container=container.name,
                    container_id=running.id,
                    probe=probe,
                    pod_ip=record.status.pod_ip,
                )
            )
