"""The allocator against a slow, obvious one, and against itself without what makes it fast."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    SearchRecord,
    Tried,
)
from nodewright.engine.core.claims.allocator_rules import DEFAULT_RULES, AllocatorRules
from nodewright.model.kubernetes.claims import (
    CapacityRequirements,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ResourceClaim,
    ResourceSlice,
)
from nodewright.model.values.quantity import Quantity


@pytest.fixture(autouse=True, scope="module")
def _every_search_is_shortened() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_search, "SHORT_EFFORT", -1)
        yield


CLASSES = (a_class("gpu"), a_class("even", has("half", 0)))
NUMA, HALF = f"{DRIVER}/numa", f"{DRIVER}/half"


def amount(number: int) -> Quantity:
    return Quantity.of(number)


def device(name: str, drawn: dict[str, Any]) -> Device:
    attributes = {
        key: DeviceAttribute(int_value=drawn[key]) for key in ("numa", "half") if drawn[key] is not None
    }
    return Device(
        name=name,
        attributes=attributes,
        capacity={"slots": DeviceCapacity(value=amount(drawn["slots"]))} if drawn["slots"] else {},
        allow_multiple_allocations=drawn["shared"],
        taints=(DeviceTaint(key="bad", effect="NoSchedule"),) if drawn["tainted"] else (),
        consumes_counters=(
            (
                DeviceCounterConsumption(
                    counter_set="card", counters={"part": Counter(amount(drawn["parts"]))}
                ),
            )
            if drawn["parts"]
            else ()
        ),
    )


plain_devices = st.fixed_dictionaries(
    {
        "numa": st.sampled_from([0, 1, None]),
        "half": st.integers(0, 1),
        "slots": st.just(0),
        "shared": st.just(value=False),
        "tainted": st.just(value=False),
        "parts": st.just(0),
    }
)
any_devices = st.fixed_dictionaries(
    {
        "numa": st.sampled_from([0, 1, None]),
        "half": st.sampled_from([*[0, 1] * 6, None]),
        "slots": st.integers(0, 3),
        "shared": st.booleans(),
        "tainted": st.sampled_from([False, False, True]),
        "parts": st.integers(0, 2),
    }
)


def slices_of(drawn: list[dict[str, Any]]) -> list[ResourceSlice]:
    devices = [device(f"gpu-{at}", each) for at, each in enumerate(drawn)]
    consume = any(each.consumes_counters for each in devices)
    pieces = [a_slice(devices[0::2], "a", count=2 + consume), a_slice(devices[1::2], "b", count=2 + consume)]
    if consume:
        counters = CounterSet(name="card", counters={"part": Counter(amount(3))})
        pieces.append(a_slice((), "counters", count=3, shared_counters=(counters,)))
    return pieces


constraints = st.lists(
    st.builds(
        lambda requests, attribute, matches: DeviceConstraint(
            requests=requests,
            match_attribute=attribute if matches else None,
            distinct_attribute=None if matches else attribute,
        ),
        st.sampled_from([(), ("r0",), ("r0", "r1")]),
        st.sampled_from([NUMA, HALF]),
        st.booleans(),
    ),
    max_size=2,
)


@st.composite
def plain_claims(draw: st.DrawFn) -> list[ResourceClaim]:
    claims = []
    for number in range(draw(st.integers(1, 2))):
        counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
        chosen = draw(constraints)
        # Kubernetes forgets values where a request has several devices.
        if any(each.distinct_attribute for each in chosen):
            counts = [1] * len(counts)
        requests = [
            a_request(f"r{at}", count, draw(st.sampled_from(["gpu", "even"])))
            for at, count in enumerate(counts)
        ]
        claims.append(a_claim(*requests, name=f"c{number}", constraints=chosen))
    return claims


@st.composite
def any_claims(draw: st.DrawFn) -> list[ResourceClaim]:
    def spec() -> dict[str, Any]:
        return {
            "device_class_name": draw(st.sampled_from(["gpu", "gpu", "even"])),
            "allocation_mode": draw(st.sampled_from([*["ExactCount"] * 6, "All"])),
            "count": draw(st.integers(1, 3)),
            "selectors": draw(
                st.sampled_from([(), (), selectors(has("numa", 0)), selectors(has("half", 1))])
            ),
            "tolerations": draw(st.sampled_from([(), (DeviceToleration(key="bad", operator="Exists"),)])),
            "capacity": draw(st.sampled_from([*[None] * 4, CapacityRequirements({"slots": amount(1)})])),
        }

    claims = []
    for number in range(draw(st.integers(1, 3))):
        requests = []
        for at in range(draw(st.integers(1, 3))):
            if draw(st.booleans()):
                alternatives = (DeviceSubRequest(name="x", **spec()), DeviceSubRequest(name="y", **spec()))
                requests.append(DeviceRequest(name=f"r{at}", first_available=alternatives))
            else:
                requests.append(
                    a_request(f"r{at}", **spec(), admin_access=draw(st.sampled_from([None, None, True])))
                )
        claims.append(a_claim(*requests, name=f"c{number}", constraints=draw(constraints)))
    return claims


held_devices = st.sets(st.sampled_from([f"gpu-{at}" for at in range(6)]), max_size=3)
many_rules = st.builds(
    lambda *flags: AllocatorRules(
        combined=flags[0], is_latest=flags[0], taints=flags[1], partitionable=flags[2], shared=flags[3]
    ),
    *[st.sampled_from([True, True, False])] * 4,
)


def names(outcome: AllocationOutcome) -> list[list[str]] | None:
    if not isinstance(outcome, Allocated):
        return None
    return [[result.device for result in each.devices.results] for each in outcome.allocations]


def slow_solutions(
    claims: Sequence[ResourceClaim], devices: Sequence[Device], free: list[str]
) -> Iterator[list[list[str]]]:
    """Every way to choose devices, first those that come first: all combinations, checked when they are complete."""
    if not claims:
        yield []
        return
    claim, *others = claims
    by_name = {each.name: each for each in devices}

    def choices(requests: Sequence[DeviceRequest], left: list[str]) -> Iterator[list[tuple[str, str]]]:
        if not requests:
            yield []
            return
        exactly = requests[0].exactly
        assert exactly is not None
        fitting = [
            each
            for each in left
            if exactly.device_class_name == "gpu" or by_name[each].attributes["half"].value == 0
        ]
        for chosen in combinations(fitting, exactly.count):
            for rest in choices(requests[1:], [each for each in left if each not in chosen]):
                yield [*((requests[0].name, each) for each in chosen), *rest]

    def holds(constraint: DeviceConstraint, chosen: list[tuple[str, str]]) -> bool:
        name = (constraint.match_attribute or constraint.distinct_attribute or "").partition("/")[2]
        values = [
            by_name[each].attributes[name].value if name in by_name[each].attributes else None
            for request, each in chosen
            if not constraint.requests or request in constraint.requests
        ]
        return None not in values and len(set(values)) in (
            (0, 1) if constraint.match_attribute else (len(values),)
        )

    for chosen in choices(claim.spec.devices.requests, free):
        if all(holds(constraint, chosen) for constraint in claim.spec.devices.constraints):
            taken = [each for _, each in chosen]
            for rest in slow_solutions(others, devices, [each for each in free if each not in taken]):
                yield [taken, *rest]


@given(st.lists(plain_devices, min_size=1, max_size=6), plain_claims(), held_devices)
def test_it_finds_what_a_slow_allocator_finds_first(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    slices = slices_of(drawn)
    devices = [each for piece in slices for each in piece.spec.devices]
    free = [each.name for each in devices if each.name not in held]
    first = next(slow_solutions(claims, devices, free), None)
    assert names(allocated(slices, claims, held=[holding(*held)], classes=CLASSES)) == first


@given(st.lists(any_devices, min_size=3, max_size=8), any_claims(), held_devices, many_rules)
def test_what_is_left_out_of_a_search_changes_no_answer(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str], rules: AllocatorRules
) -> None:
    # A search with a record leaves nothing out.
    record: SearchRecord = []
    everything = allocated(
        slices_of(drawn), claims, held=[holding(*held)], classes=CLASSES, rules=rules, record=record
    )
    assert everything == allocated(
        slices_of(drawn), claims, held=[holding(*held)], classes=CLASSES, rules=rules
    )


@given(st.lists(plain_devices, min_size=1, max_size=6), plain_claims(), held_devices)
def test_a_device_that_is_released_makes_nothing_impossible(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    """It is not so for Kubernetes where counters leak, and where a selector fails for the released device."""
    slices = slices_of(drawn)
    if names(allocated(slices, claims, held=[holding(*held)], classes=CLASSES)) is not None:
        for released in held:
            left = held - {released}
            assert names(allocated(slices, claims, held=[holding(*left)], classes=CLASSES)) is not None


@given(st.lists(any_devices, min_size=3, max_size=8), any_claims(), held_devices)
def test_no_device_has_two_owners(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    outcome = allocated(slices_of(drawn), claims, held=[holding(*held)], classes=CLASSES)
    if isinstance(outcome, Allocated):
        exclusive = [
            result.device
            for each in outcome.allocations
            for result in each.devices.results
            if result.share_id is None and not result.admin_access
        ]
        assert len(set(exclusive)) == len(exclusive)
        assert not held.intersection(exclusive)


@given(st.lists(any_devices, min_size=3, max_size=8), any_claims(), held_devices)
def test_a_refusal_has_a_fact(
    drawn: list[dict[str, Any]], claims: list[ResourceClaim], held: set[str]
) -> None:
    record: SearchRecord = []
    outcome = allocated(slices_of(drawn), claims, held=[holding(*held)], classes=CLASSES, record=record)
    plain = ("taken", "givenBack", "noDevices")
    refused = [
        each for each in record if isinstance(each, Tried) and each.device and each.outcome not in plain
    ]
    assert all(each.because is not None for each in refused)
    assert not (isinstance(outcome, AllocationFailed) and outcome.only_this_node)
    assert DEFAULT_RULES.partitionable
