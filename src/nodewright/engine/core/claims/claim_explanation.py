"""Why the claims of a pod get no devices on a node, and the smallest changes with which they would."""

from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.alike_nodes import node_likeness
from nodewright.engine.core.claims.allocation_values import AllocationFailed, SearchGivenUp, SearchRecord
from nodewright.engine.core.claims.claim_changes import ClaimChange, ClaimTrials
from nodewright.engine.core.claims.claim_scheduling import (
    ClaimCluster,
    ClaimScheduling,
    PluginStatus,
    StatusCode,
)
from nodewright.engine.core.claims.claim_summary import ClaimSummary
from nodewright.engine.core.claims.device_reasons import DeviceGroup
from nodewright.model.kubernetes.claims import ResourceClaim
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import FeatureGates


class RequestExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or one of its alternatives, and the devices of the node."""

    claim: str
    """`namespace/name`; of a claim that is still to be created: the entry of the pod with the template."""
    request: str
    """The name of the request, or `request/alternative`."""
    wanted: str
    """What it asks for: `2 devices of class gpu`."""
    would_do: tuple[str, ...] = ()
    """The devices that suit the request by itself and are free, as `driver/pool/device`."""
    why_not: tuple[DeviceGroup, ...] = ()
    problem: str = ""
    """Why the request cannot be searched for: the allocator's error."""


class ClaimExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler answers about the claims of a pod on a node, and why."""

    status: PluginStatus
    summary: str
    """One sentence."""
    kinds: tuple[str, ...] = ()
    """The kinds of reasons for which devices would not do."""
    requests: tuple[RequestExplanation, ...] = ()
    changes: tuple[ClaimChange, ...] = ()
    is_complete: bool = True
    """Whether the search, and the search for changes, came to their end."""


KnownAnswers: TypeAlias = dict[tuple[object, ...], ClaimExplanation]
"""The answers about one pod, by what decides about a node."""


def explain_claims(
    pod: Pod,
    cluster: ClaimCluster,
    node: APINode,
    gates: FeatureGates,
    claims: tuple[ResourceClaim, ...] | None = None,
) -> ClaimExplanation:
    """The scheduler's answer about the pod's claims on the node, why it is that, and what would change it.

    ``claims``: the pod's claims as they will be once those of templates are created; None: as the scheduler finds them.
    """
    scheduling = ClaimScheduling(pod, cluster, gates, claims)
    record: SearchRecord = []
    status = scheduling.status(node, record)
    summary = ClaimSummary(node, scheduling, status, record)
    text, changes, is_cut = summary.text(), tuple[ClaimChange, ...](), False
    if status.code not in (StatusCode.SUCCESS, StatusCode.SKIP):
        trials = ClaimTrials(pod, cluster, node, gates, claims, scheduling)
        changes = trials.changes(summary.verdicts, summary.reasons, text)
        is_cut = trials.is_cut
    text = f"{text}{' Not all changes were tried.' if is_cut else ''}"
    requests = tuple(
        RequestExplanation(
            claim=each.claim_name,
            request=each.request.full_name,
            wanted=summary.wanted(each),
            would_do=tuple(candidate.name for candidate in each.suitable),
            why_not=summary.reasons.groups(each.verdicts),
            problem=str(each.problem or ""),
        )
        for each in summary.verdicts
    )
    is_complete = not (is_cut or isinstance(status.outcome, SearchGivenUp))
    return ClaimExplanation(
        status=status,
        summary=text,
        kinds=_kinds(summary),
        requests=requests,
        changes=changes,
        is_complete=is_complete,
    )


def _kinds(summary: ClaimSummary) -> tuple[str, ...]:
    groups = (group for each in summary.verdicts for group in summary.reasons.groups(each.verdicts))
    return tuple(sorted({group.kind for group in groups}))


def refusal_of_claims(
    pod: Pod,
    cluster: ClaimCluster,
    node: APINode,
    gates: FeatureGates,
    claims: tuple[ResourceClaim, ...] | None,
    known: KnownAnswers,
) -> ClaimExplanation:
    """As `explain_claims`, without changes and details, for many nodes; ``known`` keeps the answers of those that are alike.

    An answer that was known has no allocations.
    """
    scheduling = ClaimScheduling(pod, cluster, gates, claims)
    likeness = node_likeness(scheduling, node)
    key = gates["DRAExtendedResource"], likeness and likeness.key
    answer = known.get(key)
    if answer is None:
        status = scheduling.status(node)
        answer = ClaimExplanation(status=status, summary="")
        if status.code is not StatusCode.SUCCESS:
            words = None if likeness is None else likeness.words
            summary = ClaimSummary(node, scheduling, status, [], words)
            answer = replace(answer, summary=summary.text(), kinds=_kinds(summary))
        # The texts of errors and of searches that were given up name devices of the node.
        if likeness is not None and not isinstance(status.outcome, AllocationFailed | SearchGivenUp):
            known[key] = replace(answer, status=replace(status, allocations={}, outcome=None))
    return (
        answer if likeness is None else replace(answer, summary=likeness.named(answer.summary, cluster, node))
    )
