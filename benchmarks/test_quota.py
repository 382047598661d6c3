"""How long quotas and limit ranges take: with a pod of four containers, and with 10,000 pods of 300 controllers."""

from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.inventory import Inventory, inventory_from_bytes
from nodewright.engine.admission.api_server.apply import apply
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.engine.admission.limit_ranger import limit_ranger_verdict
from nodewright.engine.admission.quota.object_usage import pod_evaluator
from nodewright.engine.admission.quota.quota_admission import (
    QuotaDelta,
    WithinQuota,
    quota_delta,
    quota_verdict,
    with_delta,
)
from nodewright.model.kubernetes.api_request import create_request
from nodewright.model.kubernetes.cluster_objects import LimitRange, ResourceQuota
from nodewright.model.values.instant import Instant
from nodewright.predict.quota.fixes import pod_headroom, smallest_fixes
from nodewright.testing.objects import container, pod, sidecar
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
KIND = pod_evaluator(Instant(0))


def test_a_pod_charged_to_two_quotas(benchmark: Any) -> None:
    assert isinstance(benchmark(quota_verdict, create_request(POD), KIND, QUOTAS), WithinQuota)


def test_the_bill_of_a_pod_paid_once_more(benchmark: Any) -> None:
    bill = quota_delta(create_request(POD), KIND, QUOTAS)
    assert isinstance(bill, QuotaDelta)
    assert isinstance(benchmark(with_delta, bill, QUOTAS), WithinQuota)


def test_a_pod_held_against_a_limit_range(benchmark: Any) -> None:
    assert benchmark(limit_ranger_verdict, create_request(POD), (RANGE,)).defaulted[0].defaults


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
    manifests, setting = [entry.manifest for entry in inventory.objects], ExpansionOptions()
    applied = apply(manifests, setting)
    assert smallest_fixes(manifests, applied, setting).quota_increases
    assert len(pod_headroom(manifests, applied, setting)) == 300
    return sum(outcome.admitted for outcome in applied.outcomes if str(outcome.resource) == "pods")


def test_10000_pods_of_300_controllers_from_their_yaml(benchmark: Any) -> None:
    text = many()
    assert benchmark(lambda: bill(inventory_from_bytes(text, "many.yaml"))) == 8000


def test_10000_pods_of_300_controllers_once_they_are_read(benchmark: Any) -> None:
    assert benchmark(bill, inventory_from_bytes(many(), "many.yaml")) == 8000
