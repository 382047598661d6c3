"""Who makes way for a critical pod? The kubelet's choice, and the smallest that there is."""

from nodewright.core.preemption.cover import Cover
from nodewright.core.preemption.greedy import (
    Candidate,
    Distance,
    Missing,
    Round,
    Victims,
    candidates_for,
    preempt,
    shortfalls,
    still_missing,
)
from nodewright.core.preemption.optimal import BUDGET, ExactSolver, Optimum, Toll, optimum

__all__ = [
    "BUDGET",
    "Candidate",
    "Cover",
    "Distance",
    "ExactSolver",
    "Missing",
    "Optimum",
    "Round",
    "Toll",
    "Victims",
    "candidates_for",
    "optimum",
    "preempt",
    "shortfalls",
    "still_missing",
]
