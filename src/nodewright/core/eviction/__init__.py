"""Who ends to relieve pressure? Thresholds, ranking, the manager over time, and who is refused meanwhile."""

from nodewright.core.eviction.admission import (
    Passage,
    UnderCondition,
    kubelet_passage,
    refused_under_pressure,
    under_each,
)
from nodewright.core.eviction.claims import Amount, Claim
from nodewright.core.eviction.manager import AT_ONCE_S, look, relieve, synchronize
from nodewright.core.eviction.ranking import Candidate, Part, parts_that_count, ranking, stats_by_uid
from nodewright.core.eviction.rules import EvictionRules, Filesystems, Watched, watched
from nodewright.core.eviction.signals import Observations, Observed, observations, target
from nodewright.core.eviction.state import (
    Eviction,
    EvictionState,
    Met,
    NodeReclaim,
    Observation,
    Pass,
    Situation,
    Stop,
    reclaimable,
)

__all__ = [
    "AT_ONCE_S",
    "Amount",
    "Candidate",
    "Claim",
    "Eviction",
    "EvictionRules",
    "EvictionState",
    "Filesystems",
    "Met",
    "NodeReclaim",
    "Observation",
    "Observations",
    "Observed",
    "Part",
    "Pass",
    "Passage",
    "Situation",
    "Stop",
    "UnderCondition",
    "Watched",
    "kubelet_passage",
    "look",
    "observations",
    "parts_that_count",
    "ranking",
    "reclaimable",
    "refused_under_pressure",
    "relieve",
    "stats_by_uid",
    "synchronize",
    "target",
    "under_each",
    "watched",
]
