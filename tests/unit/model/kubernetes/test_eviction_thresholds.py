import pytest

from nodewright.model.kubernetes.eviction_thresholds import (
    DEFAULT_EVICTION_HARD,
    EvictionFlagError,
    EvictionSettings,
    Signal,
    Threshold,
    ThresholdValue,
    eviction_settings_from_flags,
    parse_flag_pairs,
    parse_thresholds,
)
from nodewright.model.values.duration import Duration
from nodewright.model.values.quantity import Quantity

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
def test_an_invalid_threshold_has_the_kubelets_error(line: str) -> None:
    signal, text, message = line.split(maxsplit=2)
    (fault,) = parse_thresholds(EvictionSettings(hard={signal: text})).faults
    assert (fault.text, fault.path, fault.value) == (message, f"evictionHard[{signal}]", text)


def test_the_defaults_are_valid_thresholds() -> None:
    parsed = parse_thresholds(EvictionSettings(hard=DEFAULT_EVICTION_HARD))
    assert parsed.faults == ()
    assert {
        threshold.signal: threshold.value.text for threshold in parsed.thresholds
    } == DEFAULT_EVICTION_HARD
    assert all(threshold.is_hard for threshold in parsed.thresholds)


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_0_and_100_percent_disable_a_threshold(text: str) -> None:
    settings = EvictionSettings(hard={"memory.available": text}, soft={"memory.available": text})
    assert parse_thresholds(settings).thresholds == ()
    assert parse_thresholds(settings).faults == ()


def test_other_texts_for_zero_do_not_disable_a_threshold() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "-0.0%"})).thresholds
    assert str(threshold.value.fraction) == "0.0"


def test_a_soft_threshold_has_its_grace_period_and_reclaim() -> None:
    parsed = parse_thresholds(
        EvictionSettings(
            hard={},
            soft={"memory.available": "1Gi"},
            soft_grace_period={"memory.available": "1m30s"},
            minimum_reclaim={"memory.available": "0", "pid.available": "5%%"},
        )
    )
    assert parsed.thresholds == (
        Threshold(
            signal=Signal.MEMORY_AVAILABLE,
            value=ThresholdValue(Quantity.parse("1Gi")),
            grace_period=Duration.seconds(90),
            min_reclaim=ThresholdValue(Quantity.parse("0")),
        ),
    )
    assert not parsed.thresholds[0].is_hard


def test_all_faults_are_listed_the_kubelets_first_fault_first() -> None:
    parsed = parse_thresholds(
        EvictionSettings(
            hard={"cpu": "1"},
            soft={"nodefs.available": "5%", "memory.available": "abc", "pid.available": "1"},
            soft_grace_period={"pid.available": "-5s", "imagefs.available": "x"},
            minimum_reclaim={"memory.available": "0%", "nodefs.available": "-1", "x": "1"},
        )
    )
    assert [fault.path for fault in parsed.faults] == [
        "evictionHard[cpu]",
        "evictionSoft[memory.available]",
        "evictionSoftGracePeriod[imagefs.available]",
        "evictionSoftGracePeriod[pid.available]",
        "evictionMinimumReclaim[memory.available]",
        "evictionMinimumReclaim[nodefs.available]",
        "evictionMinimumReclaim[x]",
        "evictionSoftGracePeriod[nodefs.available]",
    ]
    assert [fault.text for fault in parsed.faults][3:] == [
        "invalid eviction grace period specified: -5s, must be a positive value",
        "eviction percentage minimum reclaim memory.available must be positive: 0%",
        "negative eviction minimum reclaim specified for nodefs.available",
        "unsupported eviction signal x",
        "grace period must be specified for the soft eviction threshold nodefs.available",
    ]


def test_memory_thresholds_also_apply_to_all_pods_if_pods_are_enforced() -> None:
    settings = EvictionSettings(
        hard={"memory.available": "5%", "nodefs.available": "5%"},
        soft={"memory.available": "10%"},
        soft_grace_period={"memory.available": "1m"},
    )
    signals = [threshold.signal for threshold in parse_thresholds(settings, for_pods=True).thresholds]
    assert signals.count(Signal.ALLOCATABLE_MEMORY_AVAILABLE) == 1
    assert len(signals) == 4


def test_a_percentage_is_a_truncated_32_bit_float_of_the_capacity() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "10%"})).thresholds
    assert str(threshold.value.of(Quantity.parse("100Gi"))) == "10737418400"
    assert str(ThresholdValue(Quantity.parse("100Mi")).of(Quantity.parse("1Gi"))) == "100Mi"


def test_a_nan_percentage_is_the_least_integer() -> None:
    (threshold,) = parse_thresholds(EvictionSettings(hard={"memory.available": "nan%"})).thresholds
    assert threshold.value.of(Quantity.parse("1Gi")).value() == -(2**63)


def test_a_minimum_reclaim_beyond_64_bits_is_the_least_integer() -> None:
    settings = EvictionSettings(
        hard={"memory.available": "1Gi"}, minimum_reclaim={"memory.available": "1e30%"}
    )
    (threshold,) = parse_thresholds(settings).thresholds
    assert threshold.min_reclaim is not None
    assert threshold.min_reclaim.of(Quantity.parse("1Gi")).value() == -(2**63)


LINES = """
    imagefs.available    hard  0.1
    memory.available     hard  500Mi
    nodefs.available     hard  0.05
    nodefs.inodesFree    hard  0.05
    imagefs.available    2m0s  0.3
    nodefs.available     2m0s  0.1
"""


def test_flags_set_thresholds_and_grace_periods() -> None:
    settings = eviction_settings_from_flags(
        hard="imagefs.available<10%,memory.available<500Mi,nodefs.available<5%,nodefs.inodesFree<5%",
        soft="imagefs.available<30%,nodefs.available<10%",
        soft_grace_period="imagefs.available=2m,nodefs.available=2m",
    )
    parsed = [
        " ".join(
            (
                threshold.signal,
                "hard" if threshold.is_hard else str(threshold.grace_period),
                str(threshold.value.quantity)
                if threshold.value.quantity
                else f"{threshold.value.fraction:.4g}",
            )
        )
        for threshold in parse_thresholds(settings).thresholds
    ]
    assert parsed == [" ".join(line.split()) for line in LINES.strip().splitlines()]


def test_the_flag_replaces_all_defaults() -> None:
    assert eviction_settings_from_flags().hard == DEFAULT_EVICTION_HARD
    assert eviction_settings_from_flags("").hard == {}


def test_blanks_empty_parts_and_repetitions_are_accepted_as_in_the_kubelet() -> None:
    assert parse_flag_pairs(" a < 1 ,,b<2<3,a<4", "<") == {"a": "4", "b": "2<3"}


@pytest.mark.parametrize("separator", ["<", "="])
def test_a_part_that_is_not_a_pair_is_rejected_with_the_kubelets_error(separator: str) -> None:
    with pytest.raises(EvictionFlagError, match=f"^malformed pair, expect string{separator}string$"):
        parse_flag_pairs("memory.available", separator)


def test_flags_set_the_minimum_reclaim() -> None:
    settings = eviction_settings_from_flags("memory.available<1Gi", minimum_reclaim="memory.available=500Mi")
    (threshold,) = parse_thresholds(settings).thresholds
    assert threshold.min_reclaim is not None
    assert str(threshold.min_reclaim.quantity) == "500Mi"
