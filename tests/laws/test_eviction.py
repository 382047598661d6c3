"""What always holds of evictions, whatever is observed."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.core.eviction import (
    Candidate,
    Claim,
    EvictionRules,
    EvictionState,
    Filesystems,
    NodeReclaim,
    Observation,
    Pass,
    Reprieve,
    outlook,
    ranking,
    reprieves,
    stats_by_uid,
    synchronize,
)
from nodewright.core.requests import is_critical
from nodewright.model.eviction_reasons import NodeRanShort
from nodewright.model.thresholds import EvictionSettings, Signal, parse_thresholds
from nodewright.model.usage import PodUse, Usage
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading, a_use

RULES = EvictionRules(
    thresholds=parse_thresholds(
        EvictionSettings(
            hard={"memory.available": "5", "nodefs.available": "50%", "pid.available": "5"},
            soft={"memory.available": "8", "imagefs.inodesFree": "5"},
            soft_grace_period={"memory.available": "15s", "imagefs.inodesFree": "0s"},
            minimum_reclaim={"memory.available": "2", "nodefs.available": "1"},
        ),
        for_pods=True,
    ).thresholds
)
NAMES = tuple("abcd")
filesystems = st.builds(Filesystems, dedicated_image_fs=st.booleans(), dedicated_container_fs=st.booleans())
amounts = st.integers(0, 4).map(str)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    found = []
    for name in NAMES[: draw(st.integers(0, len(NAMES)))]:
        asked = {"memory": draw(amounts), "ephemeral-storage": draw(amounts)} if draw(st.booleans()) else {}
        limit = {"emptyDir": {"sizeLimit": draw(amounts)}} if draw(st.booleans()) else {"hostPath": {}}
        priority = draw(st.sampled_from((None, -1, 0, 1, 2_000_000_000)))
        found.append(Claim.of(a_pod(name, asked, priority=priority, volumes=[{"name": "data", **limit}])))
    return found


def use(name: str, drawn: tuple[int, ...]) -> PodUse:
    memory, processes, rootfs, layer_inodes, data, inodes = drawn
    return a_use(
        name,
        str(memory),
        processes=processes,
        rootfs=f"{rootfs}/{layer_inodes}",
        data=f"{data}/{inodes}",
    )


few = st.integers(0, 4)
uses = st.dictionaries(st.sampled_from(NAMES), st.tuples(*[few] * 6)).map(
    lambda drawn: [use(name, numbers) for name, numbers in drawn.items()]
)
left = st.dictionaries(
    st.sampled_from(("memory", "allocatable", "nodefs", "imagefs_inodes", "containerfs", "pids")),
    st.integers(0, 12).map(lambda amount: f"{amount}/12"),
)
times = st.none() | st.integers(0, 3)
readings = st.builds(lambda pods, at_s, texts: a_reading(*pods, at_s=at_s, **texts), uses, times, left)
afters = left.map(lambda texts: a_reading(at_s=None, **texts))
stories = st.lists(st.tuples(st.integers(0, 20), readings, afters), min_size=1, max_size=4)


def passes(active: list[Claim], story: list[tuple[int, Usage, Usage]], disks: Filesystems) -> list[Pass]:
    state, now_s, found = EvictionState(), 0, []
    for waited_s, reading, after in story:
        now_s += waited_s
        observation = Observation(usage=reading, claims=tuple(active), filesystems=disks)
        found.append(synchronize(RULES, state, observation, now_s, after))
        state, gone = found[-1].state, {one.claim.uid for one in found[-1].evictions}
        active = [one for one in active if one.uid not in gone]
    return found


@given(active=claims(), story=stories, disks=filesystems)
def test_a_pass_ends_no_critical_pod_and_one_pod_at_most_for_pressure(
    active: list[Claim], story: list[tuple[int, Usage, Usage]], disks: Filesystems
) -> None:
    done_once = passes(active, story, disks)
    assert passes(active, story, disks) == done_once, "the same observations give the same passes"
    for done in done_once:
        assert not any(is_critical(one.claim.pod) for one in done.evictions)
        for_pressure = [one for one in done.evictions if isinstance(one.because, NodeRanShort)]
        assert len(for_pressure) <= 1
        assert done.evictions == tuple(for_pressure) or not for_pressure
        # Who is above a limit goes before anything is taken back.
        assert done.evictions == tuple(for_pressure) or (done.target is None and not done.reclaimed)


@given(active=claims(), story=stories, disks=filesystems)
def test_reasons_of_a_pass_are_true(
    active: list[Claim], story: list[tuple[int, Usage, Usage]], disks: Filesystems
) -> None:
    for done in passes(active, story, disks):
        for met in done.met:
            below = met.amount.compare(met.observed.available) > 0
            assert below is not met.is_held
            assert met.is_due is (met.waited >= met.threshold.grace_period)
        due = [met.threshold for met in done.met if met.is_due and met.is_fresh]
        assert all(one in due for one in (*done.others, *([done.target] if done.target else [])))
        assert set(done.reclaimed) <= set(NodeReclaim)
        first = next((one.claim for one in done.ranking if not one.claim.critical), None)
        if done.ranking:
            assert [one.claim for one in done.evictions] == ([first] if first else [])


@given(active=claims(), reading=readings, after=st.none() | afters, disks=filesystems)
def test_an_outlook_ends_each_pod_once_and_no_critical_one_until_all_is_well_or_nobody_is_left(
    active: list[Claim], reading: Usage, after: Usage | None, disks: Filesystems
) -> None:
    observation = Observation(usage=reading, claims=tuple(active), filesystems=disks)
    found = outlook(RULES, observation, EvictionState().knowing(RULES, disks), after)
    gone = [one.eviction.claim for one in found.departures]
    assert len({one.uid for one in gone}) == len(gone)
    assert not any(one.critical for one in gone)
    assert [one.at_s for one in found.departures] == sorted(one.at_s for one in found.departures)
    left = [one for one in found.observation.claims if not one.critical]
    assert found.is_relieved or found.last.stopped is not None or not left or found.last.target is None


@given(active=claims(), found=uses, signal=st.sampled_from(Signal), disks=filesystems)
def test_a_reprieve_is_true_and_one_less_is_not_enough(
    active: list[Claim], found: list[PodUse], signal: Signal, disks: Filesystems
) -> None:
    stats = stats_by_uid(Usage(pods=tuple(found)))

    def first(claim: Claim | None = None) -> str:
        changed = [claim if claim is not None and one.uid == claim.uid else one for one in active]
        return next(one.claim.uid for one in ranking(signal, disks, changed, stats) if not one.claim.critical)

    for one in reprieves(signal, disks, active, stats):
        assert first() == one.claim.uid
        request, priority = one.request, one.claim.priority if one.priority is None else one.priority
        assert first(_changed(one, request, priority)) == one.instead.uid != one.claim.uid
        if not one.resource:
            assert first(_changed(one, request, priority - 1)) == one.claim.uid
        elif one.priority is None:
            assert first(_changed(one, request - 1, priority)) == one.claim.uid


def _changed(one: Reprieve, request: int, priority: int) -> Claim:
    requests = {**one.claim.requests, one.resource: request} if one.resource else one.claim.requests
    return replace(one.claim, requests=requests, priority=priority)


@given(active=claims(), found=uses, signal=st.sampled_from(Signal), disks=filesystems, data=st.data())
def test_the_ranking_is_a_total_order_that_only_ties_let_depend_on_the_list(
    active: list[Claim], found: list[PodUse], signal: Signal, disks: Filesystems, data: st.DataObject
) -> None:
    stats = stats_by_uid(Usage(pods=tuple(found)))
    ranked = ranking(signal, disks, active, stats)
    assert sorted(one.place for one in ranked) == list(range(len(active)))
    for earlier, later in combinations(ranked, 2):
        assert (goes_before(earlier, later, signal), earlier.place) < (0, later.place)
    shuffled = ranking(signal, disks, data.draw(st.permutations(active)), stats)
    for one, other in zip(ranked, shuffled, strict=True):
        assert goes_before(one, other, signal) == 0


def goes_before(one: Candidate, other: Candidate, signal: Signal) -> int:
    """-1, 0 or 1, comparing two pods criterion by criterion as the kubelet does."""
    known = (one.has_stats, other.has_stats)

    def excess() -> int:
        if not all(known):
            return first(*(not each for each in known))
        return first(one.exceeds, other.exceeds)

    def amount() -> int:
        if not all(known):
            return first(*(not each for each in known))
        return (other.over > one.over) - (other.over < one.over)

    left, right = one.claim.priority, other.claim.priority
    priority = (left > right) - (left < right)
    criteria = [priority, amount()] if signal is Signal.PID_AVAILABLE else [excess(), priority, amount()]
    return next((found for found in criteria if found), 0)


def first(one: bool, other: bool) -> int:
    return other - one
