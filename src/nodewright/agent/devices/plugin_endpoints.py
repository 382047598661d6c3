"""Endpoints of device plugins: registration, device lists, calls, and the grace period after a plugin stops."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from nodewright.agent.devices.protocols import (
    MAX_DEVICES,
    DevicePluginClient,
    DevicePluginOptions,
    PluginRegistration,
    PluginRegistrationError,
)
from nodewright.agent.devices.registration import check_registration
from nodewright.agent.state.observations import Observation, PluginDevicesListed
from nodewright.cluster.tasks.supervision import error_text
from nodewright.cluster.tasks.timing import Clock, with_timeout
from nodewright.engine.core.devices.device_state import ASK_PLUGIN
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.reasons.devices import PreferenceWanted
from nodewright.model.values.idset import NUMASet

T = TypeVar("T")
CONNECT_TIMEOUT_S, PREFERRED_ALLOCATION_TIMEOUT_S = 10.0, 10.0
ALLOCATE_TIMEOUT_S, PRE_START_TIMEOUT_S = 30.0, 30.0
"""Time limits: of the connection, of GetPreferredAllocation, of Allocate, and of PreStartContainer."""
ENDPOINT_STOP_GRACE_PERIOD_S = 300.0
"""How long the node still has a resource after its plugin stopped.

Follows: v1.36, devicemanager/types.go, endpointStopGracePeriod.
"""
REPORT_PERIOD_S = 0.1
"""A plugin's device lists are reported at most once in this time."""
MAX_CONNECTING, MAX_RESOURCES = 16, 256
_MAX_ID_LENGTH = 253


class _Endpoint:
    """A registered plugin."""

    def __init__(
        self, registration: PluginRegistration, client: DevicePluginClient, options: DevicePluginOptions
    ) -> None:
        self.registration, self.resource = registration, registration.resource
        self.client, self.options = client, options
        self.devices: tuple[Device, ...] | None = None
        """The devices last listed by it or its predecessor; None: none yet."""
        self.is_stopped = False
        self.task: asyncio.Task[None] | None = None


