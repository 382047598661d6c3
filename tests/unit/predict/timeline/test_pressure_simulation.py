"""Memory under pressure, played forward."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_policy import ADAPTIVE, KUBELET, SWAP_AWARE, EvictionPolicy
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, NodeCondition, parse_thresholds
from nodewright.predict.timeline import Growth, LimitScope, Timeline, TimelineSetup, simulated_timeline
from nodewright.predict.timeline.node_memory import BACK_OFF_S
from nodewright.predict.timeline.timeline_model import (
    ConditionsChanged,
    Deadlocked,
    EvictionBegun,
    KernelKilled,
    Moment,
    NobodyToEvict,
    Noticed,
    Recovered,
    Restarted,
    ThresholdCrossed,
)
from nodewright.testing.usage import SECOND_NS, a_timeline_pod, a_timeline_setting

MI, GI = 1 << 20, 1 << 30
CRITICAL = 2_000_000_000

M = TypeVar("M", bound=Moment)


def of(run: Timeline, kind: type[M]) -> list[M]:
    return [moment for moment in run.moments if isinstance(moment, kind)]


def seconds(moments: list[M]) -> list[float]:
    return [moment.at_ns / SECOND_NS for moment in moments]


def leaking(rate: str = "32Mi", *, hard: str = "100Mi") -> TimelineSetup:
    """A pod of 1Gi that grows, on a node of 4Gi with 1Gi used by others: 2Gi are left."""
    return a_timeline_setting(
        a_timeline_pod("leak", "1Gi", "1Gi"),
        a_timeline_pod("calm", "1Gi", "2Gi"),
        growth={"leak": rate},
        hard=hard,
    )


def test_between_two_checks_the_kernel_may_be_first() -> None:
    run = simulated_timeline(leaking("32Mi"), KUBELET, until_lost=True)
    # 2Gi less 100Mi at 32Mi a second are 60.875 seconds; the kubelet looks at 60 and at 70.
    assert [round(at, 3) for at in seconds(of(run, ThresholdCrossed))] == [60.875]
    assert (seconds(of(run, KernelKilled)), of(run, Noticed)) == ([64.0], [])
    assert (run.is_lost, run.check_count, run.lowest_available_bytes) == (True, 7, 0)


def test_an_evicted_pod_has_at_least_two_seconds() -> None:
    run = simulated_timeline(replace(leaking("8Mi"), duration_ns=400 * SECOND_NS), KUBELET)
    (begun,), (done,) = of(run, EvictionBegun), run.evictions
    assert (begun.pod, begun.grace_period_s, begun.at_ns % (10 * SECOND_NS)) == ("default/leak", 1, 0)
    assert begun.ends_ns == done.at_ns == begun.at_ns + 2 * SECOND_NS
    assert done.freed_bytes == GI + done.at_ns // SECOND_NS * 8 * MI
    (recovered,) = of(run, Recovered)
    assert recovered.at_ns == done.at_ns + SECOND_NS, "it asks every second whether the pod is cleaned up"
    assert not run.is_lost
    assert done.lost_cpu_s == pytest.approx(done.at_ns / SECOND_NS)
    (shown,) = of(run, ConditionsChanged)[:1]
    assert shown.conditions == (NodeCondition.MEMORY_PRESSURE,)


def test_the_adaptive_policy_detects_a_crossing_within_50_milliseconds() -> None:

    run = simulated_timeline(replace(leaking("16Mi"), duration_ns=400 * SECOND_NS), ADAPTIVE)
    (noticed,) = of(run, Noticed)
    assert noticed.late_ns <= 50_000_000
    assert not run.is_lost


def test_a_pod_that_terminates_early_frees_memory_early() -> None:
    setting = replace(leaking("16Mi"), duration_ns=300 * SECOND_NS)
    quick = replace(setting, assumptions=replace(setting.assumptions, ends_after_ns=100_000_000))
    (begun,), (done,) = (
        of(simulated_timeline(quick, ADAPTIVE), EvictionBegun),
        simulated_timeline(quick, ADAPTIVE).evictions,
    )
    assert done.at_ns - begun.at_ns == 100_000_000


def test_the_kernel_kills_the_highest_badness_and_the_kubelet_restarts_with_back_off() -> None:
    run = simulated_timeline(replace(leaking("1Gi", hard=""), duration_ns=300 * SECOND_NS), KUBELET)
    kills = of(run, KernelKilled)
    assert {(kill.pod, kill.scope) for kill in kills} == {("default/leak", LimitScope.NODE)}
    waits = [after.at_ns - kill.at_ns for kill, after in zip(kills, of(run, Restarted), strict=False)]
    assert [wait // SECOND_NS for wait in waits] == list(BACK_OFF_S[: len(waits)])
    assert len(waits) == 5


def test_a_best_effort_pod_is_killed_for_another_pod() -> None:
    setting = a_timeline_setting(
        a_timeline_pod("leak", "1Gi", "4Gi", oom_score_adj=-997),
        a_timeline_pod("poor", "10Mi"),
        growth={"leak": "1Gi"},
        hard="",
        seconds=4,
    )
    assert [kill.pod for kill in simulated_timeline(setting, KUBELET).kernel_kills][:1] == ["default/poor"]


def test_kills_at_a_containers_own_limit_do_not_count_as_lost() -> None:
    setting = a_timeline_setting(
        a_timeline_pod("leak", "1Gi", "1Gi", limit="2Gi"), growth={"leak": "100Mi"}, seconds=11
    )
    run = simulated_timeline(setting, KUBELET)
    (kill,) = run.kernel_kills
    assert (kill.scope, kill.limit_bytes, kill.at_ns) == (LimitScope.CONTAINER, 2 * GI, 10_240_000_000)
    assert not run.is_lost


def test_pods_run_into_the_limit_of_a_pod_and_of_all_pods() -> None:
    leak = replace(a_timeline_pod("leak", "1Gi", "1Gi"), limit_bytes=2 * GI)
    setting = a_timeline_setting(leak, growth={"leak": "100Mi"}, hard="", seconds=11)
    assert [kernel_kill.scope for kernel_kill in simulated_timeline(setting, KUBELET).kernel_kills] == [
        LimitScope.POD
    ]
    narrow = replace(setting, pods_limit_bytes=3 * GI // 2)
    (kill,) = simulated_timeline(narrow, KUBELET, until_lost=True).kernel_kills
    assert (kill.scope, kill.is_race_lost) == (LimitScope.PODS, True)


def test_the_kernel_may_kill_a_growing_process_outside_pods() -> None:
    shielded = a_timeline_pod("db", "1Gi", "1Gi", oom_score_adj=-997)
    run = simulated_timeline(
        a_timeline_setting(shielded, growth={"system": "1Gi"}, hard="", seconds=10), KUBELET
    )
    assert [(kill.pod, kill.container, kill.used_bytes) for kill in run.kernel_kills] == [("", "", 3 * GI)]
    assert run.available[-1][1] == 3 * GI


def test_without_a_killable_process_the_timeline_ends() -> None:
    setting = a_timeline_setting(
        a_timeline_pod("db", "1Gi", "1Gi", oom_score_adj=-1000), growth={"db": "1Gi"}, hard="", seconds=10
    )
    run = simulated_timeline(setting, KUBELET)
    assert of(run, Deadlocked)
    assert run.is_lost


def test_critical_pods_are_skipped_and_without_other_pods_none_is_evicted() -> None:
    critical = a_timeline_pod("dns", "1Gi", "10Mi", priority=CRITICAL)
    alone = replace(a_timeline_setting(critical, growth={"dns": "40Mi"}), duration_ns=76 * SECOND_NS)
    run = simulated_timeline(alone, ADAPTIVE)
    assert len(of(run, NobodyToEvict)) == 1
    assert not of(run, EvictionBegun)
    # Its neighbour is above its request by less, and goes all the same.
    both = replace(alone, pods=(critical, a_timeline_pod("web", "200Mi")))
    (begun,) = of(simulated_timeline(both, ADAPTIVE), EvictionBegun)[:1]
    assert (begun.pod, begun.critical_passed) == ("default/web", ())


def test_a_pod_is_ranked_by_its_last_measurement() -> None:
    """Both pods are above their requests; the one that has only begun to grow is not known for it yet."""
    setting = a_timeline_setting(
        a_timeline_pod("old", "1200Mi", "100Mi"),
        a_timeline_pod("burst", "1Gi", "100Mi"),
        growth={"burst": "170Mi"},
        seconds=40,
    )
    quick = replace(
        setting,
        assumptions=replace(setting.assumptions, first_look_ns=11 * SECOND_NS, stats_age_ns=30 * SECOND_NS),
    )
    (begun,) = of(simulated_timeline(quick, KUBELET), EvictionBegun)[:1]
    assert begun.pod == "default/old"
    fresh = replace(quick, assumptions=replace(quick.assumptions, stats_age_ns=0))
    (begun,) = of(simulated_timeline(fresh, KUBELET), EvictionBegun)[:1]
    assert (begun.pod, begun.seen_bytes) == ("default/burst", begun.used_bytes)


def test_a_notifier_triggers_a_check_between_two_checks() -> None:
    setting = replace(leaking("16Mi"), duration_ns=150 * SECOND_NS, is_notified=True)
    setting = replace(setting, assumptions=replace(setting.assumptions, notified_after_ns=SECOND_NS))
    (crossed,), (noticed,) = (
        of(simulated_timeline(setting, KUBELET), ThresholdCrossed),
        of(simulated_timeline(setting, KUBELET), Noticed),
    )
    assert noticed.at_ns == crossed.at_ns + SECOND_NS
    assert of(simulated_timeline(setting, ADAPTIVE), Noticed)[0].late_ns <= 50_000_000, (
        "who looks for itself needs none"
    )


def test_a_soft_threshold_counts_after_its_grace_period_and_gives_the_pod_its_own() -> None:
    settings = EvictionSettings(
        hard={}, soft={"memory.available": "1Gi"}, soft_grace_period={"memory.available": "25s"}
    )
    setting = replace(leaking("16Mi"), duration_ns=150 * SECOND_NS)
    rules = replace(setting.rules, thresholds=parse_thresholds(settings).thresholds, max_pod_grace_period_s=5)
    setting = replace(setting, rules=rules)
    # It is crossed at 64 s and seen at 70 s.
    (begun,), (done,) = (
        of(simulated_timeline(setting, KUBELET), EvictionBegun),
        simulated_timeline(setting, KUBELET).evictions,
    )
    assert (begun.at_ns, begun.grace_period_s) == (100 * SECOND_NS, 5)
    assert done.at_ns == begun.at_ns + 5 * SECOND_NS
    (begun,) = of(simulated_timeline(setting, ADAPTIVE), EvictionBegun)
    assert 89 * SECOND_NS < begun.at_ns < 90 * SECOND_NS


def test_a_pod_killed_during_its_eviction_terminates_at_once() -> None:
    run = simulated_timeline(replace(leaking("200Mi"), duration_ns=30 * SECOND_NS), ADAPTIVE)
    (begun,), (kill,), (done,) = of(run, EvictionBegun), run.kernel_kills, run.evictions
    assert begun.at_ns < kill.at_ns == done.at_ns < begun.ends_ns
    assert kill.restarts_ns is None


def test_containers_that_may_not_restart_are_not_restarted() -> None:
    setting = a_timeline_setting(
        a_timeline_pod("job", "1Gi", "1Gi", restarts=False), growth={"job": "1Gi"}, hard="", seconds=60
    )
    run = simulated_timeline(setting, KUBELET)
    assert len(run.kernel_kills) == 1
    assert not of(run, Restarted)
    assert run.available[-1] == (60 * SECOND_NS, 4 * GI)


def test_shrinking_stops_at_zero_and_recorded_values_are_jumps() -> None:
    setting = a_timeline_setting(a_timeline_pod("web", "1Gi"), growth={"web": "-512Mi"}, seconds=10)
    jump = Growth(at_ns=5 * SECOND_NS, pod="web", container="main", to_bytes=2 * GI)
    run = simulated_timeline(replace(setting, growth=(*setting.growth, jump)), KUBELET)
    assert (2 * SECOND_NS, 4 * GI) in run.available
    assert run.available[-1] == (10 * SECOND_NS, 2 * GI)
    assert run.lowest_available_bytes == 2 * GI


def swapping(policy: EvictionPolicy) -> Timeline:
    """1Gi of swap for a pod that grows beyond 4Gi of memory, slowly, up to 4.5Gi."""
    setting = a_timeline_setting(
        a_timeline_pod("leak", "1Gi", "2Gi", swap_bytes=GI), growth={"leak": "64Mi"}, seconds=100
    )
    stop = Growth(at_ns=56 * SECOND_NS, pod="leak", container="main")
    return simulated_timeline(replace(setting, swap_bytes=GI, growth=(*setting.growth, stop)), policy)


def test_only_a_policy_that_is_aware_of_swap_lets_a_pod_use_it() -> None:
    assert [eviction.pod for eviction in swapping(KUBELET).evictions] == ["default/leak"]
    assert swapping(SWAP_AWARE).moments == ()
    full = a_timeline_setting(
        a_timeline_pod("leak", "1Gi", "2Gi", swap_bytes=GI),
        growth={"leak": "64Mi"},
        hard="256Mi",
        seconds=100,
    )
    run = simulated_timeline(replace(full, swap_bytes=GI), SWAP_AWARE)
    (done,) = run.evictions
    assert not run.is_lost
    # 4Gi of memory and 1Gi of swap, less 256Mi, are gone after 60 seconds.
    assert round(done.at_ns / SECOND_NS) == 62


def test_pods_at_the_limit_that_they_have_together_use_swap_first() -> None:
    leak = a_timeline_pod("leak", "1Gi", "2Gi", swap_bytes=GI)
    setting = a_timeline_setting(leak, growth={"leak": "128Mi"}, hard="", seconds=60)
    setting = replace(setting, swap_bytes=GI, pods_limit_bytes=2 * GI)
    (kill,) = simulated_timeline(setting, KUBELET, until_lost=True).kernel_kills
    # 2Gi of memory and 1Gi of swap.
    assert (kill.scope, kill.at_ns, kill.used_bytes) == (LimitScope.PODS, 16 * SECOND_NS, 3 * GI)
