"""The device manager's state, as a value: the listed devices and their holders; and the stock of a resource.

The immutable part of the device manager: the machine's NUMA nodes and the device plugins.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Self, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.hardware import NUMANode
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import DeviceHolder, DevicesAt, DeviceStock
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates
from nodewright.model.values.idset import LARGEST_ID, NUMASet

DeviceIdSet: TypeAlias = frozenset[str]
PodDevices: TypeAlias = Mapping[str, Mapping[str, Mapping[str, DeviceIdSet]]]
"""Devices by pod uid, container name and resource."""

NO_DEVICES: DeviceIdSet = frozenset()
NO_NUMA_NODE = -1
"""The NUMA node of devices without one."""


class DeviceList(msgspec.Struct, frozen=True):
    """The devices of one resource in its plugin's last list.

    Of a duplicate id the last entry counts; but if its entries differ in health, it is both healthy and unhealthy.
    """

    devices: Mapping[str, Device]
    healthy: DeviceIdSet
    unhealthy: DeviceIdSet
    numa_masks: Mapping[str, int]
    """The NUMA nodes of each device, as a mask."""
    count_by_mask: tuple[tuple[int, int], ...]
    """The number of devices for each mask, healthy or not."""
    without_numa: DeviceIdSet
    """Devices without a NUMA node."""
    has_topology: bool
    """Whether any device has a NUMA node."""

    @classmethod
    def of(cls, listed: Iterable[Device]) -> Self:
        """The devices that a plugin lists."""
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
            numa_masks=masks,
            count_by_mask=tuple(sorted(counts.items())),
            without_numa=frozenset(
                name for name, device in devices.items() if not {*(device.numa_nodes or ())} - {NO_NUMA_NODE}
            ),
            has_topology=any(device.numa_nodes for device in devices.values()),
        )


def _mask(nodes: Iterable[int]) -> int:
    mask = 0
    for node in nodes:
        # A plugin may report any number; larger ones exist on no machine.
        if 0 <= node <= LARGEST_ID:
            mask |= 1 << node
    return mask


EMPTY_DEVICE_LIST = DeviceList.of(())


class ReusableDevices(msgspec.Struct, frozen=True):
    """Devices of a pod's init containers by resource, which its later containers reuse first."""

    pod: str
    devices: Mapping[str, DeviceIdSet]


class AllocationResponse(msgspec.Struct, frozen=True):
    """A plugin's response to the allocation of devices to a container."""

    numa_nodes: Mapping[str, tuple[int, ...]] = {}
    """The NUMA nodes of each device at that time; devices without one are omitted."""
    response: bytes = b""
    """The ContainerAllocateResponse in protobuf encoding."""


class DevicePluginError(msgspec.Struct, frozen=True):
    """An error that a plugin returns."""

    text: str


class PreferredAllocations(msgspec.Struct, frozen=True):
    """The plugins' preferences for the pod that is being admitted."""

    answers: Mapping[tuple[str, str], tuple[str, ...] | DevicePluginError] = {}
    """The preferred devices by container and resource."""
    asks_plugins: bool = False
    """Whether a plugin without a recorded response is queried; else it counts as having no preference."""


NO_PREFERENCES = PreferredAllocations()


