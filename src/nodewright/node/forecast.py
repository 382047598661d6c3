"""Who would have to go on a node, given what is used: the manager's passes, and what could change their order."""

import msgspec

from nodewright.core.eviction import (
    Candidate,
    Claim,
    EvictionState,
    Filesystems,
    Observation,
    Outlook,
    Reprieve,
    Watched,
    outlook,
    ranking,
    reprieves,
    stats_by_uid,
    watched,
)
from nodewright.model.thresholds import Signal
from nodewright.model.usage import Usage
from nodewright.node.config import NodeConfig
from nodewright.node.pressure import claims_of
from nodewright.node.state import NodeState


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that there is to say about evictions from a node with this usage."""

    config: NodeConfig
    usage: Usage
    claims: tuple[Claim, ...]
    filesystems: Filesystems
    watched: Watched
    outlook: Outlook
    signal: Signal
    """What the pods are ranked for."""
    ranking: tuple[Candidate, ...]
    reprieves: tuple[Reprieve, ...]
    """What would let another go first."""

    @property
    def goes(self) -> bool:
        """Whether somebody has to go, or would have to if it could."""
        return self.outlook.deciding.target is not None or bool(self.outlook.departures)


def forecast(
    state: NodeState,
    usage: Usage,
    filesystems: Filesystems,
    *,
    signal: Signal | None = None,
    after: Usage | None = None,
) -> Forecast:
    """What a kubelet that has been running, and has met no threshold so far, makes of this usage.

    ``signal`` is what pods are ranked for; None: what is taken up first, or memory. ``after`` is as in `outlook`.
    """
    rules, claims = state.config.eviction, claims_of(state)
    # One that has only just started would not look at all thresholds in its first pass.
    begun = EvictionState().knowing(rules, filesystems)
    observation = Observation(usage=usage, claims=claims, filesystems=filesystems)
    found = outlook(rules, observation, begun, after)
    target = found.deciding.target
    if signal is None:
        signal = Signal.MEMORY_AVAILABLE if target is None else target.signal
    stats = stats_by_uid(usage)
    return Forecast(
        config=state.config,
        usage=usage,
        claims=claims,
        filesystems=filesystems,
        watched=watched(rules.thresholds, filesystems),
        outlook=found,
        signal=signal,
        ranking=ranking(signal, filesystems, claims, stats),
        reprieves=reprieves(signal, filesystems, claims, stats),
    )
