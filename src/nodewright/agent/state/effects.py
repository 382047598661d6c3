"""What the agent does: a closed union of values, ordered by `decide`."""

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from nodewright.agent.rules.pod_actions import PodActions
from nodewright.agent.rules.probe_state import Probe
from nodewright.agent.state import observations as device_observations
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, PlannedCgroup
from nodewright.engine.core.eviction.eviction_state import NodeReclaim
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent


class SyncPod(msgspec.Struct, frozen=True, kw_only=True):
    """Brings a pod to the state that its plan describes: cgroups, kills, a sandbox, starts."""

    uid: str
    pod: Pod
    plan: PodActions
    cgroups: tuple[PlannedCgroup, ...]
    """Of the pod and its containers."""
    settings: Mapping[str, ContainerSettings]
    attempts: Mapping[str, int]
    """The attempt number of each container to start."""
    updates: tuple["UpdateContainerResources", ...] = ()
    """Resource updates of running containers, because the pod is resized."""
    is_resize: bool = False
    post_start_retries: tuple[str, ...] = ()
    """Running containers for which an interrupted postStart hook is run again, before any start."""
    devices: tuple[device_observations.AllocatedDevices, ...] = ()
    """The devices that its containers hold."""


class TerminatePod(msgspec.Struct, frozen=True, kw_only=True):
    """Ends all containers of a pod and removes its cgroups.

    Units: grace_period_s in seconds; None: the pod spec's.
    """

    uid: str
    pod: Pod
    grace_period_s: int | None
    cgroup: str


class CleanUpPod(msgspec.Struct, frozen=True, kw_only=True):
    """Removes all that is left of a pod: containers, sandboxes, volumes, logs."""

    uid: str
    pod: Pod
    cgroup: str


PodEffect: TypeAlias = device_observations.AllocateDevices | SyncPod | TerminatePod | CleanUpPod


class CancelEffect(msgspec.Struct, frozen=True):
    """Stops the running effect of a pod; PodEffectCompleted then reports it as cancelled."""

    uid: str


class UpdateContainerResources(msgspec.Struct, frozen=True, kw_only=True):
    """Changes the resources of a running container."""

    uid: str
    container_id: str
    settings: ContainerSettings
    files: tuple[CgroupFile, ...]


class UpdateStartingContainer(msgspec.Struct, frozen=True, kw_only=True):
    """Changes the resources of a container that the running effect starts, or has just started."""

    uid: str
    container: str
    settings: ContainerSettings
    files: tuple[CgroupFile, ...]


class WriteCgroups(msgspec.Struct, frozen=True):
    """Writes the cgroups above those of pods."""

    cgroups: tuple[PlannedCgroup, ...]


class RunProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Probes a container."""

    uid: str
    pod: Pod
    container: str
    container_id: str
    probe: Probe
    pod_ip: str


class ReclaimNodeResources(msgspec.Struct, frozen=True):
    """Reclaims what the node can give back without ending pods, then reads its usage again."""

    targets: tuple[NodeReclaim, ...]


QueryEffect: TypeAlias = RunProbe | device_observations.QueryPreferredAllocation
Effect: TypeAlias = (
    PodEffect
    | CancelEffect
    | UpdateContainerResources
    | UpdateStartingContainer
    | WriteCgroups
    | QueryEffect
    | ReclaimNodeResources
    | RecordEvent
)
