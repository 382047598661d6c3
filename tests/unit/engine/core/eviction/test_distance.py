"""How far thresholds are, and how fast they come nearer."""

from nodewright.engine.core.eviction.eviction_manager import begin_pass
from nodewright.engine.core.eviction.eviction_policy import (
    ADAPTIVE,
    MIN_MEMORY_GROWTH_BYTES,
    MONITORING_INTERVAL_NS,
    NEAR_INTERVAL_NS,
    SECOND_NS,
    ThresholdDistances,
    due_in_ns,
    threshold_distances,
)
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState
from nodewright.engine.core.eviction.eviction_thresholds import (
    EvictionConfig,
    NodeFilesystems,
    signal_observations,
)
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, parse_thresholds
from nodewright.testing.usage import a_reading

GIB = 1 << 30


def rules(hard: dict[str, str], **settings: dict[str, str]) -> EvictionConfig:
    return EvictionConfig(
        thresholds=parse_thresholds(EvictionSettings(hard=hard, **settings), for_pods=False).thresholds
    )


MEMORY = rules(hard={"memory.available": "1Gi"})
DISK = rules(hard={"nodefs.available": "10%"})


def at(
    rule: EvictionConfig, now_ns: int, before: ThresholdDistances | None = None, **signals: str
) -> ThresholdDistances:
    return threshold_distances(
        rule.thresholds, signal_observations(a_reading(at_s=None, **signals)), now_ns, before
    )


def test_growth_is_what_has_gone_since_the_look_before() -> None:
    first = at(MEMORY, 0, memory="5Gi/16Gi")
    second = at(MEMORY, SECOND_NS // 2, first, memory="4Gi/16Gi")
    (room,) = second.headrooms.values()
    assert (room.margin, room.growth_per_s, room.capacity) == (3 * GIB, 2 * GIB, 16 * GIB)
    assert not second.met


def test_memory_may_begin_to_grow_by_a_gibibyte_a_second_at_any_moment() -> None:
    small = at(MEMORY, 0, memory="1536Mi/2Gi")
    (room,) = small.headrooms.values()
    assert room.min_growth_per_s == MIN_MEMORY_GROWTH_BYTES
    # Half a GiB is left: at twice the surge it lasts for a quarter of a second.
    assert small.wait_ns(ADAPTIVE) == SECOND_NS // 4
    assert at(DISK, 0, nodefs="90Gi/100Gi").wait_ns(ADAPTIVE) == MONITORING_INTERVAL_NS


def test_what_is_met_is_not_waited_for() -> None:
    low = at(MEMORY, 0, memory="900Mi/16Gi")
    assert low.met == frozenset(MEMORY.thresholds)
    assert low.wait_ns(ADAPTIVE) == MONITORING_INTERVAL_NS
    assert low.wait_ns(ADAPTIVE, due_in_ns=SECOND_NS) == SECOND_NS
    assert at(MEMORY, 0, memory="1Gi/16Gi").wait_ns(ADAPTIVE) == NEAR_INTERVAL_NS


def test_what_is_not_observed_is_at_no_distance() -> None:
    assert at(MEMORY, 0, memory="").headrooms == {}


def test_grace_periods_that_run_are_over_in_so_long() -> None:
    soft = rules({}, soft={"memory.available": "1Gi"}, soft_grace_period={"memory.available": "30s"})
    state = EvictionState()
    assert due_in_ns(state, 0) is None
    for second in (100, 110, 130):
        seen = EvictionObservation(
            usage=a_reading(memory="900Mi/16Gi", at_s=second), active_pods=(), filesystems=NodeFilesystems()
        )
        state = begin_pass(soft, state, seen, second).state
        left = due_in_ns(state, second * SECOND_NS)
        assert left == {100: 30 * SECOND_NS, 110: 20 * SECOND_NS, 130: None}[second]
