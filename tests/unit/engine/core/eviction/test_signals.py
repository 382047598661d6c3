import pytest

from nodewright.engine.core.eviction.eviction_thresholds import (
    signal_observations,
    threshold_amount,
    thresholds_met,
)
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, Signal, parse_thresholds
from nodewright.model.kubernetes.stats_summary import MemoryStats, NodeStats, RuntimeStats, StatsSummary
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity
from nodewright.testing.usage import a_reading

READINGS = """
    memory.available             memory=1Gi/16Gi                    1Gi      16Gi
    allocatableMemory.available  allocatable=1Gi/4Gi                1Gi      4Gi
    nodefs.available             nodefs=1Gi/100Gi                   1Gi      100Gi
    nodefs.inodesFree            nodefs_inodes=10/1000              10       1k
    imagefs.available            imagefs=1Gi/100Gi                  1Gi      100Gi
    imagefs.inodesFree           imagefs_inodes=10/1000             10       1k
    containerfs.available        containerfs=1Gi/100Gi              1Gi      100Gi
    containerfs.inodesFree       containerfs_inodes=10/1000         10       1k
    pid.available                pids=2000/32768                    2k       32768
    pid.available                pids=-5/32768                      -5       32768
    nodefs.available             nodefs=0/0                         0        0
"""


@pytest.mark.parametrize("line", READINGS.strip().splitlines())
def test_each_signal_has_its_place_in_a_reading(line: str) -> None:
    signal, setting, available, capacity = line.split()
    name, _, value = setting.partition("=")
    signal_observation = signal_observations(a_reading(at_s=5, **{name: value}))[Signal(signal)]
    assert (str(signal_observation.available), str(signal_observation.capacity)) == (available, capacity)
    assert signal_observation.measured_at == Instant(5 * 10**9)
    missing = signal_observations(a_reading(at_s=None, **{name: ""}))
    assert Signal(signal) not in missing


def test_what_nothing_is_said_of_is_not_observed() -> None:
    assert signal_observations(StatsSummary()) == {}
    assert signal_observations(StatsSummary(node=NodeStats(runtime=RuntimeStats()))) == {}
    half = StatsSummary(node=NodeStats(memory=MemoryStats(available_bytes=5)))
    assert signal_observations(half) == {}


def test_the_zero_time_is_no_time() -> None:
    zero = Instant.parse("0001-01-01T00:00:00Z")
    memory = MemoryStats(time=zero, available_bytes=1, working_set_bytes=1)
    assert (
        signal_observations(StatsSummary(node=NodeStats(memory=memory)))[Signal.MEMORY_AVAILABLE].measured_at
        is None
    )


def test_numbers_beyond_63_bits_wrap_as_the_kubelets_do() -> None:
    memory = MemoryStats(available_bytes=2**64 - 1, working_set_bytes=1)
    signal_observation = signal_observations(StatsSummary(node=NodeStats(memory=memory)))[
        Signal.MEMORY_AVAILABLE
    ]
    assert (str(signal_observation.available), str(signal_observation.capacity)) == ("-1", "0")


MET = """
    10Gi    9Gi/100Gi                   met
    10Gi    10Gi/100Gi                  not
    10%     10737418399/107374182400    met
    10%     10737418400/107374182400    not
    10%     0/0                         not
    100Mi   0/0                         met
"""


@pytest.mark.parametrize("line", MET.strip().splitlines())
def test_a_threshold_is_met_below_its_amount_and_percentages_have_32_bits(line: str) -> None:
    value, reading, outcome = line.split()
    thresholds = parse_thresholds(EvictionSettings(hard={"nodefs.available": value})).thresholds
    met = thresholds_met(thresholds, range(1), signal_observations(a_reading(nodefs=reading)))
    assert (met == [0]) == (outcome == "met")


def test_minimum_reclaim_is_added_to_what_has_to_be_reached() -> None:
    settings = EvictionSettings(
        hard={"nodefs.available": "10Gi", "memory.available": "1Gi"},
        minimum_reclaim={"nodefs.available": "10%"},
    )
    memory, nodefs = parse_thresholds(settings).thresholds
    capacity = Quantity.parse("100Gi")
    assert threshold_amount(nodefs, capacity) == Quantity.parse("10Gi")
    assert threshold_amount(nodefs, capacity, reclaimed=True) == Quantity.parse("10Gi") + Quantity.parse(
        "10737418400"
    )
    assert threshold_amount(memory, capacity, reclaimed=True) == Quantity.parse("1Gi")
