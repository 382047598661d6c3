"""What plugins said when they handed out devices, as what a container is to have."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from nodewright.world.plugins import deviceplugin_pb2 as api
from nodewright.world.plugins.port import Gear
from nodewright.world.ports import Device, Mount

T = TypeVar("T")


def gear_of(responses: Iterable[bytes]) -> Gear:
    """All of it together, each a ContainerAllocateResponse; where two want the same, the first has it.

    Follows: v1.36, devicemanager/pod_devices.go, deviceRunContainerOptions.
    Departs: by resource, in the order of its name, where the kubelet walks a map in random order.

    >>> first = api.ContainerAllocateResponse(envs={"GPU": "0"}, devices=[api.DeviceSpec(host_path="/dev/a")])
    >>> second = api.ContainerAllocateResponse(envs={"GPU": "1"}, cdi_devices=[api.CDIDevice(name="v.com/nic=n")])
    >>> found = gear_of([first.SerializeToString(), second.SerializeToString()])
    >>> found.env, found.devices[0].host_path, found.cdi_devices
    ({'GPU': '0'}, '/dev/a', ('v.com/nic=n',))
    """
    said = [api.ContainerAllocateResponse.FromString(one) for one in responses]
    mounts = [
        Mount(host_path=mount.host_path, container_path=mount.container_path, is_read_only=mount.read_only)
        for one in said
        for mount in one.mounts
    ]
    devices = [
        Device(
            host_path=device.host_path, container_path=device.container_path, permissions=device.permissions
        )
        for one in said
        for device in one.devices
    ]
    return Gear(
        env={name: text for one in reversed(said) for name, text in sorted(one.envs.items())},
        mounts=_first(mounts, lambda mount: mount.container_path),
        devices=_first(devices, lambda device: device.container_path),
        annotations={name: text for one in reversed(said) for name, text in sorted(one.annotations.items())},
        cdi_devices=_first([cdi.name for one in said for cdi in one.cdi_devices], str),
    )


def _first(found: Sequence[T], key: Callable[[T], str]) -> tuple[T, ...]:
    """Without those that come after another one of their key."""
    by_key = {key(one): one for one in reversed(found)}
    return tuple(reversed(by_key.values()))
