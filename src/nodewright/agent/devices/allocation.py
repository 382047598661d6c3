"""The container options in device plugins' Allocate responses."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from nodewright.agent.devices import deviceplugin_pb2 as api
from nodewright.agent.devices.protocols import DeviceRunContainerOptions
from nodewright.agent.host.ports import DeviceSpec, Mount

T = TypeVar("T")


def run_container_options(responses: Iterable[bytes]) -> DeviceRunContainerOptions:
    """The options of several ContainerAllocateResponses together; of two for the same target the first counts.

    Follows: v1.36, devicemanager/pod_devices.go, deviceRunContainerOptions.
    Departs: ordered by resource name, where the kubelet iterates over a map in random order.

    >>> first = api.ContainerAllocateResponse(envs={"GPU": "0"}, devices=[api.DeviceSpec(host_path="/dev/a")])
    >>> second = api.ContainerAllocateResponse(envs={"GPU": "1"}, cdi_devices=[api.CDIDevice(name="v.com/nic=n")])
    >>> options = run_container_options([first.SerializeToString(), second.SerializeToString()])
    >>> options.env, options.devices[0].host_path, options.cdi_devices
    ({'GPU': '0'}, '/dev/a', ('v.com/nic=n',))
    """
    decoded = [api.ContainerAllocateResponse.FromString(response) for response in responses]
    mounts = [
        Mount(host_path=mount.host_path, container_path=mount.container_path, is_read_only=mount.read_only)
        for response in decoded
        for mount in response.mounts
    ]
    devices = [
        DeviceSpec(
            host_path=device.host_path, container_path=device.container_path, permissions=device.permissions
        )
        for response in decoded
        for device in response.devices
    ]
    return DeviceRunContainerOptions(
        env={name: text for response in reversed(decoded) for name, text in sorted(response.envs.items())},
        mounts=_first(mounts, lambda mount: mount.container_path),
        devices=_first(devices, lambda device: device.container_path),
        annotations={
            name: text
            for response in reversed(decoded)
            for name, text in sorted(response.annotations.items())
        },
        cdi_devices=_first([cdi.name for response in decoded for cdi in response.cdi_devices], str),
    )


def _first(values: Sequence[T], key: Callable[[T], str]) -> tuple[T, ...]:
    """The values without later ones of the same key."""
    by_key = {key(value): value for value in reversed(values)}
    return tuple(reversed(by_key.values()))
