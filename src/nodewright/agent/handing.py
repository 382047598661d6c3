"""Devices handed to containers: what their plugins are told and asked, and what of it gets into a container."""

from collections.abc import Iterable

from msgspec.structs import replace

from nodewright.agent.device_values import (
    Allocated,
    AllocateDevices,
    AskPreference,
    DeviceUse,
    PreferenceAnswered,
)
from nodewright.core.devices.manager import PluginError
from nodewright.model.device_reasons import DeviceAllocationFailed
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import DevicePlugins, Gear
from nodewright.world.ports import ContainerWish


class HandingError(Exception):
    """A container cannot have its devices; the text is what its status says."""


class Handing:
    """What the agent does for containers with devices.

    ``sees_machine``: containers are plain processes, which see the machine's own files and nothing else.
    """

    def __init__(self, plugins: DevicePlugins, *, sees_machine: bool = False) -> None:
        self._plugins, self._sees_machine = plugins, sees_machine

    async def allocate(self, work: AllocateDevices) -> Allocated:
        """All that the pod holds, handed out; else who refused first.

        Follows: v1.36, devicemanager/manager.go, allocateContainerResources.
        """
        responses = {}
        for use in work.uses:
            try:
                response = await self._plugins.allocate(use.resource, use.devices)
            except WorldError as error:
                failure = DeviceAllocationFailed(
                    resource=use.resource, error=error.error, devices=use.devices
                )
                return Allocated(failure=failure)
            responses[use.container, use.resource] = response
        return Allocated(responses=responses)

    async def ask(self, work: AskPreference) -> PreferenceAnswered:
        """Which devices a plugin prefers, or with what it failed."""
        question = work.question
        answer: tuple[str, ...] | PluginError
        try:
            answer = await self._plugins.preferred(question)
        except WorldError as error:
            answer = PluginError(error.error)
        return PreferenceAnswered(
            uid=work.uid, container=question.container, resource=question.resource, answer=answer
        )

    async def outfitted(self, wish: ContainerWish, uses: Iterable[DeviceUse]) -> ContainerWish:
        """The container with all that its plugins want it to have, once these are ready for it to start.

        Errors:  HandingError.
        Follows: v1.36, devicemanager/manager.go, GetDeviceRunContainerOptions, callPreStartContainerIfNeeded.
        """
        mine = [use for use in uses if use.container == wish.container.name]
        for use in mine:
            try:
                await self._plugins.before_start(use.resource, use.devices)
            except WorldError as error:
                raise HandingError(error.error) from None
        if not mine:
            return wish
        from nodewright.world.plugins.gear import gear_of  # noqa: PLC0415 - protobuf, which few nodes need

        found = gear_of([use.response for use in mine])
        if self._sees_machine:
            _check_process(wish, found)
        return with_gear(wish, found)


def with_gear(wish: ContainerWish, gear: Gear) -> ContainerWish:
    """The container with what plugins want it to have; what the pod itself says of a variable counts.

    Follows: v1.36, kubelet/kubelet_pods.go, GenerateRunContainerOptions.
    """
    own = {one.container_path for one in wish.mounts}
    return replace(
        wish,
        env={**gear.env, **wish.env},
        mounts=(*(one for one in gear.mounts if one.container_path not in own), *wish.mounts),
        devices=(*gear.devices, *wish.devices),
        annotations={**gear.annotations, **wish.annotations},
        cdi_devices=(*gear.cdi_devices, *wish.cdi_devices),
    )


def _check_process(wish: ContainerWish, gear: Gear) -> None:
    """A plain process can have all of it: variables, and files that are where it looks for them.

    Errors: HandingError.
    """
    who = f"container {wish.container.name}"
    for kind, pairs in (
        ("mount", [(one.host_path, one.container_path) for one in gear.mounts]),
        ("device", [(one.host_path, one.container_path) for one in gear.devices]),
    ):
        for host, inside in pairs:
            if host != inside:
                raise HandingError(
                    f"{who}: its device plugin wants a {kind} at {inside}, which is at {host}: a plain process sees "
                    "the machine's own files; use a container runtime"
                )
    if gear.cdi_devices:
        raise HandingError(
            f"{who}: its device plugin names CDI devices ({', '.join(gear.cdi_devices)}), which a container runtime "
            "puts into containers; a plain process has none"
        )