class DeviceState(msgspec.Struct, frozen=True):
    """The devices and their holders.

    Follows: v1.36, devicemanager/manager.go, ManagerImpl; `reusable` is lost at a restart of the kubelet.
    """

    device_lists: Mapping[str, DeviceList] = {}
    """The devices of every registered resource."""
    pod_devices: PodDevices = {}
    in_use: Mapping[str, DeviceIdSet] = {}
    """The devices in use by resource. The kubelet stores this beside `pod_devices`, and it can be more."""
    reusable: ReusableDevices | None = None
    running_at_start: frozenset[tuple[str, str]] | None = None
    """The containers that run when the kubelet starts; None once the kubelet's pod sources are ready."""
    allocation_responses: Mapping[str, Mapping[str, Mapping[str, AllocationResponse]]] = {}
    """The responses of running plugins by pod uid, container name and resource."""
    unwritten: frozenset[tuple[str, str, str]] = frozenset()
    """The pod uid, container name and resource of devices that the checkpoint does not have: of a container of which
    another resource was refused. The next allocation or device list writes them, a restart forgets them."""
    preferred_allocations: PreferredAllocations = NO_PREFERENCES
    """Set while a pod is being admitted."""

    @classmethod
    def of(cls, devices: Mapping[str, Iterable[Device]], held: PodDevices | None = None) -> Self:
        """The state in which all plugins are registered and containers hold the devices in `held`."""
        lists = {resource: DeviceList.of(listed) for resource, listed in devices.items()}
        return cls(device_lists=lists, pod_devices=held or {}, in_use=_all_held(held or {}))

    @property
    def has_devices(self) -> bool:
        """Whether a device plugin has, or had, registered any resource."""
        return bool(self.device_lists or self.in_use)

    def is_device_plugin_resource(self, resource: str) -> bool:
        """Whether the resource is, or was, registered by a device plugin.

        Follows: v1.36, devicemanager/manager.go, isDevicePluginResource.
        """
        return resource in self.device_lists or resource in self.in_use

    def concerns(self, pod: Pod) -> bool:
        """Whether there are hints for the pod, or its allocation changes the state."""
        if self.reusable is not None or pod.metadata.uid in self.pod_devices:
            return True
        device_lists, in_use = self.device_lists, self.in_use
        if not device_lists and not in_use:
            return False
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            for resource in container.resources.limits:
                if resource in device_lists or resource in in_use:
                    return True
        return False

    def free(self, resource: str) -> DeviceIdSet:
        """The healthy devices that are not in use."""
        return self.device_lists.get(resource, EMPTY_DEVICE_LIST).healthy - self.in_use.get(
            resource, NO_DEVICES
        )

    def is_healthy(self, resource: str, device: str) -> bool:
        """Whether the device is healthy; a device that its plugin does not list counts as healthy."""
        listed = self.device_lists.get(resource, EMPTY_DEVICE_LIST)
        return device in listed.healthy or device not in listed.devices

    def container_devices(self, pod: str, container: str) -> Mapping[str, DeviceIdSet]:
        """The container's devices by resource."""
        return self.pod_devices.get(pod, {}).get(container, {})

    def devices_of_pod(self, pod: str, resource: str) -> DeviceIdSet:
        """The devices of all containers of the pod."""
        return NO_DEVICES.union(
            *(held.get(resource, NO_DEVICES) for held in self.pod_devices.get(pod, {}).values())
        )

    def reusable_by(self, pod: str) -> Mapping[str, DeviceIdSet]:
        """The devices that the pod's next container reuses first, by resource."""
        return self.reusable.devices if self.reusable is not None and self.reusable.pod == pod else {}

    def responses_of(self, pod: str, container: str) -> Mapping[str, AllocationResponse]:
        """The plugins' responses for the container's devices, by resource."""
        return self.allocation_responses.get(pod, {}).get(container, {})

    def with_allocation_response(
        self, pod: str, container: str, resource: str, response: bytes
    ) -> "DeviceState":
        """The state with the plugin's response for the container's devices of the resource."""
        listed = self.device_lists.get(resource, EMPTY_DEVICE_LIST).devices
        ids = self.container_devices(pod, container).get(resource, NO_DEVICES)
        numa = {id_: nodes for id_ in sorted(ids) if id_ in listed and (nodes := listed[id_].numa_nodes)}
        containers = self.allocation_responses.get(pod, {})
        of_container = {**containers.get(container, {}), resource: AllocationResponse(numa, response)}
        return replace(
            self,
            allocation_responses={**self.allocation_responses, pod: {**containers, container: of_container}},
        )

    def holders(self, resource: str) -> Iterator[tuple[str, str, DeviceIdSet]]:
        """The holders of devices of the resource, by pod and container name, with their devices."""
        for pod, containers in sorted(self.pod_devices.items()):
            for container, held in sorted(containers.items()):
                if held.get(resource):
                    yield pod, container, held[resource]

    def with_devices(self, resource: str, devices: Iterable[Device]) -> "DeviceState":
        """The state after the plugin's ListAndWatch sends this list."""
        lists = {**self.device_lists, resource: DeviceList.of(devices)}
        return replace(self, device_lists=lists, unwritten=frozenset())

    def without_resource(self, resource: str) -> "DeviceState":
        """The state after the resource is unregistered; containers keep its devices."""
        return replace(
            self,
            device_lists={name: listed for name, listed in self.device_lists.items() if name != resource},
        )

    def with_container_devices(
        self, pod: str, container: str, resource: str, devices: DeviceIdSet
    ) -> "DeviceState":
        """The state with these devices of the resource assigned to the container."""
        containers = self.pod_devices.get(pod, {})
        of_container = {**containers.get(container, {}), resource: devices}
        return replace(self, pod_devices={**self.pod_devices, pod: {**containers, container: of_container}})

    def written_devices(self) -> PodDevices:
        """The devices that the checkpoint has."""
        return (
            self.pod_devices
            if not self.unwritten
            else {
                pod: {
                    container: {
                        name: ids
                        for name, ids in held.items()
                        if (pod, container, name) not in self.unwritten
                    }
                    for container, held in containers.items()
                }
                for pod, containers in self.pod_devices.items()
            }
        )

    def with_in_use(self, resource: str, devices: DeviceIdSet) -> "DeviceState":
        """The state with these devices marked as in use."""
        return replace(
            self, in_use={**self.in_use, resource: self.in_use.get(resource, NO_DEVICES) | devices}
        )

    def with_in_use_recomputed(self) -> "DeviceState":
        """The state in which exactly the devices that containers hold are in use."""
        return replace(self, in_use=_all_held(self.pod_devices))

    def after_restart(self, running: Collection[tuple[str, str]] = ()) -> "DeviceState":
        """The state after a restart of the kubelet: no plugin has listed devices yet.

        `running` are the containers (pod uid, name) that the runtime reports as running; after a reboot, none.

        Follows: v1.36, devicemanager/manager.go, Start, readCheckpoint.
        """
        lists = dict.fromkeys(self.device_lists, EMPTY_DEVICE_LIST)
        written = self.written_devices()
        return DeviceState(
            lists,
            written,
            _all_held(written),
            running_at_start=frozenset(running),
            allocation_responses=self.allocation_responses,
        )

    def with_all_pods_known(self) -> "DeviceState":
        """The state once the kubelet's pod sources are ready."""
        return replace(self, running_at_start=None)


