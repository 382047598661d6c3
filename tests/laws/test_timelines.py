"""What always holds of timelines, whatever grows."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.core.eviction import (
    KUBELET,
    POLICIES,
    EvictionPolicy,
    EvictionState,
    Observation,
    Room,
    interval_ns,
    synchronize,
)
from nodewright.core.eviction.policy import AHEAD, NEAR_NS, SOONEST_NS, SURGE_PERMILLE
from nodewright.model.usage import Usage
from nodewright.sim.timeline import Growth, Setting, advise, played
from nodewright.sim.timeline.moments import EvictionBegun, EvictionDone
from nodewright.testing.timelines import SECOND_NS, a_part, a_setting

MI = 1 << 20
NAMES = "abcd"
rates = st.integers(-20, 60)
policies = st.sampled_from(list(POLICIES.values()))


@st.composite
def settings(draw: st.DrawFn) -> Setting:
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    pods = [
        a_part(
            name,
            f"{draw(st.integers(0, 900))}Mi",
            f"{draw(st.integers(0, 900))}Mi",
            priority=draw(st.sampled_from((0, 5, 2_000_000_000))),
        )
        for name in names
    ]
    growth = {name: f"{draw(rates)}Mi" for name in names}
    hard = f"{draw(st.integers(1, 900))}Mi"
    found = a_setting(*pods, growth=growth, hard=hard, seconds=draw(st.integers(1, 90)))
    return replace(found, assumed=replace(found.assumed, first_look_ns=draw(st.integers(0, 10 * SECOND_NS))))


@given(setting=settings(), policy=policies)
def test_a_timeline_is_the_same_each_time_and_in_order(setting: Setting, policy: EvictionPolicy) -> None:
    run = played(setting, policy)
    assert run == played(setting, policy)
    times = [one.at_ns for one in run.moments]
    assert times == sorted(times)
    assert all(0 <= at <= setting.duration_ns for at in times)
    critical = {one.claim.pod.full_name for one in setting.pods if one.claim.critical}
    assert not critical & {one.pod for one in run.evictions}
    freed = {one.pod for one in run.evictions}
    assert len(freed) == len(run.evictions), "nobody is evicted twice"


@given(setting=settings(), policy=policies, more=st.integers(1, 50))
def test_with_more_growth_thresholds_are_never_crossed_later(
    setting: Setting, policy: EvictionPolicy, more: int
) -> None:
    faster = replace(setting, growth=tuple(replace(one, rate=one.rate + more * MI) for one in setting.growth))
    slow, fast = (played(one, policy).first_crossing_ns for one in (setting, faster))
    assert slow is None or (fast is not None and fast <= slow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(EvictionPolicy):
    """A policy with what it has read, the last reading of each look."""

    read: dict[int, Usage]

    def seen(self, usage: Usage) -> Usage:
        assert usage.node.memory is not None
        assert usage.node.memory.time is not None
        self.read[usage.node.memory.time.nanoseconds] = usage
        return usage


@given(setting=settings())
def test_the_kubelets_passes_are_those_of_its_eviction_manager(setting: Setting) -> None:
    """The same readings, one after the other, given to `synchronize`, evict the same pods at the same times."""
    policy = Recording(
        name="recording",
        waits=KUBELET.waits,
        reads_pods_now=False,
        is_notified=True,
        waits_for_cleanup=True,
        read={},
    )
    run = played(setting, policy)
    ends = {one.pod: one.at_ns for one in run.moments if isinstance(one, EvictionDone)}
    looks, state, begun = dict(policy.read), EvictionState(), []
    for now_ns, usage in sorted(looks.items()):
        if now_ns in ends.values():
            # Read for what was missing when the pod had ended; the kubelet itself looks a second later.
            continue
        claims = tuple(
            one.claim for one in setting.pods if ends.get(one.claim.pod.full_name, now_ns + 1) > now_ns
        )
        done = synchronize(setting.rules, state, Observation(usage=usage, claims=claims), now_ns / SECOND_NS)
        state = done.state
        begun += [(now_ns, one.claim.pod.full_name) for one in done.evictions]
    assert begun == [(one.at_ns, one.pod) for one in run.moments if isinstance(one, EvictionBegun)]


@given(used=st.integers(0, 2000), rate=st.integers(1, 300), policy=policies, first_look_s=st.integers(0, 9))
def test_what_is_advised_wins_and_a_step_less_loses(
    used: int, rate: int, policy: EvictionPolicy, first_look_s: int
) -> None:
    setting = a_setting(a_part("leak", f"{used}Mi", "1Gi"), growth={"leak": f"{rate}Mi"}, seconds=60)
    setting = replace(setting, assumed=replace(setting.assumed, first_look_ns=first_look_s * SECOND_NS))
    advice = advise(setting, policy, step_bytes=16 * MI)
    for found, is_lost in ((advice.won, False), (advice.lost, True)):
        assert found is None or found.is_lost is is_lost
    if advice.threshold_bytes:
        assert advice.won is not None
        assert advice.lost is not None


@given(
    left=st.integers(0, 10**6),
    capacity=st.integers(1, 10**6),
    growth=st.integers(-(10**4), 10**5),
    real=st.integers(0, 10**5),
)
def test_who_looks_by_the_rule_is_never_late_by_more_than_50_milliseconds(
    left: int, capacity: int, growth: int, real: int
) -> None:
    """As long as growth is no more than what was reckoned with."""
    room = Room(left=left, capacity=capacity, growth=growth)
    wait_ns = interval_ns(room)
    assert SOONEST_NS <= wait_ns <= 10 * SECOND_NS
    reckoned = max(growth, capacity * SURGE_PERMILLE // 1000, 1)
    grown = min(real, reckoned) * wait_ns
    assert wait_ns <= NEAR_NS or grown * AHEAD <= left * SECOND_NS


@given(samples=st.lists(st.integers(0, 3000), min_size=2, max_size=6))
def test_a_recorded_series_is_gone_through_exactly(samples: Sequence[int]) -> None:
    setting = a_setting(a_part("web"), hard="", seconds=len(samples) * 10)
    steps = tuple(
        Growth(at_ns=at * 10 * SECOND_NS, pod="web", container="main", to_bytes=used * MI)
        for at, used in enumerate(samples)
    )
    run = played(replace(setting, growth=steps), POLICIES["kubelet"])
    known = dict(run.available)
    assert all(
        known.get(at * 10 * SECOND_NS, -1) in {(4096 - used) * MI, -1} for at, used in enumerate(samples)
    )
    assert run.lowest_available_bytes == (4096 - max(samples)) * MI
