import pytest
from tests.support.device_managers import GPU, a_device_manager, a_pod_with_devices, some_devices

from nodewright.engine.core.devices.device_assignment import container_hints, pod_hints
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState, ReusableDevices
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import DeviceUnlisted
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import HintList, ProviderHints

TWO = a_device_manager("0-1")
FOUR = a_device_manager("0-3")
FOUR_GPUS = "a@0 b@0 c@1 d@1"


def a_state(devices: str, in_use: str = "") -> DeviceState:
    """The devices, some of them held by another pod."""
    held = {"other": {"app": {GPU: frozenset(in_use.split())}}} if in_use else {}
    return DeviceState.of({GPU: some_devices(devices)}, held)


def hints_text(hints: HintList | None) -> str:
    """`0! 0-1`: one NUMA node preferred, both not."""
    if hints is None:
        return "any"
    return " ".join(f"{hint.numa}{'!' * hint.preferred}" for hint in hints) or "impossible"


def granted(found: object) -> ProviderHints:
    assert isinstance(found, Granted)
    assert found.value is not None
    hints: ProviderHints = found.value
    return hints


def of_app(manager: DeviceManager, state: DeviceState, pod: Pod) -> str:
    return hints_text(granted(container_hints(manager, state, pod, pod.spec.containers[0]))[GPU])


HINTS = """
    a@0 b@0 c@1 d@1        | 0 | 0! 1! 0-1
    a@0 b@0 c@1 d@1        | 1 | 0! 1! 0-1
    a@0 b@0 c@1 d@1        | 2 | 0! 1! 0-1
    a@0 b@0 c@1 d@1        | 3 | 0-1!
    a@0 b@0 c@1 d@1        | 5 | impossible
    !a@0 b@0 c@1 !d@1      | 2 | 0-1
    !a@0 !b@0 !c@1         | 1 | impossible
    a b                    | 1 | any
    a@ b                   | 1 | any
    a b@1                  | 1 | 1!
    a b@1                  | 2 | impossible
    a@0,1 b@0              | 1 | 0! 1! 0-1
    a@0,1 b@0              | 2 | 0! 0-1
    a@0,1 b@0,1            | 2 | 0! 1! 0-1
    a@1 b@1                | 2 | 1!
    a@9 b@0                | 1 | 0!
    a@0,9 b@0              | 2 | 0!
    a@9 b@9                | 1 | impossible
    a@9 b@9                | 0 | 0! 1! 0-1
    a@-1 b@0               | 1 | 0!
    a@99999999999 b@0      | 1 | 0!
"""


@pytest.mark.parametrize("line", HINTS.strip().splitlines())
def test_sets_with_enough_free_devices_are_hints_and_the_smallest_that_ever_do_are_preferred(
    line: str,
) -> None:
    devices, asked, expected = (part.strip() for part in line.split("|"))
    pod = a_pod_with_devices("p", app=int(asked))
    assert of_app(TWO, a_state(devices), pod) == expected
    assert hints_text(granted(pod_hints(TWO, a_state(devices), pod))[GPU]) == expected


BESIDE_OTHERS = """
    a   | 2 | 1! 0-1
    a c | 2 | 0-1
    a b | 2 | 1! 0-1
    a c | 1 | 0! 1! 0-1
    a b | 3 | impossible
"""


@pytest.mark.parametrize("line", BESIDE_OTHERS.strip().splitlines())
def test_devices_in_use_count_for_what_is_preferred_only(line: str) -> None:
    in_use, asked, expected = (part.strip() for part in line.split("|"))
    assert of_app(TWO, a_state(FOUR_GPUS, in_use), a_pod_with_devices("p", app=int(asked))) == expected


def test_only_nodes_that_host_devices_of_the_resource_are_tried() -> None:
    assert of_app(FOUR, a_state("a@1 b@3"), a_pod_with_devices("p", app=1)) == "1! 3! 1,3"


def test_a_machine_without_numa_nodes_has_no_place_for_devices() -> None:
    assert of_app(a_device_manager(""), a_state("a@0"), a_pod_with_devices("p", app=1)) == "impossible"


def test_a_pod_without_devices_is_nothing_to_this_manager() -> None:
    pod = a_pod_with_devices("p", resource="example.com/unheard-of", app=1)
    state = a_state(FOUR_GPUS)
    assert granted(container_hints(TWO, state, pod, pod.spec.containers[0])) == {}
    assert granted(pod_hints(TWO, state, pod)) == {}


def test_of_a_resource_that_is_held_though_nobody_registered_it_there_is_no_opinion() -> None:
    state = DeviceState.of({}, {"other": {"app": {GPU: frozenset({"a"})}}})
    assert of_app(TWO, state, a_pod_with_devices("p", app=1)) == "any"


