"""Rare answers about claims: what the scheduler, its constraints and counters say, and the words for it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.support.claims import DRIVER, NODE, a_claim, a_class, a_request, a_slice, allocated, has, holding

from nodewright.engine.core.claims.allocation_values import (
    AllocationError,
    AllocationFailed,
    AllocationInput,
    AttributeConflict,
    CounterShort,
    DevicesInUse,
    Fact,
    Holders,
    Outcome,
    devices_in_use,
)
from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES, AllocatorRules
from nodewright.engine.core.claims.claim_explanation import explain_claims, refusal_of_claims
from nodewright.engine.core.claims.claim_scheduling import (
    ClaimCluster,
    ClaimScheduling,
    PluginStatus,
    StatusCode,
)
from nodewright.engine.core.claims.device_constraints import AttributeConstraint
from nodewright.engine.core.claims.device_counters import CounterLedger
from nodewright.engine.core.claims.device_pools import Pool
from nodewright.engine.core.claims.device_reasons import DeviceReasons, value_text
from nodewright.engine.core.claims.device_selectors import selector_device
from nodewright.engine.core.claims.device_verdicts import DeviceVerdict
from nodewright.engine.core.claims.searched_requests import Candidate
from nodewright.model.kubernetes.claims import (
    AllocatedDeviceStatus,
    AllocationResult,
    CapacityRequirements,
    Counter,
    CounterSet,
    Device,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceSlice,
)
from nodewright.model.kubernetes.objects import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodCondition,
)
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.quantity import Quantity

POD = Pod(metadata=ObjectMeta(name="pod", namespace="ml", uid="u"))
ZONE = NodeSelectorRequirement(key="zone", operator="In", values=("z1",))


def a_device(name: str, **attributes: int) -> Device:
    values = {key: DeviceAttribute(int_value=value) for key, value in attributes.items()}
    return Device(name=name, attributes=values)


def status(claim: ResourceClaim, *devices: Device) -> PluginStatus:
    cluster = ClaimCluster(slices=(a_slice(devices),), classes=(a_class(),))
    return ClaimScheduling(POD, cluster, claims=(claim,)).status(NODE)


def summary(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    held: Sequence[ResourceClaim] = (),
    expressions: Sequence[str] = (),
) -> str:
    cluster = ClaimCluster(slices=tuple(slices), classes=(a_class("gpu", *expressions),), claims=tuple(held))
    return explain_claims(POD, cluster, NODE, DEFAULT_GATES, claims).summary


# ------------------------------------------------------------ the scheduler's answers


def test_devices_for_the_nodes_of_several_terms_cannot_be_allocated() -> None:
    selector = NodeSelector((NodeSelectorTerm(match_expressions=(ZONE,)),) * 2)
    piece = a_slice([a_device("x")], node_name=None, node_selector=selector)
    assert allocated([piece], [a_claim(a_request("r"))]) == AllocationFailed(
        "create NodeSelector for claim claim: unsupported ResourceSlice.NodeSelector with 2 terms",
        only_this_node=False,
    )


def test_an_allocation_whose_nodes_do_not_parse_is_an_error_for_all_nodes() -> None:
    near = NodeSelector((NodeSelectorTerm(match_expressions=(replace(ZONE, operator="Near"),)),))
    allocation = AllocationResult(node_selector=near)
    answer = status(replace(a_claim(a_request("r")), status=ResourceClaimStatus(allocation)))
    assert (answer.code, answer.for_all_nodes) == (StatusCode.ERROR, True)
    assert answer.message == (
        'nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near": supported values: '
        '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (
            DeviceRequest(name="r"),
            StatusCode.UNSCHEDULABLE,
            "resource claim ml/claim, request r: unknown request type",
        ),
        (a_request("r", device_class=""), StatusCode.ERROR, "request r: unsupported request type"),
        (
            DeviceRequest(name="r", first_available=(DeviceSubRequest(name="s"),)),
            StatusCode.ERROR,
            "request r/s: unsupported request type",
        ),
    ],
)
def test_a_request_of_no_known_type_keeps_the_pod_from_all_nodes(
    request_: DeviceRequest, code: StatusCode, message: str
) -> None:
    assert status(a_claim(request_)) == PluginStatus(code=code, message=message, for_all_nodes=True)


@pytest.mark.parametrize(
    ("first", "code"), [("True", StatusCode.UNSCHEDULABLE), ("False", StatusCode.SUCCESS)]
)
def test_a_failure_to_bind_counts_once_all_devices_before_it_are_ready(first: str, code: StatusCode) -> None:
    results = tuple(
        DeviceRequestAllocationResult(
            request="r", driver=DRIVER, pool="p", device=name, binding_conditions=("ready",),
            binding_failure_conditions=("failed",),
        )
        for name in "xy"
    )  # fmt: skip
    reported = tuple(
        AllocatedDeviceStatus(
            driver=DRIVER, pool="p", device=name, conditions=(PodCondition(type=kind, status=is_true),)
        )
        for name, kind, is_true in (("x", "ready", first), ("y", "failed", "True"))
    )
    allocation = AllocationResult(DeviceAllocationResult(results=results))
    claim = replace(a_claim(a_request("r", 2)), status=ResourceClaimStatus(allocation, devices=reported))
    assert status(claim).code is code


# ------------------------------------------------------------ constraints

ATTRIBUTE = f"{DRIVER}/model"
LISTS = replace(DEFAULT_RULES, list_attributes=True)
OF_1_34 = replace(DEFAULT_RULES, is_later=False, is_latest=False)
MATCH, DISTINCT = DeviceConstraint(match_attribute=ATTRIBUTE), DeviceConstraint(distinct_attribute=ATTRIBUTE)
ONE, TWO = DeviceAttribute(int_value=1), DeviceAttribute(int_value=2)
SEVERAL, EMPTY = DeviceAttribute(int_values=(2, 1)), DeviceAttribute()


def outcomes(
    constraint: DeviceConstraint, rules: AllocatorRules, *attributes: DeviceAttribute
) -> list[Outcome | None]:
    """What becomes of devices with these values, each for a request of its own."""
    compared = AttributeConstraint(constraint, rules)
    return [
        compared.add(name, Device(name=name, attributes={"model": each}), (DRIVER, "p", name))
        for name, each in zip("abcd", attributes, strict=False)
    ]


@pytest.mark.parametrize(
    ("constraint", "rules", "attributes", "expected"),
    [
        (MATCH, LISTS, [EMPTY, ONE], [Outcome.MATCH_DIFFERENT, None]),
        (MATCH, DEFAULT_RULES, [EMPTY, ONE], [None, Outcome.MATCH_DIFFERENT]),
        (MATCH, LISTS, [SEVERAL, ONE, TWO], [None, None, Outcome.MATCH_DIFFERENT]),
        (DISTINCT, DEFAULT_RULES, [ONE, SEVERAL, TWO], [None, Outcome.DISTINCT_DUPLICATE, None]),
        (DISTINCT, LISTS, [ONE, SEVERAL, TWO], [None, Outcome.DISTINCT_DUPLICATE, None]),
        (DISTINCT, DEFAULT_RULES, [ONE, ONE], [None, Outcome.DISTINCT_DUPLICATE]),
        (DISTINCT, OF_1_34, [ONE, ONE], [None, None]),
    ],
)
def test_what_a_constraint_takes(
    constraint: DeviceConstraint,
    rules: AllocatorRules,
    attributes: list[DeviceAttribute],
    expected: list[Outcome | None],
) -> None:
    assert outcomes(constraint, rules, *attributes) == expected


def test_a_conflict_names_the_values_of_lists_in_order() -> None:
    compared = AttributeConstraint(MATCH, LISTS)
    assert compared.add("a", Device(attributes={"model": SEVERAL}), (DRIVER, "p", "a")) is None
    other = Device(attributes={"model": DeviceAttribute(int_value=3)})
    assert compared.conflict(other, (DRIVER, "p", "b")) == AttributeConflict(ATTRIBUTE, "3", ("1, 2",))


# ------------------------------------------------------------ counters


def consuming(name: str, amount: str, counter_set: str = "card") -> Device:
    consumed = DeviceCounterConsumption(counter_set, {"parts": Counter(Quantity.parse(amount))})
    return Device(name=name, consumes_counters=(consumed,))


def a_card(amount: str, *devices: Device, name: str = "s") -> ResourceSlice:
    sets = (CounterSet("card", {"parts": Counter(Quantity.parse(amount))}),)
    return a_slice(devices, name, shared_counters=sets)


def test_fractions_of_counters_are_counted_exactly() -> None:
    half, more = consuming("half", "500m"), consuming("more", "501m")
    card = a_card("1", half, more)
    pool = Pool(driver=DRIVER, name="p", slices=(card,), counter_sets={"card": card.spec.shared_counters[0]})
    ledger = CounterLedger(DevicesInUse(), DEFAULT_RULES)
    assert ledger.consume(pool, card, half)
    assert ledger.shortage(pool, card, half) is None
    assert not ledger.consume(pool, card, more)
    amounts = map(Quantity.parse, ("1", "500m", "501m"))
    assert ledger.shortage(pool, card, more) == CounterShort("card", "parts", *amounts)


def test_without_counters_of_pools_each_slice_has_its_own() -> None:
    rules = replace(DEFAULT_RULES, counters_by_pool=False)
    part, stray = consuming("part", "2"), consuming("stray", "2", counter_set="elsewhere")
    first, second = a_card("3", part, stray, name="first"), a_card("3", part, name="second")
    pool = Pool(driver=DRIVER, name="p", slices=(first, second))
    in_use = devices_in_use([holding("stray")], rules)
    ledger = CounterLedger(in_use, rules)
    # What the device in use consumes of a set that the slice lacks takes nothing of the slice's.
    assert [ledger.consume(pool, piece, part) for piece in (first, first, second)] == [True, False, True]
    held = CounterLedger(devices_in_use([holding("part")], rules), rules)
    assert not held.consume(pool, first, part)


# ------------------------------------------------------------ the words for reasons


def reasons(labels: dict[str, str] | None = None) -> DeviceReasons:
    return DeviceReasons(AllocationInput(node=NODE, claims=()), {}, labels or {})


def candidate(name: str) -> Candidate:
    piece = a_slice([a_device(name)])
    return Candidate(0, Pool(driver=DRIVER, name="p", slices=(piece,)), piece, piece.spec.devices[0])


@pytest.mark.parametrize(
    ("outcome", "facts", "reason"),
    [
        (
            Outcome.IN_USE,
            [Holders(("ml/a",), by_this_search=True), Holders(("ml/b",), by_this_search=True)],
            "taken for the claim A and claim ml/b",
        ),
        (
            Outcome.MATCH_DIFFERENT,
            [AttributeConflict(ATTRIBUTE, "1", ("0",))],
            "excluded by the constraint on `model` (1 beside 0)",
        ),
        (
            Outcome.MATCH_DIFFERENT,
            [AttributeConflict(ATTRIBUTE, "1")],
            "excluded by the constraint on `model` (1)",
        ),
    ],
)
def test_what_else_the_search_has_taken_is_named(outcome: Outcome, facts: list[Fact], reason: str) -> None:
    verdicts = [DeviceVerdict(candidate(f"x{at}"), outcome, fact) for at, fact in enumerate(facts)]
    (group,) = reasons({"ml/a": "the claim A"}).groups(verdicts)
    assert (group.count, group.reason) == (len(facts), reason)
    assert group.devices == tuple(f"{DRIVER}/p/x{at}" for at in range(len(facts)))


def test_an_error_that_is_no_selectors_is_said_as_it_is() -> None:
    text = reasons().error_text(AllocationError("no such thing"), candidate("x"), [])
    assert text == "an error ends the search: no such thing"


def test_a_selector_that_fails_is_not_met() -> None:
    seen = selector_device(DRIVER, a_device("x", model=1))
    expressions = has("model", 1), has("model", 2), has("other", 1), "device."
    assert [reasons().meets(each, seen) for each in expressions] == [True, False, False, False]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, 2, 3), "1, 2 and 3"),
        (True, "true"),
        ((False, "a"), "false and a"),
        (DeviceAttribute(version_value="1.2.3").value, "1.2.3"),
    ],
)
def test_values_are_written_as_manifests_do(value: object, text: str) -> None:
    assert value_text(value) == text


# ------------------------------------------------------------ the sentence


def test_all_devices_that_differ_in_a_matched_attribute_end_scheduling() -> None:
    claim = a_claim(a_request("r", allocation_mode="All"), constraints=[MATCH])
    assert summary([a_slice([a_device("x", model=1), a_device("y", model=2)])], claim) == (
        f"Request `r` of claim ml/claim asks for all devices, and device {DRIVER}/p/y does not meet the constraint on "
        "`model` beside the others; that ends scheduling of the pod on all nodes."
    )


def test_the_only_one_of_all_devices_that_is_held_is_named() -> None:
    claim = a_claim(a_request("r", allocation_mode="All"))
    assert summary([a_slice([a_device("x")])], claim, held=[holding("x")]) == (
        "Request `r` of claim ml/claim needs all devices of class `gpu`, and the only one on node node-a is held by "
        "claim ml/held."
    )


def test_a_node_whose_devices_are_all_of_other_classes_is_reported() -> None:
    text = summary(
        [a_slice([a_device("x", model=1)])],
        a_claim(a_request("r")),
        expressions=[f'device.driver == "{DRIVER}" && {has("model", 2)}'],
    )
    assert text == (
        "Request `r` of claim ml/claim needs 1 device of class `gpu`, and no device on node node-a is one: 1 is not of "
        f"class `gpu`: `{has('model', 2)}` is false (model is 1)."
    )


TWO_DEVICES = [a_device("x", model=1, numa=0), a_device("y", model=2, numa=0)]
NUMA = DeviceConstraint(match_attribute=f"{DRIVER}/numa")
FIRST = DeviceRequest(
    name="r",
    first_available=(
        DeviceSubRequest(name="s", device_class_name="gpu", allocation_mode="ExactCount", count=2),
    ),
)
TOGETHER = "Each request of the pod has enough devices by itself, but not together with the others: "


@pytest.mark.parametrize(
    ("claim", "text"),
    [
        (
            a_claim(
                a_request("a", 2), a_request("b"), constraints=[replace(DISTINCT, requests=("a",)), NUMA]
            ),
            "Requests `a` and `b` of claim ml/claim need 3 devices together, and 2 of 2 on node node-a would do.",
        ),
        (
            a_claim(FIRST, constraints=[MATCH]),
            (
                "Request `r` of claim ml/claim finds only 1 of the devices that it needs on node node-a: 1 is excluded by the "
                "constraint on `model` (2 beside 1)."
            ),
        ),
        (
            a_claim(FIRST, a_request("b")),
            (
                f"{TOGETHER}request `b` of claim ml/claim finds none of the devices that it needs on node node-a: 2 are taken "
                "for claim ml/claim."
            ),
        ),
    ],
)
def test_constraints_that_can_be_met_are_not_to_blame(claim: ResourceClaim, text: str) -> None:
    assert summary([a_slice(TWO_DEVICES)], claim) == text


def test_requests_that_share_a_device_contend_for_its_capacity() -> None:
    memory = {"mem": DeviceCapacity(Quantity.of(3))}
    shared = replace(a_device("x"), allow_multiple_allocations=True, capacity=memory)
    asked = CapacityRequirements({"mem": Quantity.of(2)})
    claim = a_claim(a_request("a", capacity=asked), a_request("b", capacity=asked))
    assert summary([a_slice([shared])], claim) == (
        f"{TOGETHER}request `b` of claim ml/claim finds none of the devices that it needs on node node-a: 1 is short of "
        "capacity `mem` (2 asked, 1 of 3 left)."
    )


def test_without_a_record_of_the_search_no_request_is_blamed() -> None:
    devices = [a_device(f"x{at}", model=at // 2, numa=at % 2) for at in range(4)]
    cluster = ClaimCluster(slices=(a_slice(devices),), classes=(a_class(),))
    claim = a_claim(a_request("r", 2), constraints=[MATCH, NUMA])
    refusal = refusal_of_claims(POD, cluster, NODE, DEFAULT_GATES, (claim,), {})
    assert refusal.status.code is StatusCode.UNSCHEDULABLE
    assert refusal.summary == "The claims cannot be allocated together."
