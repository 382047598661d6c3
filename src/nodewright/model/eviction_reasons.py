"""The facts that decide who is refused or ended while a node runs short of something."""

from typing import TypeAlias

import msgspec

from nodewright.model.pressure import NodeCondition
from nodewright.model.thresholds import Signal
from nodewright.values.quantity import Quantity

# ---------------------------------------------------------------- who does not get in


class NodeUnderPressure(msgspec.Struct, frozen=True, kw_only=True):
    """The node has conditions under which the kubelet takes no such pod."""

    conditions: tuple[NodeCondition, ...]
    best_effort_only: bool
    """Whether a pod that requests or limits cpu or memory would be taken, or one that tolerates the taint."""


# ---------------------------------------------------------------- who has to go


class OverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A container, or a pod as a whole, with what it uses and what it requests."""

    name: str
    usage: Quantity
    request: Quantity


class NodeRanShort(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold was met, and this pod was the first in the ranking that may be ended."""

    resource: str
    """`memory`, `ephemeral-storage`, `inodes` or `pids`."""
    signal: Signal
    threshold: Quantity
    """What the threshold comes to."""
    available: Quantity
    has_stats: bool
    """Whether anything is known of what the pod uses."""
    pod: OverRequest | None = None
    """The pod as a whole where it requests memory at the pod level, whether it uses more or not."""
    containers: tuple[OverRequest, ...] = ()
    """The containers that use more than they request."""


class EmptyDirOverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """An emptyDir holds more than its `sizeLimit`.

    Units: used_bytes in bytes.
    """

    volume: str
    used_bytes: int
    limit: Quantity


class PodStorageOverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The pod uses more ephemeral storage than the limits of its containers add up to.

    Units: used_bytes in bytes.
    """

    used_bytes: int
    limit: Quantity


class ContainerStorageOverLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A container uses more ephemeral storage than its limit.

    Units: used_bytes in bytes.
    """

    container: str
    used_bytes: int
    limit: Quantity


LimitExceeded: TypeAlias = EmptyDirOverLimit | PodStorageOverLimit | ContainerStorageOverLimit
"""Why a pod is ended whatever the node has left."""


# ---------------------------------------------------------------- what stops the eviction manager


class VolumeUseMissing(msgspec.Struct, frozen=True, kw_only=True):
    """A volume's use was not observed, which crashes the kubelet when it looks at size limits."""

    pod: str
    """As namespace/name."""
    volume: str


class SplitFilesystemsUnsupported(msgspec.Struct, frozen=True, kw_only=True):
    """Containers and images are on file systems of their own, and the gate KubeletSeparateDiskGC is off."""


EvictionReason: TypeAlias = (
    NodeUnderPressure | NodeRanShort | LimitExceeded | VolumeUseMissing | SplitFilesystemsUnsupported
)
"""What eviction finds."""
