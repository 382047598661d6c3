"""The device manager's books balance, and its hints and choices are those of slow, obvious ones."""

from collections import Counter
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_managers import GPU, a_pod_with_devices

from nodewright.engine.core.devices.device_assignment import (
    allocate,
    device_hints,
    free_devices,
    without_inactive_pods,
)
from nodewright.engine.core.devices.device_state import (
    DeviceList,
    DeviceManager,
    DeviceState,
    PluginBehavior,
    device_stock,
    highest,
    lowest,
)
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import DevicesChosen, NotEnoughDevices
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet

NODES = st.lists(st.sampled_from((0, 1, 2, 3, 9)), min_size=0, max_size=3, unique=True)
AFFINITIES = st.none() | st.integers(1, 15).map(NUMASet)
PLUGINS = st.sampled_from((PluginBehavior(), PluginBehavior(lowest), PluginBehavior(highest)))


@st.composite
def device_lists(draw: st.DrawFn) -> tuple[Device, ...]:
    """Up to a dozen devices, on NUMA nodes that the machine may not have, some of them not healthy."""
    return tuple(
        Device(
            id=f"d{at}",
            numa_nodes=draw(st.none() | NODES.map(tuple)),
            healthy=draw(st.integers(0, 5)) > 0,
        )
        for at in range(draw(st.integers(1, 12)))
    )


@st.composite
def managers(draw: st.DrawFn) -> DeviceManager:
    return DeviceManager(numa=NUMASet((1 << draw(st.integers(1, 4))) - 1), plugins={GPU: draw(PLUGINS)})


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    """Pods with init containers, sidecars and app containers."""
    made = []
    for at in range(draw(st.integers(1, 6))):
        init = {name: draw(st.integers(0, 3)) for name in ("load", "side") if draw(st.booleans())}
        apps = {name: draw(st.integers(0, 4)) for name in ("app", "log")[: draw(st.integers(1, 2))]}
        made.append(a_pod_with_devices(f"p{at}", init, GPU, **apps))
    return made


