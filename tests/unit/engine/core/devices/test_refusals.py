import pytest
from tests.support.device_managers import GPU, a_device_manager, a_pod_with_devices, some_devices
from tests.unit.engine.core.devices.nodes import Node, node

from nodewright.engine.core.devices.device_state import (
    DeviceManager,
    DevicePluginError,
    DeviceState,
    PluginBehavior,
    device_stock,
)
from nodewright.model.reasons.devices import (
    DeviceAllocationFailed,
    DeviceHolder,
    DevicePluginMissing,
    DevicePreferenceFailed,
    DeviceRequestChanged,
    DevicesAt,
    DevicesMiscounted,
    DeviceStock,
    DeviceUnregistered,
    HeldDevicesUnhealthy,
    NoHealthyDevices,
    NotEnoughDevices,
)
from nodewright.model.values.idset import NUMASet


def failing(available: frozenset[str], must_include: frozenset[str], size: int) -> DevicePluginError:
    del available, must_include, size
    return DevicePluginError("no idea")


def stock(*places: DevicesAt, holders: tuple[DeviceHolder, ...] = (), stranded: str = "") -> DeviceStock:
    return DeviceStock(resource=GPU, places=places, holders=holders, stranded=tuple(stranded.split()))


def at(numa: str, registered: int, healthy: int, free: int) -> DevicesAt:
    return DevicesAt(numa=NUMASet.parse(numa), registered=registered, healthy=healthy, free=free)


def test_a_shortage_tells_what_is_where_and_who_has_the_rest() -> None:
    on = node("a@0 b@0 !c@1 d@1 e", held={"q": "a d", "r": "b"})
    assert on.serve(a_pod_with_devices("p", app=2), affinity="0") == "NotEnoughDevices"
    holders = (
        DeviceHolder(pod="q", container="app", devices=("a", "d")),
        DeviceHolder(pod="r", container="app", devices=("b",)),
    )
    result = stock(at("", 1, 1, 1), at("0", 2, 2, 0), at("1", 2, 1, 0), holders=holders)
    assert on.because == (NotEnoughDevices(stock=result, requested=2, missing=2, available=1),)
    assert (result.registered, result.healthy, result.free) == (5, 4, 1)


def test_a_shortage_counts_what_is_missing_beyond_what_is_taken_over() -> None:
    on = node("a@0 b@0")
    pod = a_pod_with_devices("p", {"load": 1}, app=3)
    on.serve(pod, "load")
    assert on.serve(pod, "app") == "NotEnoughDevices"
    (short,) = on.because
    assert isinstance(short, NotEnoughDevices)
    assert (short.requested, short.missing, short.available) == (3, 2, 1)


def test_a_container_that_starts_again_keeps_its_devices() -> None:
    on = node(held={"p": "c"})
    assert on.serve(a_pod_with_devices("p", app=1), affinity="0") == "c"
    assert on.because == ()


def test_a_container_that_holds_devices_must_not_ask_for_another_number() -> None:
    on = node(held={"p": "c d"})
    assert on.serve(a_pod_with_devices("p", app=1)) == "DeviceRequestChanged"
    assert on.because == (
        DeviceRequestChanged(pod="p", container="app", resource=GPU, held=("c", "d"), requested=1),
    )


def test_a_container_that_starts_again_needs_its_devices_healthy() -> None:
    on = node("!a@0 b@0", held={"p": "a"})
    assert on.serve(a_pod_with_devices("p", app=1)) == "HeldDevicesUnhealthy"
    holders = (DeviceHolder(pod="p", container="app", devices=("a",)),)
    result = stock(at("0", 2, 1, 1), holders=holders)
    assert on.because == (HeldDevicesUnhealthy(stock=result, devices=("a",)),)


@pytest.mark.parametrize("asked", [0, 1])
def test_without_a_healthy_device_not_even_none_can_be_had(asked: int) -> None:
    on = node("!a@0")
    assert on.serve(a_pod_with_devices("p", app=asked)) == "NoHealthyDevices"
    assert on.because == (NoHealthyDevices(stock=stock(at("0", 1, 0, 0))),)


def test_none_can_be_had_where_there_is_a_healthy_device() -> None:
    on = node("a@0", held={"q": "a"})
    assert on.serve(a_pod_with_devices("p", app=0)) == ""
    assert on.because == ()


def test_a_resource_that_is_held_though_no_plugin_registered_it_cannot_be_had() -> None:
    held = {"q": {"app": {GPU: frozenset({"a"})}}}
    on = Node(a_device_manager(), DeviceState.of({}, held), active={"q": ()})
    assert on.serve(a_pod_with_devices("p", app=1)) == "DeviceUnregistered"
    assert on.because == (DeviceUnregistered(resource=GPU),)


def test_a_negative_number_takes_everything_and_fails() -> None:
    on = node("a@0 b@1")
    assert on.serve(a_pod_with_devices("p", app=-1), affinity="0") == "DevicesMiscounted"
    assert on.because == (DevicesMiscounted(resource=GPU, requested=-1, got=1),)


def test_devices_picked_before_a_failing_preference_stay_in_use_until_a_pod_is_gone() -> None:
    on = node("a@0 b@0 c@1 d@1", held={"q": "d"})
    on.manager = a_device_manager("0-1", PluginBehavior(failing))
    assert on.serve(a_pod_with_devices("p", app=3), affinity="0") == "DevicePreferenceFailed"
    assert on.because == (DevicePreferenceFailed(resource=GPU, error="no idea", stranded=("a", "b")),)
    assert device_stock(on.state, GPU).stranded == ("a", "b")
    assert on.serve(a_pod_with_devices("r", app=2)) == "NotEnoughDevices"
    on.gone("r")  # it holds nothing, so nothing is counted anew
    assert on.in_use == "a b d"
    on.gone("q")
    assert on.in_use == ""


def test_without_the_defect_a_failing_preference_leaves_nothing_behind() -> None:
    on = node("a@0 b@0 c@1")
    on.manager = a_device_manager("0-1", PluginBehavior(failing), follows_defects=False)
    assert on.serve(a_pod_with_devices("p", app=3), affinity="0") == "DevicePreferenceFailed"
    assert on.because == (DevicePreferenceFailed(resource=GPU, error="no idea", stranded=()),)
    assert on.in_use == ""


def test_after_a_failing_allocation_just_what_is_held_is_in_use() -> None:
    on = node("a@0 b@0 c@1", PluginBehavior(allocate_error="not today"), {"q": "b"})
    assert on.serve(a_pod_with_devices("p", app=1), affinity="0") == "DeviceAllocationFailed"
    assert on.because == (DeviceAllocationFailed(resource=GPU, error="not today", devices=("a",)),)
    assert on.in_use == "b"


@pytest.mark.parametrize(("asked", "during"), [(1, "preference"), (2, "allocation")])
def test_a_resource_without_a_plugin_cannot_be_had(asked: int, during: str) -> None:
    on = Node(DeviceManager(numa=NUMASet.of(0)), DeviceState.of({GPU: some_devices("a@0 b@0 c")}))
    assert on.serve(a_pod_with_devices("p", app=asked), affinity="0") == "DevicePluginMissing"
    (missing,) = on.because
    assert isinstance(missing, DevicePluginMissing)
    assert missing.during == during
