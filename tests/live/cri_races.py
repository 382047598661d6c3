"""A container that grows, against an agent with containerd: how late is the signal?"""

import asyncio
import contextlib
import os
from pathlib import Path

from msgspec.structs import replace
from tests.live.containerd import APP, Containerd

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.objects import Container, Pod, PodSpec
from nodewright.model.running import PodFacts
from nodewright.testing.growth import Bench, DisturbedError, GrowerComposer, Round, Where
from nodewright.world.cri import Channel, CRIRuntime
from nodewright.world.ports import ContainerWish, Mount

_HOST = "/host"
_MOST_TRIES = 3


class _Composer(GrowerComposer):
    """The growing process is the machine's own, in a container that sees the machine's files."""

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[File, ...]],
        facts: PodFacts,
    ) -> ContainerWish:
        """It runs where the files are that it looks at."""
        wish = await super().container(pod, container, attempt, settings, facts)
        mounts = (Mount(host_path="/", container_path=_HOST),)
        return replace(wish, image=APP, command=("chroot", _HOST, *wish.command), mounts=mounts)


class ContainerBench(Bench):
    """An agent with containerd, and the pod that grows."""

    def __init__(self, directory: Path, where: Where, containerd: Containerd) -> None:
        super().__init__(directory, where, runtime=CRIRuntime(Channel(containerd.endpoint)))

    def composer(self, directory: Path) -> GrowerComposer:
        """With the machine's files in it."""
        return _Composer(directory)

    def dressed(self, spec: PodSpec) -> PodSpec:
        """As process 1 it could not end itself; it grows at a priority of its own."""
        (main,) = spec.containers
        main = replace(main, security_context={"privileged": True})
        return replace(spec, containers=(main,), host_pid=True, host_network=True)


async def container_races(containerd: Containerd, where: Where, rounds: int) -> tuple[Round, ...]:
    """So many of them, one after the other.

    Errors: DisturbedError if others on the machine leave no chance to measure.
    """
    found: list[Round] = []
    for number in range(_MOST_TRIES * rounds):
        place = containerd.root / f"race-{os.getpid()}-{where}-{number}"
        place.mkdir()
        with contextlib.suppress(DisturbedError, TimeoutError):
            found.append(await ContainerBench(place, where, containerd).race())
        if len(found) == rounds:
            return tuple(found)
        # What was freed is to be available again before the next one measures.
        await asyncio.sleep(0.3)
    raise DisturbedError
