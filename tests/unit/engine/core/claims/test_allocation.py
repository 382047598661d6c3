import pytest
from msgspec.structs import replace
from tests.support.claims import (
    DRIVER,
    a_claim,
    a_class,
    a_request,
    a_slice,
    allocated,
    has,
    holding,
    selectors,
)

from nodewright.engine.core.claims import device_search
from nodewright.engine.core.claims.allocation_values import (
    Allocated,
    AllocationFailed,
    AllocationOutcome,
    AttributeConflict,
    CapacityShort,
    CounterShort,
    Holders,
    NotAllocatable,
    SearchGivenUp,
    SearchRecord,
    SelectorUnmet,
    Tried,
    Untolerated,
)
from nodewright.engine.core.claims.allocator_rules import AllocatorRules
from nodewright.model.kubernetes.claims import (
    CapacityRequestPolicy,
    CapacityRequirements,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
)
from nodewright.model.kubernetes.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from nodewright.model.values.quantity import Quantity

BAD = DeviceTaint(key="bad", effect="NoSchedule")


def a_device(name: str, **attributes: int) -> Device:
    values = {key: DeviceAttribute(int_value=value) for key, value in attributes.items()}
    return Device(name=name, attributes=values)


def a_partition(name: str, parts: int, taint: DeviceTaint | None = None) -> Device:
    consumed = DeviceCounterConsumption("card", {"parts": Counter(Quantity.of(parts))})
    return replace(a_device(name), consumes_counters=(consumed,), taints=(taint,) if taint else ())


CARD = a_slice((), "card", count=2, shared_counters=(CounterSet("card", {"parts": Counter(Quantity.of(4))}),))


def devices(outcome: AllocationOutcome) -> list[str]:
    assert isinstance(outcome, Allocated), outcome
    return [result.device for each in outcome.allocations for result in each.devices.results]


def facts(record: SearchRecord) -> dict[str, object]:
    return {each.device.rpartition("/")[2]: each.because for each in record if isinstance(each, Tried)}


def test_the_first_devices_by_name_of_pool_and_slice_are_taken() -> None:
    slices = [
        a_slice([a_device("b0")], "b", pool="second"),
        a_slice([a_device("z0")], "z", pool="first", count=2),
        a_slice([a_device("y0")], "y", pool="first", count=2),
    ]
    assert devices(allocated(slices, [a_claim(a_request("r", 3))])) == ["y0", "z0", "b0"]


def test_an_error_of_a_selector_ends_the_search_only_if_the_device_is_reached() -> None:
    slices = [a_slice([a_device("x", model=1), a_device("y")])]
    claim = a_claim(a_request("r", selectors=selectors(has("model", 1))))
    assert devices(allocated(slices, [claim])) == ["x"]
    failed = allocated(slices, [claim], held=[holding("x")])
    assert failed == AllocationFailed(
        "claim ml/claim: selector #0: CEL runtime error: no such key: model", only_this_node=False
    )


def test_a_duplicate_device_makes_the_pool_invalid_for_this_node() -> None:
    slices = [a_slice([a_device("x"), a_device("x")])]
    assert allocated(slices, [a_claim(a_request("r"))]) == AllocationFailed(
        "invalid resource pools were encountered", only_this_node=True
    )


def test_counters_stay_consumed_after_a_taint() -> None:
    whole, half = a_partition("whole", 4, BAD), a_partition("half", 2)
    claim = [a_claim(a_request("r"))]
    assert devices(allocated([CARD, a_slice([half, whole], count=2)], claim)) == ["half"]
    assert allocated([CARD, a_slice([whole, half], count=2)], claim) == NotAllocatable()


def test_a_rule_without_a_selector_taints_every_device() -> None:
    rules = AllocatorRules(taint_rules=True)
    rule = DeviceTaintRule(spec=DeviceTaintRuleSpec(taint=BAD))
    other = DeviceTaintRule(
        spec=DeviceTaintRuleSpec(device_selector=DeviceTaintSelector(device="y"), taint=BAD)
    )
    slices, claim = [a_slice([a_device("x"), a_device("y")])], [a_claim(a_request("r"))]
    assert allocated(slices, claim, rules=rules, taint_rules=[rule]) == NotAllocatable()
    assert devices(allocated(slices, claim, rules=rules, taint_rules=[other], held=())) == ["x"]


def test_shares_of_nothing_are_given_back() -> None:
    # Kubernetes forgets what was taken of a device as soon as it amounts to nothing.
    shared = replace(
        a_device("shared"),
        allow_multiple_allocations=True,
        capacity={"mem": DeviceCapacity(Quantity.of(1), CapacityRequestPolicy(default=Quantity.of(0)))},
    )
    claims = [a_claim(a_request("r0"), a_request("r1"), a_request("r2", 2))]
    assert allocated([a_slice([shared])], claims) == NotAllocatable()


