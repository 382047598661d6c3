import pytest
from tests.support.device_managers import GPU, a_device_manager, a_pod_with_devices, some_devices
from tests.unit.engine.core.devices.nodes import node

from nodewright.engine.core.devices.device_assignment import (
    allocate,
    container_device_ids,
    device_allocatable,
    device_capacity,
    free_devices,
    in_use_counts,
    without_inactive_pods,
)
from nodewright.engine.core.devices.device_state import (
    DeviceManager,
    DeviceState,
    PluginBehavior,
    highest,
    lowest,
)
from nodewright.model.hardware import NUMANode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import (
    DevicesChosen,
    DeviceTier,
    DeviceUnlisted,
    NotEnoughDevices,
    UnhealthyDevicesReused,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.feature_gates import resolve_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import NUMASet
from nodewright.testing.objects import a_pod

NIC = "example.com/nic"

# ---------------------------------------------------------------- the order of preference

PICKS = """
    0    | 1 |         | a             | aligned
    0    | 3 |         | a b e         | aligned
    0    | 4 |         | a b c e       | aligned unaligned
    0    | 6 |         | a b c d e f   | aligned unaligned withoutTopology
    1    | 2 |         | c d           | aligned
    1    | 7 |         | a b c d e f g | aligned unaligned withoutTopology
    0-1  | 5 |         | a b c d e     | aligned
    none | 2 |         | a b           | withoutTopology
    0    | 1 | highest | e             | preferred
    0    | 2 | highest | b e           | preferred
    0    | 3 | highest | a b e         | aligned
    0    | 4 | highest | a b e g       | aligned preferred
    0    | 4 | lowest  | a b c e       | aligned preferred
    none | 2 | highest | f g           | preferred
    none | 7 | highest | a b c d e f g | preferred
"""


@pytest.mark.parametrize("line", PICKS.strip().splitlines())
def test_aligned_devices_go_first_and_those_without_a_place_last(line: str) -> None:
    affinity, asked, preference, expected, tiers = (part.strip() for part in line.split("|"))
    prefers = {"": None, "lowest": lowest, "highest": highest}[preference]
    on = node(plugin=PluginBehavior(prefers))
    pod = a_pod_with_devices("p", app=int(asked))
    assert on.serve(pod, affinity=None if affinity == "none" else affinity) == expected
    (chosen,) = on.because
    assert isinstance(chosen, DevicesChosen)
    assert [tier.why for tier in chosen.tiers] == tiers.split()


def test_what_a_plugin_names_in_vain_is_passed_over_and_what_it_lacks_is_filled_up() -> None:
    on = node(plugin=PluginBehavior(lambda *_: ["ghost", "d", "b"]))
    assert on.serve(a_pod_with_devices("p", app=2), affinity="0") == "a b"
    assert on.because == (
        DevicesChosen(
            resource=GPU,
            affinity=NUMASet.of(0),
            tiers=(
                DeviceTier(why="preferred", candidates=("b",), taken=("b",)),
                DeviceTier(why="aligned", candidates=("a", "e"), taken=("a",)),
            ),
        ),
    )


def test_a_plugin_is_asked_for_all_with_what_was_picked_already() -> None:
    result = []

    def noting(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
        result.append((sorted(available), sorted(must_include), size))
        return []

    on = node("a@0 b@0 c@1 d@1", PluginBehavior(noting))
    pod = a_pod_with_devices("p", {"load": 1}, app=4)
    on.serve(pod, "load", "1")
    on.serve(pod, "app", "0")
    assert result == [(["c", "d"], [], 1), (["a", "b", "c", "d"], ["a", "b", "c"], 4)]


def test_affinity_counts_for_nothing_where_no_device_names_a_numa_node() -> None:
    on = node("b a c@")
    assert on.serve(a_pod_with_devices("p", app=2), affinity="1") == "a b"
    assert isinstance(on.because[0], DevicesChosen)
    assert [tier.why for tier in on.because[0].tiers] == ["withoutTopology"]


def test_ids_are_compared_as_text() -> None:
    on = node("gpu-2@0 gpu-10@0 gpu-1@0")
    assert on.serve(a_pod_with_devices("p", app=2), affinity="0") == "gpu-1 gpu-10"


def test_a_device_on_node_minus_one_has_no_place_and_one_beyond_any_machine_is_unaligned() -> None:
    on = node("a@-1 b@99999999999 c@0")
    assert on.serve(a_pod_with_devices("p", app=2), affinity="0") == "b c"


# ---------------------------------------------------------------- init containers


def test_devices_of_an_init_container_are_taken_over_first_wherever_they_are() -> None:
    on = node()
    pod = a_pod_with_devices("p", {"load": 2}, app=3)
    assert on.serve(pod, "load", "1") == "c d"
    assert on.serve(pod, "app", "0") == "a c d"
    assert isinstance(on.because[0], DevicesChosen)
    assert [tier.why for tier in on.because[0].tiers] == ["reuse", "aligned"]
    assert on.in_use == "a c d"


def test_a_container_that_finds_enough_among_them_takes_nothing_else() -> None:
    on = node()
    pod = a_pod_with_devices("p", {"load": 2}, app=1, log=1)
    on.serve(pod, "load", "1")
    assert [on.serve(pod, name, "0") for name in ("app", "log")] == ["c", "d"]
    assert on.in_use == "c d"


def test_a_sidecar_keeps_what_it_takes_over() -> None:
    on = node()
    pod = a_pod_with_devices("p", {"load": 2, "side": 1}, app=2)
    assert [on.serve(pod, name, "1") for name in ("load", "side", "app")] == ["c d", "c", "d e"]


def test_init_containers_add_to_what_is_there() -> None:
    on = node()
    pod = a_pod_with_devices("p", {"load": 1, "check": 3}, app=3)
    assert [on.serve(pod, name, "0") for name in ("load", "check", "app")] == ["a", "a b e", "a b e"]


def test_what_is_left_over_is_forgotten_as_soon_as_another_pod_is_served() -> None:
    on = node()
    pod = a_pod_with_devices("p", {"load": 2}, app=2)
    on.serve(pod, "load", "0")
    on.serve(a_pod_with_devices("q", resource="example.com/unheard-of", app=1))
    assert on.serve(pod, "app", "0") == "c e"
    assert on.in_use == "a b c e"


def test_a_pod_that_is_gone_and_comes_back_first_takes_over_what_it_had_and_each_device_once() -> None:
    on = node("a@0 b@0 c@0")
    pod = a_pod_with_devices("p", {"load": 2}, app=3, log=4)
    on.serve(pod, "load")
    on.gone("p")
    assert on.serve(pod, "log") == "NotEnoughDevices"
    (short,) = on.because
    assert isinstance(short, NotEnoughDevices)
    assert (short.missing, short.available) == (2, 1)
    assert on.serve(pod, "app") == "a b c"


def test_unhealthy_devices_are_taken_over_all_the_same_which_is_flagged() -> None:
    on = node("a@0 b@0")
    pod = a_pod_with_devices("p", {"load": 1}, app=1)
    on.serve(pod, "load")
    on.state = on.state.with_devices(GPU, some_devices("!a@0 b@0"))
    assert on.serve(pod, "app") == "a"
    assert on.because[-1] == UnhealthyDevicesReused(resource=GPU, devices=("a",))


def test_without_the_defect_only_healthy_devices_are_taken_over() -> None:
    on = node("a@0 b@0")
    on.manager = a_device_manager("0-1", PluginBehavior(), follows_defects=False)
    pod = a_pod_with_devices("p", {"load": 1}, app=1)
    on.serve(pod, "load")
    on.state = on.state.with_devices(GPU, some_devices("!a@0 b@0"))
    assert on.serve(pod, "app") == "b"


def test_the_kubelet_crashes_when_it_takes_over_a_device_that_is_not_listed_any_more() -> None:
    on = node("a@0 b@0")
    pod = a_pod_with_devices("p", {"load": 1}, app=1)
    on.serve(pod, "load")
    on.state = before = on.state.with_devices(GPU, some_devices("b@0"))
    assert on.serve(pod, "app") == "DeviceUnlisted"
    assert on.because == (DeviceUnlisted(resource=GPU, device="a"),)
    assert on.state == before


# ---------------------------------------------------------------- several resources


def both(gpus: int, nics: int) -> Pod:
    return a_pod("p", {}, {GPU: gpus, NIC: nics})


def test_resources_are_served_by_name_and_what_was_had_before_a_failure_is_kept() -> None:
    manager = DeviceManager.of([NUMANode(node_id=0)], {GPU: (), NIC: ()})
    state = DeviceState.of({GPU: some_devices("a@0 b@0"), NIC: some_devices("n@0")})
    pod = both(1, 1)
    done = allocate(manager, state, pod, pod.spec.containers[0], None)
    assert isinstance(done.verdict, Granted)
    assert done.verdict.value == {GPU: ("a",), NIC: ("n",)}
    pod = both(1, 2)
    done = allocate(manager, state, pod, pod.spec.containers[0], None)
    assert isinstance(done.verdict, Refused)
    assert container_device_ids(done.state, "p", "main") == {GPU: ("a",)}


def test_what_a_resource_claim_provides_is_left_to_it() -> None:
    mapping = [{"containerName": "main", "resourceName": GPU}]
    claimed = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mapping}}
    pod = a_pod("p", {}, {GPU: 1, NIC: 1}, status=claimed)
    state = DeviceState.of({GPU: some_devices("a"), NIC: some_devices("n")})
    held = {}
    for gate in (True, False):
        gates = resolve_gates({"DRAExtendedResource": gate}, release=RELEASE_TABLES["1.36"]).gates
        manager = DeviceManager.of([], {GPU: (), NIC: ()}, gates=gates)
        done = allocate(manager, state, pod, pod.spec.containers[0], None)
        held[gate] = container_device_ids(done.state, "p", "main")
    assert held == {True: {NIC: ("n",)}, False: {GPU: ("a",), NIC: ("n",)}}


