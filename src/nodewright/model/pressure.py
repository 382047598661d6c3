"""What eviction's signals stand for: the resource that runs short, the condition of the node, its taint."""

from collections.abc import Mapping
from enum import StrEnum

from nodewright.model.objects import Taint
from nodewright.model.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY, PIDS
from nodewright.model.thresholds import Signal


class NodeCondition(StrEnum):
    """What a node says of itself while something runs short, in the order in which we list several."""

    DISK_PRESSURE = "DiskPressure"
    MEMORY_PRESSURE = "MemoryPressure"
    PID_PRESSURE = "PIDPressure"

    @property
    def taint(self) -> Taint:
        """The taint that the control plane gives a node for it.

        Follows: v1.36, pkg/controller/nodelifecycle/node_lifecycle_controller.go, doNoScheduleTaintingPass.

        >>> NodeCondition.MEMORY_PRESSURE.taint.key
        'node.kubernetes.io/memory-pressure'
        """
        return _TAINTS[self]


RESOURCES: Mapping[Signal, str] = {
    Signal.MEMORY_AVAILABLE: MEMORY,
    Signal.ALLOCATABLE_MEMORY_AVAILABLE: MEMORY,
    Signal.NODEFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.IMAGEFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.CONTAINERFS_AVAILABLE: EPHEMERAL_STORAGE,
    Signal.NODEFS_INODES_FREE: INODES,
    Signal.IMAGEFS_INODES_FREE: INODES,
    Signal.CONTAINERFS_INODES_FREE: INODES,
    Signal.PID_AVAILABLE: PIDS,
}
"""What is taken back when a signal's threshold is met.

Follows: v1.36, eviction/helpers.go, signalToResource.
"""

_CONDITIONS = {
    MEMORY: NodeCondition.MEMORY_PRESSURE,
    EPHEMERAL_STORAGE: NodeCondition.DISK_PRESSURE,
    INODES: NodeCondition.DISK_PRESSURE,
    PIDS: NodeCondition.PID_PRESSURE,
}
CONDITIONS: Mapping[Signal, NodeCondition] = {
    signal: _CONDITIONS[resource] for signal, resource in RESOURCES.items()
}
"""What the node says when a signal's threshold is met.

Follows: v1.36, eviction/helpers.go, signalToNodeCondition.
"""

_TAINTS = {
    condition: Taint(key=f"node.kubernetes.io/{name}", effect="NoSchedule")
    for condition, name in (
        (NodeCondition.MEMORY_PRESSURE, "memory-pressure"),
        (NodeCondition.DISK_PRESSURE, "disk-pressure"),
        (NodeCondition.PID_PRESSURE, "pid-pressure"),
    )
}
