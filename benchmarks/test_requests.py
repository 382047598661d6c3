"""How long one pod's arithmetic takes."""

from typing import Any

from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import container, pod, sidecar

POD = pod(
    container("app", "500m/1Gi", "1/2Gi"),
    container("proxy", "50m/100Mi", "100m/200Mi"),
    init=(sidecar("log", "50m/100Mi"), container("migrate", limits="1/1.5Gi")),
)


def test_scheduler_requests_of_four_containers(benchmark: Any) -> None:
    assert benchmark(scheduler_requests, POD)["cpu"] == 600


def test_defaults_of_four_containers(benchmark: Any) -> None:
    assert benchmark(with_defaults, POD) != POD


def test_a_sum_of_amounts(benchmark: Any) -> None:
    amount = Quantity.parse("100Mi")
    assert benchmark(amount.__add__, amount) == Quantity.parse("200Mi")
