"""The plugins of DRA drivers: registered by a socket in `plugins_registry`, called to prepare the claims of pods."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from nodewright.agent.devices.protocols import PluginRegistration, PluginRegistrationError
from nodewright.cluster.tasks.supervision import BackgroundTask, run_supervised
from nodewright.cluster.tasks.timing import Clock
from nodewright.engine.core.claims.device_health import DeviceHealth
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, not_registered_text
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.golang import quoted

DRA_PLUGIN_TYPE = "DRAPlugin"
SERVICES = {
    "v1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/",
    "v1beta1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/",
}
"""The services that a plugin may offer, each with the path of its calls; the first one that it names is used."""
MAX_DRIVERS = 256
WIPING_DELAY_S = 30.0
"""How long a driver may be away before the ResourceSlices of the node are removed.

Follows: v1.36, pkg/kubelet/cm/dra/manager.go, defaultWipingDelay.
"""
HEALTH_RETRY_S = 5.0
"""After which time a plugin whose health stream has ended is asked again.

Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, add.
"""
ReportHealth = Callable[[str, tuple[DeviceHealth, ...] | None], None]
"""Takes what a driver reports of its devices; None: its reports have ended."""
WipeSlices = Callable[[str], Coroutine[Any, Any, None]]
"""Removes the node's ResourceSlices of a driver from the API server; an empty name: of all. Errors: HostError."""


class DRAPluginClient(Protocol):
    """A client of one plugin.

    Errors: HostError, with the kubelet's text in `error`.
    """

    def prepare(self, call: DriverCall) -> Coroutine[Any, Any, Mapping[str, ClaimAnswer]]:
        """NodePrepareResources; the answers by uid of the claim."""

    def unprepare(self, call: DriverCall) -> Coroutine[Any, Any, Mapping[str, ClaimAnswer]]:
        """NodeUnprepareResources, likewise."""

    def watch_health(self) -> AsyncIterator[tuple[DeviceHealth, ...]]:
        """NodeWatchResources: all its devices, and again after every change."""

    def watch_connection(self) -> AsyncIterator[bool]:
        """Whether the plugin is connected, and again after every change."""

    async def close(self) -> None:
        """Closes the connection."""


class _Plugin(NamedTuple):
    registration: PluginRegistration
    client: DRAPluginClient
    tasks: list[asyncio.Task[None]]


