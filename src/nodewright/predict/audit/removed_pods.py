"""Merges discrepancies of removed pods, which PodResources has by name and state files by uid."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.engine.core.devices.device_state import DeviceIdSet
from nodewright.model.values.idset import CPUSet
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    Presence,
)

PodAllocation: TypeAlias = Mapping[tuple[str, str], CPUSet | DeviceIdSet]
"""A pod's exclusive CPUs and devices by container and resource."""
_CPUS = "cpu"


def merged_by_uid(
    findings: Iterable[Discrepancy], transient: Iterable[Discrepancy], evidence: AuditEvidence
) -> tuple[list[Discrepancy], list[Discrepancy]]:
    """The findings and the transient ones, with the discrepancies of a uid merged into those of the pod's name.

    A name and a uid are the same pod if the CPUs and devices are equal: these are exclusive.
    """
    findings, transient = [*findings], [*transient]
    uids = _uids(evidence, {finding.pod for finding in findings if _is_unknown(finding)})
    if not uids:
        return findings, transient
    known = {*uids.values()}
    grouped = {finding.pod for finding in findings if finding.kind is DiscrepancyKind.CGROUP_PRESENCE}
    merged = [
        _with_other_sources(finding, has_group=uids[finding.pod] in grouped)
        if _is_unknown(finding) and finding.pod in uids
        else finding
        for finding in findings
        if not (finding.kind is DiscrepancyKind.CGROUP_PRESENCE and finding.pod in known)
    ]
    return merged, [finding for finding in transient if finding.pod not in known]


def _is_unknown(finding: Discrepancy) -> bool:
    return (
        finding.kind is DiscrepancyKind.POD_PRESENCE
        and finding.values.get(EvidenceSource.RESOURCES) is Presence.PRESENT
    )


def _with_other_sources(finding: Discrepancy, *, has_group: bool) -> Discrepancy:
    values: dict[EvidenceSource, Presence] = {EvidenceSource.STATE: Presence.PRESENT}
    if has_group:
        values[EvidenceSource.CGROUPS] = Presence.PRESENT
    return replace(finding, values={**values, **finding.values})


def _uids(evidence: AuditEvidence, names: Iterable[str]) -> dict[str, str]:
    """The uids by name of pods that only PodResources and state files have."""
    by_uid = _by_uid(evidence)
    uids = {}
    for pod in evidence.pod_resources or ():
        if pod.full_name not in names:
            continue
        allocation: dict[tuple[str, str], CPUSet | DeviceIdSet] = {}
        for container in pod.containers:
            allocation.update(
                {(container.name, resource): ids for resource, ids in container.device_ids.items() if ids}
            )
            if container.cpus:
                allocation[container.name, _CPUS] = container.cpus
        matching = [uid for uid, held in by_uid.items() if held == allocation]
        if allocation and len(matching) == 1:
            uids[pod.full_name] = matching[0]
    return uids


def _by_uid(evidence: AuditEvidence) -> dict[str, PodAllocation]:
    allocations: dict[str, dict[tuple[str, str], CPUSet | DeviceIdSet]] = {}
    state = evidence.state_files
    if state is not None and state.cpu is not None:
        for uid, containers in state.cpu.assignments.items():
            allocations.setdefault(uid, {}).update(
                {(name, _CPUS): cpus for name, cpus in containers.items() if cpus}
            )
    if state is not None and state.devices is not None:
        for uid, held in state.devices.items():
            for name, resources in held.items():
                allocations.setdefault(uid, {}).update(
                    {(name, resource): ids for resource, ids in resources.items() if ids}
                )
    return dict(allocations)
