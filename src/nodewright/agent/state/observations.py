"""What the agent observes: a closed union of values, the input of `decide`."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.agent.rules.pod_actions import ProbeResult
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.rules.probe_state import Probe
from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.effects import PodEffect
from nodewright.engine.core.claims.device_health import ResourceStatus
from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.engine.core.eviction.eviction_state import EvictionObservation
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.reasons.devices import DeviceAllocationFailed

# ---------------------------------------------------------------- state


# ---------------------------------------------------------------- observations


class PluginDevicesListed(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a resource's plugin lists."""

    resource: str
    devices: tuple[Device, ...] | None
    """None: the plugin is gone for good, and the node has 0 of the resource."""
    preferred_allocation: str = "absent"
    """`asked` if the plugin offers GetPreferredAllocation."""


class PreferredAllocationReceived(msgspec.Struct, frozen=True, kw_only=True):
    """The devices that a plugin prefers for a container, or its error."""

    uid: str
    container: str
    resource: str
    preferred_devices: tuple[str, ...] | DevicePluginError


class DeviceAllocationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of AllocateDevices."""

    responses: Mapping[tuple[str, str], bytes] = {}
    """The plugins' responses, by container and resource."""
    failure: DeviceAllocationFailed | None = None
    """The first failure; no further plugin was called."""


class ClaimHealthObserved(msgspec.Struct, frozen=True):
    """How the devices are that pods have by their claims: by the pod's uid and by container."""

    statuses: Mapping[str, Mapping[str, tuple[ResourceStatus, ...]]]


# ---------------------------------------------------------------- effects


DeviceObservation: TypeAlias = PluginDevicesListed | PreferredAllocationReceived


class SourcePodsListed(msgspec.Struct, frozen=True):
    """All pods that a source lists now."""

    source: PodSource
    pods: tuple[Pod, ...]


class PodApplied(msgspec.Struct, frozen=True):
    """A request to run a pod."""

    source: PodSource
    pod: Pod


class PodDeletionRequested(msgspec.Struct, frozen=True):
    """A request to delete a pod.

    Units: grace_period_s in seconds; None: the pod spec's.
    """

    uid: str
    grace_period_s: int | None = None


class PodStatusObserved(msgspec.Struct, frozen=True):
    """A pod's status from the runtime; None: the runtime does not know the pod.

    Units: observed_at_ns in nanoseconds on the monotonic clock: when the status was requested, as answers may overtake
        one another.
    """

    uid: str
    runtime_status: RuntimePodStatus | None
    observed_at_ns: int


class RuntimeRelisted(msgspec.Struct, frozen=True):
    """All pods that the runtime holds: after the agent's start or a lost connection to the runtime.

    Units: as of PodStatusObserved.
    """

    pods: tuple[RuntimePodStatus, ...]
    observed_at_ns: int


SANDBOX_ERROR, KILL_ERROR, MOUNT_ERROR = "FailedCreatePodSandBox", "KillPodError", "FailedMount"
CLAIMS_ERROR = "FailedPrepareDynamicResources"
CREATE_ERROR, RUN_ERROR, HOOK_ERROR = "CreateContainerError", "RunContainerError", "PostStartHookError"
CONFIG_ERROR, CGROUP_ERROR = "CreateContainerConfigError", "FailedCreatePodContainer"
"""Reasons of failures; images have reasons of their own."""


class EffectFailure(msgspec.Struct, frozen=True, kw_only=True):
    """An operation for a pod that failed."""

    reason: str
    """As in a container's status: `RunContainerError`, `ErrImagePull`…"""
    message: str
    container: str = ""
    """Empty: the failure concerns the whole pod."""


class PodEffectCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an effect for a pod.

    Units: as of PodStatusObserved.
    """

    uid: str
    effect: "PodEffect"
    runtime_status: RuntimePodStatus | None
    """The runtime's status of the pod afterwards."""
    observed_at_ns: int
    failures: tuple[EffectFailure, ...] = ()
    is_cancelled: bool = False
    device_allocation: DeviceAllocationResult | None = None
    """The result of AllocateDevices."""


class PodReferencesChanged(msgspec.Struct, frozen=True):
    """Objects that these pods refer to have been read or have changed: what failed may succeed now."""

    uids: frozenset[str]


class ContainerUpdateFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A container's resources could not be updated; it may have ended."""

    uid: str
    container_id: str


class ProbeCompleted(msgspec.Struct, frozen=True, kw_only=True):
    """A probe's result.

    Units: duration_s in seconds.
    """

    uid: str
    container: str
    container_id: str
    probe: Probe
    health: ProbeResult | None
    """None: the probe could not be run."""
    output: str = ""
    is_warning: bool = False
    """Whether the probe succeeded with a warning."""
    duration_s: float = 0.0


class NodeUsageObserved(msgspec.Struct, frozen=True):
    """Resource usage of the node and its pods."""

    eviction_observation: EvictionObservation
    is_after_reclaim: bool = False
    """Whether the node has just reclaimed what it can without ending pods."""


class PodUsage(NamedTuple):
    """What a pod uses; None: unknown.

    Units: thousandths of a CPU; bytes of its working set.
    """

    cpu_milli: int | None
    memory_bytes: int | None


class PodUsageSampled(msgspec.Struct, frozen=True, kw_only=True):
    """A regular sample of all pods, on a node that lends.

    Units: nanoseconds on the monotonic clock.
    """

    at_ns: int
    pods: Mapping[str, PodUsage]
    """By uid; a pod that is absent is unknown."""
    memory: "ClassMemory"


class ClassMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The working sets of QoS classes, read together from their cgroups.

    Units: bytes; nanoseconds on the monotonic clock.
    """

    at_ns: int
    lenders_bytes: int
    """Of Guaranteed and Burstable pods."""
    borrowed_bytes: int
    """Of BestEffort pods."""


class LentMemoryObserved(msgspec.Struct, frozen=True):
    """The pods that lend need memory that is lent, or what borrowers owe has changed: seen between two samples."""

    memory: ClassMemory


class DrainRequested(msgspec.Struct, frozen=True, kw_only=True):
    """All pods must end: the machine shuts down, or the agent is stopped together with its pods.

    Units: grace_periods_s in seconds, by uid.
    """

    reason: str
    status_override: StatusOverride
    grace_periods_s: Mapping[str, int]


class NodeObjectObserved(msgspec.Struct, frozen=True):
    """What the node's object in the API server says about which pods it may run."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...] = ()


class Ticked(msgspec.Struct, frozen=True):
    """A due moment has passed."""


PodObservation: TypeAlias = (
    SourcePodsListed
    | PodApplied
    | PodDeletionRequested
    | PodStatusObserved
    | RuntimeRelisted
    | PodEffectCompleted
    | ProbeCompleted
)
Observation: TypeAlias = (
    PodObservation
    | PodReferencesChanged
    | ContainerUpdateFailed
    | ClaimHealthObserved
    | NodeUsageObserved
    | PodUsageSampled
    | LentMemoryObserved
    | DeviceObservation
    | DrainRequested
    | NodeObjectObserved
    | Ticked
)