class PluginEndpoints:
    """Implements `DevicePlugins` with plugins that register at any time.

    ``connect`` makes a client for one; ``observe`` and ``record_event`` get device lists and failures.
    """

    def __init__(
        self,
        connect: Callable[[PluginRegistration], DevicePluginClient],
        clock: Clock,
        observe: Callable[[Observation], None],
        record_event: Callable[[RecordEvent], None],
        numa: NUMASet,
    ) -> None:
        """``numa`` are the machine's NUMA nodes."""
        self._connect, self._clock, self._numa = connect, clock, numa
        self._observe, self._record_event = observe, record_event
        self._endpoints: dict[str, _Endpoint] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._connecting = 0
        self._closing: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ registration

    def expect_reregistration(self, resources: Iterable[str]) -> None:
        """Starts the grace period of resources that had a plugin before the agent started."""
        for resource in resources:
            self._timers[resource] = asyncio.create_task(self._expire(resource))

    async def register(self, registration: PluginRegistration) -> None:
        """Registers a plugin; it replaces the previous plugin of its resource.

        Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Register; handler.go, connectClient.
        Departs: the kubelet accepts sockets outside the directory and any number of registrations at once; and when an
            old plugin of a resource ends, it disconnects the new one.
        Errors:  PluginRegistrationError, with the kubelet's text.
        """
        try:
            await self._register(registration)
        except PluginRegistrationError as error:
            name = registration.resource[:_MAX_ID_LENGTH]
            self._warn("DevicePluginRefused", f"{name or 'a plugin without a resource'}: {error}")
            raise

    async def deregister(self, registration: PluginRegistration, reason: str) -> None:
        """Marks a registered plugin as stopped, unless it already is or another one has replaced it.

        Follows: v1.36, devicemanager/plugin/v1beta1/handler.go, DeRegisterPlugin.
        """
        endpoint = self._endpoints.get(registration.resource)
        if endpoint is None or endpoint.registration != registration or endpoint.is_stopped:
            return
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)
        # The endpoint may have stopped during the wait.
        if self._endpoints.get(registration.resource) is endpoint and not endpoint.is_stopped:
            self._mark_stopped(endpoint, reason)

    async def close(self) -> None:
        """Closes all connections."""
        tasks = [
            *self._timers.values(),
            *(endpoint.task for endpoint in self._endpoints.values() if endpoint.task),
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._closing, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.client.close()

    async def _register(self, registration: PluginRegistration) -> None:
        check_registration(registration)
        if registration.resource not in self._endpoints and len(self._endpoints) >= MAX_RESOURCES:
            raise PluginRegistrationError(
                f"{MAX_RESOURCES} resources are registered already, which is the limit"
            )
        if self._connecting >= MAX_CONNECTING:
            raise PluginRegistrationError("too many plugins register at once: try again")
        self._connecting += 1
        client = self._connect(registration)
        try:
            options = await with_timeout(self._clock, "", client.options(), CONNECT_TIMEOUT_S)
        except TimeoutError:
            await client.close()
            raise PluginRegistrationError("failed to dial device plugin: context deadline exceeded") from None
        except HostError as error:
            await client.close()
            raise PluginRegistrationError(f"failed to get device plugin options: {error.error}") from None
        except asyncio.CancelledError:
            await client.close()
            raise
        finally:
            self._connecting -= 1
        self._replace(_Endpoint(registration, client, options))

    def _replace(self, endpoint: _Endpoint) -> None:
        previous = self._endpoints.get(endpoint.resource)
        if previous is not None:
            if previous.task is not None:
                previous.task.cancel()
            self._start_closing(previous)
            # Known until the new plugin lists its own devices.
            endpoint.devices = previous.devices
        self._cancel_timer(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        endpoint.task = asyncio.create_task(self._watch_devices(endpoint))
        message = f"{endpoint.resource}: its plugin has registered"
        self._record_event(RecordEvent.normal("DevicePluginRegistered", message))

    def _start_closing(self, endpoint: _Endpoint) -> None:
        task = asyncio.create_task(endpoint.client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _watch_devices(self, endpoint: _Endpoint) -> None:
        """Reports the plugin's device lists until it ends."""
        throttle = _ReportThrottle(self._clock, lambda devices: self._accept_devices(endpoint, devices))
        reason = "it ended"
        try:
            async for devices in endpoint.client.list_and_watch():
                throttle.submit(devices)
        except HostError as error:
            reason = error.error
        except Exception as error:  # noqa: BLE001 - the resource is then without a plugin, as after its end
            reason = error_text(error)
        finally:
            throttle.close()
        if self._endpoints.get(endpoint.resource) is endpoint:
            self._mark_stopped(endpoint, reason)

    def _accept_devices(self, endpoint: _Endpoint, devices: tuple[Device, ...]) -> None:
        resource = endpoint.resource
        fault = device_list_error(devices)
        if fault:
            self._warn("DeviceListRefused", f"{resource}: {fault}; the devices stay as they were")
            return
        devices = tuple(self._with_known_numa_nodes(resource, device) for device in devices)
        endpoint.devices = tuple(sorted(devices, key=lambda device: device.id))
        self._report(endpoint, endpoint.devices)

    def _report(self, endpoint: _Endpoint, devices: tuple[Device, ...]) -> None:
        preference = ASK_PLUGIN if endpoint.options.preferred_allocation_available else "absent"
        self._observe(
            PluginDevicesListed(resource=endpoint.resource, devices=devices, preferred_allocation=preference)
        )

    def _with_known_numa_nodes(self, resource: str, device: Device) -> Device:
        """The device with only those NUMA nodes that the machine has."""
        known = tuple(node for node in device.numa_nodes or () if 0 <= node < 1 << 16 and node in self._numa)
        if len(known) < len(device.numa_nodes or ()):
            self._warn(
                "DeviceListRefused",
                f"{resource}: {device.id} is on a NUMA node that the machine does not have; it is ignored",
            )
        return replace(device, numa_nodes=known or None)

    def _mark_stopped(self, endpoint: _Endpoint, reason: str) -> None:
        """Marks the plugin's devices as unhealthy, and starts the grace period of the resource.

        Follows: v1.36, devicemanager/manager.go, PluginDisconnected, markResourceUnhealthy, GetCapacity.
        """
        endpoint.is_stopped = True
        self._start_closing(endpoint)
        resource = endpoint.resource
        self._warn("DevicePluginStopped", f"{resource}: its plugin has stopped: {reason}")
        # A resource whose plugin has never listed devices is reported as well, with none.
        self._report(endpoint, tuple(replace(device, healthy=False) for device in endpoint.devices or ()))
        self._cancel_timer(resource)
        self._timers[resource] = asyncio.create_task(self._expire(resource))

    async def _expire(self, resource: str) -> None:
        await self._clock.sleep(ENDPOINT_STOP_GRACE_PERIOD_S)
        del self._timers[resource]
        self._endpoints.pop(resource, None)
        self._warn(
            "DevicePluginGone",
            f"{resource}: no plugin for {ENDPOINT_STOP_GRACE_PERIOD_S:g} s: the node has 0 of the resource",
        )
        self._observe(PluginDevicesListed(resource=resource, devices=None))

    def _cancel_timer(self, resource: str) -> None:
        timer = self._timers.pop(resource, None)
        if timer is not None:
            timer.cancel()

    def _warn(self, reason: str, message: str) -> None:
        self._record_event(RecordEvent.warning(reason, message))

    # ------------------------------------------------------------ calls

    async def preferred_allocation(self, query: PreferenceWanted) -> tuple[str, ...]:
        """As `DevicePlugins`, within `PREFERRED_ALLOCATION_TIMEOUT_S`."""
        endpoint = self._running_endpoint(query.resource)
        call, limit_s = endpoint.client.preferred_allocation(query), PREFERRED_ALLOCATION_TIMEOUT_S
        return await rpc_within(self._clock, "GetPreferredAllocation", query.resource, call, limit_s)

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """As `DevicePlugins`, within `ALLOCATE_TIMEOUT_S`."""
        endpoint = self._running_endpoint(resource)
        call = endpoint.client.allocate(devices)
        return await rpc_within(self._clock, "Allocate", resource, call, ALLOCATE_TIMEOUT_S)

    async def pre_start_container(self, resource: str, devices: tuple[str, ...]) -> None:
        """As `DevicePlugins`, within `PRE_START_TIMEOUT_S`, if the plugin requires the call.

        Departs: containers wait for a plugin that has not registered since the agent started; a kubelet starts them.
        """
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            text = f"endpoint not found in cache for a registered resource: {resource}"
            raise HostError("PreStartContainer", resource, text)
        if not endpoint.options.pre_start_required:
            return
        try:
            call = self._running_endpoint(resource).client.pre_start_container(devices)
            await rpc_within(self._clock, "PreStartContainer", resource, call, PRE_START_TIMEOUT_S)
        except HostError as error:
            text = f"device plugin PreStartContainer rpc failed with err: {error.error}"
            raise HostError(error.operation, error.place, text) from None

    def _running_endpoint(self, resource: str) -> _Endpoint:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise HostError("ask", resource, f"unknown Device Plugin {resource}")
        if endpoint.is_stopped:
            raise HostError("ask", resource, f"endpoint {resource} has been stopped")
        return endpoint


async def rpc_within(
    clock: Clock, rpc: str, place: Path | str, call: Coroutine[Any, Any, T], limit_s: float
) -> T:
    """The answer of a plugin.

    Errors: HostError, also at the limit.
    """
    try:
        return await with_timeout(clock, rpc, call, limit_s)
    except TimeoutError:
        text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        raise HostError(rpc, str(place), text) from None


class _ReportThrottle:
    """Reports the newest device list, and limits how often."""

    def __init__(self, clock: Clock, report: Callable[[tuple[Device, ...]], None]) -> None:
        self._clock, self._report = clock, report
        self._newest: tuple[Device, ...] | None = None
        self._task: asyncio.Task[None] | None = None

    def submit(self, devices: tuple[Device, ...]) -> None:
        """Takes a newer list."""
        self._newest = devices
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        """Reports what is left at once."""
        if self._task is not None:
            self._task.cancel()
        self._flush()

    async def _run(self) -> None:
        while self._flush():
            await self._clock.sleep(REPORT_PERIOD_S)

    def _flush(self) -> bool:
        newest, self._newest = self._newest, None
        if newest is not None:
            self._report(newest)
        return newest is not None


def device_list_error(devices: Iterable[Device]) -> str:
    """Why a device list is rejected; empty: it is valid.

    Departs: the kubelet accepts any id, and the last of several devices with one id.

    >>> device_list_error([Device("gpu-0"), Device("gpu-0")]), device_list_error([Device("gpu-0")])
    ('its plugin lists the device "gpu-0" twice', '')
    """
    counts = Counter(device.id for device in devices)
    if len(counts) > MAX_DEVICES:
        return f"its plugin lists more than {MAX_DEVICES} devices"
    for name, count in counts.items():
        if not name or len(name) > _MAX_ID_LENGTH or not name.isprintable():
            return f"its plugin lists a device with the id {json.dumps(name[:80])}"
        if count > 1:
            return f'its plugin lists the device "{name}" twice'
    return ""
