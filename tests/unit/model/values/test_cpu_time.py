import pytest

from nodewright.engine.core.cgroups.cpu_weight import (
    Weight,
    cpu_shares,
    kubelet_weight,
    runtime_weight,
    shares_to_milli_cpu,
    weight_to_shares,
)
from nodewright.model.values.cpu_time import CFS_PERIOD, Shares, cpu_quota, quota_to_milli_cpu
from nodewright.model.values.quantity import INT64_MAX, Microseconds, MilliCPU

# Thousandths of a CPU, shares, the kubelet's weight, the runtime's weight.
WEIGHTS = """
    0          2      1      1
    1          2      1      1
    3          3      1      2
    100      102      4     17
    250      256     10     35
    500      512     20     59
    1000    1024     39    100
    2000    2048     79    174
    64000  65536   2500   3023
    255999 262142  9999  10000
    256000 262144 10000  10000
    999999 262144 10000  10000
"""


@pytest.mark.parametrize("line", WEIGHTS.strip().splitlines())
def test_shares_and_both_weights_of_an_amount_of_cpu(line: str) -> None:
    milli, shares, kubelet, runtime = map(int, line.split())
    assert cpu_shares(MilliCPU(milli)) == shares
    assert kubelet_weight(Shares(shares)) == kubelet
    assert runtime_weight(Shares(shares)) == runtime


def test_0_shares_are_no_runtime_weight_and_few_shares_are_the_minimum() -> None:
    assert [runtime_weight(Shares(shares)) for shares in (0, 1, 2)] == [0, 1, 1]


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [
        (500, 100_000, 50_000),
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (9, 100_000, 1000),
        (11, 100_000, 1100),
        (500, 1000, 1000),
        (333, 50_000, 16_650),
        (-5, 100_000, 1000),
        # 64 bits are all that there are.
        (INT64_MAX, 100_000, 1000),
    ],
)
def test_quotas_are_rounded_down_and_at_least_a_millisecond(milli: int, period: int, quota: int) -> None:
    assert cpu_quota(MilliCPU(milli), Microseconds(period)) == quota


@pytest.mark.parametrize(
    ("quota", "period", "milli"),
    [(50_000, 100_000, 500), (-1, 100_000, 0), (-7, 2000, -3), (175_038, 33_000, 5304), (1, 3, 333)],
)
def test_quotas_convert_back_truncated_toward_zero(quota: int, period: int, milli: int) -> None:
    assert quota_to_milli_cpu(Microseconds(quota), Microseconds(period)) == milli


def test_the_default_period_is_a_tenth_of_a_second() -> None:
    assert CFS_PERIOD == 100_000


@pytest.mark.parametrize(("shares", "milli"), [(0, 0), (1, 0), (2, 2), (3, 3), (256, 250), (1025, 1001)])
def test_shares_convert_back_rounded_up(shares: int, milli: int) -> None:
    assert shares_to_milli_cpu(Shares(shares)) == milli


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (2, 28), (39, 998), (10_000, 262_144)])
def test_weights_convert_back_to_shares(weight: int, shares: int) -> None:
    assert weight_to_shares(Weight(weight)) == shares
