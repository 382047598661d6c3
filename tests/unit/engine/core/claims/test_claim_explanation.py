"""Explanations that are bounded, and what they are built on; tests/golden/claims.txt has the texts."""

import pytest
from msgspec.structs import replace
from tests.support.claims import (
    DRIVER,
    NODE,
    a_claim,
    a_class,
    a_request,
    a_slice,
    allocated,
    has,
    holding,
    selectors,
)

from nodewright.engine.core.claims import claim_changes, device_search
from nodewright.engine.core.claims.allocation_values import Allocated, NotAllocatable
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.engine.core.claims.claim_changes import changed_inputs
from nodewright.engine.core.claims.claim_explanation import ClaimExplanation, explain_claims
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.claims.device_reasons import conjuncts, listed
from nodewright.model.kubernetes.claims import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceConstraint,
    DeviceCounterConsumption,
    ResourceClaim,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.quantity import Quantity

POD = Pod(metadata=ObjectMeta(name="pod", namespace="ml", uid="u"))


def devices(count: int, **attributes: int) -> list[Device]:
    values = {name: DeviceAttribute(int_value=value) for name, value in attributes.items()}
    return [Device(name=f"gpu-{at}", attributes=values) for at in range(count)]


def explained(cluster: ClaimCluster, *claims: ResourceClaim) -> ClaimExplanation:
    return explain_claims(POD, cluster, NODE, DEFAULT_GATES, claims)


def test_a_search_that_is_given_up_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_search, "MAX_EFFORT", 10)
    slices = (a_slice(devices(3)),)
    explanation = explained(
        ClaimCluster(slices=slices, classes=(a_class(),)),
        a_claim(a_request("a", 2), a_request("b", 2)),
    )
    assert explanation.summary.startswith("The search was given up after ")
    assert not explanation.is_complete


def test_a_budget_that_is_spent_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_changes, "MAX_TRIES", 1)
    cluster = ClaimCluster(
        slices=(a_slice(devices(4)),),
        classes=(a_class(),),
        claims=(holding("gpu-0"), holding("gpu-1", name="b")),
    )
    explanation = explained(cluster, a_claim(a_request("a", 4)))
    assert [change.kind for change in explanation.changes] == ["count"]
    assert explanation.summary.endswith("Not all changes were tried.")
    assert not explanation.is_complete


def test_the_fewest_claims_are_released() -> None:
    held = tuple(holding(f"gpu-{at}", name=f"held-{at}") for at in range(30))
    cluster = ClaimCluster(slices=(a_slice(devices(30)),), classes=(a_class(),), claims=held)
    (change,) = explained(cluster, a_claim(a_request("a", 5))).changes
    assert (change.kind, len(change.released)) == ("release", 5)
    _, changed, _, _ = changed_inputs(change, POD, cluster, DEFAULT_GATES, None)
    assert sum(claim.status.allocation is None for claim in changed.claims) == 5


def test_of_claims_with_as_many_devices_the_one_that_the_sentence_names_first_is_released() -> None:
    held = tuple(holding(f"gpu-{at}", name=name) for at, name in enumerate(["z", "a", "b"]))
    cluster = ClaimCluster(slices=(a_slice(devices(3)),), classes=(a_class(),), claims=held)
    explanation = explained(cluster, a_claim(a_request("a")))
    assert explanation.summary.endswith("held by claim ml/z, claim ml/a and claim ml/b.")
    assert [change.text for change in explanation.changes] == ["Release claim ml/z."]


def test_two_requests_that_lack_devices_take_a_pair_of_changes() -> None:
    cluster = ClaimCluster(slices=(a_slice(devices(4, numa=0)),), classes=(a_class(),))
    wanted = selectors(has("numa", 1))
    claim = a_claim(a_request("a", selectors=wanted), a_request("b", selectors=wanted))
    (change,) = explained(cluster, claim).changes
    assert change.kind == "selector value"
    assert change.text.count("instead of") == 2


