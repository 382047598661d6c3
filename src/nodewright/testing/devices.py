"""Devices and pods that ask for them, in a few words, for tests and notebooks."""

from collections.abc import Mapping

from nodewright.core.devices import DeviceManager
from nodewright.core.devices.manager import Plugin, lowest
from nodewright.model.objects import Pod
from nodewright.model.profile import Device
from nodewright.testing.objects import a_pod
from nodewright.values.idset import NUMASet

GPU = "example.com/gpu"


def some_devices(text: str) -> tuple[Device, ...]:
    """Devices by their ids: `a@0` is on NUMA node 0, `a@0,2` on two of them, `a@` on none, `a` does not say.

    A `!` before the id: it is not healthy.

    >>> [(one.id, one.numa_nodes, one.healthy) for one in some_devices("a@0,2 !b c@")]
    [('a', (0, 2), True), ('b', None, False), ('c', (), True)]
    """
    return tuple(map(_device, text.split()))


def a_device_manager(numa: str = "0-1", plugin: Plugin | None = None, **more: bool) -> DeviceManager:
    """The device manager of a machine with these NUMA nodes and a plugin of GPUs, which prefers the lowest."""
    return DeviceManager(numa=NUMASet.parse(numa), plugins={GPU: plugin or Plugin(lowest)}, **more)


def a_pod_with(
    name: str, init: Mapping[str, int] | None = None, resource: str = GPU, **containers: int
) -> Pod:
    """A pod whose containers ask for so many devices each; an init container called `side…` is a sidecar.

    >>> [one.name for one in a_pod_with("p", {"load": 1, "side": 2}, app=1).spec.init_containers]
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