def device_stock(state: DeviceState, resource: str) -> DeviceStock:
    """All devices of the resource by NUMA nodes, and their holders."""
    listed, free = state.device_lists.get(resource, EMPTY_DEVICE_LIST), state.free(resource)
    devices_by_numa = []
    for mask, registered in listed.count_by_mask:
        with_mask = {name for name, device_mask in listed.numa_masks.items() if device_mask == mask}
        devices_by_numa.append(
            DevicesAt(
                numa=NUMASet(mask),
                registered=registered,
                healthy=len(with_mask & listed.healthy),
                free=len(with_mask & free),
            )
        )
    holders = tuple(state.holders(resource))
    held = NO_DEVICES.union(*(devices for _, _, devices in holders))
    return DeviceStock(
        resource=resource,
        places=tuple(devices_by_numa),
        holders=tuple(
            DeviceHolder(pod=pod, container=container, devices=tuple(sorted(devices)))
            for pod, container, devices in holders
        ),
        stranded=tuple(sorted(state.in_use.get(resource, NO_DEVICES) - held)),
    )


PreferenceFunction: TypeAlias = Callable[
    [frozenset[str], frozenset[str], int], Iterable[str] | DevicePluginError
]
"""GetPreferredAllocation of a plugin: the preferred devices, given the available ids, the ids that must be included
and the number of devices.

The result is not binding: unknown ids are ignored, and missing devices are chosen without the plugin.
"""


