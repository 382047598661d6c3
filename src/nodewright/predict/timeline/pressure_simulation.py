"""Simulates memory pressure in virtual time: growth, eviction checks, evictions and the kernel's OOM killer."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_manager import begin_pass, finish_pass
from nodewright.engine.core.eviction.eviction_policy import MONITORING_INTERVAL_NS, EvictionPolicy, Headroom
from nodewright.engine.core.eviction.eviction_state import (
    Eviction,
    EvictionObservation,
    EvictionPass,
    EvictionState,
)
from nodewright.engine.core.eviction.eviction_thresholds import signal_observations, threshold_amount
from nodewright.engine.core.requests.oom_adjust import oom_badness, oom_victim
from nodewright.model.kubernetes.eviction_thresholds import Signal, Threshold, ThresholdValue
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.timeline.node_memory import (
    NodeMemory,
    PolicyDistances,
    PolicyReadings,
    RestartBackOff,
)
from nodewright.predict.timeline.timeline_model import (
    MAX_EVENTS,
    ConditionsChanged,
    ContainerKey,
    ContainerRestart,
    Deadlocked,
    EventOrder,
    EvictionBegun,
    EvictionDone,
    KernelKilled,
    LimitReached,
    LimitScope,
    LimitWatch,
    MemoryEmptied,
    Moment,
    NobodyToEvict,
    Noticed,
    PodTerminated,
    PolicyCheck,
    Recovered,
    Restarted,
    ThresholdCrossed,
    Timeline,
    TimelineEvent,
    TimelineQueue,
    TimelineSetup,
    timeline_too_long,
)
from nodewright.predict.timeline.usage_forecast import SECOND_NS, Growth


def simulated_timeline(setup: TimelineSetup, policy: EvictionPolicy, *, until_lost: bool = False) -> Timeline:
    """The timeline of a setup under an eviction policy: the same arguments give the same timeline.

    ``until_lost`` stops at the first kill that eviction could have prevented.
    """
    simulation = _PressureSimulation(setup, policy, until_lost=until_lost)
    ended_ns = simulation.run()
    return Timeline(
        policy=policy.name,
        about=policy.description,
        duration_ns=setup.duration_ns,
        moments=tuple(simulation.moments),
        check_count=simulation.check_count,
        available=tuple(
            # Usage beyond the node's memory is in swap.
            (at_ns, max(setup.memory_bytes - used, 0))
            for at_ns, used in simulation.memory.node_amount.breakpoints(ended_ns)
        ),
    )


class _Termination(NamedTuple):
    until_ns: int
    threshold: Threshold | None
    """The threshold that the pod is evicted for."""
    notified: bool


class _PressureSimulation:
    def __init__(self, setup: TimelineSetup, policy: EvictionPolicy, *, until_lost: bool) -> None:
        self.setup, self.policy, self.until_lost = setup, policy, until_lost
        self.events = TimelineQueue()
        self.memory = NodeMemory(setup, self.events)
        self.readings = PolicyReadings(self.memory, always_fresh=policy.reads_fresh_pod_stats)
        self.state = EvictionState()
        self.moments: list[Moment] = []
        self.check_count = 0
        self.terminating: dict[str, _Termination] = {}
        """Pods under eviction, by uid."""
        self.crossed_at_ns: dict[Threshold, int] = {}
        self.noticed: set[Threshold] = set()
        self.without_candidates: set[Threshold] = set()
        self.distances = PolicyDistances(self.memory, policy)
        self.next_change_ns: int | None = 0
        """When a check may change the state although no threshold is crossed; None: never."""
        self.restarts = RestartBackOff()
        self.is_over = False
        self.event_count = 0
        """Events handled so far, with the checks that were skipped."""
        for growth in setup.growth:
            self.events.schedule(growth.at_ns, growth, EventOrder.GROWTH)
        for threshold in setup.rules.thresholds:
            self.distances.add_threshold(threshold)
        self.events.schedule(setup.assumptions.first_look_ns, PolicyCheck(), EventOrder.CHECK)

    def run(self) -> int:
        now_ns = 0
        while self.event_count < MAX_EVENTS:
            self.event_count += 1
            if self.is_over:
                return now_ns
            next_event = self.events.pop(self.setup.duration_ns)
            if next_event is None:
                return self.setup.duration_ns
            now_ns, event = next_event
            self._handle(now_ns, event)
        raise timeline_too_long(self.setup.duration_ns, now_ns)

    def _handle(self, now_ns: int, event: TimelineEvent) -> None:
        match event:
            case Growth():
                self.memory.grow(now_ns, event)
            case MemoryEmptied():
                self.memory.empty_container(now_ns, event)
            case LimitReached():
                if self.memory.is_due(now_ns, event):
                    self._reach_limit(now_ns, event.watch)
            case ContainerRestart():
                self._restart(now_ns, event.key)
            case PodTerminated():
                self._finish_eviction(now_ns, event)
            case PolicyCheck():
                self._check(now_ns, event)

    # ------------------------------------------------------------ limits and thresholds

    def _reach_limit(self, now_ns: int, watch: LimitWatch) -> None:
        threshold = watch.threshold
        if threshold is None:
            self._kill_until_below_limit(now_ns, watch)
            return
        self.crossed_at_ns[threshold] = now_ns
        self.moments.append(
            ThresholdCrossed(
                at_ns=now_ns,
                signal=threshold.signal,
                threshold_bytes=watch.capacity_bytes - watch.base_bytes + 1,
                grace_ns=threshold.grace_period.nanoseconds,
            )
        )
        if self.setup.is_notified and self.policy.uses_memory_notifier and self.check_count:
            assumptions = self.setup.assumptions
            is_node = watch.scope is LimitScope.NODE
            late_ns = assumptions.notified_after_ns if is_node else assumptions.pods_notified_after_ns
            self.events.schedule(now_ns + late_ns, PolicyCheck(notified=True), EventOrder.CHECK)

    def _kill_until_below_limit(self, now_ns: int, watch: LimitWatch) -> None:
        """Kills one OOM victim after another until usage is below the limit."""
        is_node = watch.scope is LimitScope.NODE
        of_node = self.setup.memory_bytes - self.setup.huge_page_bytes + self.setup.swap_bytes
        total = of_node if is_node else watch.limit_bytes
        while self.memory.is_at_limit(now_ns, watch):
            victim = oom_victim(self.memory.processes(now_ns, watch), total)
            if victim is None:
                self.moments.append(Deadlocked(at_ns=now_ns, scope=watch.scope, of=watch.subject))
                self.is_over = True
                return
            key = (victim.pod, victim.container)
            container = self.memory.containers.get(key)
            lost_cpu_s = self._lost_cpu_s(now_ns, key)
            self.memory.end_container(now_ns, key)
            killed = KernelKilled(
                at_ns=now_ns,
                scope=watch.scope,
                of=watch.subject,
                limit_bytes=watch.limit_bytes,
                pod=self._pod_name(victim.pod),
                container=victim.container,
                oom_score_adj=victim.oom_score_adj,
                points=oom_badness(victim, total) or 0,
                used_bytes=victim.used_bytes,
                as_a_whole=container is not None and container.oom_group,
                lost_cpu_s=lost_cpu_s,
                restarts_ns=self._schedule_restart(now_ns, key) if container is not None else None,
            )
            self.moments.append(killed)
            if self.until_lost and killed.is_race_lost:
                self.is_over = True
                return

    def _schedule_restart(self, now_ns: int, key: ContainerKey) -> int | None:
        """Schedules what follows a kill; when the kubelet restarts the container, or None if it does not."""
        uid = key[0]
        is_empty = all(
            (uid, container.name) not in self.memory.running for container in self.memory.pods[uid].containers
        )
        if uid in self.terminating:
            if is_empty:
                notified = self.terminating[uid].notified
                event = PodTerminated(uid, None if notified else self._next_check_ns(now_ns))
                self.events.schedule(now_ns, event, EventOrder.ENDED)
            return None
        if not self.memory.containers[key].restarts:
            if is_empty:
                del self.memory.pods[uid]
            return None
        at_ns = self.restarts.next_start_ns(now_ns, key)
        self.events.schedule(at_ns, ContainerRestart(key), EventOrder.RESTART)
        return at_ns

    def _restart(self, now_ns: int, key: ContainerKey) -> None:
        uid, container = key
        if uid in self.terminating or uid not in self.memory.pods:
            return
        self.restarts.note_start(now_ns, key)
        self.memory.restart_container(now_ns, key)
        self.moments.append(Restarted(at_ns=now_ns, pod=self._pod_name(uid), container=container))

    # ------------------------------------------------------------ checks

    def _check(self, now_ns: int, event: PolicyCheck) -> None:
        """Makes a check and schedules the next one; a check by the memory notifier is not part of the loop."""
        self.check_count += 1
        if not self._is_pass_without_effect(now_ns):
            next_ns = self._run_pass(now_ns, event)
        elif self.policy.fixed_interval_ns is None:
            next_ns = now_ns + self.distances.wait_ns(now_ns, ())
        elif event.notified:
            return
        else:
            next_ns = self._skip_checks(now_ns, self.policy.fixed_interval_ns)
        if not event.notified and next_ns is not None:
            self.events.schedule(next_ns, PolicyCheck(), EventOrder.CHECK)

    def _skip_checks(self, now_ns: int, interval_ns: int) -> int:
        """Counts the checks until something changes, which all are without effect; the time of the check after them."""
        changes_ns = (self.events.next_due, self.next_change_ns, self.setup.duration_ns + 1)
        change_ns = min(at_ns for at_ns in changes_ns if at_ns is not None)
        count = max(-(-(change_ns - now_ns) // interval_ns) - 1, 0)
        count = min(count, MAX_EVENTS - self.event_count)
        self.check_count += count
        self.event_count += count
        return now_ns + (count + 1) * interval_ns

    def _is_pass_without_effect(self, now_ns: int) -> bool:
        """Whether an eviction pass would neither evict a pod nor change the state, and can be left out."""
        if self.next_change_ns is not None and now_ns >= self.next_change_ns:
            return False
        return not self.distances.is_any_crossed

    def _run_pass(self, now_ns: int, event: PolicyCheck) -> int | None:
        measured = self.readings.node(now_ns)
        active_pods = tuple(pod.claim for pod in self.memory.pods.values())
        usage = self.policy.adjusted_usage(measured)
        observation = EvictionObservation(usage=usage, active_pods=active_pods)
        situation = begin_pass(self.setup.rules, self.state, observation, now_ns / SECOND_NS)
        if situation.target is not None:
            # Pod stats are needed only for ranking, because limits on local storage are not checked here.
            usage = self.policy.adjusted_usage(replace(measured, pods=self.readings.pods(now_ns)))
            situation = replace(situation, observation=replace(observation, usage=usage))
        eviction_pass = finish_pass(self.setup.rules, situation, None)
        self._record_changes(now_ns, eviction_pass, usage)
        self.state = eviction_pass.state
        self.next_change_ns = self._time_of_next_change_ns(now_ns)
        wait_ns = self.distances.wait_ns(now_ns, eviction_pass.met)
        return (
            self._evict(now_ns, eviction_pass, notified=event.notified)
            if eviction_pass.evictions
            else now_ns + wait_ns
        )

    def _time_of_next_change_ns(self, now_ns: int) -> int | None:
        """When a check may change the state although no threshold is crossed: a condition may end; None: never."""
        if not self.setup.rules.thresholds and not self.setup.rules.local_storage_isolation:
            return None
        state, swaps = self.state, self.policy.counts_swap and self.setup.swap_bytes
        if state.first_observed_at_ns or state.filesystems is None or swaps:
            return now_ns
        observed_ns = [state.conditions_last_observed_at_ns[condition] for condition in state.conditions]
        return (
            min(observed_ns) + self.setup.rules.pressure_transition_period.nanoseconds
            if observed_ns
            else None
        )

    def _record_changes(self, now_ns: int, eviction_pass: EvictionPass, usage: StatsSummary) -> None:
        met = {met_threshold.threshold: met_threshold for met_threshold in eviction_pass.met}
        for threshold, met_threshold in met.items():
            if threshold not in self.noticed:
                self.noticed.add(threshold)
                self.moments.append(
                    Noticed(
                        at_ns=now_ns,
                        signal=threshold.signal,
                        threshold_bytes=met_threshold.amount.value(),
                        available_bytes=met_threshold.observation.available.value(),
                        late_ns=now_ns - self.crossed_at_ns.get(threshold, now_ns),
                    )
                )
        observed = signal_observations(usage)
        for threshold in [known for known in self.setup.rules.thresholds if known in self.noticed - set(met)]:
            self.noticed.discard(threshold)
            self.without_candidates.discard(threshold)
            available = observed[threshold.signal].available.value()
            self.moments.append(Recovered(at_ns=now_ns, signal=threshold.signal, available_bytes=available))
        if eviction_pass.state.conditions != self.state.conditions:
            self.moments.append(ConditionsChanged(at_ns=now_ns, conditions=eviction_pass.state.conditions))
        target = eviction_pass.target
        if target is not None and not eviction_pass.evictions and target not in self.without_candidates:
            self.without_candidates.add(target)
            self.moments.append(NobodyToEvict(at_ns=now_ns, signal=target.signal))

    # ------------------------------------------------------------ evictions

    def _evict(self, now_ns: int, eviction_pass: EvictionPass, *, notified: bool) -> int | None:
        """Starts the eviction of a pod; when the loop continues, or None while that is not known."""
        (eviction,) = eviction_pass.evictions
        uid = eviction.active_pod.uid
        if uid in self.terminating:
            return None if notified else self._next_check_ns(self.terminating[uid].until_ns)
        ends_ns = now_ns + self.setup.assumptions.termination_ns(eviction.termination_s)
        self.terminating[uid] = _Termination(ends_ns, eviction_pass.target, notified)
        self.moments.append(self._eviction_begun(now_ns, ends_ns, eviction, eviction_pass))
        terminated = PodTerminated(uid, None if notified else self._next_check_ns(ends_ns))
        self.events.schedule(ends_ns, terminated, EventOrder.ENDED)
        return None

    def _eviction_begun(
        self, now_ns: int, ends_ns: int, eviction: Eviction, eviction_pass: EvictionPass
    ) -> EvictionBegun:
        uid = eviction.active_pod.uid
        return EvictionBegun(
            at_ns=now_ns,
            pod=self._pod_name(uid),
            grace_period_s=eviction.termination_s,
            ends_ns=ends_ns,
            because=eviction.because,
            seen_bytes=next(
                (ranked.usage for ranked in eviction_pass.ranking if ranked.active_pod.uid == uid), 0
            ),
            used_bytes=self.memory.pod_amounts[uid].bytes_at(now_ns),
            critical_passed=tuple(
                ranked.active_pod.pod.full_name for ranked in eviction_pass.skipped_critical
            ),
        )

    def _next_check_ns(self, ends_ns: int) -> int:
        """When the loop makes the next check after a pod has terminated."""
        if self.policy.waits_for_cleanup:
            return ends_ns + self.setup.assumptions.cleanup_wait_ns
        return ends_ns + self.policy.interval_ns((Headroom(margin=0, capacity=1),))

    def _finish_eviction(self, now_ns: int, event: PodTerminated) -> None:
        uid = event.uid
        if uid not in self.memory.pods:
            return
        needed_bytes = self._needed_bytes(now_ns, self.terminating[uid].threshold)
        pod = self.memory.pods.pop(uid)
        keys = [(uid, container.name) for container in pod.containers]
        lost_cpu_s = sum(self._lost_cpu_s(now_ns, key) for key in keys if key in self.memory.running)
        freed_bytes = sum(self.memory.end_container(now_ns, key) for key in keys)
        self.moments.append(
            EvictionDone(
                at_ns=now_ns,
                pod=pod.claim.pod.full_name,
                freed_bytes=freed_bytes,
                beyond_need_bytes=max(freed_bytes - needed_bytes, 0),
                lost_cpu_s=lost_cpu_s,
                age_known=pod.age_ns is not None,
            )
        )
        if event.next_check_ns is not None:
            self.events.schedule(event.next_check_ns, PolicyCheck(), EventOrder.CHECK)

    def _needed_bytes(self, now_ns: int, threshold: Threshold | None) -> int:
        """Memory missing to the threshold and its minimum reclaim."""
        if threshold is None:
            return 0
        usage = self.policy.adjusted_usage(self.readings.node(now_ns))
        observation = signal_observations(usage).get(threshold.signal)
        if observation is None:
            return 0
        required = threshold_amount(threshold, observation.capacity, reclaimed=True).value()
        return max(required - observation.available.value(), 0)

    def _lost_cpu_s(self, now_ns: int, key: ContainerKey) -> float:
        """The CPU that the container requests, times the duration for which it has run."""
        container = self.memory.containers.get(key)
        if container is None:
            return 0
        pod = next(pod for pod in self.setup.pods if pod.uid == key[0])
        started_ns = self.restarts.started_at_ns.get(key, -(pod.age_ns or 0))
        return container.cpu_milli * (now_ns - started_ns) / SECOND_NS / 1000

    def _pod_name(self, uid: str) -> str:
        return next((pod.claim.pod.full_name for pod in self.setup.pods if pod.uid == uid), "")


STEP_BYTES = 1 << 20
PHASES = 4
"""Number of offsets of the kubelet's first check within its interval that are tried, besides the worst one."""