class DRAPlugins:
    """The registered plugins, of each driver the newest last; ``connect`` makes a client for a plugin and a service.

    Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, RegisterPlugin, DeRegisterPlugin, GetPlugin, sync.
    """

    def __init__(self, connect: Callable[[PluginRegistration, str], DRAPluginClient], clock: Clock) -> None:
        self._connect, self._clock = connect, clock
        self._plugins: dict[str, list[_Plugin]] = {}
        self._connected: set[PluginRegistration] = set()
        self._wipes: dict[str, asyncio.Task[None]] = {}
        self.report_health: ReportHealth | None = None
        """None: health is not watched."""
        self.wipe_slices: WipeSlices | None = None
        """None: the agent has joined no cluster."""
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None

    @property
    def drivers(self) -> frozenset[str]:
        """The names of the drivers that have a plugin."""
        return frozenset(self._plugins)

    def client(self, driver: str) -> DRAPluginClient:
        """The client of a driver's newest plugin, if possible of one that is connected.

        Errors: HostError.
        """
        plugins = self._plugins.get(driver)
        if not plugins:
            raise HostError("call", driver, not_registered_text(driver))
        connected = [each for each in plugins if each.registration in self._connected]
        return (connected or plugins)[-1].client

    async def register(self, registration: PluginRegistration) -> None:
        """Registers a plugin.

        Errors: PluginRegistrationError, with the kubelet's text.
        """
        driver, endpoint = registration.resource, str(registration.socket)
        service = next((each for each in registration.versions if each in SERVICES), "")
        if not service:
            raise PluginRegistrationError(services_error(registration))
        plugins = self._plugins.get(driver, [])
        if any(each.registration.socket == registration.socket for each in plugins):
            raise PluginRegistrationError(
                f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
            )
        if driver not in self._plugins and len(self._plugins) >= MAX_DRIVERS:
            raise PluginRegistrationError(f"{MAX_DRIVERS} DRA drivers are registered already")
        client = self._connect(registration, SERVICES[service])
        plugin = _Plugin(registration, client, [])
        self._plugins[driver] = [*plugins, plugin]
        plugin.tasks.append(asyncio.create_task(self._watch_connection(plugin)))
        if self.report_health is not None:
            plugin.tasks.append(asyncio.create_task(self._watch_health(plugin, self.report_health)))
        self._schedule_wipe(driver)

    async def deregister(self, registration: PluginRegistration, reason: str) -> None:
        """Forgets a plugin, whose socket is gone."""
        del reason
        driver = registration.resource
        plugins = self._plugins.pop(driver, [])
        left = [each for each in plugins if each.registration != registration]
        if left:
            self._plugins[driver] = left
        await _close(each for each in plugins if each.registration == registration)
        if len(left) < len(plugins):
            self._connected.discard(registration)
            self._schedule_wipe(driver)

    async def close(self) -> None:
        """Closes all connections."""
        plugins = [each for own in self._plugins.values() for each in own]
        self._plugins.clear()
        for task in self._wipes.values():
            task.cancel()
        await asyncio.gather(*self._wipes.values(), return_exceptions=True)
        await _close(plugins)

    # ------------------------------------------------------------ connections and health

    async def _watch_connection(self, plugin: _Plugin) -> None:
        async for is_connected in plugin.client.watch_connection():
            if is_connected:
                self._connected.add(plugin.registration)
            else:
                self._connected.discard(plugin.registration)
            self._schedule_wipe(plugin.registration.resource)

    async def _watch_health(self, plugin: _Plugin, report: ReportHealth) -> None:
        """Passes on what the plugin reports; it is asked again after the end of its reports, or if it offers none."""
        driver = plugin.registration.resource
        while True:
            try:
                with suppress(HostError):
                    async for devices in plugin.client.watch_health():
                        report(driver, devices)
            finally:
                report(driver, None)
            await self._clock.sleep(HEALTH_RETRY_S)

    def _schedule_wipe(self, driver: str) -> None:
        """Removes the ResourceSlices of a driver in a while, unless one of its plugins is connected by then."""
        if any(each.registration in self._connected for each in self._plugins.get(driver, ())):
            if (pending := self._wipes.pop(driver, None)) is not None:
                pending.cancel()
        elif self.wipe_slices is not None and driver not in self._wipes:
            self._wipes[driver] = asyncio.create_task(self._wipe(driver, self.wipe_slices))

    async def _wipe(self, driver: str, wipe_slices: WipeSlices) -> None:
        await self._clock.sleep(WIPING_DELAY_S)
        task = BackgroundTask(
            f"remove the ResourceSlices of driver {driver}, which is gone", partial(wipe_slices, driver)
        )
        await run_supervised(task, self.record_event, self._clock)
        self._wipes.pop(driver)


async def _close(plugins: Iterable[_Plugin]) -> None:
    """Ends what watches the plugins, and closes their connections."""
    for plugin in plugins:
        for task in plugin.tasks:
            task.cancel()
        await asyncio.gather(*plugin.tasks, return_exceptions=True)
        await plugin.client.close()


def services_error(registration: PluginRegistration) -> str:
    """Why a plugin offers no service that the kubelet uses; empty: it does.

    Follows: v1.36, dra_plugin_manager.go, ValidatePlugin, validateSupportedServices.
    """
    if any(each in SERVICES for each in registration.versions):
        return ""
    offered = _go_list(registration.versions)
    text = (
        f"none of services supported by the plugin ({offered}) are supported by the kubelet ({_go_list(SERVICES)})"
        if registration.versions
        else "empty list of supported gRPC services (aka supported versions)"
    )
    driver, endpoint = registration.resource, registration.socket
    return f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}: {text}"


def _go_list(texts: Iterable[str]) -> str:
    """The texts as Go prints a list of quoted ones."""
    return f"[{' '.join(map(quoted, texts))}]"