HELD = """
    a     | 1 | 0! 0-1
    a c   | 2 | 0-1
    a b   | 2 | 0! 0-1
    a     | 2 | impossible
    a b   | 1 | impossible
"""


@pytest.mark.parametrize("line", HELD.strip().splitlines())
def test_a_container_that_holds_its_devices_is_where_they_are(line: str) -> None:
    devices, asked, expected = (part.strip() for part in line.split("|"))
    held = {"p": {"app": {GPU: frozenset(devices.split())}}}
    state = DeviceState.of({GPU: some_devices(FOUR_GPUS)}, held)
    assert of_app(TWO, state, a_pod_with_devices("p", app=int(asked))) == expected


def test_a_pod_that_holds_devices_is_where_those_of_all_its_containers_are() -> None:
    held = {"p": {"one": {GPU: frozenset({"a"})}, "two": {GPU: frozenset({"b"})}}}
    state = DeviceState.of({GPU: some_devices(FOUR_GPUS)}, held)
    assert hints_text(granted(pod_hints(TWO, state, a_pod_with_devices("p", one=1, two=1)))[GPU]) == "0! 0-1"
    assert (
        hints_text(granted(pod_hints(TWO, state, a_pod_with_devices("p", one=1, two=2)))[GPU]) == "impossible"
    )


def test_a_pod_asks_for_the_most_that_it_needs_at_any_time() -> None:
    pod = a_pod_with_devices("p", {"load": 3, "side": 1}, app=1)
    assert hints_text(granted(pod_hints(TWO, a_state(FOUR_GPUS), pod))[GPU]) == "0-1!"


REUSABLE = """
    a@0 b@0 c@1 d@1 | a     | 1 | 0! 0-1
    a@0 b@0 c@1 d@1 | a     | 2 | 0! 0-1
    a@0 b@0 c@1 d@1 | a c   | 1 | 0-1
    a@0 b@0 c@1 d@1 | a     | 4 | 0-1!
    a@0,1 b@0 c@1   | a     | 2 | 0! 1! 0-1
    a b@0 c@1       | a     | 1 | 0! 1! 0-1
    a b@0           | a     | 2 | impossible
    a@ b@0 c@1      | a     | 1 | impossible
"""


@pytest.mark.parametrize("line", REUSABLE.strip().splitlines())
def test_a_hint_touches_every_device_that_is_taken_over_from_init_containers(line: str) -> None:
    devices, left, asked, expected = (part.strip() for part in line.split("|"))
    ids = frozenset(left.split())
    held = {"p": {"load": {GPU: ids}}}
    state = DeviceState.of({GPU: some_devices(devices)}, held)
    state = DeviceState(state.device_lists, state.pod_devices, state.in_use, ReusableDevices("p", {GPU: ids}))
    assert of_app(TWO, state, a_pod_with_devices("p", {"load": 1}, app=int(asked))) == expected
    assert state.reusable_by("q") == {}


@pytest.mark.parametrize("holder", ["app", "load"])
def test_the_kubelet_crashes_on_devices_that_are_not_listed_any_more(holder: str) -> None:
    ids = frozenset({"a", "gone"})
    state = DeviceState.of({GPU: some_devices(FOUR_GPUS)}, {"p": {holder: {GPU: ids}}})
    state = DeviceState(state.device_lists, state.pod_devices, state.in_use, ReusableDevices("p", {GPU: ids}))
    pod = a_pod_with_devices("p", {"load": 2}, app=2)
    crash = Refused((DeviceUnlisted(resource=GPU, device="gone"),))
    assert container_hints(TWO, state, pod, pod.spec.containers[0]) == crash


def test_without_the_defect_devices_that_are_not_listed_any_more_are_passed_over() -> None:
    manager = a_device_manager("0-1", follows_defects=False)
    state = DeviceState.of({GPU: some_devices(FOUR_GPUS)}, {"p": {"load": {GPU: frozenset({"a", "gone"})}}})
    state = DeviceState(
        state.device_lists,
        state.pod_devices,
        state.in_use,
        ReusableDevices("p", state.pod_devices["p"]["load"]),
    )
    assert of_app(manager, state, a_pod_with_devices("p", {"load": 2}, app=2)) == "0! 0-1"


def test_on_dozens_of_numa_nodes_hints_stay_a_rule() -> None:
    manager = a_device_manager("0-63")
    state = a_state(" ".join(f"d{at}@{at % 64}" for at in range(128)))
    hints = granted(
        container_hints(manager, state, pod := a_pod_with_devices("p", app=5), pod.spec.containers[0])
    )[GPU]
    assert hints is not None
    assert hints.fitting is not None
    assert (hints.fitting.nodes, hints.fitting.preferred_size) == (NUMASet.parse("0-63"), 3)
