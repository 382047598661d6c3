"""Compares what a cluster reports about a node: the API server's pods, the kubelet's, the Node object, the configuration."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodewright.engine.core.requests.integer_requests import scheduler_requests
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import amount_text
from nodewright.predict.audit.audit_evidence import (
    AuditResult,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    Presence,
    SourceText,
    UncomparedItem,
    UncomparedReason,
)
from nodewright.predict.explain.suggestion_text import requests_text


class ClusterEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources of a cluster have about a node. None: the source could not be read."""

    pods: tuple[Pod, ...] | None
    """The API server's pods, by the uids that the kubelet uses."""
    kubelet_pods: tuple[Pod, ...] | None
    reported_allocatable: Mapping[str, int]
    """Allocatable amounts of the Node object.

    Units: cpu in thousandths, memory and storage in bytes, everything else in units.
    """
    computed_allocatable: Mapping[str, int]
    """What machine and configuration give."""
    errors: Mapping[EvidenceSource, str] = {}
    """Why sources could not be read."""


def cluster_audit(evidence: ClusterEvidence) -> AuditResult:
    """The discrepancies between the sources, each fact once."""
    compared = [*_pod_facts(evidence), *_node_facts(evidence)]
    gaps = [
        UncomparedItem(reason=UncomparedReason.NOT_READ, source=source, detail=error)
        for source, error in evidence.errors.items()
    ]
    return AuditResult(
        discrepancies=tuple(finding for finding in compared if finding is not None),
        transient=(),
        uncompared=tuple(gaps),
        compared_count=len(compared),
    )


def _pod_facts(evidence: ClusterEvidence) -> Iterator[Discrepancy | None]:
    """The presence and the requests of each pod; None where the sources agree."""
    if evidence.pods is None or evidence.kubelet_pods is None:
        return
    api, kubelet = _active(evidence.pods), _active(evidence.kubelet_pods)
    for uid in sorted(api.keys() | kubelet.keys(), key=lambda uid: (api.get(uid) or kubelet[uid]).full_name):
        if uid in api and uid in kubelet:
            yield _requests_differ(api[uid], kubelet[uid])
        elif uid in kubelet:
            yield _presence(kubelet[uid], Presence.MISSING, Presence.PRESENT)
        elif api[uid].status.phase == "Running":
            yield _presence(api[uid], Presence.RUNNING, Presence.MISSING)


def _active(pods: Iterable[Pod]) -> dict[str, Pod]:
    return {pod.uid: pod for pod in pods if not pod.is_terminal}


def _requests_differ(api: Pod, kubelet: Pod) -> Discrepancy | None:
    """The difference between what the spec requests and what the kubelet has allocated, as of a pending resize."""
    specified, allocated = scheduler_requests(api), scheduler_requests(kubelet)
    if {**specified} == {**allocated}:
        return None
    values: dict[EvidenceSource, EvidenceValue] = {
        EvidenceSource.KUBELET: SourceText(requests_text(allocated)),
        EvidenceSource.PODS: SourceText(requests_text(specified)),
    }
    return Discrepancy(kind=DiscrepancyKind.REQUESTS, pod=api.full_name, field="requests", values=values)


def _presence(pod: Pod, in_api: Presence, in_kubelet: Presence) -> Discrepancy:
    values: dict[EvidenceSource, EvidenceValue] = {
        EvidenceSource.KUBELET: in_kubelet,
        EvidenceSource.PODS: in_api,
    }
    return Discrepancy(kind=DiscrepancyKind.POD_PRESENCE, pod=pod.full_name, field="pod", values=values)


def _node_facts(evidence: ClusterEvidence) -> Iterator[Discrepancy | None]:
    """Each allocatable amount; None where the Node object has what machine and configuration give."""
    if EvidenceSource.CONFIGURATION in evidence.errors:
        return  # What is assumed instead follows from the Node object itself.
    for name, reported in sorted(evidence.reported_allocatable.items()):
        computed = evidence.computed_allocatable.get(name, 0)
        values: dict[EvidenceSource, EvidenceValue] = {
            EvidenceSource.NODE: SourceText(amount_text(name, reported)),
            EvidenceSource.CONFIGURATION: SourceText(amount_text(name, computed)),
        }
        differs = Discrepancy(
            kind=DiscrepancyKind.ALLOCATABLE, pod="", field=f"allocatable {name}", values=values
        )
        yield None if reported == computed else differs
