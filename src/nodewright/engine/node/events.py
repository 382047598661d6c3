"""The events that change a node."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.node.node_config import NodeParts
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.devices import DeviceAllocationFailed
from nodewright.model.reasons.verdict import Verdict

if TYPE_CHECKING:
    from nodewright.engine.node.restart.kubelet_startup import StoredState


class PodAdded(msgspec.Struct, frozen=True):
    """A pod was assigned to the node; the kubelet decides on its admission.

    The pod carries the API server's defaults.
    """

    pod: Pod
    preferred_devices: Mapping[tuple[str, str], tuple[str, ...] | DevicePluginError] = msgspec.field(
        default_factory=dict
    )
    """The device plugins' preferred devices, by container and resource."""
    can_query_plugins: bool = False
    """Whether plugins can be queried: then a necessary query is returned instead of a decision
    (`GetPreferredAllocation`), and the event is repeated with the answer."""


class PodRecovered(msgspec.Struct, frozen=True):
    """A pod that already runs on the node at startup; it is counted without an admission decision."""

    pod: Pod
    is_allocated: bool = False
    """Whether the state has its allocations; otherwise the managers allocate as for a new pod."""


class PodStarted(msgspec.Struct, frozen=True):
    """All containers of an admitted pod have been started, in order."""

    uid: str


class PodRemoved(msgspec.Struct, frozen=True):
    """A pod has terminated or was deleted; ignored for an unknown pod."""

    uid: str


class PodResized(msgspec.Struct, frozen=True):
    """A resize of a running pod is requested; ignored for an unknown pod.

    The pod is the desired one; only its resources are used.
    """

    pod: Pod


class KillFailed(msgspec.Struct, frozen=True):
    """The kill of a pod failed; the pod counts until it is removed."""

    pod: Pod


class ConditionsObserved(msgspec.Struct, frozen=True):
    """The eviction manager has set the node conditions: the complete set."""

    conditions: tuple[NodeCondition, ...]


class DevicesObserved(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin of a resource has listed its devices: the complete list."""

    resource: str
    devices: tuple[Device, ...] | None
    """None: the plugin has been disconnected for so long that the node no longer advertises the resource."""
    preference: str = "absent"
    """The plugin's allocation preference, one of `core.devices.device_state.PREFERENCES`."""


class DevicesAllocated(msgspec.Struct, frozen=True, kw_only=True):
    """The plugins have responded to `Allocate` for an admitted pod; ignored for an unknown pod.

    If a plugin failed, the pod is rejected after all.
    """

    uid: str
    responses: Mapping[tuple[str, str], bytes] = msgspec.field(default_factory=dict)
    """The responses by container and resource."""
    failure: DeviceAllocationFailed | None = None


class UsageObserved(msgspec.Struct, frozen=True, kw_only=True):
    """The eviction manager runs on these readings: it may evict pods and sets the node conditions.

    Units: now_s in seconds on a monotonic clock.
    """

    usage: StatsSummary | None
    """The stats summary; None: reading failed, and the pass does nothing."""
    now_s: float
    filesystems: NodeFilesystems | None = None
    """The container runtime's filesystems; None: inferred from their sizes."""
    usage_after_reclaim: StatsSummary | None = None
    """The stats summary after node-level reclaim; None: reclaim changed nothing."""


class ReservationsObserved(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods that lend keep of the node, and what borrowers use: decides what is lent.

    Units: thousandths of a CPU; bytes. None: as before.
    """

    cpu_milli: int | None = None
    memory_bytes: int | None = None
    borrowed_bytes: int = 0


class KubeletRestarted(msgspec.Struct, frozen=True):
    """The kubelet restarts with its state files while pods keep running."""

    parts: Verdict[NodeParts]
    """The node's new configuration; Refused: the kubelet rejects the configuration."""
    stored: "StoredState"
    """The state files that the new kubelet reads."""


NodeEvent: TypeAlias = (
    PodAdded
    | PodRecovered
    | PodStarted
    | PodRemoved
    | PodResized
    | KillFailed
    | ConditionsObserved
    | DevicesObserved
    | DevicesAllocated
    | UsageObserved
    | ReservationsObserved
    | KubeletRestarted
)
