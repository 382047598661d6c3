"""Memory under pressure, played forward: growth, looks, evictions and the kernel's OOM killer, in virtual time."""

from typing import NamedTuple

from msgspec.structs import replace

from nodewright.core.eviction import (
    Eviction,
    EvictionPolicy,
    EvictionState,
    Observation,
    Pass,
    Room,
    badness,
    look,
    observations,
    oom_victim,
    relieve,
    target,
)
from nodewright.model.thresholds import Threshold
from nodewright.model.usage import Usage
from nodewright.sim.timeline.agenda import (
    Agenda,
    Emptied,
    Ended,
    Event,
    Key,
    Look,
    Order,
    Reached,
    Restart,
    Watch,
)
from nodewright.sim.timeline.distances import Distances
from nodewright.sim.timeline.memory import Memory
from nodewright.sim.timeline.moments import (
    ConditionsChanged,
    Deadlocked,
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    Moment,
    NobodyToEvict,
    Noticed,
    Recovered,
    Restarted,
    ThresholdCrossed,
    Timeline,
)
from nodewright.sim.timeline.readings import Readings
from nodewright.sim.timeline.restarts import Restarts
from nodewright.sim.timeline.setting import SECOND_NS, Growth, Scope, Setting

CLEANUP_POLL_NS = SECOND_NS
CLEANUP_TIMEOUT_NS = 30 * SECOND_NS


def played(setting: Setting, policy: EvictionPolicy, *, until_lost: bool = False) -> Timeline:
    """What happens from the start on: same arguments, same timeline.

    ``until_lost`` ends it as soon as the race is lost.
    """
    play = _Play(setting, policy, until_lost=until_lost)
    ended_ns = play.run()
    return Timeline(
        policy=policy.name,
        about=policy.about,
        duration_ns=setting.duration_ns,
        moments=tuple(play.moments),
        looks=play.looks,
        available=tuple(
            # What does not fit is in swap.
            (at_ns, max(setting.memory_bytes - used, 0))
            for at_ns, used in play.memory.node.corners(ended_ns)
        ),
    )


class _Ending(NamedTuple):
    until_ns: int
    short: Threshold | None
    """What for."""
    notified: bool