def test_a_record_has_a_fact_for_each_refusal() -> None:
    tainted = replace(a_device("tainted", numa=0), taints=(BAD,))
    small = replace(a_device("small", numa=0), capacity={"mem": DeviceCapacity(Quantity.of(1))})
    large = replace(a_device("large", numa=0), capacity={"mem": DeviceCapacity(Quantity.of(8))})
    other = replace(large, name="other", attributes=a_device("other", numa=1).attributes)
    every = [a_device("held"), a_device("odd", half=1), tainted, small, large, other]
    capacity = CapacityRequirements({"mem": Quantity.of(4)})
    request = a_request("r", 2, capacity=capacity, device_class="fast")
    claim = a_claim(request, constraints=[DeviceConstraint(match_attribute=f"{DRIVER}/numa")])
    record: SearchRecord = []
    fast = a_class("fast", "true")
    slices = [a_slice([replace(each, capacity=each.capacity or large.capacity) for each in every])]
    outcome = allocated(slices, [claim], held=[holding("held", name="train")], classes=[fast], record=record)
    assert outcome == NotAllocatable()
    assert facts(record) == {
        "held": Holders(("ml/train",)),
        "odd": AttributeConflict(f"{DRIVER}/numa", None),
        "tainted": Untolerated(BAD),
        "small": CapacityShort("mem", Quantity.of(4), Quantity.of(0), Quantity.of(1)),
        "large": None,
        "other": None,
    }
    conflict = AttributeConflict(f"{DRIVER}/numa", "1", ("0",))
    assert conflict in [each.because for each in record if isinstance(each, Tried)]


def test_a_record_names_selectors_and_counters() -> None:
    record: SearchRecord = []
    slices = [CARD, a_slice([a_device("plain", model=2), a_partition("whole", 4)], count=2)]
    own = a_claim(a_request("r", selectors=selectors(has("model", 1))))
    allocated(slices, [own], record=record)
    assert facts(record)["plain"] == SelectorUnmet(has("model", 1))
    short: SearchRecord = []
    twice = a_claim(a_request("r", 2))
    partitions = [CARD, a_slice([a_partition("half", 2), a_partition("whole", 4)], count=2)]
    allocated(partitions, [twice], record=short)
    numbers = map(Quantity.of, (4, 2, 4))
    assert CounterShort("card", "parts", *numbers) in [
        each.because for each in short if isinstance(each, Tried)
    ]


def test_a_node_selector_that_does_not_parse_is_named_as_kubernetes_does() -> None:
    near = NodeSelectorRequirement(key="zone", operator="Near", values=("z1",))
    selector = NodeSelector((NodeSelectorTerm(match_expressions=(near,)),))
    outcome = allocated(
        [a_slice([a_device("x")], node_name=None, node_selector=selector)], [a_claim(a_request("r"))]
    )
    assert isinstance(outcome, AllocationFailed)
    assert outcome.error.startswith("gather pool information: failed to perform node selection for slice s: ")
    assert outcome.error.endswith(
        '}: nodeSelectorTerms[0].matchExpressions[0].operator: Unsupported value: "Near": supported values: '
        '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"'
    )


def test_a_hopeless_search_ends_by_proof() -> None:
    slices = [a_slice([a_device(f"gpu-{at}", root=at // 20) for at in range(64)])]
    claims = [a_claim(a_request("r0", 16), a_request("r1", 16), name=name) for name in ("a", "b", "c")]
    assert allocated(slices, claims) == NotAllocatable()
    on_one_root = [DeviceConstraint(match_attribute=f"{DRIVER}/root")]
    claim = a_claim(a_request("r0", 11), a_request("r1", 10), constraints=on_one_root)
    assert allocated(slices, [claim]) == NotAllocatable()


def test_a_hopeless_search_among_partitions_ends_by_proof() -> None:
    partitions = [a_partition(f"part-{at}", 1) for at in range(40)]
    claims = [a_claim(a_request("r", 3), name=name) for name in ("a", "b")]
    assert allocated([CARD, a_slice(partitions, count=2)], claims) == NotAllocatable()


def test_a_record_ends_before_a_hopeless_search_does() -> None:
    slices = [a_slice([a_device(f"gpu-{at}") for at in range(40)])]
    claims = [a_claim(a_request("r", 21), name=name) for name in ("a", "b")]
    record: SearchRecord = []
    assert allocated(slices, claims, record=record) == NotAllocatable()
    assert device_search.MAX_RECORD <= len(record) < 2 * device_search.MAX_RECORD


def test_a_search_that_cannot_be_shortened_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_search, "MAX_EFFORT", 20_000)
    slices = [a_slice([a_device(f"gpu-{at}", half=at % 2, root=at) for at in range(64)])]
    # Kubernetes forgets the values of distinctAttribute: nothing may be left out.
    different = [DeviceConstraint(distinct_attribute=f"{DRIVER}/half")]
    claims = [a_claim(a_request("r", 12), constraints=different)]
    claims += [a_claim(a_request("r", 32), name=name) for name in ("b", "c")]
    outcome = allocated(slices, claims)
    assert isinstance(outcome, SearchGivenUp)
    assert outcome.steps > 1000
