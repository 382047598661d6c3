"""How long quotas and limit ranges take: with a pod of four containers, and with 10,000 pods of 300 controllers."""

from typing import Any

from nodewright.core.limits import limited
from nodewright.core.quota import Bill, WithinQuota, billed, charged, paid, pods
from nodewright.model.api_request import creation
from nodewright.model.quota_objects import LimitRange, ResourceQuota
from nodewright.namespace.apply import apply
from nodewright.namespace.mend import mending, rooms
from nodewright.namespace.plans import Setting
from nodewright.testing.objects import container, pod, sidecar
from nodewright.values.instant import Instant
from nodewright.world.decode import decode
from nodewright.world.inventory import Inventory, inventory_from
from tools.source import ROOT

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


# 300 Deployments of 3.5 kB each with 10,000 pods together, and a quota that has no room for the last 2,000 of them.
CONTROLLER = (ROOT / "examples/manifests/mesh-checkout.yaml").read_text("utf-8").split("\n---\n")[-1]
TIGHT = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: team, namespace: shop}
spec: {hard: {pods: "8000", requests.cpu: 100k, requests.memory: 1Pi, limits.cpu: 100k, count/replicasets.apps: "900"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: defaults, namespace: shop}
spec: {limits: [{type: Container, default: {memory: 1Gi, cpu: 1}, max: {cpu: "8", memory: 64Gi}}]}
"""


def many() -> bytes:
    """The manifests, as text."""
    replicas = [10_000 // 300 + (number < 10_000 % 300) for number in range(300)]
    controllers = (
        CONTROLLER.replace("name: checkout\n", f"name: checkout-{number}\n", 1).replace(
            "replicas: 3", f"replicas: {count}"
        )
        for number, count in enumerate(replicas)
    )
    return "\n---\n".join((*controllers, TIGHT)).encode()


def bill(inventory: Inventory) -> int:
    """How many pods get in, with room and help worked out too."""
    manifests, setting = [entry.manifest for entry in inventory.entries], Setting()
    applied = apply(manifests, setting)
    assert mending(manifests, applied, setting).raises
    assert len(rooms(manifests, applied, setting)) == 300
    return sum(one.admitted for one in applied.outcomes if str(one.resource) == "pods")


def test_10000_pods_of_300_controllers_from_their_yaml(benchmark: Any) -> None:
    text = many()
    assert benchmark(lambda: bill(inventory_from(text, "many.yaml"))) == 8000


def test_10000_pods_of_300_controllers_once_they_are_read(benchmark: Any) -> None:
    assert benchmark(bill, inventory_from(many(), "many.yaml")) == 8000
