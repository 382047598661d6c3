"""How fast amounts are read and added: every manifest and every sum of requests does both."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from nodewright.model.values.quantity import Quantity

TEXTS = ("250m", "1.5Gi", "100M", "2", "0.1", "1e3", "500Mi", "64Ki")


@pytest.mark.benchmark(group="quantity")
def test_read_eight_amounts(benchmark: BenchmarkFixture) -> None:
    assert len(benchmark(lambda: [Quantity.parse(text) for text in TEXTS])) == 8


@pytest.mark.benchmark(group="quantity")
def test_add_eight_amounts(benchmark: BenchmarkFixture) -> None:
    amounts = [Quantity.parse(text) for text in TEXTS]
    assert benchmark(lambda: sum(amounts, Quantity.parse("0"))) > amounts[0]
