"""Fleets under a virtual clock: a scheduler's placement step chooses nodes, and each node's own `step` decides."""

from nodewright.sim.fleet.values import (
    Fate,
    FleetResult,
    Happening,
    Kind,
    Lack,
    NodeRecord,
    PodRecord,
    RefusalCount,
    Sample,
)

__all__ = [
    "Fate",
    "FleetResult",
    "Happening",
    "Kind",
    "Lack",
    "NodeRecord",
    "PodRecord",
    "RefusalCount",
    "Sample",
]
