"""Device managers, memory managers and their pods in a few words."""

from collections.abc import Mapping

from nodewright.engine.core.devices.device_state import DeviceManager, PluginBehavior, lowest
from nodewright.engine.core.memory.memory_allocation import allocate_container_memory
from nodewright.engine.core.memory.memory_policy import (
    MemorySettings,
    Reservation,
    StaticMemoryPolicy,
    create_memory_policy,
)
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.core.requests.managed_pods import DEFAULT_MANAGER_GATES, ManagerGates
from nodewright.model.hardware import HugePages, NUMANode
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint
from nodewright.testing import objects
from nodewright.testing.objects import a_pod, amounts, container

GPU = "example.com/gpu"


def some_devices(text: str) -> tuple[Device, ...]:
    """Devices by their ids: `a@0` is on NUMA node 0, `a@0,2` on two nodes, `a@` on none, `a` is unspecified.

    A `!` before the id: it is not healthy.

    >>> [(device.id, device.numa_nodes, device.healthy) for device in some_devices("a@0,2 !b c@")]
    [('a', (0, 2), True), ('b', None, False), ('c', (), True)]
    """
    return tuple(map(_device, text.split()))


def a_device_manager(numa: str = "0-1", plugin: PluginBehavior | None = None, **more: bool) -> DeviceManager:
    """The device manager of a machine with these NUMA nodes and a plugin of GPUs, which prefers the lowest."""
    return DeviceManager(numa=NUMASet.parse(numa), plugins={GPU: plugin or PluginBehavior(lowest)}, **more)


def a_pod_with_devices(
    name: str, init: Mapping[str, int] | None = None, resource: str = GPU, **containers: int
) -> Pod:
    """A pod whose containers request these numbers of devices; an init container named `side…` is a sidecar.

    >>> [container.name for container in a_pod_with_devices("p", {"load": 1, "side": 2}, app=1).spec.init_containers]
    ['load', 'side']
    """

    def spec(container: str, count: int) -> dict[str, object]:
        limits = {"cpu": "1", resource: count}
        made: dict[str, object] = {"name": container, "resources": {"requests": limits, "limits": limits}}
        return made | ({"restartPolicy": "Always"} if container.startswith("side") else {})

    return a_pod(
        name,
        containers=[spec(container, count) for container, count in containers.items()],
        initContainers=[spec(container, count) for container, count in (init or {}).items()],
    )


def _device(text: str) -> Device:
    name, at, nodes = text.partition("@")
    numa = tuple(map(int, nodes.split(","))) if nodes else ()
    return Device(id=name.lstrip("!"), numa_nodes=numa if at else None, healthy=not name.startswith("!"))


MIB = 2**20
RESERVED = amounts("memory=10Mi")
STATIC = MemorySettings(policy="Static", reserved=(Reservation(0, RESERVED),), node_allocatable=RESERVED)
"""10 MiB of node 0 are reserved for the system."""
ALL_GATES = ManagerGates(pod_level_resources=True, pod_level_managers=True)
NO_AFFINITY = Hint(None, preferred=False)


def numa_nodes(*mebibytes: int, pages: int = 0) -> list[NUMANode]:
    """NUMA nodes with this memory each, of which this number of pages of 2 MiB."""
    huge = (HugePages(2048, pages),) if pages else ()
    return [NUMANode(node_id=at, memory=size * MIB, hugepages=huge) for at, size in enumerate(mebibytes)]


def memory_policy(
    *mebibytes: int, pages: int = 0, gates: ManagerGates = DEFAULT_MANAGER_GATES
) -> StaticMemoryPolicy:
    """The static policy on such nodes, with 10 MiB of the first reserved.

    >>> memory_policy(100, 100).initial_machine[0].tables["memory"].allocatable // MIB
    90
    """
    settings = MemorySettings(
        policy=STATIC.policy, reserved=STATIC.reserved, node_allocatable=STATIC.node_allocatable, gates=gates
    )
    made = create_memory_policy(numa_nodes(*mebibytes, pages=pages), settings)
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticMemoryPolicy)
    return made.value


def a_guaranteed_container(name: str, memory: str) -> Container:
    """A container with one CPU and such memory, requests equal to limits.

    >>> str(a_guaranteed_container("app", "memory=1Gi").resources.limits["memory"])
    '1Gi'
    """
    return container(name, f"cpu=1 {memory}", f"cpu=1 {memory}")


def a_memory_pod(uid: str, *apps: Container, init: tuple[Container, ...] = (), whole: str = "") -> Pod:
    """A pod with these containers, and optional pod-level resources.

    >>> a_memory_pod("p", whole="cpu=1 memory=1Gi").spec.resources is None
    False
    """
    return objects.pod(*apps, name=uid, uid=uid, init=init, whole=whole)


def state_after_allocation(
    state: MemoryState, policy: StaticMemoryPolicy, pod: Pod, name: str, where: Hint
) -> MemoryState:
    """The state with that container of the pod placed on the hinted nodes.

    >>> policy = memory_policy(100)
    >>> state = state_after_allocation(MemoryState(policy.initial_machine), policy, a_memory_pod("p", a_guaranteed_container("app", "memory=9Mi")), "app", Hint(None, preferred=True))
    >>> state.machine[0].assignments
    1
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    chosen = next(each for each in containers if each.name == name)
    result = allocate_container_memory(policy, state, policy.demand(pod), chosen, where)
    assert isinstance(result.verdict, Granted), result.verdict
    return result.state
