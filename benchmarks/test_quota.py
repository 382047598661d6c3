"""How long quotas and limit ranges take with a pod of four containers."""

from typing import Any

from nodewright.core.limits import limited
from nodewright.core.quota import Bill, WithinQuota, billed, charged, paid, pods
from nodewright.model.api_request import creation
from nodewright.model.quota_objects import LimitRange, ResourceQuota
from nodewright.testing.objects import container, pod, sidecar
from nodewright.values.instant import Instant
from nodewright.world.decode import decode

POD = pod(
    container("app", "500m/1Gi", "1/2Gi"),
    container("proxy", "50m/100Mi", "100m/200Mi"),
    init=(sidecar("log", "50m/100Mi", "50m/100Mi"), container("migrate", "1/1.5Gi", "1/1.5Gi")),
)
HARD = dict.fromkeys(("pods", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"), "1000Gi")
QUOTAS = tuple(
    decode(
        {
            "spec": {"hard": HARD, "scopes": scopes},
            "status": {"hard": HARD, "used": dict.fromkeys(HARD, "1")},
        },
        ResourceQuota,
    )
    for scopes in ([], ["BestEffort"])
)
BOUNDS = {"type": "Container", "default": {"ephemeral-storage": "1Gi"}, "max": {"cpu": "4", "memory": "8Gi"}}
RANGE = decode({"spec": {"limits": [BOUNDS]}}, LimitRange)
KIND = pods(Instant(0))


def test_a_pod_charged_to_two_quotas(benchmark: Any) -> None:
    assert isinstance(benchmark(charged, creation(POD), KIND, QUOTAS), WithinQuota)


def test_the_bill_of_a_pod_paid_once_more(benchmark: Any) -> None:
    bill = billed(creation(POD), KIND, QUOTAS)
    assert isinstance(bill, Bill)
    assert isinstance(benchmark(paid, bill, QUOTAS), WithinQuota)


def test_a_pod_held_against_a_limit_range(benchmark: Any) -> None:
    assert benchmark(limited, creation(POD), (RANGE,)).filled[0].given
