"""Explanations of claims: there is one for each answer, and what it says is true of the allocator."""

from pathlib import Path
from typing import Any, TypeVar

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.laws.test_claims import CLASSES, any_claims, any_devices, held_devices, slices_of
from tests.support.claims import NODE, holding

from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.quota.object_usage import claim_with_defaults
from nodewright.engine.core.claims.claim_changes import changed_inputs
from nodewright.engine.core.claims.claim_explanation import ClaimExplanation, explain_claims
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling, StatusCode
from nodewright.model.kubernetes.claims import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.testing.conformance.vectors import RECORDED, Vector, question_gates, vectors_of_release

T = TypeVar("T", ResourceClaim, ResourceSlice, DeviceClass, DeviceTaintRule)
POD = Pod(metadata=ObjectMeta(name="pod", namespace="ml", uid="u"))
VECTORS = Path(__file__).parents[1] / "conformance" / "claims" / "vectors" / "dra-why.jsonl.gz"


def explained_truly(
    cluster: ClaimCluster, node: APINode, gates: FeatureGates, claims: tuple[ResourceClaim, ...]
) -> ClaimExplanation:
    """The explanation, after its laws were checked."""
    explanation = explain_claims(POD, cluster, node, gates, claims)
    assert explanation.status == ClaimScheduling(POD, cluster, gates, claims).status(node)
    assert explanation.summary.endswith(".")
    assert "None" not in explanation.summary
    for change in explanation.changes:
        changed = changed_inputs(change, POD, cluster, gates, claims)
        status = ClaimScheduling(*changed).status(node)
        assert status.code is StatusCode.SUCCESS, change.text
    if explanation.status.code is StatusCode.SUCCESS:
        assert not explanation.changes
    seen = {
        f"{piece.spec.driver}/{piece.spec.pool.name}/{device.name}"
        for piece in cluster.slices
        for device in piece.spec.devices
    }
    for request in explanation.requests:
        named = {*request.would_do, *(device for group in request.why_not for device in group.devices)}
        assert named <= seen
        refused = sum(group.count for group in request.why_not)
        assert len(request.would_do) + refused <= len(seen)
    return explanation


@given(st.lists(any_devices, min_size=3, max_size=8), any_claims(), held_devices)
def test_each_change_gives_the_claims_their_devices(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    held_claims = tuple(holding(device, name=f"held-{device}") for device in sorted(held))
    cluster = ClaimCluster(slices=tuple(slices_of(drawn)), classes=CLASSES, claims=held_claims)
    explained_truly(cluster, NODE, DEFAULT_GATES, tuple(claims))


@given(st.lists(any_devices, min_size=3, max_size=8), any_claims(), held_devices)
def test_a_device_that_would_do_is_given_to_the_request_alone(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    cluster = ClaimCluster(slices=tuple(slices_of(drawn)), classes=CLASSES, claims=(holding(*held),))
    explanation = explain_claims(POD, cluster, NODE, DEFAULT_GATES, tuple(claims))
    for claim in claims:
        for request in claim.spec.devices.requests:
            if request.exactly is None or request.exactly.allocation_mode == "All":
                continue
            one = replace(request, exactly=replace(request.exactly, count=1))
            alone = replace(
                claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=(one,)))
            )
            would_do = next(
                each.would_do
                for each in explanation.requests
                if (each.claim, each.request) == (claim.name, request.name)
            )
            status = ClaimScheduling(POD, cluster, DEFAULT_GATES, (alone,)).status(NODE)
            if status.code is StatusCode.SUCCESS:
                (result,) = status.allocations[claim.metadata.name].devices.results
                name = f"{result.driver}/{result.pool}/{result.device}"
                assert name in would_do
                # What a refused device consumes of counters stays consumed in Kubernetes' search: others are then short.
                consumes = any(
                    each.consumes_counters for item in cluster.slices for each in item.spec.devices
                )
                assert name == would_do[0] or consumes


def decoded(question: dict[str, Any], name: str, kind: type[T]) -> tuple[T, ...]:
    return tuple(decode_claim_object(each, kind) for each in question.get(name) or ())


def test_recorded_searches_without_a_solution_have_an_explanation() -> None:
    counts = {"refused": 0, "with changes": 0}
    for vector in vectors_of_release([str(VECTORS)], RECORDED.name):
        assert isinstance(vector, Vector)
        question = vector.question
        claims = tuple(map(claim_with_defaults, decoded(question, "claims", ResourceClaim)))
        held = decoded(question, "allocatedClaims", ResourceClaim)
        cluster = ClaimCluster(
            slices=decoded(question, "resourceSlices", ResourceSlice),
            classes=decoded(question, "deviceClasses", DeviceClass),
            claims=(*claims, *held),
            taint_rules=decoded(question, "deviceTaintRules", DeviceTaintRule),
        )
        gates = question_gates(question, RECORDED)
        explanation = explained_truly(cluster, decode(question["node"], APINode), gates, claims)
        counts["refused"] += explanation.status.code is not StatusCode.SUCCESS
        counts["with changes"] += bool(explanation.changes)
    assert counts["refused"] >= 40
    assert counts["with changes"] >= counts["refused"] // 2


def test_the_pods_claims_of_a_template_need_no_name() -> None:
    meta = ObjectMeta(generate_name="pod-gpu-", namespace="ml")
    claims = (ResourceClaim(metadata=meta),)
    status = ClaimScheduling(POD, ClaimCluster(), DEFAULT_GATES, claims).status(NODE)
    assert list(status.allocations) == ["pod-gpu-"]
