"""Fleets under a virtual clock: a scheduler's placement step chooses nodes, and each node's own `step` decides."""

from nodewright.fleet.simulation.outcomes import (
    FilterRejections,
    FleetEvent,
    FleetEventKind,
    FleetPodRecord,
    FleetResult,
    FleetSample,
    NodeRecord,
    PodOutcome,
    RefusalCount,
)

__all__ = [
    "FilterRejections",
    "FleetEvent",
    "FleetEventKind",
    "FleetPodRecord",
    "FleetResult",
    "FleetSample",
    "NodeRecord",
    "PodOutcome",
    "RefusalCount",
]
