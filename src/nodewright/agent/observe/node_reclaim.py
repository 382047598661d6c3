"""Reclaims node resources before pods are evicted: dead containers and unused images."""

from collections.abc import Mapping

from nodewright.agent.host.ports import ContainerRuntime
from nodewright.agent.pods.image_manager import ImageManager
from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)


async def reclaim_node_resources(
    targets: tuple[NodeReclaim, ...],
    runtime: ContainerRuntime,
    image_manager: ImageManager | None,
    pods: Mapping[str, PodRecord],
) -> tuple[str, ...]:
    """Reclaims the targets; the failures."""
    failures: list[str] = []
    for target in targets:
        try:
            if target is NodeReclaim.CONTAINERS:
                await _remove_dead_containers(runtime, pods, failures)
            elif image_manager is not None:
                failures += (await image_manager.delete_unused_images()).failures
        except (HostError, TimeoutError) as error:
            failures.append(str(error))
    return tuple(failures)


def dead_containers(
    runtime_status: RuntimePodStatus, record: PodRecord | None
) -> tuple[RuntimeContainerStatus, ...]:
    """The containers of a pod that are no longer needed: of a pod that goes on, all ended ones but the newest of a name.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_gc.go, evictContainers, with the default MaxPerPodContainer.
    """
    idle = [
        container for container in runtime_status.containers if container.phase is not ContainerPhase.RUNNING
    ]
    if record is None or record.stage is PodStage.TERMINATED:
        return tuple(idle)
    newest = {container.name: container.id for container in reversed(idle)}
    # A container that was just created may be about to start.
    return tuple(
        container
        for container in idle
        if container.id != newest[container.name] and container.phase is not ContainerPhase.CREATED
    )


async def _remove_dead_containers(
    runtime: ContainerRuntime, pods: Mapping[str, PodRecord], failures: list[str]
) -> None:
    for runtime_status in await runtime.pods():
        record = pods.get(runtime_status.uid)
        if record is not None and record.has_running_effect:
            continue
        for container in dead_containers(runtime_status, record):
            try:
                await runtime.remove_container(container.id)
            except (HostError, TimeoutError) as error:
                failures.append(str(error))
