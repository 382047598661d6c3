"""The notation of sums, of what a quota charges for a pod, and of what it has in use, beside amounts that are changed in place."""

from typing import Any, Self

from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.admission.quota.object_usage import pod_usage
from nodewright.engine.admission.quota.quota_admission import QuotaDelta, with_repeated_deltas
from nodewright.model.kubernetes.cluster_objects import ResourceQuota, ResourceQuotaStatus
from nodewright.model.kubernetes.objects import (
    Container,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    ResourceRequirements,
)
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.instant import ZERO_TIME
from nodewright.model.values.quantity import Quantity, QuantityFormat, fits_int64

TEXTS = (
    "0", "0Ki", "0.0Gi", "0e3", "1Ki", "1024", "4017509Ki", "4113929216", "1.5Gi", "1536Mi", "1610612736", "0.5Ki",
    "512", "1e3", "1k", "1000", "0.1Ki", "1500m", "8Ei", "9E", "9223372036854775807", "-1Ki", "-1024", "1Gi", "500M",
    "100m", "1", "1e-3", "333e-3", "24", "1G",
)  # fmt: skip


GATES_1_36 = default_gates(RELEASE_TABLES["1.36"])


class Mutable:
    """A quantity that is changed in place: a 64-bit amount or a decimal, a format, and the text until it changes."""

    def __init__(self, amount: Quantity) -> None:
        self.number, self.scale, self.text = amount.unscaled, amount.scale, amount.original_text
        self.format, self.is_decimal = amount.format, not amount.is_int64

    def add(self, other: Self) -> None:
        """Follows: v1.36, apimachinery/pkg/api/resource/{quantity,amount}.go, Quantity.Add and int64Amount.Add."""
        self.text = ""
        if self.number == 0:
            self.format = other.format
        scale = min(self.scale, other.scale)
        own, added = self.number * 10 ** (self.scale - scale), other.number * 10 ** (other.scale - scale)
        if not self.is_decimal and not other.is_decimal:
            if other.number == 0:
                return
            if self.number == 0:
                self.number, self.scale = other.number, other.scale
                return
            self.is_decimal = not all(map(fits_int64, (own, added, own + added)))
        else:
            self.is_decimal = True
        self.number, self.scale = own + added, scale

    def exceeds(self, other: Self) -> bool:
        scale = min(self.scale, other.scale)
        own: int = self.number * 10 ** (self.scale - scale)
        compared: int = other.number * 10 ** (other.scale - scale)
        return own > compared

    def copy(self) -> "Mutable":
        return Mutable(self.value())

    def value(self) -> Quantity:
        fmt = QuantityFormat(self.format)
        return Quantity(self.number, self.scale, fmt, self.text, is_int64=not self.is_decimal)


Amounts = dict[str, Mutable]


def mutable(amounts: dict[str, Quantity]) -> Amounts:
    return {name: Mutable(amount) for name, amount in amounts.items()}


