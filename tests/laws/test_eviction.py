"""What always holds of evictions, whatever is observed."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_manager import synchronize
from nodewright.engine.core.eviction.eviction_order import RankChange, rank_changes
from nodewright.engine.core.eviction.eviction_policy import eviction_forecast
from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    EvictionCandidate,
    ranked_pods,
    stats_by_uid,
)
from nodewright.engine.core.eviction.eviction_state import (
    EvictionObservation,
    EvictionPass,
    EvictionState,
    NodeReclaim,
)
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig, NodeFilesystems
from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, Signal, parse_thresholds
from nodewright.model.kubernetes.stats_summary import PodStats, StatsSummary
from nodewright.model.reasons.eviction import NodeRanShort
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

RULES = EvictionConfig(
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
filesystems = st.builds(
    NodeFilesystems, dedicated_image_fs=st.booleans(), dedicated_container_fs=st.booleans()
)
amounts = st.integers(0, 4).map(str)


@st.composite
def claims(draw: st.DrawFn) -> list[ActivePod]:
    result = []
    for name in NAMES[: draw(st.integers(0, len(NAMES)))]:
        document = (
            {"memory": draw(amounts), "ephemeral-storage": draw(amounts)} if draw(st.booleans()) else {}
        )
        limit = {"emptyDir": {"sizeLimit": draw(amounts)}} if draw(st.booleans()) else {"hostPath": {}}
        priority = draw(st.sampled_from((None, -1, 0, 1, 2_000_000_000)))
        result.append(
            ActivePod.of(a_pod(name, document, priority=priority, volumes=[{"name": "data", **limit}]))
        )
    return result


def use(name: str, drawn: tuple[int, ...]) -> PodStats:
    memory, processes, rootfs, layer_inodes, data, inodes = drawn
    return a_pod_usage(
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


def passes(
    active: list[ActivePod], story: list[tuple[int, StatsSummary, StatsSummary]], disks: NodeFilesystems
) -> list[EvictionPass]:
    state, now_s, found = EvictionState(), 0, []
    for waited_s, reading, after in story:
        now_s += waited_s
        observation = EvictionObservation(usage=reading, active_pods=tuple(active), filesystems=disks)
        found.append(synchronize(RULES, state, observation, now_s, after))
        state, gone = found[-1].state, {eviction.active_pod.uid for eviction in found[-1].evictions}
        active = [active_pod for active_pod in active if active_pod.uid not in gone]
    return found


@given(active=claims(), story=stories, disks=filesystems)
def test_a_pass_ends_no_critical_pod_and_one_pod_at_most_for_pressure(
    active: list[ActivePod], story: list[tuple[int, StatsSummary, StatsSummary]], disks: NodeFilesystems
) -> None:
    done_once = passes(active, story, disks)
    assert passes(active, story, disks) == done_once, "the same observations give the same passes"
    for done in done_once:
        assert not any(is_critical(eviction.active_pod.pod) for eviction in done.evictions)
        for_pressure = [eviction for eviction in done.evictions if isinstance(eviction.because, NodeRanShort)]
        assert len(for_pressure) <= 1
        assert done.evictions == tuple(for_pressure) or not for_pressure
        # Who is above a limit goes before anything is taken back.
        assert done.evictions == tuple(for_pressure) or (done.target is None and not done.reclaimed)


@given(active=claims(), story=stories, disks=filesystems)
def test_reasons_of_a_pass_are_true(
    active: list[ActivePod], story: list[tuple[int, StatsSummary, StatsSummary]], disks: NodeFilesystems
) -> None:
    for done in passes(active, story, disks):
        for met in done.met:
            below = met.amount.compare(met.observation.available) > 0
            assert below is not met.awaits_min_reclaim
            assert met.is_due is (met.met_for >= met.threshold.grace_period)
        due = [met.threshold for met in done.met if met.is_due and met.has_new_stats]
        assert all(target in due for target in (*done.other_targets, *([done.target] if done.target else [])))
        assert set(done.reclaimed) <= set(NodeReclaim)
        first = next(
            (
                eviction_candidate.active_pod
                for eviction_candidate in done.ranking
                if not eviction_candidate.active_pod.is_critical
            ),
            None,
        )
        if done.ranking:
            assert [eviction.active_pod for eviction in done.evictions] == ([first] if first else [])


@given(active=claims(), reading=readings, after=st.none() | afters, disks=filesystems)
def test_an_outlook_ends_each_pod_once_and_no_critical_one_until_all_is_well_or_nobody_is_left(
    active: list[ActivePod], reading: StatsSummary, after: StatsSummary | None, disks: NodeFilesystems
) -> None:
    observation = EvictionObservation(usage=reading, active_pods=tuple(active), filesystems=disks)
    result = eviction_forecast(RULES, observation, EvictionState().with_filesystems(RULES, disks), after)
    gone = [eviction.eviction.active_pod for eviction in result.evictions]
    assert len({active_pod.uid for active_pod in gone}) == len(gone)
    assert not any(active_pod.is_critical for active_pod in gone)
    assert [eviction.at_s for eviction in result.evictions] == sorted(
        eviction.at_s for eviction in result.evictions
    )
    left = [pod for pod in result.final_observation.active_pods if not pod.is_critical]
    assert (
        result.is_relieved
        or result.last_pass.stopped is not None
        or not left
        or result.last_pass.target is None
    )


@given(active=claims(), found=uses, signal=st.sampled_from(Signal), disks=filesystems)
def test_a_reprieve_is_true_and_one_less_is_not_enough(
    active: list[ActivePod], found: list[PodStats], signal: Signal, disks: NodeFilesystems
) -> None:
    stats = stats_by_uid(StatsSummary(pods=tuple(found)))

    def first(claim: ActivePod | None = None) -> str:
        changed = [
            claim if claim is not None and active_pod.uid == claim.uid else active_pod
            for active_pod in active
        ]
        return next(
            pod.active_pod.uid
            for pod in ranked_pods(signal, disks, changed, stats)
            if not pod.active_pod.is_critical
        )

    for rank_change in rank_changes(signal, disks, active, stats):
        assert first() == rank_change.active_pod.uid
        request, priority = (
            rank_change.request,
            rank_change.active_pod.priority if rank_change.priority is None else rank_change.priority,
        )
        assert (
            first(_changed(rank_change, request, priority))
            == rank_change.next_pod.uid
            != rank_change.active_pod.uid
        )
        if not rank_change.resource:
            assert first(_changed(rank_change, request, priority - 1)) == rank_change.active_pod.uid
        elif rank_change.priority is None:
            assert first(_changed(rank_change, request - 1, priority)) == rank_change.active_pod.uid


def _changed(one: RankChange, request: int, priority: int) -> ActivePod:
    requests = {**one.active_pod.requests, one.resource: request} if one.resource else one.active_pod.requests
    return replace(one.active_pod, requests=requests, priority=priority)


@given(active=claims(), found=uses, signal=st.sampled_from(Signal), disks=filesystems, data=st.data())
def test_the_ranking_is_a_total_order_that_only_ties_let_depend_on_the_list(
    active: list[ActivePod],
    found: list[PodStats],
    signal: Signal,
    disks: NodeFilesystems,
    data: st.DataObject,
) -> None:
    stats = stats_by_uid(StatsSummary(pods=tuple(found)))
    ranked = ranked_pods(signal, disks, active, stats)
    assert sorted(eviction_candidate.list_index for eviction_candidate in ranked) == list(range(len(active)))
    for earlier, later in combinations(ranked, 2):
        assert (goes_before(earlier, later, signal), earlier.list_index) < (0, later.list_index)
    shuffled = ranked_pods(signal, disks, data.draw(st.permutations(active)), stats)
    for one, other in zip(ranked, shuffled, strict=True):
        assert goes_before(one, other, signal) == 0


def goes_before(one: EvictionCandidate, other: EvictionCandidate, signal: Signal) -> int:
    """-1, 0 or 1, comparing two pods criterion by criterion as the kubelet does."""
    known = (one.has_stats, other.has_stats)

    def excess() -> int:
        if not all(known):
            return first(*(not each for each in known))
        return first(one.exceeds_request, other.exceeds_request)

    def amount() -> int:
        if not all(known):
            return first(*(not each for each in known))
        return (other.excess > one.excess) - (other.excess < one.excess)

    left, right = one.active_pod.priority, other.active_pod.priority
    priority = (left > right) - (left < right)
    criteria = [priority, amount()] if signal is Signal.PID_AVAILABLE else [excess(), priority, amount()]
    return next((number for number in criteria if number), 0)


def first(one: bool, other: bool) -> int:
    return other - one
