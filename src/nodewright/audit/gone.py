"""Pods that the API does not have any more: PodResources knows them by name, files by uid, and they are told once."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from nodewright.audit.values import Evidence, Finding, Kind, Source, Standing
from nodewright.core.devices.state import Ids
from nodewright.values.idset import CPUSet

Holding: TypeAlias = Mapping[tuple[str, str], CPUSet | Ids]
"""What a pod has that nobody else can have: CPUs and devices by container and resource."""
_CPUS = "cpu"


def joined(
    findings: Iterable[Finding], passing: Iterable[Finding], evidence: Evidence
) -> tuple[list[Finding], list[Finding]]:
    """The findings and what goes by itself, with what is told of one pod by uid added to what is told by its name.

    A name and a uid are the same pod's if it has the same CPUs and devices by both: nobody else can have these.
    """
    findings, passing = [*findings], [*passing]
    uids = _uids(evidence, {one.pod for one in findings if _is_unknown(one)})
    if not uids:
        return findings, passing
    known = {*uids.values()}
    grouped = {one.pod for one in findings if one.kind is Kind.GROUP}
    told = [
        _told(one, has_group=uids[one.pod] in grouped) if _is_unknown(one) and one.pod in uids else one
        for one in findings
        if not (one.kind is Kind.GROUP and one.pod in known)
    ]
    return told, [one for one in passing if one.pod not in known]


def _is_unknown(one: Finding) -> bool:
    return one.kind is Kind.LISTED and one.said.get(Source.RESOURCES) is Standing.THERE


def _told(one: Finding, *, has_group: bool) -> Finding:
    more: dict[Source, Standing] = {Source.STATE: Standing.THERE}
    if has_group:
        more[Source.CGROUPS] = Standing.THERE
    return replace(one, said={**more, **one.said})


def _uids(evidence: Evidence, names: Iterable[str]) -> dict[str, str]:
    """By name the uid of pods that only PodResources and files have."""
    by_uid = _by_uid(evidence)
    found = {}
    for pod in evidence.resources or ():
        if pod.full_name not in names:
            continue
        mine: dict[tuple[str, str], CPUSet | Ids] = {}
        for one in pod.containers:
            mine.update({(one.name, resource): ids for resource, ids in one.device_ids.items() if ids})
            if one.cpus:
                mine[one.name, _CPUS] = one.cpus
        alike = [uid for uid, held in by_uid.items() if held == mine]
        if mine and len(alike) == 1:
            found[pod.full_name] = alike[0]
    return found


def _by_uid(evidence: Evidence) -> dict[str, Holding]:
    found: dict[str, dict[tuple[str, str], CPUSet | Ids]] = {}
    state = evidence.state
    if state is not None and state.cpu is not None:
        for uid, containers in state.cpu.assignments.items():
            found.setdefault(uid, {}).update(
                {(name, _CPUS): cpus for name, cpus in containers.items() if cpus}
            )
    if state is not None and state.devices is not None:
        for uid, held in state.devices.items():
            for name, resources in held.items():
                found.setdefault(uid, {}).update(
                    {(name, resource): ids for resource, ids in resources.items() if ids}
                )
    return dict(found)
