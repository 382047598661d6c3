"""The device plugins of a node: taken in, listened to, asked and told, and missed when they have gone."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from nodewright.agent.device_values import DevicesSeen
from nodewright.agent.timing import within
from nodewright.agent.values import Seen, Tell
from nodewright.core.devices.manager import ASKED
from nodewright.model.device_reasons import PreferenceWanted
from nodewright.model.profile import Device
from nodewright.model.resource_names import is_extended
from nodewright.values.golang import quoted
from nodewright.values.idset import NUMASet
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import VERSION, PluginLine, PluginOptions, Registration, RegistrationError
from nodewright.world.ports import Clock

T = TypeVar("T")
CONNECT_S, ASK_S, ALLOCATE_S, START_S = 10.0, 10.0, 30.0, 30.0
"""How long a plugin has: to answer when it registers, to say what it prefers, to hand out, and before a start."""
GRACE_S = 300.0
"""How long the node still counts a resource whose plugin has gone.

Follows: v1.36, devicemanager/types.go, endpointStopGracePeriod.
"""
REPORT_EVERY_S = 0.1
"""A plugin that changes its mind more often is listened to only so often."""
MOST_CONNECTING, MOST_RESOURCES, MOST_DEVICES = 16, 256, 10_000
_LONGEST_ID = 253


class _Endpoint:
    """A plugin that has registered."""

    def __init__(self, told: Registration, line: PluginLine, options: PluginOptions) -> None:
        self.told, self.resource, self.line, self.options = told, told.resource, line, options
        self.devices: tuple[Device, ...] | None = None
        """As it, or who was there before it, listed them last; None: nobody has yet."""
        self.is_stopped = False
        self.task: asyncio.Task[None] | None = None


class Plugins:
    """Fulfils `DevicePlugins`, with plugins that register whenever they like.

    ``connect`` makes a line to one; ``see`` and ``tell`` hear of devices, and of what goes wrong.
    """

    def __init__(
        self,
        connect: Callable[[Registration], PluginLine],
        clock: Clock,
        see: Callable[[Seen], None],
        tell: Callable[[Tell], None],
        numa: NUMASet,
    ) -> None:
        """``numa`` are the NUMA nodes that there are."""
        self._connect, self._clock, self._see, self._tell, self._numa = connect, clock, see, tell, numa
        self._endpoints: dict[str, _Endpoint] = {}
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._connecting = 0
        self._closing: set[asyncio.Task[None]] = set()

    # ------------------------------------------------------------ plugins come and go

    def expect(self, resources: Iterable[str]) -> None:
        """Plugins of these were there before the agent began: they have some time to come back."""
        for resource in resources:
            self._timers[resource] = asyncio.create_task(self._miss(resource))

    async def register(self, told: Registration) -> None:
        """Take a plugin in; it takes the place of one that had its resource.

        Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Register; handler.go, connectClient.
        Departs: the kubelet takes sockets outside the directory and any number at once, and when an old plugin of a
            resource ends, it hangs up on the new one.
        Errors:  RegistrationError, whose text the kubelet gives.
        """
        try:
            await self._register(told)
        except RegistrationError as error:
            name = told.resource[:_LONGEST_ID]
            self._warn("DevicePluginRefused", f"{name or 'a plugin without a resource'}: {error}")
            raise

    async def hang_up(self, told: Registration, why: str) -> None:
        """Miss a plugin that has registered so, unless it is gone or another one has its place.

        Follows: v1.36, devicemanager/plugin/v1beta1/handler.go, DeRegisterPlugin.
        """
        endpoint = self._endpoints.get(told.resource)
        if endpoint is None or endpoint.told != told or endpoint.is_stopped:
            return
        if endpoint.task is not None:
            endpoint.task.cancel()
            await asyncio.gather(endpoint.task, return_exceptions=True)
        # It may have ended while we waited.
        if self._endpoints.get(told.resource) is endpoint and not endpoint.is_stopped:
            self._stopped(endpoint, why)

    async def close(self) -> None:
        """Hang up on all of them."""
        tasks = [*self._timers.values(), *(one.task for one in self._endpoints.values() if one.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._closing, return_exceptions=True)
        for endpoint in self._endpoints.values():
            await endpoint.line.close()

    async def _register(self, told: Registration) -> None:
        self._check(told)
        self._connecting += 1
        line = self._connect(told)
        try:
            options = await within(self._clock, "", line.options(), CONNECT_S)
        except TimeoutError:
            await line.close()
            raise RegistrationError("failed to dial device plugin: context deadline exceeded") from None
        except WorldError as error:
            await line.close()
            raise RegistrationError(f"failed to get device plugin options: {error.error}") from None
        except asyncio.CancelledError:
            await line.close()
            raise
        finally:
            self._connecting -= 1
        self._replace(_Endpoint(told, line, options))

    def _check(self, told: Registration) -> None:
        if VERSION not in told.versions:
            version = ", ".join(told.versions)[:_LONGEST_ID]
            raise RegistrationError(
                f"requested API version {quoted(version)} is not supported by kubelet. "
                f"Supported version is [{quoted(VERSION)}]"
            )
        if not is_extended(told.resource):
            raise RegistrationError(f"the ResourceName {quoted(told.resource[:1024])} is invalid")
        if told.endpoint in ("", "..") or told.socket.name != told.endpoint:
            raise RegistrationError(
                f"the endpoint {quoted(told.endpoint[:1024])} is not the name of a socket in {told.directory}"
            )
        if told.resource not in self._endpoints and len(self._endpoints) >= MOST_RESOURCES:
            raise RegistrationError(
                f"{MOST_RESOURCES} resources are registered already, and no more are taken"
            )
        if self._connecting >= MOST_CONNECTING:
            raise RegistrationError("too many plugins register at once: try again")

    def _replace(self, endpoint: _Endpoint) -> None:
        old = self._endpoints.get(endpoint.resource)
        if old is not None:
            if old.task is not None:
                old.task.cancel()
            self._begin_closing(old)
            # Until it lists its own, these are what is known.
            endpoint.devices = old.devices
        self._forget_timer(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        endpoint.task = asyncio.create_task(self._listen(endpoint))
        message = f"{endpoint.resource}: its plugin has registered"
        self._tell(Tell(uid="", is_warning=False, reason="DevicePluginRegistered", message=message))

    def _begin_closing(self, endpoint: _Endpoint) -> None:
        task = asyncio.create_task(endpoint.line.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _listen(self, endpoint: _Endpoint) -> None:
        """Report what the plugin lists, until it ends."""
        reporting = _Reporting(self._clock, lambda devices: self._listed(endpoint, devices))
        why = "it ended"
        try:
            async for devices in endpoint.line.lists():
                reporting.take(devices)
        except WorldError as error:
            why = error.error
        finally:
            reporting.close()
        if self._endpoints.get(endpoint.resource) is endpoint:
            self._stopped(endpoint, why)

    def _listed(self, endpoint: _Endpoint, devices: tuple[Device, ...]) -> None:
        resource = endpoint.resource
        fault = list_fault(devices)
        if fault:
            self._warn("DeviceListRefused", f"{resource}: {fault}; the devices stay as they were")
            return
        devices = tuple(self._placed(resource, one) for one in devices)
        endpoint.devices = tuple(sorted(devices, key=lambda one: one.id))
        self._report(endpoint, endpoint.devices)

    def _report(self, endpoint: _Endpoint, devices: tuple[Device, ...]) -> None:
        preference = ASKED if endpoint.options.has_preference else "absent"
        self._see(DevicesSeen(resource=endpoint.resource, devices=devices, preference=preference))

    def _placed(self, resource: str, device: Device) -> Device:
        """The device on NUMA nodes that there are."""
        known = tuple(one for one in device.numa_nodes or () if 0 <= one < 1 << 16 and one in self._numa)
        if len(known) < len(device.numa_nodes or ()):
            self._warn(
                "DeviceListRefused",
                f"{resource}: {device.id} is on a NUMA node that the machine lacks, which is passed over",
            )
        return replace(device, numa_nodes=known or None)

    def _stopped(self, endpoint: _Endpoint, why: str) -> None:
        """Its devices are not healthy any more; after a while the resource is no more the node's.

        Follows: v1.36, devicemanager/manager.go, PluginDisconnected, GetCapacity.
        """
        endpoint.is_stopped = True
        self._begin_closing(endpoint)
        resource = endpoint.resource
        self._warn("DevicePluginStopped", f"{resource}: its plugin has gone: {why}")
        if endpoint.devices is not None:
            self._report(endpoint, tuple(replace(one, healthy=False) for one in endpoint.devices))
        self._forget_timer(resource)
        self._timers[resource] = asyncio.create_task(self._miss(resource))

    async def _miss(self, resource: str) -> None:
        await self._clock.sleep(GRACE_S)
        del self._timers[resource]
        self._endpoints.pop(resource, None)
        self._warn(
            "DevicePluginGone", f"{resource}: no plugin for {GRACE_S:g} s: it is none of the node's any more"
        )
        self._see(DevicesSeen(resource=resource, devices=None))

    def _forget_timer(self, resource: str) -> None:
        timer = self._timers.pop(resource, None)
        if timer is not None:
            timer.cancel()

    def _warn(self, reason: str, message: str) -> None:
        self._tell(Tell(uid="", is_warning=True, reason=reason, message=message))

    # ------------------------------------------------------------ plugins are asked and told

    async def preferred(self, question: PreferenceWanted) -> tuple[str, ...]:
        """As DevicePlugins; it has `ASK_S`."""
        endpoint = self._there(question.resource)
        return await self._within(
            "GetPreferredAllocation", endpoint, endpoint.line.preferred(question), ASK_S
        )

    async def allocate(self, resource: str, devices: tuple[str, ...]) -> bytes:
        """As DevicePlugins; it has `ALLOCATE_S`."""
        endpoint = self._there(resource)
        return await self._within("Allocate", endpoint, endpoint.line.allocate(devices), ALLOCATE_S)

    async def before_start(self, resource: str, devices: tuple[str, ...]) -> None:
        """As DevicePlugins; it has `START_S`, and is told only if it wants to be.

        Departs: containers wait for a plugin that has not come back since the agent began; a kubelet starts them.
        """
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            text = f"endpoint not found in cache for a registered resource: {resource}"
            raise WorldError("PreStartContainer", resource, text)
        if not endpoint.options.starts_containers:
            return
        try:
            doing = self._there(resource).line.before_start(devices)
            await self._within("PreStartContainer", endpoint, doing, START_S)
        except WorldError as error:
            text = f"device plugin PreStartContainer rpc failed with err: {error.error}"
            raise WorldError(error.operation, error.place, text) from None

    def _there(self, resource: str) -> _Endpoint:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise WorldError("ask", resource, f"unknown Device Plugin {resource}")
        if endpoint.is_stopped:
            raise WorldError("ask", resource, f"endpoint {resource} has been stopped")
        return endpoint

    async def _within(
        self, call: str, endpoint: _Endpoint, doing: Coroutine[Any, Any, T], limit_s: float
    ) -> T:
        try:
            return await within(self._clock, call, doing, limit_s)
        except TimeoutError:
            text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            raise WorldError(call, endpoint.resource, text) from None


class _Reporting:
    """Passes on the newest of what comes in, and not too often."""

    def __init__(self, clock: Clock, report: Callable[[tuple[Device, ...]], None]) -> None:
        self._clock, self._report = clock, report
        self._newest: tuple[Device, ...] | None = None
        self._task: asyncio.Task[None] | None = None

    def take(self, devices: tuple[Device, ...]) -> None:
        """Something newer."""
        self._newest = devices
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        """What is left is passed on at once."""
        if self._task is not None:
            self._task.cancel()
        self._flush()

    async def _run(self) -> None:
        while self._flush():
            await self._clock.sleep(REPORT_EVERY_S)

    def _flush(self) -> bool:
        newest, self._newest = self._newest, None
        if newest is not None:
            self._report(newest)
        return newest is not None


def list_fault(devices: Iterable[Device]) -> str:
    """What is wrong with a list of devices; empty: nothing.

    Departs: the kubelet takes what was listed last of devices of one id, and any id.

    >>> list_fault([Device("gpu-0"), Device("gpu-0")]), list_fault([Device("gpu-0")])
    ('its plugin lists the device "gpu-0" twice', '')
    """
    counts = Counter(one.id for one in devices)
    if len(counts) > MOST_DEVICES:
        return f"its plugin lists {len(counts)} devices, more than {MOST_DEVICES}"
    for name, count in counts.items():
        if not name or len(name) > _LONGEST_ID or not name.isprintable():
            return f"its plugin lists a device with the id {json.dumps(name[:80])}"
        if count > 1:
            return f'its plugin lists the device "{name}" twice'
    return ""
