"""Devices for claims: many devices, and searches without a solution that Kubernetes' own allocator cannot end."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.support.claims import DRIVER, NODE, a_claim, a_class, a_request, a_slice, holding

from nodewright.engine.core.claims.allocation import allocate
from nodewright.engine.core.claims.allocation_values import Allocated, AllocationInput, NotAllocatable
from nodewright.engine.core.claims.claim_explanation import KnownAnswers, refusal_of_claims
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling, StatusCode
from nodewright.model.kubernetes.claims import Device, DeviceAttribute, DeviceConstraint, ResourceClaim
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.testing.conformance.dra_allocate import allocation_input
from nodewright.testing.conformance.vectors import RECORDED


def asked(devices: int, slices: int, *claims: ResourceClaim, group: int = 4) -> AllocationInput:
    """A pool of devices in slices, and so many devices in a group."""
    per_slice = devices // slices
    pieces = [
        a_slice(
            [
                Device(
                    name=f"gpu-{at}",
                    attributes={
                        "uuid": DeviceAttribute(string_value=f"GPU-{at}"),
                        "root": DeviceAttribute(int_value=at // group),
                    },
                )
                for at in range(number * per_slice, (number + 1) * per_slice)
            ],
            name=f"slice-{number:03}",
            count=slices,
        )
        for number in range(slices)
    ]
    return AllocationInput(
        node=NODE, claims=claims, slices=tuple(pieces), classes={"gpu": a_class("gpu", "true")}
    )


ON_ONE_ROOT = [DeviceConstraint(match_attribute=f"{DRIVER}/root")]


VECTORS = Path("tests/conformance/claims/vectors/dra-allocate.jsonl.gz")


def test_the_claims_of_the_recorded_pods(benchmark: BenchmarkFixture) -> None:
    """Notes the mean over the pods of the shortest round; Kubernetes' own median over them is 0.4 ms."""
    questions = [json.loads(line)["input"] for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]
    inputs = [allocation_input(question, RECORDED) for question in questions]

    def allocate_all() -> None:
        for each in inputs:
            allocate(each)

    benchmark(allocate_all)
    stats: Any = benchmark.stats
    benchmark.extra_info["mean_s"] = stats.stats.min / len(inputs)


@pytest.mark.parametrize("count", [1, 32])
def test_a_claim_among_1000_devices_of_100_slices(benchmark: BenchmarkFixture, count: int) -> None:
    answer = benchmark(allocate, asked(1000, 100, a_claim(a_request("r", count))))
    assert isinstance(answer.outcome, Allocated)


def test_5_devices_on_one_root_of_4_among_1000(benchmark: BenchmarkFixture) -> None:
    claim = a_claim(a_request("r", 5), constraints=ON_ONE_ROOT)
    answer = benchmark(allocate, asked(1000, 100, claim))
    assert isinstance(answer.outcome, NotAllocatable)


def test_288_devices_of_256(benchmark: BenchmarkFixture) -> None:
    """The depth-first search alone would try more orders than there are atoms."""
    claims = [a_claim(a_request("r0", 16), a_request("r1", 16), name=f"c{at}") for at in range(9)]
    answer = benchmark(allocate, asked(256, 8, *claims))
    assert isinstance(answer.outcome, NotAllocatable)


def test_the_claims_of_a_pod_on_5000_nodes_of_8_devices(benchmark: BenchmarkFixture) -> None:
    """Each node looks at its own slices only."""
    nodes = [APINode(metadata=ObjectMeta(name=f"n{at}")) for at in range(5000)]
    slices = [
        a_slice(
            [Device(name=f"gpu-{at}") for at in range(8)],
            name=f"s-{node.metadata.name}",
            pool=node.metadata.name,
            node_name=node.metadata.name,
        )
        for node in nodes
    ]
    cluster = ClaimCluster(slices=tuple(slices), classes=(a_class("gpu", "true"),))
    claims = (a_claim(a_request("r", 2)),)

    def answers() -> set[StatusCode]:
        return {ClaimScheduling(Pod(), cluster, claims=claims).status(node).code for node in nodes}

    assert benchmark(answers) == {StatusCode.SUCCESS}


def test_why_the_claims_of_a_pod_are_refused_on_5000_nodes_of_8_devices(benchmark: BenchmarkFixture) -> None:
    """Nodes that are alike but for names get one answer."""
    nodes = [APINode(metadata=ObjectMeta(name=f"n{at}")) for at in range(5000)]
    slices = [
        a_slice(
            [
                Device(name=f"gpu-{at}", attributes={"uuid": DeviceAttribute(string_value=f"{name}-{at}")})
                for at in range(8)
            ],
            name=f"s-{name}",
            pool=name,
            node_name=name,
        )
        for name in (node.metadata.name for node in nodes)
    ]
    held = [
        holding("gpu-0", "gpu-1", name=f"of-{node.metadata.name}", pool=node.metadata.name) for node in nodes
    ]
    cluster = ClaimCluster(slices=tuple(slices), classes=(a_class("gpu", "true"),), claims=tuple(held))
    claims = (a_claim(a_request("r", 8)),)

    def answers() -> int:
        known: KnownAnswers = {}
        for node in nodes:
            refusal_of_claims(Pod(), cluster, node, DEFAULT_GATES, claims, known)
        return len(known)

    assert benchmark(answers) == 1