T = TypeVar("T")


class TriedThreshold(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold and its worst run.

    Units: bytes.
    """

    threshold_bytes: int
    worst_run: Timeline

    @property
    def is_lost(self) -> bool:
        """Whether the kernel was first in one of the runs."""
        return self.worst_run.is_lost


class ThresholdAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """The advised `evictionHard` for memory.available, with the runs that support it.

    Units: bytes.
    """

    policy: str
    step_bytes: int
    threshold_bytes: int | None
    """0: no threshold is needed; None: no threshold up to the memory available at the start is sufficient."""
    current_bytes: int = 0
    """The present threshold."""
    winning_run: Timeline | None
    """The worst run with the advised threshold."""
    losing_run: Timeline | None
    """The run with one step less in which the kernel was first; None: no smaller threshold is possible."""
    tried: tuple[TriedThreshold, ...]
    """All thresholds that were tried, in ascending order."""
    reserved_bytes: int | None = None
    """The sum of kubeReserved and systemReserved with which pods reach their common limit before the node runs out
    of memory if eviction fails; None: the present sum is sufficient, or no sum is."""


def threshold_advice(
    setup: TimelineSetup, policy: EvictionPolicy, *, step_bytes: int = STEP_BYTES
) -> ThresholdAdvice:
    """The smallest hard threshold with which the kernel kills no pod and no process outside pods.

    Kills at a container's or a pod's own limit do not count, because no threshold prevents them. Each candidate is
    simulated with several times of the first check, one of them just before the threshold is crossed.

    Departs: candidates are found by bisection; a smaller one that was not tried may be sufficient by chance.
    """
    tried: dict[int, TriedThreshold] = {}

    def wins(steps: int) -> bool:
        candidate = _tried_threshold(setup, policy, steps * step_bytes)
        tried[steps] = candidate
        return not candidate.is_lost

    maximum = max(_available_bytes(setup) // step_bytes, 0)
    steps = _least_winning(wins, maximum)
    one_less = tried.get(steps - 1) if steps else None
    return ThresholdAdvice(
        policy=policy.name,
        step_bytes=step_bytes,
        threshold_bytes=None if steps is None else steps * step_bytes,
        winning_run=None if steps is None else tried[steps].worst_run,
        losing_run=one_less.worst_run if one_less is not None else None,
        tried=tuple(tried[at] for at in sorted(tried)),
        current_bytes=_current_threshold_bytes(setup),
        reserved_bytes=_advised_reserved_bytes(setup, policy, step_bytes),
    )


def with_hard_threshold(setup: TimelineSetup, amount_bytes: int) -> TimelineSetup:
    """The setup with this hard threshold on memory, for the node and for all pods; 0: without one."""
    soft = tuple(threshold for threshold in setup.rules.thresholds if not threshold.is_hard)
    value = ThresholdValue(Quantity.of(amount_bytes, QuantityFormat.BINARY_SI))
    signals = [
        Signal.MEMORY_AVAILABLE,
        *([Signal.ALLOCATABLE_MEMORY_AVAILABLE] if setup.enforces_pods else []),
    ]
    reclaims = {
        threshold.signal: threshold.min_reclaim for threshold in setup.rules.thresholds if threshold.is_hard
    }
    hard = [
        Threshold(signal=signal, value=value, min_reclaim=reclaims.get(signal))
        for signal in signals
        if amount_bytes
    ]
    return replace(setup, rules=replace(setup.rules, thresholds=(*hard, *soft)))


def _least_winning(wins: Callable[[int], bool], maximum: int) -> int | None:
    """The least number that wins while one less does not, as bisection finds it; None: not even the maximum wins."""
    if wins(0):
        return 0
    if maximum == 0 or not wins(maximum):
        return None
    losing, winning = 0, maximum
    while winning - losing > 1:
        middle = (losing + winning) // 2
        if wins(middle):
            winning = middle
        else:
            losing = middle
    return winning


def _tried_threshold(setup: TimelineSetup, policy: EvictionPolicy, amount_bytes: int) -> TriedThreshold:
    tried_setup = with_hard_threshold(setup, amount_bytes)
    assumptions = tried_setup.assumptions
    worst = simulated_timeline(tried_setup, policy, until_lost=True)
    for first_look_ns in _further_first_checks_ns(assumptions.first_look_ns, worst.first_crossing_ns, policy):
        if worst.is_lost:
            break
        shifted = replace(tried_setup, assumptions=replace(assumptions, first_look_ns=first_look_ns))
        run = simulated_timeline(shifted, policy, until_lost=True)
        if run.is_lost or run.lowest_available_bytes < worst.lowest_available_bytes:
            worst = run
    return TriedThreshold(threshold_bytes=amount_bytes, worst_run=worst)


def _further_first_checks_ns(
    assumed_ns: int, crossing_ns: int | None, policy: EvictionPolicy
) -> Iterable[int]:
    """Times of the first check besides the assumed one: just before the threshold is crossed, and evenly spread ones."""
    if not policy.waits_for_cleanup:
        return ()
    before_crossing = ((crossing_ns - 1) % MONITORING_INTERVAL_NS,) if crossing_ns else ()
    spread = (phase * MONITORING_INTERVAL_NS // PHASES for phase in range(PHASES))
    return (at_ns for at_ns in dict.fromkeys((*before_crossing, *spread)) if at_ns != assumed_ns)


def _current_threshold_bytes(setup: TimelineSetup) -> int:
    capacity = Quantity.of(setup.memory_bytes, QuantityFormat.BINARY_SI)
    return max(
        (
            threshold_amount(threshold, capacity).value()
            for threshold in setup.rules.thresholds
            if threshold.is_hard and threshold.signal is Signal.MEMORY_AVAILABLE
        ),
        default=0,
    )


def _available_bytes(setup: TimelineSetup) -> int:
    used = setup.system_bytes + setup.pods_other_bytes
    return (
        setup.memory_bytes
        - used
        - sum(container.used_bytes for pod in setup.pods for container in pod.containers)
    )


def _advised_reserved_bytes(setup: TimelineSetup, policy: EvictionPolicy, step_bytes: int) -> int | None:
    """The least reservation with which the pods' limit is reached before the node's memory, if no pod is evicted."""
    if setup.pods_limit_bytes is None:
        return None
    without_thresholds = with_hard_threshold(setup, 0)
    without_thresholds = replace(without_thresholds, rules=replace(without_thresholds.rules, thresholds=()))
    reserved = setup.memory_bytes - setup.pods_limit_bytes
    pods_bytes = sum(container.used_bytes for pod in setup.pods for container in pod.containers)

    def pods_run_out_first(steps: int) -> bool:
        limit = setup.memory_bytes - reserved - steps * step_bytes
        run = simulated_timeline(replace(without_thresholds, pods_limit_bytes=limit), policy, until_lost=True)
        return not any(kill.scope is LimitScope.NODE for kill in run.kernel_kills)

    maximum = max((setup.pods_limit_bytes - setup.pods_other_bytes - pods_bytes) // step_bytes - 1, 0)
    steps = _least_winning(pods_run_out_first, maximum)
    return reserved + steps * step_bytes if steps else None