# ---------------------------------------------------------------- what there is


def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones() -> None:
    state = DeviceState.of({GPU: some_devices("a !b c"), NIC: ()}, {"p": {"app": {GPU: frozenset("a")}}})
    assert device_capacity(state) == {GPU: 3, NIC: 0}
    assert device_allocatable(state) == {GPU: 2, NIC: 0}
    assert free_devices(state) == {GPU: ("c",), NIC: ()}
    assert in_use_counts(state) == {GPU: 1}


def test_a_device_that_is_listed_twice_counts_for_both_but_is_as_it_was_listed_last() -> None:
    state = DeviceState.of({GPU: some_devices("a@0 !a@1")})
    assert (device_capacity(state), device_allocatable(state)) == ({GPU: 2}, {GPU: 1})
    assert state.device_lists[GPU].numa_masks == {"a": 0b10}


def test_of_a_pod_that_is_gone_nothing_is_kept() -> None:
    on = node(held={"p": "a", "q": "b"})
    on.gone("p")
    assert on.in_use == "b"
    assert container_device_ids(on.state, "p", "app") == {}


# ---------------------------------------------------------------- the kubelet starts again


def test_after_a_restart_of_the_kubelet_running_containers_keep_their_devices() -> None:
    on = node("a@0 b@0", held={"p": "a", "q": "b"})
    on.state = on.state.after_restart({("p", "app")})
    assert on.in_use == "a b"
    assert device_capacity(on.state) == {GPU: 0}
    assert on.serve(a_pod_with_devices("p", app=1)) == "a"
    assert on.serve(a_pod_with_devices("p", app=2)) == "DeviceRequestChanged"


def test_after_a_reboot_containers_wait_for_the_plugin() -> None:
    on = node("a@0 b@0", held={"p": "a"})
    on.state = on.state.after_restart()
    assert on.serve(a_pod_with_devices("p", app=1)) == "NoHealthyDevices"
    on.state = on.state.with_devices(GPU, some_devices("a@0 b@0"))
    assert on.serve(a_pod_with_devices("p", app=1)) == "a"


def test_nothing_is_collected_before_the_kubelet_knows_all_its_pods() -> None:
    on = node("a@0 b@0", held={"p": "a"})
    on.state = on.state.after_restart()
    on.gone("p")
    assert on.in_use == "a"
    on.state = without_inactive_pods(on.state.with_all_pods_known(), {})
    assert on.in_use == ""
