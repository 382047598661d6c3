"""A container that grows, against an agent with containerd: how late is the signal?"""

import asyncio
import contextlib
import os
from pathlib import Path

from msgspec.structs import replace
from tests.live.containerd import APP, Containerd
from tests.support.eviction_race import (
    AgentRaceBench,
    DisturbedError,
    GrowerConfigBuilder,
    RaceResult,
    ThresholdScope,
)

from nodewright.agent.host.ports import ContainerConfig, Mount
from nodewright.agent.runtimes.cri import CRIChannel, CRIRuntime
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.kubernetes.objects import Container, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

_HOST = "/host"
_MOST_TRIES = 3


class _Composer(GrowerConfigBuilder):
    """The growing process is the machine's own, in a container that sees the machine's files."""

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[CgroupFile, ...]],
        facts: RuntimePodStatus,
    ) -> ContainerConfig:
        """It runs where the files are that it looks at."""
        container_config = await super().container_config(pod, container, attempt, settings, facts)
        mounts = (Mount(host_path="/", container_path=_HOST),)
        return replace(
            container_config, image=APP, command=("chroot", _HOST, *container_config.command), mounts=mounts
        )


class ContainerBench(AgentRaceBench):
    """An agent with containerd, and the pod that grows."""

    def __init__(self, directory: Path, where: ThresholdScope, containerd: Containerd) -> None:
        super().__init__(directory, where, runtime=CRIRuntime(CRIChannel(containerd.endpoint)))

    def composer(self, directory: Path) -> GrowerConfigBuilder:
        """With the machine's files in it."""
        return _Composer(directory)

    def dressed(self, spec: PodSpec) -> PodSpec:
        """As process 1 it could not end itself; it grows at a priority of its own."""
        (main,) = spec.containers
        main = replace(main, security_context={"privileged": True})
        return replace(spec, containers=(main,), host_pid=True, host_network=True)


async def container_races(
    containerd: Containerd, where: ThresholdScope, rounds: int
) -> tuple[RaceResult, ...]:
    """So many of them, one after the other.

    Errors: DisturbedError if others on the machine leave no chance to measure.
    """
    race_results: list[RaceResult] = []
    for number in range(_MOST_TRIES * rounds):
        place = containerd.root / f"race-{os.getpid()}-{where}-{number}"
        place.mkdir()
        with contextlib.suppress(DisturbedError, TimeoutError):
            race_results.append(await ContainerBench(place, where, containerd).run_race())
        if len(race_results) == rounds:
            return tuple(race_results)
        # What was freed is to be available again before the next one measures.
        await asyncio.sleep(0.3)
    raise DisturbedError
