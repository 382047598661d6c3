"""Which devices there are and who has them: the device manager's state, as a value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.core.devices.manager import PluginError
from nodewright.model.profile import Device
from nodewright.values.idset import LARGEST_ID

Ids: TypeAlias = frozenset[str]
Held: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Ids]]]
"""Devices by pod uid, container name and resource."""

NONE: Ids = frozenset()
NOWHERE = -1
"""The NUMA node of devices without one."""


@dataclass(frozen=True, slots=True)
class DeviceList:
    """The devices of one resource as its plugin listed them last. A device listed twice is as it was listed last."""

    devices: Mapping[str, Device]
    healthy: Ids
    unhealthy: Ids
    masks: Mapping[str, int]
    """The NUMA nodes of each device, as a mask."""
    counts: tuple[tuple[int, int], ...]
    """How many devices there are for each mask, healthy or not."""
    placeless: Ids
    """Devices that name no NUMA node."""
    has_topology: bool
    """Whether any device names a NUMA node."""

    @classmethod
    def of(cls, listed: Iterable[Device]) -> Self:
        """The list of these devices."""
        listed = tuple(listed)
        devices = {device.id: device for device in listed}
        masks = {name: _mask(device.numa_nodes or ()) for name, device in devices.items()}
        counts: dict[int, int] = {}
        for mask in masks.values():
            counts[mask] = counts.get(mask, 0) + 1
        return cls(
            devices=devices,
            healthy=frozenset(device.id for device in listed if device.healthy),
            unhealthy=frozenset(device.id for device in listed if not device.healthy),
            masks=masks,
            counts=tuple(sorted(counts.items())),
            placeless=frozenset(
                name for name, device in devices.items() if not {*(device.numa_nodes or ())} - {NOWHERE}
            ),
            has_topology=any(device.numa_nodes for device in devices.values()),
        )


UNLISTED = DeviceList.of(())


class Reusable(msgspec.Struct, frozen=True):
    """Devices of a pod's init containers by resource, which its other containers take over first."""

    pod: str
    devices: Mapping[str, Ids]


class Given(msgspec.Struct, frozen=True):
    """What a plugin said when it handed devices of its resource to a container."""

    numa: Mapping[str, tuple[int, ...]] = {}
    """The NUMA nodes of each device at that time; a device that had none is missing."""
    response: bytes = b""
    """Its answer, which says what the container gets: a ContainerAllocateResponse as protobuf has it."""


class Asking(msgspec.Struct, frozen=True):
    """What plugins said about the pod that is being looked at."""

    answers: Mapping[tuple[str, str], tuple[str, ...] | PluginError] = {}
    """Which devices they prefer, by container and resource."""
    can_ask: bool = False
    """Whether a plugin that has not answered yet is asked; else it counts as having no preference."""


NOBODY_ASKED = Asking()


