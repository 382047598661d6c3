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
from nodewright.core.eviction.outlook import INTERVAL_S, Departure, Outlook, outlook, without_pod
from nodewright.core.eviction.precedence import Key, Reprieve, decided_by, reprieves
from nodewright.core.eviction.ranking import Candidate, Part, parts_that_count, ranking, stats_by_uid
from nodewright.core.eviction.readings import (
    Attributed,
    Capacities,
    attributed,
    filesystems_of,
    table_reading,
    with_available,
)
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
    "INTERVAL_S",
    "Amount",
    "Attributed",
    "Candidate",
    "Capacities",
    "Claim",
    "Departure",
    "Eviction",
    "EvictionRules",
    "EvictionState",
    "Filesystems",
    "Key",
    "Met",
    "NodeReclaim",
    "Observation",
    "Observations",
    "Observed",
    "Outlook",
    "Part",
    "Pass",
    "Passage",
    "Reprieve",
    "Situation",
    "Stop",
    "UnderCondition",
    "Watched",
    "attributed",
    "decided_by",
    "filesystems_of",
    "kubelet_passage",
    "look",
    "observations",
    "outlook",
    "parts_that_count",
    "ranking",
    "reclaimable",
    "refused_under_pressure",
    "relieve",
    "reprieves",
    "stats_by_uid",
    "synchronize",
    "table_reading",
    "target",
    "under_each",
    "watched",
    "with_available",
    "without_pod",
]
