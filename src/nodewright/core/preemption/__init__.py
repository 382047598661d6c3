"""Who makes way for a critical pod? The kubelet's choice, and the smallest that there is."""

from nodewright.core.preemption.greedy import (
    Candidate,
    Distance,
    Missing,
    Round,
    Victims,
    candidates_for,
    preempt,
    still_missing,
)

__all__ = [
    "Candidate",
    "Distance",
    "Missing",
    "Round",
    "Victims",
    "candidates_for",
    "preempt",
    "still_missing",
]