class DeviceState(msgspec.Struct, frozen=True):
    """The devices, and who has which. Never changed in place.

    Follows: v1.36, devicemanager/manager.go, ManagerImpl; `reusable` is lost at a restart of the kubelet.
    """

    lists: Mapping[str, DeviceList] = {}
    """The devices of every registered resource."""
    held: Held = {}
    in_use: Mapping[str, Ids] = {}
    """The devices by resource that are not given to others. The kubelet keeps this beside `held`: it can be more."""
    reusable: Reusable | None = None
    running: frozenset[tuple[str, str]] | None = None
    """While a kubelet that has just started does not know all pods: the containers that it found running."""
    given: Mapping[str, Mapping[str, Mapping[str, Given]]] = {}
    """What plugins said of what is held, by pod uid, container name and resource: where plugins are real ones."""
    asking: Asking = NOBODY_ASKED
    """While a pod is looked at."""

    @classmethod
    def of(cls, devices: Mapping[str, Iterable[Device]], held: Held | None = None) -> Self:
        """The state after all plugins have registered, in which containers hold these devices."""
        lists = {resource: DeviceList.of(listed) for resource, listed in devices.items()}
        return cls(lists=lists, held=held or {}, in_use=_all_held(held or {}))

    def knows(self, resource: str) -> bool:
        """Whether the resource is, or was, one of device plugins.

        Follows: v1.36, devicemanager/manager.go, isDevicePluginResource.
        """
        return resource in self.lists or resource in self.in_use

    def free(self, resource: str) -> Ids:
        """The healthy devices that are not in use."""
        return self.lists.get(resource, UNLISTED).healthy - self.in_use.get(resource, NONE)

    def is_healthy(self, resource: str, device: str) -> bool:
        """Whether its plugin lists the device as healthy; one that is not listed counts as that, too."""
        listed = self.lists.get(resource, UNLISTED)
        return device in listed.healthy or device not in listed.devices

    def of_container(self, pod: str, container: str) -> Mapping[str, Ids]:
        """What the container holds, by resource."""
        return self.held.get(pod, {}).get(container, {})

    def of_pod(self, pod: str, resource: str) -> Ids:
        """What the containers of the pod hold together."""
        return NONE.union(*(held.get(resource, NONE) for held in self.held.get(pod, {}).values()))

    def reusable_by(self, pod: str) -> Mapping[str, Ids]:
        """What the pod's next container takes over first, by resource."""
        return self.reusable.devices if self.reusable is not None and self.reusable.pod == pod else {}

    def given_to(self, pod: str, container: str) -> Mapping[str, Given]:
        """What plugins said of what the container holds, by resource."""
        return self.given.get(pod, {}).get(container, {})

    def with_given(self, pod: str, container: str, resource: str, response: bytes) -> "DeviceState":
        """The state in which the plugin has handed out what the container holds of the resource, and said this."""
        listed = self.lists.get(resource, UNLISTED).devices
        ids = self.of_container(pod, container).get(resource, NONE)
        numa = {one: nodes for one in sorted(ids) if one in listed and (nodes := listed[one].numa_nodes)}
        containers = self.given.get(pod, {})
        of_container = {**containers.get(container, {}), resource: Given(numa, response)}
        return replace(self, given={**self.given, pod: {**containers, container: of_container}})

    def holders(self, resource: str) -> Iterator[tuple[str, str, Ids]]:
        """Every pod and container that holds devices of the resource, by name, and which."""
        for pod, containers in sorted(self.held.items()):
            for container, held in sorted(containers.items()):
                if held.get(resource):
                    yield pod, container, held[resource]

    def with_devices(self, resource: str, devices: Iterable[Device]) -> "DeviceState":
        """The state after the plugin sent this list of devices."""
        return replace(self, lists={**self.lists, resource: DeviceList.of(devices)})

    def without_resource(self, resource: str) -> "DeviceState":
        """The state when the resource is registered no longer; who holds devices of it keeps them."""
        return replace(self, lists={name: listed for name, listed in self.lists.items() if name != resource})

    def with_held(self, pod: str, container: str, resource: str, devices: Ids) -> "DeviceState":
        """The state in which the container holds these devices of the resource."""
        containers = self.held.get(pod, {})
        of_container = {**containers.get(container, {}), resource: devices}
        return replace(self, held={**self.held, pod: {**containers, container: of_container}})

    def with_in_use(self, resource: str, devices: Ids) -> "DeviceState":
        """The state in which these devices are in use, too."""
        return replace(self, in_use={**self.in_use, resource: self.in_use.get(resource, NONE) | devices})

    def recounted(self) -> "DeviceState":
        """The state in which just those devices are in use that containers hold."""
        return replace(self, in_use=_all_held(self.held))

    def restarted(self, running: Collection[tuple[str, str]] = ()) -> "DeviceState":
        """The state when the kubelet has started anew: no plugin has listed devices yet.

        `running` are the containers (pod uid, name) that the runtime reports as running; after a reboot, none.

        Follows: v1.36, devicemanager/manager.go, Start, readCheckpoint.
        """
        lists = dict.fromkeys(self.lists, UNLISTED)
        in_use = _all_held(self.held)
        return DeviceState(lists, self.held, in_use, running=frozenset(running), given=self.given)

    def with_all_pods_known(self) -> "DeviceState":
        """The state when the kubelet has heard of all its pods."""
        return replace(self, running=None)


def _all_held(held: Held) -> dict[str, Ids]:
    together: dict[str, Ids] = {}
    for containers in held.values():
        for resources in containers.values():
            for resource, devices in resources.items():
                together[resource] = together.get(resource, NONE) | devices
    return together


def _mask(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        # A plugin may say anything; beyond these there is no machine.
        if 0 <= node <= LARGEST_ID:
            mask |= 1 << node
    return mask
