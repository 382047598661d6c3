"""What always holds of timelines, whatever grows."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_manager import synchronize
from nodewright.engine.core.eviction.eviction_policy import (
    KUBELET,
    MIN_GROWTH_PERMILLE,
    MIN_INTERVAL_NS,
    NEAR_INTERVAL_NS,
    POLICIES,
    SAFETY_FACTOR,
    EvictionPolicy,
    Headroom,
    interval_ns,
)
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.predict.timeline import Growth, TimelineSetup, simulated_timeline, threshold_advice
from nodewright.predict.timeline.timeline_model import EvictionBegun, EvictionDone
from nodewright.testing.usage import SECOND_NS, a_timeline_pod, a_timeline_setting

MI = 1 << 20
NAMES = "abcd"
rates = st.integers(-20, 60)
policies = st.sampled_from(list(POLICIES.values()))


@st.composite
def settings(draw: st.DrawFn) -> TimelineSetup:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    pods = [
        a_timeline_pod(
            name,
            f"{draw(st.integers(0, 900))}Mi",
            f"{draw(st.integers(0, 900))}Mi",
            priority=draw(st.sampled_from((0, 5, 2_000_000_000))),
        )
        for name in names
    ]
    growth = {name: f"{draw(rates)}Mi" for name in names}
    hard = f"{draw(st.integers(1, 900))}Mi"
    timeline_setup = a_timeline_setting(*pods, growth=growth, hard=hard, seconds=draw(st.integers(1, 90)))
    return replace(
        timeline_setup,
        assumptions=replace(timeline_setup.assumptions, first_look_ns=draw(st.integers(0, 10 * SECOND_NS))),
    )


@given(setting=settings(), policy=policies)
def test_a_timeline_is_the_same_each_time_and_in_order(
    setting: TimelineSetup, policy: EvictionPolicy
) -> None:
    run = simulated_timeline(setting, policy)
    assert run == simulated_timeline(setting, policy)
    times = [moment.at_ns for moment in run.moments]
    assert times == sorted(times)
    assert all(0 <= at <= setting.duration_ns for at in times)
    critical = {pod.claim.pod.full_name for pod in setting.pods if pod.claim.is_critical}
    assert not critical & {eviction.pod for eviction in run.evictions}
    freed = {eviction.pod for eviction in run.evictions}
    assert len(freed) == len(run.evictions), "nobody is evicted twice"


@given(setting=settings(), until_lost=st.booleans())
def test_checks_that_are_skipped_change_nothing(setting: TimelineSetup, until_lost: bool) -> None:
    each_check = replace(KUBELET, fixed_interval_ns=None)
    run = simulated_timeline(setting, KUBELET, until_lost=until_lost)
    assert run == simulated_timeline(setting, each_check, until_lost=until_lost)


@given(setting=settings(), policy=policies, more=st.integers(1, 50))
def test_with_more_growth_thresholds_are_never_crossed_later(
    setting: TimelineSetup, policy: EvictionPolicy, more: int
) -> None:
    faster = replace(
        setting, growth=tuple(replace(growth, rate=growth.rate + more * MI) for growth in setting.growth)
    )
    slow, fast = (
        simulated_timeline(timeline_setup, policy).first_crossing_ns for timeline_setup in (setting, faster)
    )
    assert slow is None or (fast is not None and fast <= slow)


class Recording(EvictionPolicy, frozen=True, kw_only=True):
    """A policy with what it has read, the last summary of each check."""

    read: dict[int, StatsSummary]

    def adjusted_usage(self, usage: StatsSummary) -> StatsSummary:
        assert usage.node.memory is not None
        assert usage.node.memory.time is not None
        self.read[usage.node.memory.time.nanoseconds] = usage
        return usage


@given(setting=settings())
def test_the_kubelets_passes_are_those_of_its_eviction_manager(setting: TimelineSetup) -> None:
    """The same readings, one after the other, given to `synchronize`, evict the same pods at the same times."""
    policy = Recording(
        name="recording",
        interval_function=KUBELET.interval_function,
        reads_fresh_pod_stats=False,
        uses_memory_notifier=True,
        waits_for_cleanup=True,
        read={},
    )
    run = simulated_timeline(setting, policy)
    ends = {moment.pod: moment.at_ns for moment in run.moments if isinstance(moment, EvictionDone)}
    looks, state, begun = dict(policy.read), EvictionState(), []
    for now_ns, usage in sorted(looks.items()):
        if now_ns in ends.values():
            # Read for what was missing when the pod had ended; the kubelet itself looks a second later.
            continue
        claims = tuple(
            pod.claim for pod in setting.pods if ends.get(pod.claim.pod.full_name, now_ns + 1) > now_ns
        )
        done = synchronize(
            setting.rules, state, EvictionObservation(usage=usage, active_pods=claims), now_ns / SECOND_NS
        )
        state = done.state
        begun += [(now_ns, eviction.active_pod.pod.full_name) for eviction in done.evictions]
    assert begun == [
        (moment.at_ns, moment.pod) for moment in run.moments if isinstance(moment, EvictionBegun)
    ]


@given(used=st.integers(0, 2000), rate=st.integers(1, 300), policy=policies, first_look_s=st.integers(0, 9))
def test_the_advised_threshold_wins_and_one_step_less_loses(
    used: int, rate: int, policy: EvictionPolicy, first_look_s: int
) -> None:
    setting = a_timeline_setting(
        a_timeline_pod("leak", f"{used}Mi", "1Gi"), growth={"leak": f"{rate}Mi"}, seconds=60
    )
    setting = replace(
        setting, assumptions=replace(setting.assumptions, first_look_ns=first_look_s * SECOND_NS)
    )
    advice = threshold_advice(setting, policy, step_bytes=16 * MI)
    for found, is_lost in ((advice.winning_run, False), (advice.losing_run, True)):
        assert found is None or found.is_lost is is_lost
    if advice.threshold_bytes:
        assert advice.winning_run is not None
        assert advice.losing_run is not None


@given(
    left=st.integers(0, 10**6),
    capacity=st.integers(1, 10**6),
    growth=st.integers(-(10**4), 10**5),
    real=st.integers(0, 10**5),
)
def test_adaptive_checks_are_never_late_by_more_than_50_milliseconds(
    left: int, capacity: int, growth: int, real: int
) -> None:
    """As long as growth is no more than what was reckoned with."""
    room = Headroom(margin=left, capacity=capacity, growth_per_s=growth)
    wait_ns = interval_ns(room)
    assert MIN_INTERVAL_NS <= wait_ns <= 10 * SECOND_NS
    reckoned = max(growth, capacity * MIN_GROWTH_PERMILLE // 1000, 1)
    grown = min(real, reckoned) * wait_ns
    assert wait_ns <= NEAR_INTERVAL_NS or grown * SAFETY_FACTOR <= left * SECOND_NS


@given(samples=st.lists(st.integers(0, 3000), min_size=2, max_size=6))
def test_a_recorded_series_is_followed_exactly(samples: Sequence[int]) -> None:
    setting = a_timeline_setting(a_timeline_pod("web"), hard="", seconds=len(samples) * 10)
    steps = tuple(
        Growth(at_ns=at * 10 * SECOND_NS, pod="web", container="main", to_bytes=used * MI)
        for at, used in enumerate(samples)
    )
    run = simulated_timeline(replace(setting, growth=steps), POLICIES["kubelet"])
    known = dict(run.available)
    assert all(
        known.get(at * 10 * SECOND_NS, -1) in {(4096 - used) * MI, -1} for at, used in enumerate(samples)
    )
    assert run.lowest_available_bytes == (4096 - max(samples)) * MI
