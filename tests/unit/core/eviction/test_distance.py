"""How far thresholds are, and how fast they come nearer."""

from nodewright.core.eviction import (
    ADAPTIVE,
    MEMORY_SURGE,
    Distance,
    EvictionRules,
    EvictionState,
    Filesystems,
    Observation,
    distance,
    due_in_ns,
    look,
    observations,
)
from nodewright.core.eviction.policy import MONITORING_INTERVAL_NS, NEAR_NS, SECOND_NS
from nodewright.model.thresholds import EvictionSettings, parse_thresholds
from nodewright.testing.usage import a_reading

GIB = 1 << 30


def rules(hard: dict[str, str], **settings: dict[str, str]) -> EvictionRules:
    return EvictionRules(
        thresholds=parse_thresholds(EvictionSettings(hard=hard, **settings), for_pods=False).thresholds
    )


MEMORY = rules(hard={"memory.available": "1Gi"})
DISK = rules(hard={"nodefs.available": "10%"})


def at(rule: EvictionRules, now_ns: int, before: Distance | None = None, **signals: str) -> Distance:
    return distance(rule.thresholds, observations(a_reading(at_s=None, **signals)), now_ns, before)


def test_growth_is_what_has_gone_since_the_look_before() -> None:
    first = at(MEMORY, 0, memory="5Gi/16Gi")
    second = at(MEMORY, SECOND_NS // 2, first, memory="4Gi/16Gi")
    (room,) = second.rooms.values()
    assert (room.left, room.growth, room.capacity) == (3 * GIB, 2 * GIB, 16 * GIB)
    assert not second.met


def test_memory_may_begin_to_grow_by_a_gibibyte_a_second_at_any_moment() -> None:
    small = at(MEMORY, 0, memory="1536Mi/2Gi")
    (room,) = small.rooms.values()
    assert room.surge == MEMORY_SURGE
    # Half a GiB is left: at twice the surge it lasts for a quarter of a second.
    assert small.wait_ns(ADAPTIVE) == SECOND_NS // 4
    assert at(DISK, 0, nodefs="90Gi/100Gi").wait_ns(ADAPTIVE) == MONITORING_INTERVAL_NS


def test_what_is_met_is_not_waited_for() -> None:
    low = at(MEMORY, 0, memory="900Mi/16Gi")
    assert low.met == frozenset(MEMORY.thresholds)
    assert low.wait_ns(ADAPTIVE) == MONITORING_INTERVAL_NS
    assert low.wait_ns(ADAPTIVE, due_in_ns=SECOND_NS) == SECOND_NS
    assert at(MEMORY, 0, memory="1Gi/16Gi").wait_ns(ADAPTIVE) == NEAR_NS


def test_what_is_not_observed_is_at_no_distance() -> None:
    assert at(MEMORY, 0, memory="").rooms == {}


def test_grace_periods_that_run_are_over_in_so_long() -> None:
    soft = rules({}, soft={"memory.available": "1Gi"}, soft_grace_period={"memory.available": "30s"})
    state = EvictionState()
    assert due_in_ns(state, 0) is None
    for second in (100, 110, 130):
        seen = Observation(
            usage=a_reading(memory="900Mi/16Gi", at_s=second), claims=(), filesystems=Filesystems()
        )
        state = look(soft, state, seen, second).state
        left = due_in_ns(state, second * SECOND_NS)
        assert left == {100: 30 * SECOND_NS, 110: 20 * SECOND_NS, 130: None}[second]
