"""A week of one-minute samples of 110 pods under each predictor."""

from random import Random
from typing import Any

import pytest

from nodewright.engine.core.lending.node_loans import NodeSamples
from nodewright.engine.core.lending.predictors import PREDICTORS, UsageSamples
from nodewright.predict.lend.lend_replay import replayed_loans

MINUTES = 7 * 24 * 60


def a_week() -> NodeSamples:
    random = Random(36)
    times_ns = [minute * 60 * 10**9 for minute in range(MINUTES)]
    pods = tuple(
        UsageSamples(
            times_ns=times_ns,
            usage=[random.randrange(100, 700) for _ in times_ns],
            request=1000,
        )
        for _ in range(110)
    )
    return NodeSamples(times_ns=times_ns, pods=pods, capacity=128_000)


@pytest.mark.parametrize("name", [name for name in PREDICTORS if name != "request"])
def test_a_week_of_110_pods(benchmark: Any, name: str) -> None:
    def fresh() -> tuple[tuple[NodeSamples], dict[str, int]]:
        return (a_week(),), {}

    loans = benchmark.pedantic(
        lambda node: replayed_loans(PREDICTORS[name], node, spare=0), setup=fresh, rounds=2
    )
    assert loans.amount_seconds > 0
