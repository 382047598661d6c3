"""The plugins of DRA drivers: registered by a socket in `plugins_registry`, called to prepare the claims of pods."""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from nodewright.agent.devices.protocols import PluginRegistration, PluginRegistrationError
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, not_registered_text
from nodewright.model.errors import HostError
from nodewright.model.values.golang import quoted

DRA_PLUGIN_TYPE = "DRAPlugin"
SERVICES = {
    "v1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/",
    "v1beta1.DRAPlugin": "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/",
}
"""The services that a plugin may offer, each with the path of its calls; the first one that it names is used."""
MAX_DRIVERS = 256


class DRAPluginClient(Protocol):
    """A client of one plugin.

    Errors: HostError, with the kubelet's text in `error`.
    """

    def prepare(self, call: DriverCall) -> Coroutine[Any, Any, Mapping[str, ClaimAnswer]]:
        """NodePrepareResources; the answers by uid of the claim."""

    def unprepare(self, call: DriverCall) -> Coroutine[Any, Any, Mapping[str, ClaimAnswer]]:
        """NodeUnprepareResources, likewise."""

    async def close(self) -> None:
        """Closes the connection."""


class DRAPlugins:
    """The registered plugins, of each driver the newest last; ``connect`` makes a client for a plugin and a service.

    Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, RegisterPlugin, DeRegisterPlugin, GetPlugin.
    Departs: of several plugins of a driver the newest is called, whether it is connected or not. ResourceSlices of a driver
        that is gone stay.
    """

    def __init__(self, connect: Callable[[PluginRegistration, str], DRAPluginClient]) -> None:
        self._connect = connect
        self._plugins: dict[str, list[tuple[PluginRegistration, DRAPluginClient]]] = {}

    @property
    def drivers(self) -> frozenset[str]:
        """The names of the drivers that have a plugin."""
        return frozenset(self._plugins)

    def client(self, driver: str) -> DRAPluginClient:
        """The client of a driver's newest plugin.

        Errors: HostError.
        """
        plugins = self._plugins.get(driver)
        if not plugins:
            raise HostError("call", driver, not_registered_text(driver))
        return plugins[-1][1]

    async def register(self, registration: PluginRegistration) -> None:
        """Registers a plugin.

        Errors: PluginRegistrationError, with the kubelet's text.
        """
        driver, endpoint = registration.resource, str(registration.socket)
        service = next((each for each in registration.versions if each in SERVICES), "")
        if not service:
            raise PluginRegistrationError(services_error(registration))
        plugins = self._plugins.get(driver, [])
        if any(each.socket == registration.socket for each, _ in plugins):
            raise PluginRegistrationError(
                f"endpoint {endpoint} already registered for DRA driver plugin {driver}"
            )
        if driver not in self._plugins and len(self._plugins) >= MAX_DRIVERS:
            raise PluginRegistrationError(f"{MAX_DRIVERS} DRA drivers are registered already")
        client = self._connect(registration, SERVICES[service])
        self._plugins[driver] = [*plugins, (registration, client)]

    async def deregister(self, registration: PluginRegistration, reason: str) -> None:
        """Forgets a plugin, whose socket is gone."""
        del reason
        driver = registration.resource
        plugins = self._plugins.get(driver, [])
        gone = [client for each, client in plugins if each == registration]
        left = [(each, client) for each, client in plugins if each != registration]
        self._plugins.pop(driver, None)
        if left:
            self._plugins[driver] = left
        for client in gone:
            await client.close()

    async def close(self) -> None:
        """Closes all connections."""
        clients = [client for plugins in self._plugins.values() for _, client in plugins]
        self._plugins.clear()
        for client in clients:
            await client.close()


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
