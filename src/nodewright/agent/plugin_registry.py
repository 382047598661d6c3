"""Plugins that are found by their sockets: asked who they are, registered, told so, and missed when the socket goes."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from nodewright.agent.plugins import CONNECT_S, Plugins
from nodewright.agent.timing import within
from nodewright.agent.values import Tell
from nodewright.model.resource_names import is_extended
from nodewright.values.golang import quoted
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import (
    VERSION,
    PluginInfo,
    Registration,
    RegistrationError,
    RegistryLine,
)
from nodewright.world.plugins.registry import Stamp, sockets_below
from nodewright.world.ports import Clock
from nodewright.world.watching import DirectoryWatch

T = TypeVar("T")
TYPE = "DevicePlugin"
"""The only kind of plugin that is taken here."""
LOOK_EVERY_S = 10.0
"""Where the kernel tells of changes: for what it does not tell, those in directories below."""
FIRST_AGAIN_S, LAST_AGAIN_S = 0.5, 122.0
"""After how long a plugin that could not be registered is asked again: twice as long each time, up to the second."""
_LONGEST = 1024


class _Found:
    """A socket, and what became of it."""

    def __init__(self, socket: Path, stamp: Stamp) -> None:
        self.socket, self.stamp = socket, stamp
        self.task: asyncio.Task[None] | None = None
        self.taken: Registration | None = None


class PluginRegistry:
    """Looks at a directory for plugins, as the kubelet does at its `plugins_registry`.

    Follows: v1.36, pluginmanager/operationexecutor/operation_generator.go; devicemanager/plugin/v1beta1/handler.go.
    Departs: directories below are looked at every ten seconds. Plugins of storage and DRA drivers are turned away, as there is nobody for them.
    """

    def __init__(
        self,
        directory: Path,
        plugins: Plugins,
        connect: Callable[[Path], RegistryLine],
        clock: Clock,
        tell: Callable[[Tell], None],
    ) -> None:
        self.directory = directory
        self._plugins, self._connect, self._clock, self._tell = plugins, connect, clock, tell
        self._found: dict[Path, _Found] = {}

    async def run(self) -> None:
        """Take plugins in and let them go, until cancelled."""
        trouble, watch = "", DirectoryWatch(self.directory)
        try:
            while True:
                said = await self._look()
                if said and said != trouble:
                    self._warn("DevicePluginsOff", said)
                trouble = said
                await watch.wait(LOOK_EVERY_S)
        finally:
            watch.close()
            tasks = [one.task for one in self._found.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> str:
        """See which sockets have come and gone; why they cannot be seen."""
        try:
            there = self._sockets()
        except OSError as error:
            return f"{self.directory}: {error.strerror or error}: no plugins are looked for there"
        for socket, found in list(self._found.items()):
            if there.get(socket) != found.stamp:
                del self._found[socket]
                await self._gone(found)
        for socket, stamp in there.items():
            if socket not in self._found:
                found = self._found[socket] = _Found(socket, stamp)
                found.task = asyncio.create_task(self._keep_trying(found))
        return ""

    def _sockets(self) -> dict[Path, Stamp]:
        """The sockets that are there; the directory is made where it is missing."""
        try:
            return sockets_below(self.directory)
        except FileNotFoundError:
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            return sockets_below(self.directory)

    async def _gone(self, found: _Found) -> None:
        if found.task is not None:
            found.task.cancel()
            await asyncio.gather(found.task, return_exceptions=True)
        if found.taken is not None:
            await self._plugins.hang_up(found.taken, "its socket has gone")

    async def _keep_trying(self, found: _Found) -> None:
        again_s, told = FIRST_AGAIN_S, ""
        while True:
            try:
                found.taken = await self._register(found.socket)
            except (WorldError, RegistrationError) as error:
                said = error.error if isinstance(error, WorldError) else str(error)
                if said != told:
                    self._warn("DevicePluginRefused", f"{found.socket}: {said}")
                told = said
            else:
                return
            await self._clock.sleep(again_s)
            again_s = min(again_s * 2, LAST_AGAIN_S)

    async def _register(self, socket: Path) -> Registration:
        """Errors: WorldError where the plugin does not answer; RegistrationError where it is turned away, and knows it."""
        line = self._connect(socket)
        try:
            info = await self._within("GetInfo", socket, line.info())
            fault = info_fault(info, socket)
            told = registration(info, socket)
            if not fault:
                try:
                    await self._plugins.register(told)
                except RegistrationError as error:
                    fault = f"RegisterPlugin error -- plugin registration failed with err: {error}"
            if fault:
                with suppress(WorldError):
                    await self._within("NotifyRegistrationStatus", socket, line.notify(fault))
                raise RegistrationError(fault)
            try:
                await self._within("NotifyRegistrationStatus", socket, line.notify(""))
            except WorldError:
                await self._plugins.hang_up(told, "it did not want to know that it was registered")
                raise
        finally:
            await line.close()
        return told

    async def _within(self, call: str, socket: Path, doing: Coroutine[Any, Any, T]) -> T:
        try:
            return await within(self._clock, call, doing, CONNECT_S)
        except TimeoutError:
            text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            raise WorldError(call, str(socket), text) from None

    def _warn(self, reason: str, message: str) -> None:
        self._tell(Tell(uid="", is_warning=True, reason=reason, message=message))


def registration(info: PluginInfo, socket: Path) -> Registration:
    """What the plugin registers: where it says no other socket, that on which it was asked."""
    place = socket.parent / info.endpoint if info.endpoint else socket
    return Registration(info.name, info.versions, place.parent, place.name)


def info_fault(info: PluginInfo, socket: Path) -> str:
    """Why a plugin is not taken, in the kubelet's words; empty: it is.

    Follows: v1.36, operation_generator.go, GenerateRegisterPluginFunc; v1beta1/handler.go, ValidatePlugin.
    """
    if info.type != TYPE:
        kind = info.type[:_LONGEST]
        return f"RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}"
    if VERSION not in info.versions:
        versions = " ".join(info.versions)[:_LONGEST]
        why = f"manager version, {VERSION}, is not among plugin supported versions [{versions}]"
    elif not is_extended(info.name):
        why = f"invalid name of device plugin socket: the ResourceName {quoted(info.name[:_LONGEST])} is invalid"
    else:
        return ""
    return f"RegisterPlugin error -- plugin validation failed with err: {why}"