@pytest.mark.parametrize("field", ["match_attribute", "distinct_attribute"])
def test_a_misspelt_attribute_of_a_constraint_is_named_with_the_one_that_is_meant(field: str) -> None:
    cluster = ClaimCluster(slices=(a_slice(devices(4, root=0)),), classes=(a_class(),))
    constraint = replace(DeviceConstraint(), **{field: "gpu.example.com/roott"})
    explanation = explained(cluster, a_claim(a_request("a", 1), constraints=[constraint]))
    assert (
        "without attribute `roott`, which a constraint compares (did you mean `root`?)" in explanation.summary
    )
    first = explanation.changes[0]
    rule = f"{field.partition('_')[0]}Attribute"
    assert first.text == f"Write `root` instead of `roott` in the constraint `{rule}` of claim ml/claim."
    (changed,) = first.specs["ml/claim"].devices.constraints
    assert "gpu.example.com/root" in (changed.match_attribute, changed.distinct_attribute)


def test_a_request_that_is_left_out_takes_its_constraints_along() -> None:
    constraints = [
        DeviceConstraint(requests=("a",), match_attribute="x/y"),
        DeviceConstraint(requests=("a", "b"), match_attribute="gpu.example.com/numa"),
    ]
    cluster = ClaimCluster(slices=(a_slice(devices(1, numa=0)),), classes=(a_class(),))
    claim = a_claim(a_request("a"), a_request("b"), constraints=constraints)
    changes = {change.kind: change for change in explained(cluster, claim).changes}
    spec = changes["request"].specs["ml/claim"]
    assert [request.name for request in spec.devices.requests] == ["b"]
    assert [constraint.requests for constraint in spec.devices.constraints] == [("b",)]


def test_counters_without_their_defects_are_given_back() -> None:
    used = DeviceCounterConsumption("card", {"part": Counter(Quantity.of(4))})
    first, second = (replace(each, consumes_counters=(used,)) for each in devices(2))
    second = replace(second, attributes={"gpu.example.com/numa": DeviceAttribute(int_value=0)})
    card = a_slice(
        (), "card", count=2, shared_counters=(CounterSet("card", {"part": Counter(Quantity.of(4))}),)
    )
    claim = a_claim(a_request("r"), constraints=[DeviceConstraint(match_attribute="gpu.example.com/numa")])
    slices = [card, a_slice([first, second], count=2)]
    assert allocated(slices, [claim]) == NotAllocatable()
    assert isinstance(allocated(slices, [claim], rules=AllocatorRules(counters_leak=False)), Allocated)


def test_names_are_listed_in_a_sentence() -> None:
    assert [listed("a" * number) for number in range(4)] == ["", "a", "a and a", "a, a and a"]


@pytest.mark.parametrize("expression", ["a || b && c", "a ? b : c", "[a && b]", "'a && b'"])
def test_what_is_no_conjunction_is_one_part(expression: str) -> None:
    assert conjuncts(expression) == (expression,)


def test_a_device_that_several_attempts_refuse_is_counted_once() -> None:
    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    own = [
        replace(devices(1, numa=numa, root=root)[0], name=f"gpu-{at}")
        for at, (numa, root) in enumerate(places)
    ]
    same = tuple(DeviceConstraint(match_attribute=f"{DRIVER}/{name}") for name in ("numa", "root"))
    claim = a_claim(a_request("a"), a_request("b"), constraints=same)
    explanation = explained(ClaimCluster(slices=(a_slice(own),), classes=(a_class(),)), claim)
    assert explanation.summary == (
        "Each request of the pod has enough devices by itself, but not together with the others: request `b` of claim "
        "ml/claim finds none of the devices that it needs on node node-a: 2 are excluded by the constraint on "
        "`numa` (1 beside 0); 1 is excluded by the constraint on `root` (1 beside 0); 1 is taken for claim ml/claim."
    )
