"""What has been decided and done since the agent began, counted: it hears every turn of the loop and changes nothing."""

from nodewright.agent.counted import Counted, Counts, Timed
from nodewright.agent.loop import Turned
from nodewright.agent.managers_tally import managers_counted, met_managers
from nodewright.agent.values import (
    SANDBOX_ERROR,
    CleanPod,
    EndPod,
    PodDone,
    PodRecord,
    ProbeAnswered,
    Stage,
    SyncPod,
    Ticked,
    UsageSeen,
)
from nodewright.core.eviction import Eviction, observations
from nodewright.core.lifecycle import Health
from nodewright.model.eviction_reasons import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    NodeRanShort,
    PodStorageOverLimit,
)
from nodewright.model.objects import Pod
from nodewright.model.running import ContainerFacts, ContainerPhase
from nodewright.node.actions import KillPod
from nodewright.node.events import PodArrived

_LIMIT_SIGNALS = {
    EmptyDirOverLimit: "emptydirfs.limit",
    PodStorageOverLimit: "ephemeralpodfs.limit",
    ContainerStorageOverLimit: "ephemeralcontainerfs.limit",
}
_RESULTS = {Health.SUCCESS: "successful", Health.FAILURE: "failed", None: "unknown"}


class Tally(Counts):
    """Counts and measures turns; give `hear` every one."""

    def __init__(self, started_ns: int) -> None:
        """What had started before ``started_ns`` (nanoseconds since 1970) is not counted: an earlier agent has."""
        super().__init__()
        self.last_turn_ns = 0
        """When the last turn was, on the steady clock."""
        self._started_ns = started_ns
        self._first_seen: dict[str, int] = {}
        self._works: dict[str, tuple[str, int]] = {}
        """By uid what is under way, and since when."""
        self._static_names: dict[str, str] = {}
        """By full name the uid of the last static pod of that name."""

    def hear(self, turned: Turned) -> None:
        """Count a turn."""
        seen, decided = turned.seen, turned.decided
        self.last_turn_ns = turned.at_ns
        self.time(Timed.DECIDING, turned.took_ns / 10**9, type(seen).__name__)
        if isinstance(seen, Ticked) and not decided.works and decided.keeping.is_nothing:
            return
        self._steps(turned)
        self._records(turned)
        self._worked(turned)
        if isinstance(seen, ProbeAnswered):
            self._probed(seen, turned)
        if isinstance(seen, PodDone):
            self._failed(seen)
        if decided.evicted:
            assert isinstance(seen, UsageSeen)
            self._evicted(seen, decided.evicted, turned.at_ns)

    # ------------------------------------------------------------ decisions

    def _steps(self, turned: Turned) -> None:
        node = turned.before.node
        for stepped in turned.decided.keeping.stepped:
            event, done = stepped.event, stepped.step
            if isinstance(event, PodArrived) and met_managers(done):
                self.time(Timed.ALIGNING, turned.took_ns / 10**6)
                for what, labels in managers_counted(node, event.pod):
                    self.count(what, *labels)
            for action in done.actions:
                if isinstance(action, KillPod):
                    for one in action.if_done:
                        self.count(Counted.PREEMPTED, one.signal)
            node = done.state

    def _evicted(self, seen: UsageSeen, evicted: tuple[Eviction, ...], at_ns: int) -> None:
        usage = seen.observation.usage
        observed = observations(usage) if usage is not None else {}
        for one in evicted:
            why = one.because
            if not isinstance(why, NodeRanShort):
                self.count(Counted.EVICTED, _LIMIT_SIGNALS[type(why)])
                continue
            self.count(Counted.EVICTED, why.signal)
            at = observed[why.signal].at if why.signal in observed else None
            if at is not None:
                self.time(Timed.STATS_AGE, max(0, at_ns - at.nanoseconds) / 10**9, why.signal)

    # ------------------------------------------------------------ pods

    def _records(self, turned: Turned) -> None:
        before, after = turned.before.pods, turned.decided.mind.pods
        for uid, record in after.items():
            old = before.get(uid)
            if old is record:
                continue
            if old is None:
                self._first_seen[uid] = turned.at_ns
                self._came(record)
            # Of pods that were there before we were nobody knows when they were first seen.
            if record.has_started and not (old and old.has_started) and uid in self._first_seen:
                self.time(Timed.STARTING, (turned.at_ns - self._first_seen[uid]) / 10**9)
            if (old.facts if old is not None else None) is not record.facts:
                self._ran(old, record)
        for uid in before.keys() - after.keys():
            self._first_seen.pop(uid, None)
            self._works.pop(uid, None)
            for labels in [one for one in self.counts[Counted.PROBED] if one[-1] == uid]:
                del self.counts[Counted.PROBED][labels]
                kind, _, *where, _uid = labels
                self.forget(Timed.PROBING, kind, *where)

    def _came(self, record: PodRecord) -> None:
        if record.stage is Stage.REFUSED and record.override is not None:
            self.count(Counted.REJECTED, record.override.reason)
            return
        if record.source.is_static:
            name, uid = record.pod.full_name, record.pod.uid
            if self._static_names.get(name) == uid:
                self.count(Counted.PODS_RESTARTED, "true")
            self._static_names[name] = uid

    def _ran(self, old: PodRecord | None, record: PodRecord) -> None:
        """What the runtime says now and did not before."""
        known = old.facts if old is not None else None
        sandboxes = {one.id for one in known.sandboxes} if known is not None else set()
        for sandbox in record.facts.sandboxes if record.facts is not None else ():
            if sandbox.id not in sandboxes and sandbox.created_ns >= self._started_ns:
                self.count(Counted.PODS_STARTED)
        before = {one.id: one for one in known.containers} if known is not None else {}
        for one in record.facts.containers if record.facts is not None else ():
            was = before.get(one.id)
            if was is one:
                continue
            kind = kind_of(record.pod, one.name)
            if one.started_ns >= self._started_ns and one.started_ns and not (was and was.started_ns):
                self.count(Counted.CONTAINERS_STARTED, kind)
            if _has_ended(one) and not (was and _has_ended(was)) and one.finished_ns >= self._started_ns:
                self.count(Counted.CONTAINERS_ENDED, kind, str(one.exit_code), one.reason)

    def _failed(self, seen: PodDone) -> None:
        if not isinstance(seen.work, SyncPod) or seen.is_cancelled:
            return
        for one in seen.failures:
            if one.container:
                kind = kind_of(seen.work.pod, one.container)
                self.count(Counted.CONTAINERS_NOT_STARTED, kind, one.reason)
            elif one.reason == SANDBOX_ERROR:
                self.count(Counted.PODS_NOT_STARTED)

    def _worked(self, turned: Turned) -> None:
        """How long works took that have ended; when those began that are given out now."""
        seen = turned.seen
        if isinstance(seen, PodDone):
            kind, began_ns = self._works.pop(seen.uid, ("", 0))
            if kind and not seen.is_cancelled:
                self.time(Timed.WORKING, (turned.at_ns - began_ns) / 10**9, kind)
        for work in turned.decided.works:
            match work:
                case SyncPod(uid=uid):
                    record = turned.decided.mind.pods[uid]
                    self._works[uid] = ("create" if record.facts is None else "sync", turned.at_ns)
                case EndPod(uid=uid):
                    self._works[uid] = ("kill", turned.at_ns)
                case CleanPod(uid=uid):
                    self._works[uid] = ("terminated", turned.at_ns)
                case _:
                    pass

    def _probed(self, seen: ProbeAnswered, turned: Turned) -> None:
        record = turned.decided.mind.pods.get(seen.uid)
        if record is None:
            return
        meta = record.pod.metadata
        where = (seen.container, meta.name, meta.namespace or "default", meta.uid)
        kind = seen.probe.kind.value.capitalize()
        self.count(Counted.PROBED, kind, _RESULTS[seen.answer], *where)
        if seen.answer is Health.SUCCESS:
            self.time(Timed.PROBING, seen.took_s, kind, *where[:-1])


def kind_of(pod: Pod, container: str) -> str:
    """What kind of container it is, in the kubelet's word."""
    return "init_container" if any(one.name == container for one in pod.spec.init_containers) else "container"


def _has_ended(one: ContainerFacts) -> bool:
    return one.phase is ContainerPhase.EXITED
