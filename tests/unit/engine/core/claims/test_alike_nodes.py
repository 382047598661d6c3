"""Nodes that are alike get the answers of the nodes themselves."""

import random

import pytest
from tests.support.claims import DRIVER, a_claim, a_class, a_request, a_slice, has, holding, selectors

from nodewright.engine.core.claims.claim_explanation import (
    KnownAnswers,
    explain_claims,
    refusal_of_claims,
)
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.model.kubernetes.claims import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceConstraint,
    DeviceTaint,
    ResourceClaim,
    ResourceSlice,
)
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.quantity import Quantity

NAMES = [f"n{at}" for at in range(30)]


def a_device(name: str, at: str, chosen: random.Random) -> Device:
    return Device(
        name=name,
        attributes={
            "uuid": DeviceAttribute(string_value=f"{at}-{name}"),
            "kind": DeviceAttribute(int_value=chosen.choice([1, 1, 2])),
            "root": DeviceAttribute(int_value=chosen.choice([1, 2])),
        },
        capacity={"memory": DeviceCapacity(Quantity.parse(chosen.choice(["40Gi", "80Gi"])))},
        taints=(DeviceTaint("broken", "", "NoSchedule"),) if chosen.random() < 0.1 else (),
    )


def a_cluster(seed: int) -> ClaimCluster:
    """Nodes with one or two devices of few kinds, some of them held."""
    chosen = random.Random(seed)
    slices: list[ResourceSlice] = []
    held: list[ResourceClaim] = []
    for name in NAMES:
        devices = [a_device(f"gpu-{at}", name, chosen) for at in range(chosen.choice([0, 1, 2, 2]))]
        count = chosen.choice([1, 1, 1, 2])
        slices.append(a_slice(devices, f"s-{name}", f"p-{name}", count, node_name=name))
        if devices and chosen.random() < 0.5:
            held.append(holding("gpu-0", name=f"of-{name}", pool=f"p-{name}"))
    return ClaimCluster(slices=tuple(slices), classes=(a_class("gpu", "true"),), claims=tuple(held))


CLAIMS = {
    "count": a_claim(a_request("r", 2)),
    "selector": a_claim(a_request("r", selectors=selectors(has("kind", 2)))),
    "any attribute": a_claim(
        a_request("r", selectors=selectors(f'device.attributes["{DRIVER}"].exists(k, k == "x")'))
    ),
    "constraint": a_claim(
        a_request("r", 2), constraints=[DeviceConstraint(match_attribute=f"{DRIVER}/root")]
    ),
    "missing name": a_claim(a_request("r", selectors=selectors(has("knid", 2)))),
    "no class": a_claim(a_request("r", device_class="tpu")),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_answer_for_alike_nodes_is_that_for_each(name: str) -> None:
    for seed in range(2):
        known: KnownAnswers = {}
        cluster = a_cluster(seed)
        for node in (APINode(metadata=ObjectMeta(name=each)) for each in NAMES):
            question = Pod(), cluster, node, DEFAULT_GATES, (CLAIMS[name],)
            answer, alone = refusal_of_claims(*question, known), explain_claims(*question)
            assert answer.status.code is alone.status.code
            if not alone.status.allocations:
                assert answer.summary == alone.summary.removesuffix(" Not all changes were tried.")
                assert answer.kinds == alone.kinds
        assert name in ("any attribute", "missing name") or len(known) < len(NAMES)
