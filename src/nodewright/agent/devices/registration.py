"""Registration of device plugins: the socket on which they register, and the checks. gRPC is imported for the first only.

Without it, an agent without device plugins needs a third less memory.
"""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from nodewright.agent.devices.dra_plugins import DRA_PLUGIN_TYPE, services_error
from nodewright.agent.devices.protocols import (
    DEVICE_PLUGIN_API_VERSION,
    PluginInfo,
    PluginRegistration,
    PluginRegistrationError,
    RegisterPlugin,
)
from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.on_demand_server import OnDemandServer, ServerFactory
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.resource_names import is_extended
from nodewright.model.values.golang import quoted

SOCKET_NAME, INNER_SOCKET_NAME = "kubelet.sock", ".nodewright.sock"
"""The socket that plugins connect to, and the gRPC server's socket behind it."""
_MAX_CONNECTIONS = 128
_MAX_PATH_LENGTH = 107
_MAX_VERSION_LENGTH = 253


class RegistrationServer:
    """Serves registration in a directory of plugin sockets; ``register`` gets each registration.

    Connections are forwarded to a gRPC server that is started for the first of them.
    """

    def __init__(self, directory: Path, register: RegisterPlugin) -> None:
        self.directory, self._register = directory, register
        self._listener: asyncio.Server | None = None
        self._stack = AsyncExitStack()
        self._forwarder: OnDemandServer | None = None

    async def start(self) -> None:
        """Starts to listen; removes old sockets in the directory, so that running plugins notice and register again.

        Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Start; devicemanager/manager.go,
            CleanupPluginDirectory.
        Errors:  HostError; also where another process listens there, such as a kubelet.
        """
        path = self.directory / SOCKET_NAME
        if len(os.fsencode(self.directory / INNER_SOCKET_NAME)) > _MAX_PATH_LENGTH:
            raise HostError("listen", str(path), "the path is too long for a socket")
        with host_errors("listen", path):
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            if _is_listening(path):
                raise HostError("listen", str(path), "a kubelet or another agent listens there")
            remove_sockets(self.directory)
            inner = self.directory / INNER_SOCKET_NAME
            self._forwarder = OnDemandServer(inner, self._load, self._stack, _MAX_CONNECTIONS)
            self._listener = await asyncio.start_unix_server(self._forwarder.accept_connection, path)

    async def stop(self) -> None:
        """Stops listening and closes all connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        if self._forwarder is not None:
            await self._forwarder.close()
        # After the connections: one of them may just have started the server.
        await self._stack.aclose()
        if listener is not None:
            for name in (SOCKET_NAME, INNER_SOCKET_NAME):
                (self.directory / name).unlink(missing_ok=True)

    def _load(self) -> ServerFactory:
        from nodewright.agent.devices.plugin_client import start_registration_service  # noqa: PLC0415 - 24 MiB, before the first registration

        @asynccontextmanager
        async def serve(path: Path) -> AsyncIterator[None]:
            server = await start_registration_service(path, self.directory, self._register)
            try:
                yield
            finally:
                await server.stop(None)

        return serve


def remove_sockets(directory: Path) -> None:
    """Removes all sockets in the directory; other files stay."""
    for path in directory.iterdir():
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)


def _is_listening(path: Path) -> bool:
    """Whether a process listens on a socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


# ---------------------------------------------------------------- checks


def check_registration(registration: PluginRegistration) -> None:
    """Checks that a plugin may serve its resource.

    Follows: v1.36, devicemanager/plugin/v1beta1/server.go, Register.
    Errors:  PluginRegistrationError, with the kubelet's text.
    """
    if DEVICE_PLUGIN_API_VERSION not in registration.versions:
        version = ", ".join(registration.versions)[:_MAX_VERSION_LENGTH]
        raise PluginRegistrationError(
            f"requested API version {quoted(version)} is not supported by kubelet. "
            f"Supported version is [{quoted(DEVICE_PLUGIN_API_VERSION)}]"
        )
    resource, endpoint = registration.resource, registration.endpoint
    if not is_extended(resource):
        raise PluginRegistrationError(f"the ResourceName {quoted(resource[:_MAX_TEXT_LENGTH])} is invalid")
    if endpoint in ("", "..") or registration.socket.name != endpoint:
        raise PluginRegistrationError(
            f"the endpoint {quoted(endpoint[:_MAX_TEXT_LENGTH])} is not the name of a socket in {registration.directory}"
        )


PLUGIN_TYPE = "DevicePlugin"


_MAX_TEXT_LENGTH = 1024


def registration(info: PluginInfo, socket: Path) -> PluginRegistration:
    """The plugin's registration; without an endpoint of its own it serves on the socket that it was found by."""
    endpoint = socket.parent / info.endpoint if info.endpoint else socket
    return PluginRegistration(info.name, info.versions, endpoint.parent, endpoint.name)


def plugin_info_error(info: PluginInfo, socket: Path) -> str:
    """Why a plugin is rejected, in the kubelet's words; empty: it is accepted.

    Follows: v1.36, operation_generator.go, GenerateRegisterPluginFunc; v1beta1/handler.go, ValidatePlugin.
    """
    if info.type == DRA_PLUGIN_TYPE:
        why = services_error(registration(info, socket))
        return f"RegisterPlugin error -- plugin validation failed with err: {why}" if why else ""
    if info.type != PLUGIN_TYPE:
        kind = info.type[:_MAX_TEXT_LENGTH]
        return f"RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}"
    if DEVICE_PLUGIN_API_VERSION not in info.versions:
        versions = " ".join(info.versions)[:_MAX_TEXT_LENGTH]
        why = f"manager version, {DEVICE_PLUGIN_API_VERSION}, is not among plugin supported versions [{versions}]"
    elif not is_extended(info.name):
        why = f"invalid name of device plugin socket: the ResourceName {quoted(info.name[:_MAX_TEXT_LENGTH])} is invalid"
    else:
        return ""
    return f"RegisterPlugin error -- plugin validation failed with err: {why}"
