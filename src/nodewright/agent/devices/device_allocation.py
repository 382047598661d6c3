"""Allocation of devices to containers: the calls to device plugins, and their results in container configs."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from nodewright.agent.devices.protocols import DevicePlugins, DeviceRunContainerOptions
from nodewright.agent.host.ports import ContainerConfig, DeviceSpec, Mount
from nodewright.agent.state.effects import AllocatedDevices, AllocateDevices, QueryPreferredAllocation
from nodewright.agent.state.observations import DeviceAllocationResult, PreferredAllocationReceived
from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.model.errors import HostError
from nodewright.model.reasons.devices import DeviceAllocationFailed


class DeviceAllocationError(Exception):
    """A container cannot have its devices; the text appears in its status."""


class DeviceAllocator:
    """Calls the device plugins of pods and adds the results to container configs.

    ``sees_host``: containers are plain processes, which see the host's own files.
    """

    def __init__(self, plugins: DevicePlugins, *, sees_host: bool = False) -> None:
        self._plugins, self._sees_host = plugins, sees_host

    async def allocate(self, effect: AllocateDevices) -> DeviceAllocationResult:
        """The results of allocating all devices of a pod, up to the first failure.

        Follows: v1.36, devicemanager/manager.go, allocateContainerResources.
        """
        responses = {}
        for allocation in effect.devices:
            try:
                response = await self._plugins.allocate(allocation.resource, allocation.devices)
            except HostError as error:
                failure = DeviceAllocationFailed(
                    resource=allocation.resource, error=error.error, devices=allocation.devices
                )
                return DeviceAllocationResult(failure=failure)
            responses[allocation.container, allocation.resource] = response
        return DeviceAllocationResult(responses=responses)

    async def query_preference(self, effect: QueryPreferredAllocation) -> PreferredAllocationReceived:
        """The devices that a plugin prefers, or its error."""
        query = effect.query
        devices: tuple[str, ...] | DevicePluginError
        try:
            devices = await self._plugins.preferred_allocation(query)
        except HostError as error:
            devices = DevicePluginError(error.error)
        return PreferredAllocationReceived(
            uid=effect.uid, container=query.container, resource=query.resource, preferred_devices=devices
        )

    async def with_devices(
        self, config: ContainerConfig, allocations: Iterable[AllocatedDevices]
    ) -> ContainerConfig:
        """The config with the devices of the container, once the plugins have prepared them for its start.

        Errors:  DeviceAllocationError.
        Follows: v1.36, devicemanager/manager.go, GetDeviceRunContainerOptions, callPreStartContainerIfNeeded.
        """
        allocations_of_container = [
            allocation for allocation in allocations if allocation.container == config.container.name
        ]
        for allocation in allocations_of_container:
            try:
                await self._plugins.pre_start_container(allocation.resource, allocation.devices)
            except HostError as error:
                raise DeviceAllocationError(error.error) from None
        if not allocations_of_container:
            return config
        device_options = run_container_options(
            [allocation.response for allocation in allocations_of_container]
        )
        if self._sees_host:
            _check_process(config, device_options)
        return with_device_options(config, device_options)

    def with_cdi_devices(self, config: ContainerConfig, names: tuple[str, ...]) -> ContainerConfig:
        """The config with the CDI devices of the container's claims.

        Errors: DeviceAllocationError.
        """
        options = DeviceRunContainerOptions(cdi_devices=names)
        if self._sees_host:
            _check_process(config, options)
        return with_device_options(config, options) if names else config


def with_device_options(
    config: ContainerConfig, device_options: DeviceRunContainerOptions
) -> ContainerConfig:
    """The config with the options of device plugins; variables and mounts of the pod spec take precedence.

    Follows: v1.36, kubelet/kubelet_pods.go, GenerateRunContainerOptions.
    """
    mounted_paths = {mount.container_path for mount in config.mounts}
    return replace(
        config,
        env={**device_options.env, **config.env},
        mounts=(
            *(mount for mount in device_options.mounts if mount.container_path not in mounted_paths),
            *config.mounts,
        ),
        devices=(*device_options.devices, *config.devices),
        annotations={**device_options.annotations, **config.annotations},
        cdi_devices=(*device_options.cdi_devices, *config.cdi_devices),
    )


def _check_process(config: ContainerConfig, device_options: DeviceRunContainerOptions) -> None:
    """Checks that a plain process can use the options: variables, and files at their real paths.

    Errors: DeviceAllocationError.
    """
    subject = f"container {config.container.name}"
    for kind, pairs in (
        ("mount", [(mount.host_path, mount.container_path) for mount in device_options.mounts]),
        ("device", [(device.host_path, device.container_path) for device in device_options.devices]),
    ):
        for host_path, container_path in pairs:
            if host_path != container_path:
                raise DeviceAllocationError(
                    f"{subject}: its device plugin needs a {kind} at {container_path}, but it is at {host_path}: a plain "
                    "process sees the host's files at their real paths; use a container runtime"
                )
    if device_options.cdi_devices:
        raise DeviceAllocationError(
            f"{subject}: its devices have CDI names ({', '.join(device_options.cdi_devices)}), which only a "
            "container runtime can add; use one"
        )


# ---------------------------------------------------------------- options in responses of plugins


T = TypeVar("T")


def run_container_options(responses: Iterable[bytes]) -> DeviceRunContainerOptions:
    """The options of several ContainerAllocateResponses together; of two for the same target the first counts.

    Follows: v1.36, devicemanager/pod_devices.go, deviceRunContainerOptions.
    Departs: ordered by resource name, where the kubelet iterates over a map in random order.

    >>> from nodewright.agent.devices import deviceplugin_pb2 as api
    >>> first = api.ContainerAllocateResponse(envs={"GPU": "0"}, devices=[api.DeviceSpec(host_path="/dev/a")])
    >>> second = api.ContainerAllocateResponse(envs={"GPU": "1"}, cdi_devices=[api.CDIDevice(name="v.com/nic=n")])
    >>> options = run_container_options([first.SerializeToString(), second.SerializeToString()])
    >>> options.env, options.devices[0].host_path, options.cdi_devices
    ({'GPU': '0'}, '/dev/a', ('v.com/nic=n',))
    """
    from nodewright.agent.devices import deviceplugin_pb2 as api  # noqa: PLC0415 - protobuf, which few nodes need

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