class _Play:
    def __init__(self, setting: Setting, policy: EvictionPolicy, *, until_lost: bool) -> None:
        self.setting, self.policy, self.until_lost = setting, policy, until_lost
        self.agenda = Agenda()
        self.memory = Memory(setting, self.agenda)
        self.readings = Readings(self.memory, always_anew=policy.reads_pods_now)
        self.state = EvictionState()
        self.moments: list[Moment] = []
        self.looks = 0
        self.ending: dict[str, _Ending] = {}
        """The pods that were told to end."""
        self.crossed: dict[Threshold, int] = {}
        self.noticed: set[Threshold] = set()
        self.helpless: set[Threshold] = set()
        self.distances = Distances(self.memory, policy)
        self.changes_ns: int | None = 0
        """When a look may find something else although no threshold is crossed; None: never."""
        self.restarts = Restarts()
        self.is_over = False
        for growth in setting.growth:
            self.agenda.add(growth.at_ns, Order.GROWTH, growth)
        for threshold in setting.rules.thresholds:
            self.distances.watch(threshold)
        self.agenda.add(setting.assumed.first_look_ns, Order.LOOK, Look())

    def run(self) -> int:
        now_ns = 0
        while not self.is_over:
            coming = self.agenda.next(self.setting.duration_ns)
            if coming is None:
                return self.setting.duration_ns
            now_ns, event = coming
            self._happen(now_ns, event)
        return now_ns

    def _happen(self, now_ns: int, event: Event) -> None:
        match event:
            case Growth():
                self.memory.grow(now_ns, event)
            case Emptied():
                self.memory.emptied(now_ns, event)
            case Reached():
                if self.memory.is_due(now_ns, event):
                    self._reached(now_ns, event.watch)
            case Restart():
                self._restarted(now_ns, event.key)
            case Ended():
                self._ended(now_ns, event)
            case Look():
                self._look(now_ns, event)

    # ------------------------------------------------------------ limits and thresholds

    def _reached(self, now_ns: int, watch: Watch) -> None:
        threshold = watch.threshold
        if threshold is None:
            self._out_of_memory(now_ns, watch)
            return
        self.crossed[threshold] = now_ns
        self.moments.append(
            ThresholdCrossed(
                at_ns=now_ns,
                signal=threshold.signal,
                threshold_bytes=watch.capacity_bytes - watch.base_bytes + 1,
                grace_ns=threshold.grace_period.nanoseconds,
            )
        )
        if self.setting.is_notified and self.policy.is_notified and self.looks:
            assumed = self.setting.assumed
            is_node = watch.scope is Scope.NODE
            late_ns = assumed.notified_after_ns if is_node else assumed.pods_notified_after_ns
            self.agenda.add(now_ns + late_ns, Order.LOOK, Look(notified=True))

    def _out_of_memory(self, now_ns: int, watch: Watch) -> None:
        """The kernel ends one after the other until what is left fits."""
        is_node = watch.scope is Scope.NODE
        total = self.setting.memory_bytes + self.setting.swap_bytes if is_node else watch.limit_bytes
        while self.memory.is_over(now_ns, watch):
            victim = oom_victim(self.memory.processes(now_ns, watch), total)
            if victim is None:
                self.moments.append(Deadlocked(at_ns=now_ns, scope=watch.scope, of=watch.of))
                self.is_over = True
                return
            key = (victim.pod, victim.container)
            part = self.memory.parts.get(key)
            lost = self._lost_cpu_s(now_ns, key)
            self.memory.end(now_ns, key)
            killed = KernelKilled(
                at_ns=now_ns,
                scope=watch.scope,
                of=watch.of,
                limit_bytes=watch.limit_bytes,
                pod=self._name(victim.pod),
                container=victim.container,
                oom_score_adj=victim.oom_score_adj,
                points=badness(victim, total) or 0,
                used_bytes=victim.used_bytes,
                as_a_whole=part is not None and part.ends_as_a_whole,
                lost_cpu_s=lost,
                restarts_ns=self._to_restart(now_ns, key) if part is not None else None,
            )
            self.moments.append(killed)
            if self.until_lost and killed.is_race_lost:
                self.is_over = True
                return

    def _to_restart(self, now_ns: int, key: Key) -> int | None:
        """When the kubelet starts the container again; None: it does not."""
        uid = key[0]
        is_empty = all((uid, part.name) not in self.memory.alive for part in self.memory.pods[uid].containers)
        if uid in self.ending:
            if is_empty:
                ending = self.ending[uid]
                event = Ended(uid, None if ending.notified else self._after(now_ns))
                self.agenda.add(now_ns, Order.ENDED, event)
            return None
        if not self.memory.parts[key].restarts:
            if is_empty:
                del self.memory.pods[uid]
            return None
        at_ns = self.restarts.next_ns(now_ns, key)
        self.agenda.add(at_ns, Order.RESTART, Restart(key))
        return at_ns

    def _restarted(self, now_ns: int, key: Key) -> None:
        uid, container = key
        if uid in self.ending or uid not in self.memory.pods:
            return
        self.restarts.started(now_ns, key)
        self.memory.restart(now_ns, key)
        self.moments.append(Restarted(at_ns=now_ns, pod=self._name(uid), container=container))

    # ------------------------------------------------------------ the loop

    def _look(self, now_ns: int, event: Look) -> None:
        """One pass, and when the next one is; the notifier's goroutine has no loop."""
        self.looks += 1
        next_ns = (
            now_ns + self.distances.wait_ns(now_ns, ())
            if self._is_quiet(now_ns)
            else self._pass(now_ns, event)
        )
        if not event.notified and next_ns is not None:
            self.agenda.add(next_ns, Order.LOOK, Look())

    def _is_quiet(self, now_ns: int) -> bool:
        """Whether the pass would find nothing and change nothing, so that it need not be made."""
        if self.changes_ns is not None and now_ns >= self.changes_ns:
            return False
        return not self.distances.is_any_crossed

    def _pass(self, now_ns: int, event: Look) -> int | None:
        raw = self.readings.node(now_ns)
        claims = tuple(one.claim for one in self.memory.pods.values())
        seen = self.policy.seen(raw)
        observation = Observation(usage=seen, claims=claims)
        situation = look(self.setting.rules, self.state, observation, now_ns / SECOND_NS)
        if situation.target is not None:
            # Looking is the same without the pods as long as no limits on local storage are looked at.
            seen = self.policy.seen(replace(raw, pods=self.readings.pods(now_ns)))
            situation = replace(situation, observation=replace(observation, usage=seen))
        done = relieve(self.setting.rules, situation, None)
        self._tell(now_ns, done, seen)
        self.state = done.state
        self.changes_ns = self._changes_ns(now_ns)
        wait_ns = self.distances.wait_ns(now_ns, done.met)
        return self._evict(now_ns, done, notified=event.notified) if done.evictions else now_ns + wait_ns

    def _changes_ns(self, now_ns: int) -> int | None:
        """When a look may find something else although no threshold is crossed: a condition may be over."""
        state, swaps = self.state, self.policy.counts_swap and self.setting.swap_bytes
        if state.first_met_ns or state.filesystems is None or swaps:
            return now_ns
        seen = [state.last_seen_ns[one] for one in state.conditions]
        return min(seen) + self.setting.rules.transition_period.nanoseconds if seen else None

    def _tell(self, now_ns: int, done: Pass, seen: Usage) -> None:
        met = {one.threshold: one for one in done.met}
        for threshold, one in met.items():
            if threshold not in self.noticed:
                self.noticed.add(threshold)
                self.moments.append(
                    Noticed(
                        at_ns=now_ns,
                        signal=threshold.signal,
                        threshold_bytes=one.amount.value(),
                        available_bytes=one.observed.available.value(),
                        late_ns=now_ns - self.crossed.get(threshold, now_ns),
                    )
                )
        observed = observations(seen)
        for threshold in [one for one in self.setting.rules.thresholds if one in self.noticed - set(met)]:
            self.noticed.discard(threshold)
            self.helpless.discard(threshold)
            available = observed[threshold.signal].available.value()
            self.moments.append(Recovered(at_ns=now_ns, signal=threshold.signal, available_bytes=available))
        if done.state.conditions != self.state.conditions:
            self.moments.append(ConditionsChanged(at_ns=now_ns, conditions=done.state.conditions))
        short = done.target
        if short is not None and not done.evictions and short not in self.helpless:
            self.helpless.add(short)
            self.moments.append(NobodyToEvict(at_ns=now_ns, signal=short.signal))

    # ------------------------------------------------------------ evictions

    def _evict(self, now_ns: int, done: Pass, *, notified: bool) -> int | None:
        """Tell the pod to end; when the loop goes on if that is known already."""
        (eviction,) = done.evictions
        uid = eviction.claim.uid
        if uid in self.ending:
            return None if notified else self._after(self.ending[uid].until_ns)
        ends_ns = now_ns + self._window_ns(eviction.grace_period_s)
        self.ending[uid] = _Ending(ends_ns, done.target, notified)
        self.moments.append(self._begun(now_ns, ends_ns, eviction, done))
        self.agenda.add(ends_ns, Order.ENDED, Ended(uid, None if notified else self._after(ends_ns)))
        return None

    def _begun(self, now_ns: int, ends_ns: int, eviction: Eviction, done: Pass) -> EvictionBegun:
        uid = eviction.claim.uid
        return EvictionBegun(
            at_ns=now_ns,
            pod=self._name(uid),
            grace_period_s=eviction.grace_period_s,
            ends_ns=ends_ns,
            because=eviction.because,
            seen_bytes=next((one.usage for one in done.ranking if one.claim.uid == uid), 0),
            used_bytes=self.memory.pod_lines[uid].bytes_at(now_ns),
            critical_passed=tuple(one.claim.pod.full_name for one in done.spared),
        )

    def _window_ns(self, grace_period_s: int) -> int:
        assumed = self.setting.assumed
        window_ns = max(grace_period_s * SECOND_NS, assumed.least_kill_ns)
        return window_ns if assumed.ends_after_ns is None else min(window_ns, assumed.ends_after_ns)

    def _after(self, ends_ns: int) -> int:
        """When the loop looks again once a pod has ended.

        Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup: it asks every second, for half a minute.
        """
        if not self.policy.waits_for_cleanup:
            return ends_ns + self.policy.interval_ns((Room(left=0, capacity=1),))
        polls = max(-(-self.setting.assumed.cleanup_ns // CLEANUP_POLL_NS), 1)
        return ends_ns + min(polls * CLEANUP_POLL_NS, CLEANUP_TIMEOUT_NS)

    def _ended(self, now_ns: int, event: Ended) -> None:
        uid = event.uid
        if uid not in self.memory.pods:
            return
        needed = self._needed(now_ns, self.ending[uid].short)
        pod = self.memory.pods.pop(uid)
        keys = [(uid, part.name) for part in pod.containers]
        lost = sum(self._lost_cpu_s(now_ns, key) for key in keys if key in self.memory.alive)
        freed = sum(self.memory.end(now_ns, key) for key in keys)
        self.moments.append(
            EvictionDone(
                at_ns=now_ns,
                pod=pod.claim.pod.full_name,
                freed_bytes=freed,
                beyond_need_bytes=max(freed - needed, 0),
                lost_cpu_s=lost,
                age_known=pod.age_ns is not None,
            )
        )
        if event.next_look_ns is not None:
            self.agenda.add(event.next_look_ns, Order.LOOK, Look())

    def _needed(self, now_ns: int, short: Threshold | None) -> int:
        """What is missing to the threshold and its minimum reclaim."""
        here = observations(self.policy.seen(self.readings.node(now_ns))).get(short.signal) if short else None
        if here is None or short is None:
            return 0
        return max(target(short, here.capacity, reclaimed=True).value() - here.available.value(), 0)

    def _lost_cpu_s(self, now_ns: int, key: Key) -> float:
        """The CPU that the container requests, times how long it has run."""
        part = self.memory.parts.get(key)
        if part is None:
            return 0
        pod = next(one for one in self.setting.pods if one.uid == key[0])
        started_ns = self.restarts.starts.get(key, -(pod.age_ns or 0))
        return part.cpu_milli * (now_ns - started_ns) / SECOND_NS / 1000

    def _name(self, uid: str) -> str:
        return next((one.claim.pod.full_name for one in self.setting.pods if one.uid == uid), "")