def arrived(manager: DeviceManager, state: DeviceState, pod: Pod, numa: NUMASet | None) -> DeviceState | None:
    """The state with every container of the pod, or None where one is refused."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        done = allocate(manager, state, pod, container, numa)
        state = done.state
        if not isinstance(done.verdict, Granted):
            return None
        assert len(done.verdict.value.get(GPU, ())) == container.resources.limits[GPU].value()
    return state


@given(manager=managers(), devices=device_lists(), sequence=pods(), numa=AFFINITIES)
def test_no_device_has_two_owners_and_release_undoes_take(
    manager: DeviceManager, devices: tuple[Device, ...], sequence: list[Pod], numa: NUMASet | None
) -> None:
    state = first = DeviceState.of({GPU: devices})
    here: dict[str, tuple[str, ...]] = {}
    for pod in sequence:
        after = arrived(manager, state, pod, numa)
        if after is None:
            continue
        left = without_inactive_pods(after, here)
        assert (left.pod_devices, free_devices(left)) == (state.pod_devices, free_devices(state))
        state, here[pod.uid] = after, ()
        of_pods = Counter(device for uid in state.pod_devices for device in state.devices_of_pod(uid, GPU))
        assert all(owners == 1 for owners in of_pods.values())
        assert of_pods.keys() == state.in_use.get(GPU, frozenset())
        assert of_pods.keys() <= first.device_lists[GPU].healthy
    assert free_devices(without_inactive_pods(state, {})) == free_devices(first)


@given(manager=managers(), devices=device_lists(), pod=pods(), numa=AFFINITIES)
def test_containers_that_are_alive_together_share_no_device(
    manager: DeviceManager, devices: tuple[Device, ...], pod: list[Pod], numa: NUMASet | None
) -> None:
    state = DeviceState.of({GPU: devices})
    for each in pod:
        state = arrived(manager, state, each, numa) or state
        together = [c.name for c in each.spec.containers]
        together += [c.name for c in each.spec.init_containers if c.is_sidecar]
        owners = Counter(
            device for name in together for device in state.container_devices(each.uid, name).get(GPU, ())
        )
        assert all(count == 1 for count in owners.values())


@st.composite
def wishes(draw: st.DrawFn) -> tuple[DeviceManager, DeviceList, frozenset[str], frozenset[str], int]:
    """A machine, its devices, those that are free, those that are reusable, and a request."""
    manager, listed = draw(managers()), DeviceList.of(draw(device_lists()))
    marks = {name: draw(st.integers(0, 5)) for name in listed.devices}
    free = frozenset(name for name, mark in marks.items() if mark > 2)
    reusable = frozenset(name for name, mark in marks.items() if mark == 0)
    return manager, listed, free, reusable, draw(st.integers(0, 8))


@given(wish=wishes())
def test_hints_are_those_of_trying_every_set_of_numa_nodes(
    wish: tuple[DeviceManager, DeviceList, frozenset[str], frozenset[str], int],
) -> None:
    manager, listed, free, reusable, requested = wish
    nodes_of = {name: set(device.numa_nodes or ()) for name, device in listed.devices.items()}
    hosts = set().union(*nodes_of.values()) & set(manager.numa)
    nodes = sorted(hosts or manager.numa)
    sets = [set(numa) for size in range(1, len(nodes) + 1) for numa in combinations(nodes, size)]
    demanded = [name for name in reusable if listed.devices[name].numa_nodes is not None]

    def count(names: set[str], numa: set[int]) -> int:
        return sum(1 for name in names if nodes_of[name] & numa)

    sizes = [len(numa) for numa in sets if count(set(nodes_of), numa) >= requested]
    smallest = min(sizes, default=len(nodes))
    expected = [
        (sorted(numa), len(numa) == smallest)
        for numa in sets
        if all(nodes_of[name] & numa for name in demanded)
        and count(set(free), numa) + len(demanded) >= requested
    ]
    hint_list = device_hints(manager, listed, free, reusable, requested)
    assert [(list(hint.numa or ()), hint.preferred) for hint in hint_list] == expected
    assert bool(hint_list) == bool(expected)


@given(manager=managers(), devices=device_lists(), asked=st.integers(1, 8), numa=AFFINITIES)
def test_no_device_is_taken_before_one_that_comes_first(
    manager: DeviceManager, devices: tuple[Device, ...], asked: int, numa: NUMASet | None
) -> None:
    """As long as aligned devices are free, no other one is taken; the last rank is of those without a place."""
    pod = a_pod_with_devices("p", app=asked)
    state = DeviceState.of({GPU: devices})
    done = allocate(manager, state, pod, pod.spec.containers[0], numa)
    if not isinstance(done.verdict, Granted):
        return
    (chosen,) = done.verdict.because
    assert isinstance(chosen, DevicesChosen)
    taken = [name for tier in chosen.tiers for name in tier.taken]
    assert len(set(taken)) == len(taken) == asked
    if numa is None:
        return
    aligned = {device.id for device in devices if device.healthy and set(device.numa_nodes or ()) & set(numa)}
    assert len(aligned & {*taken}) == min(asked, len(aligned))


@given(devices=device_lists(), held=st.integers(0, 4), asked=st.integers(1, 12))
def test_a_shortage_is_exact(devices: tuple[Device, ...], held: int, asked: int) -> None:
    """With one device less asked for than are free, the container gets them; with what is free, too."""
    healthy = [device.id for device in devices if device.healthy]
    books = {"q": {"app": {GPU: frozenset(healthy[:held])}}} if healthy[:held] else {}
    state = DeviceState.of({GPU: devices}, books)
    manager = DeviceManager(numa=NUMASet.of(0), plugins={GPU: PluginBehavior()})
    pod = a_pod_with_devices("p", app=asked)
    done = allocate(manager, state, pod, pod.spec.containers[0], None)
    stock = device_stock(state, GPU)
    assert stock.free == len(healthy[held:])
    assert stock.registered == len(devices)
    assert stock.healthy == len(healthy)
    if isinstance(done.verdict, Granted):
        assert asked <= stock.free
        return
    (short,) = done.verdict.because
    if isinstance(short, NotEnoughDevices):
        assert short.available == stock.free < asked
        fewer = a_pod_with_devices("p", app=stock.free)
        done = allocate(manager, state, fewer, fewer.spec.containers[0], None)
        assert isinstance(done.verdict, Granted)
