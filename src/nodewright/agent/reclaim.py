"""What a node gives back before pods have to go: dead containers, and images that nobody uses."""

from collections.abc import Mapping

from nodewright.agent.images import ImageKeeper
from nodewright.agent.values import PodRecord, Stage
from nodewright.core.eviction import NodeReclaim
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerRuntime


async def reclaim(
    what: tuple[NodeReclaim, ...],
    runtime: ContainerRuntime,
    images: ImageKeeper | None,
    pods: Mapping[str, PodRecord],
) -> tuple[str, ...]:
    """Give it back; what could not be, is told."""
    told: list[str] = []
    for one in what:
        try:
            if one is NodeReclaim.CONTAINERS:
                await _containers(runtime, pods, told)
            elif images is not None:
                told += (await images.remove_unused()).failures
        except (WorldError, TimeoutError) as error:
            told.append(str(error))
    return tuple(told)


def dead(facts: PodFacts, record: PodRecord | None) -> tuple[ContainerFacts, ...]:
    """The containers of a pod that nobody needs: of one that goes on, all that have ended but the newest of each.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_gc.go, evictContainers, with MaxPerPodContainer as it is by default.
    """
    idle = [one for one in facts.containers if one.phase is not ContainerPhase.RUNNING]
    if record is None or record.stage is Stage.ENDED:
        return tuple(idle)
    newest = {one.name: one.id for one in reversed(idle)}
    # What was made a moment ago may be about to start.
    return tuple(
        one for one in idle if one.id != newest[one.name] and one.phase is not ContainerPhase.CREATED
    )


async def _containers(runtime: ContainerRuntime, pods: Mapping[str, PodRecord], told: list[str]) -> None:
    for facts in await runtime.pods():
        record = pods.get(facts.uid)
        if record is not None and record.is_busy:
            continue
        for one in dead(facts, record):
            try:
                await runtime.remove_container(one.id)
            except (WorldError, TimeoutError) as error:
                told.append(str(error))
