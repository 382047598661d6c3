"""Memory pressure in virtual time: whether kubelet eviction frees memory before the kernel's OOM killer acts."""

from nodewright.predict.timeline.pressure_simulation import (
    ThresholdAdvice,
    simulated_timeline,
    threshold_advice,
    with_hard_threshold,
)
from nodewright.predict.timeline.timeline_model import (
    Assumptions,
    ContainerMemory,
    Growth,
    LimitScope,
    PodMemory,
    Timeline,
    TimelineSetup,
    timeline_setup,
)

__all__ = [
    "Assumptions",
    "ContainerMemory",
    "Growth",
    "LimitScope",
    "PodMemory",
    "ThresholdAdvice",
    "Timeline",
    "TimelineSetup",
    "simulated_timeline",
    "threshold_advice",
    "timeline_setup",
    "with_hard_threshold",
]
