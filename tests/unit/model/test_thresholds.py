import pytest

from nodewright.model.thresholds import (
    DEFAULT_EVICTION_HARD,
    EvictionSettings,
    Signal,
    Threshold,
    ThresholdValue,
    parse_thresholds,
)
from nodewright.values.duration import Duration
from nodewright.values.quantity import Quantity

WRONG_HARD = """
    mem.available     1Gi    unsupported eviction signal mem.available
    memory.available  0      eviction threshold memory.available must be positive: 0
    memory.available  -1Gi   eviction threshold memory.available must be positive: -1Gi
    memory.available  1GM    unable to parse quantity's suffix
    memory.available  120%   eviction percentage threshold memory.available must be <= 100%: 120%
    memory.available  -5%    eviction percentage threshold memory.available must be >= 0%: -5%
    nodefs.available  %      strconv.ParseFloat: parsing "": invalid syntax
    nodefs.available  x%     strconv.ParseFloat: parsing "x": invalid syntax
"""


@pytest.mark.parametrize("line", WRONG_HARD.strip().splitlines())
def test_a_wrong_threshold_is_told_in_the_kubelets_words(line: str) -> None:
    signal, text, message = line.split(maxsplit=2)
    (fault,) = parse_thresholds(EvictionSettings(hard={signal: text})).faults
    assert (fault.text, fault.path, fault.value) == (message, f"evictionHard[{signal}]", text)


def test_the_defaults_are_thresholds() -> None:
    found = parse_thresholds(EvictionSettings(hard=DEFAULT_EVICTION_HARD))
    assert found.faults == ()
    assert {threshold.signal: threshold.value.text for threshold in found.thresholds} == DEFAULT_EVICTION_HARD
    assert all(threshold.is_hard for threshold in found.thresholds)


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_nothing_and_everything_switch_a_threshold_off(text: str) -> None:
    settings = EvictionSettings(hard={"memory.available": text}, soft={"memory.available": text})
    assert parse_thresholds(settings).thresholds == ()
    assert parse_thresholds(settings).faults == ()


def test_other_ways_to_write_nothing_do_not() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "-0.0%"})).thresholds
    assert str(threshold.value.fraction) == "0.0"


def test_a_soft_threshold_has_its_grace_period_and_reclaim() -> None:
    found = parse_thresholds(
        EvictionSettings(
            hard={},
            soft={"memory.available": "1Gi"},
            soft_grace_period={"memory.available": "1m30s"},
            minimum_reclaim={"memory.available": "0", "pid.available": "5%%"},
        )
    )
    assert found.thresholds == (
        Threshold(
            signal=Signal.MEMORY_AVAILABLE,
            value=ThresholdValue(Quantity.parse("1Gi")),
            grace_period=Duration.seconds(90),
            min_reclaim=ThresholdValue(Quantity.parse("0")),
        ),
    )
    assert not found.thresholds[0].is_hard


def test_all_faults_are_told_the_kubelets_first_one_first() -> None:
    found = parse_thresholds(
        EvictionSettings(
            hard={"cpu": "1"},
            soft={"nodefs.available": "5%", "memory.available": "abc", "pid.available": "1"},
            soft_grace_period={"pid.available": "-5s", "imagefs.available": "x"},
            minimum_reclaim={"memory.available": "0%", "nodefs.available": "-1", "x": "1"},
        )
    )
    assert [fault.path for fault in found.faults] == [
        "evictionHard[cpu]",
        "evictionSoft[memory.available]",
        "evictionSoftGracePeriod[imagefs.available]",
        "evictionSoftGracePeriod[pid.available]",
        "evictionMinimumReclaim[memory.available]",
        "evictionMinimumReclaim[nodefs.available]",
        "evictionMinimumReclaim[x]",
        "evictionSoftGracePeriod[nodefs.available]",
    ]
    assert [fault.text for fault in found.faults][3:] == [
        "invalid eviction grace period specified: -5s, must be a positive value",
        "eviction percentage minimum reclaim memory.available must be positive: 0%",
        "negative eviction minimum reclaim specified for nodefs.available",
        "unsupported eviction signal x",
        "grace period must be specified for the soft eviction threshold nodefs.available",
    ]


def test_memory_thresholds_count_for_all_pods_together_where_pods_are_enforced() -> None:
    settings = EvictionSettings(
        hard={"memory.available": "5%", "nodefs.available": "5%"},
        soft={"memory.available": "10%"},
        soft_grace_period={"memory.available": "1m"},
    )
    signals = [threshold.signal for threshold in parse_thresholds(settings, for_pods=True).thresholds]
    assert signals.count(Signal.ALLOCATABLE_MEMORY_AVAILABLE) == 1
    assert len(signals) == 4


def test_a_percentage_is_a_32_bit_float_of_the_capacity_cut_off() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "10%"})).thresholds
    assert str(threshold.value.of(Quantity.parse("100Gi"))) == "10737418400"
    assert str(ThresholdValue(Quantity.parse("100Mi")).of(Quantity.parse("1Gi"))) == "100Mi"


def test_a_percentage_that_is_no_number_comes_to_the_least_integer() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "nan%"})).thresholds
    assert threshold.value.of(Quantity.parse("1Gi")).value() == -(2**63)


def test_a_minimum_reclaim_beyond_64_bits_comes_to_the_least_integer() -> None:
    settings = EvictionSettings(
        hard={"memory.available": "1Gi"}, minimum_reclaim={"memory.available": "1e30%"}
    )
    (threshold,) = parse_thresholds(settings).thresholds
    assert threshold.min_reclaim is not None
    assert threshold.min_reclaim.of(Quantity.parse("1Gi")).value() == -(2**63)
