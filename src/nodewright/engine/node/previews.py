"""Previews: the preemption for a critical pod, and the evictions that a usage leads to."""

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_order import RankChange, rank_changes
from nodewright.engine.core.eviction.eviction_policy import EvictionForecast, eviction_forecast
from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    EvictionCandidate,
    ranked_pods,
    stats_by_uid,
)
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState
from nodewright.engine.core.eviction.eviction_thresholds import (
    NodeFilesystems,
    WatchedThresholds,
    watched_thresholds,
)
from nodewright.engine.core.preemption.greedy import (
    MissingAmount,
    PreemptionCandidate,
    missing_amounts,
    preemption_candidates,
)
from nodewright.engine.core.requests.qos_and_priority import is_critical
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.eviction_pass import eviction_claims
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.engine.node.pod_admission import predicate_result
from nodewright.engine.node.step import Step, step
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.predicates import NoVictimsSuffice


class PreemptionPreview(msgspec.Struct, frozen=True, kw_only=True):
    """The result of adding a pod, with the candidates for preemption."""

    pod: Pod
    critical: bool
    step: Step
    missing: tuple[MissingAmount, ...] = ()
    """The amounts to free; empty if no victims are searched."""
    candidates: tuple[PreemptionCandidate, ...] = ()
    """The pods that may be preempted, in the kubelet's order."""

    @property
    def unmet(self) -> tuple[tuple[str, int], ...]:
        """The amounts that preempting all candidates would not free."""
        return next(
            (reason.unmet for reason in self.step.because if isinstance(reason, NoVictimsSuffice)), ()
        )


def preemption_preview(state: NodeState, pod: Pod) -> PreemptionPreview:
    """The preemption preview of a pod that is assigned to the node now."""
    result = step(state, PodAdded(pod))
    preview = PreemptionPreview(pod=pod, critical=is_critical(pod), step=result)
    if result.victims is not None:
        return replace(preview, missing=result.victims.missing, candidates=result.victims.candidates)
    if not preview.unmet:
        return preview
    before, counted = state.without_pod(pod.uid), without_ungated_resources(pod, state.config)
    return replace(
        preview,
        missing=missing_amounts(predicate_result(before, counted, result.state.held).failures),
        candidates=preemption_candidates(counted, before.pods.values(), state.config.requests),
    )


class NodeEvictionForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The evictions that a usage leads to, with their ranking."""

    config: NodeConfig
    usage: StatsSummary
    claims: tuple[ActivePod, ...]
    filesystems: NodeFilesystems
    watched: WatchedThresholds
    outlook: EvictionForecast
    signal: Signal
    """The signal for which pods are ranked."""
    ranking: tuple[EvictionCandidate, ...]
    reprieves: tuple[RankChange, ...]
    """The usage changes that would change the first victim."""

    @property
    def evicts(self) -> bool:
        """Whether a pod is evicted, or a threshold calls for an eviction that is not possible."""
        return self.outlook.first_acting_pass.target is not None or bool(self.outlook.evictions)


def node_eviction_forecast(
    state: NodeState,
    usage: StatsSummary,
    filesystems: NodeFilesystems,
    *,
    signal: Signal | None = None,
    after: StatsSummary | None = None,
) -> NodeEvictionForecast:
    """The evictions of a running kubelet that has met no threshold before this usage.

    ``signal`` ranks the pods; None: the first target, or memory. ``after`` is as in `eviction_forecast`.
    """
    rules, claims = state.config.eviction, eviction_claims(state)
    # A kubelet that has just started does not check all thresholds in its first pass.
    running_state = EvictionState().with_filesystems(rules, filesystems)
    observation = EvictionObservation(usage=usage, active_pods=claims, filesystems=filesystems)
    forecast = eviction_forecast(rules, observation, running_state, after)
    target = forecast.first_acting_pass.target
    if signal is None:
        signal = Signal.MEMORY_AVAILABLE if target is None else target.signal
    stats = stats_by_uid(usage)
    return NodeEvictionForecast(
        config=state.config,
        usage=usage,
        claims=claims,
        filesystems=filesystems,
        watched=watched_thresholds(rules.thresholds, filesystems),
        outlook=forecast,
        signal=signal,
        ranking=ranked_pods(signal, filesystems, claims, stats),
        reprieves=rank_changes(signal, filesystems, claims, stats),
    )