class PluginBehavior(msgspec.Struct, frozen=True):
    """The behavior of the device plugin of a resource."""

    preference: PreferenceFunction | None = None
    """None: the plugin does not implement GetPreferredAllocation, or its preference is unknown."""
    allocate_error: str = ""
    """The error that Allocate returns; empty: it succeeds."""
    is_live: bool = False
    """Whether the plugin is running, and its preferences are queried (`PreferredAllocations`)."""


def lowest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """The devices that must be included and the lowest others, in the order of their text.

    >>> lowest(frozenset({"gpu-1", "gpu-2", "gpu-10"}), frozenset({"gpu-2"}), 2)
    ['gpu-2', 'gpu-1']
    """
    return _filled_up(must_include, sorted(available - must_include), size)


def highest(available: frozenset[str], must_include: frozenset[str], size: int) -> list[str]:
    """The devices that must be included and the highest others, in the order of their text."""
    return _filled_up(must_include, sorted(available - must_include, reverse=True), size)


ASK_PLUGIN = "asked"
PREFERENCES: Mapping[str, PreferenceFunction | None] = {
    "absent": None,
    "lowest": lowest,
    "highest": highest,
    ASK_PLUGIN: None,
}
"""Preferences of plugins by their names in a node profile; the preferences of `asked` plugins are known only if their
responses are recorded, as in journals."""


class DeviceManager(msgspec.Struct, frozen=True, kw_only=True):
    """The device manager of a machine."""

    numa: NUMASet
    """The NUMA nodes of the machine; devices may name others, which do not count."""
    plugins: Mapping[str, PluginBehavior] = msgspec.field(default_factory=dict)
    """The plugins by resource."""
    skips_claimed_resources: bool = True
    """Whether resources that resource claims provide are skipped, by release and the gate DRAExtendedResource."""
    hints_from_hosts_only: bool = True
    """Whether hints combine only NUMA nodes that have such devices; else all NUMA nodes."""
    follows_defects: bool = True
    """Whether the kubelet's known defects are reproduced."""

    @classmethod
    def of(
        cls,
        topology: Sequence[NUMANode],
        devices: Collection[str] | Mapping[str, tuple[Device, ...]],
        preferred_allocation: Mapping[str, str] | None = None,
        *,
        gates: FeatureGates = DEFAULT_GATES,
        follows_defects: bool = True,
    ) -> Self:
        """The manager of these resources; their plugins never fail, and prefer the lowest ids by default.

        Errors: KeyError for the name of a preference that is not among PREFERENCES.
        """
        preferred = preferred_allocation or {}
        return cls(
            numa=NUMASet.from_ids(node.node_id for node in topology),
            plugins={name: plugin_with_preference(preferred.get(name, "lowest")) for name in devices},
            skips_claimed_resources=gates["DRAExtendedResource"] and gates.rules.devices_of_claims_skipped,
            hints_from_hosts_only=gates.rules.device_hints_from_hosts_only,
            follows_defects=follows_defects,
        )


def plugin_with_preference(preference: str) -> PluginBehavior:
    """A plugin that never fails, with the preference of this name.

    Errors: KeyError for a name that is not among PREFERENCES.
    """
    return PluginBehavior(PREFERENCES[preference], is_live=preference == ASK_PLUGIN)


def _all_held(held: PodDevices) -> dict[str, DeviceIdSet]:
    devices_by_resource: dict[str, DeviceIdSet] = {}
    for containers in held.values():
        for resources in containers.values():
            for resource, devices in resources.items():
                devices_by_resource[resource] = devices_by_resource.get(resource, NO_DEVICES) | devices
    return devices_by_resource


def _filled_up(must_include: frozenset[str], others: list[str], size: int) -> list[str]:
    return [*sorted(must_include), *others[: max(size - len(must_include), 0)]]