def add_list(total: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if name in total:
            total[name].add(amount)
        else:
            total[name] = amount.copy()


def max_list(greatest: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if name not in greatest or amount.exceeds(greatest[name]):
            greatest[name] = amount.copy()


def of_container(pod: Pod, container: Container, side: str) -> Amounts:
    own = mutable(getattr(container.resources, side))
    status = next((each for each in pod.status.container_statuses if each.name == container.name), None)
    if status is None or status.resources is None:
        return own
    is_infeasible = bool(pod.status.conditions)
    lists = [] if is_infeasible else [own]
    lists += [mutable(getattr(status.resources, side))]
    lists += [mutable(status.allocated_resources)] if side == "requests" else []
    greatest: Amounts = {}
    for amounts in lists:
        max_list(greatest, amounts)
    return greatest


def aggregated(pod: Pod, side: str) -> Amounts:
    """Follows: v1.36, component-helpers/resource/helpers.go, AggregateContainer{Requests,Limits}."""
    total: Amounts = {}
    sidecars: Amounts = {}
    initial: Amounts = {}
    for container in pod.spec.containers:
        add_list(total, of_container(pod, container, side))
    for container in pod.spec.init_containers:
        own = mutable(getattr(container.resources, side))
        if container.is_sidecar:
            add_list(total, own)
            add_list(sidecars, own)
            max_list(initial, sidecars)
        else:
            add_list(own, sidecars)
            max_list(initial, own)
    max_list(total, initial)
    return total


def charged(pod: Pod) -> dict[str, str]:
    """Follows: v1.36, pkg/quota/v1/evaluator/core/pods.go, PodUsageFunc."""
    texts = {}
    level, overhead = pod.spec.resources or ResourceRequirements(), mutable(pod.spec.overhead or {})
    requests, limits = aggregated(pod, "requests"), aggregated(pod, "limits")
    requests.update(mutable(level.requests))
    limits.update(mutable(level.limits))
    add_list(requests, overhead)
    for name, amount in overhead.items():
        if name in limits and limits[name].number:
            limits[name].add(amount)
    for name, amount in requests.items():
        texts[name] = texts[f"requests.{name}"] = str(amount.value())
    return {**texts, **{f"limits.{name}": str(amount.value()) for name, amount in limits.items()}}


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.sampled_from(TEXTS).map(Quantity.parse), max_size=2
)
resources = st.builds(ResourceRequirements, requests=amounts, limits=amounts)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    containers = tuple(
        Container(name=name, resources=draw(resources)) for name in "ab"[: draw(st.integers(1, 2))]
    )
    init = tuple(
        Container(
            name=name, resources=draw(resources), restart_policy=draw(st.sampled_from([None, "Always"]))
        )
        for name in "xy"[: draw(st.integers(0, 2))]
    )
    statuses = tuple(
        ContainerStatus(
            name=each.name, resources=draw(st.none() | resources), allocated_resources=draw(amounts)
        )
        for each in containers
    )
    pending: Any = draw(st.sampled_from([(), (PodCondition(type="PodResizePending", reason="Infeasible"),)]))
    level, overhead = draw(st.none() | resources), draw(st.none() | amounts)
    spec = PodSpec(containers=containers, init_containers=init, resources=level, overhead=overhead)
    pod = Pod(metadata=ObjectMeta(name="a"), spec=spec)
    return replace(pod, status=PodStatus(container_statuses=statuses, conditions=pending))


@given(pods())
def test_a_charge_has_the_notation_of_sums_and_maxima_in_place(pod: Pod) -> None:
    charge = pod_usage(pod, now=ZERO_TIME, gates=GATES_1_36)
    usage = {name: str(amount) for name, amount in charge.items()}
    assert {name: usage[name] for name in usage if name not in ("pods", "count/pods")} == charged(pod)


@given(st.lists(st.sampled_from(TEXTS).map(Quantity.parse), min_size=1, max_size=4))
def test_a_sum_is_printed_as_an_amount_that_is_added_to_in_place(summands: list[Quantity]) -> None:
    first, *others = summands
    total, slow_total = first, Mutable(first)
    for amount in others:
        total += amount
        slow_total.add(Mutable(amount))
        assert str(total) == str(slow_total.value())
        assert total.is_int64 is not slow_total.is_decimal


POSITIVE = tuple(text for text in TEXTS if Quantity.parse(text).sign() > 0)


@given(
    st.sampled_from(("0", *POSITIVE)).map(lambda text: str(Quantity.parse(text).as_stored())),
    st.lists(st.sampled_from(POSITIVE), min_size=1, max_size=3),
    st.integers(0, 8),
)
@example("1Gi", ["1G", "1G"], 2)
@example("1e-3", ["333e-3"], 4)
@example("1e-3", ["1001e-3"], 1_999)
@example("1e-3", ["1001e-3"], 2_000)
def test_charges_at_once_leave_the_notation_of_charges_that_are_stored_one_by_one(
    used: str, requested: list[str], times: int
) -> None:
    # A sum beyond 64 bits is written whole and read as the largest amount: what is kept between charges differs there.
    total = Quantity.parse(used).value() + sum(Quantity.parse(text).value() for text in requested) * times
    assume(total < 1 << 63)
    status = ResourceQuotaStatus(hard={"a": Quantity.parse("1")}, used={"a": Quantity.parse(used)})
    deltas = [QuotaDelta(items=((0, {"a": Quantity.parse(text)}),)) for text in requested]
    (after,) = with_repeated_deltas(deltas, [ResourceQuota(status=status)], times)
    stored = used
    for text in requested * times:
        amount = Mutable(Quantity.parse(stored))
        amount.add(Mutable(Quantity.parse(text)))
        stored = str(amount.value())
    assert str(after.status.used["a"]) == stored
