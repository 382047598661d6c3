"""Odd corners of an audit that no agent of ours leaves behind."""

import asyncio

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench
from tests.support.audit_evidence import audit_evidence

from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet
from nodewright.predict.audit.audit_comparison import audit_of
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    DiscrepancyKind,
    EvidenceSource,
    Presence,
    SourceText,
    StateFileEvidence,
    UncomparedReason,
)
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def of(*pods: Pod) -> AuditEvidence:
    async def run() -> AuditEvidence:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            await bench.add_pods(*pods)
            return audit_evidence(bench)

    return asyncio.run(run())


def with_cpus(evidence: AuditEvidence, **cpus: str) -> AuditEvidence:
    """State files and PodResources agree that these containers `main` have these CPUs."""
    assignments = {uid: {"main": CPUSet.parse(text)} for uid, text in cpus.items()}
    state = StateFileEvidence(cpu=CPUState(CPUSet.of(0), assignments))
    return replace(evidence, state_files=state, cgroups=None, pod_resources=None, allocatable=None)


def test_cpus_that_two_have_for_themselves_are_told_once() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"), a_guaranteed_pod("b", "2/1Mi"))
    discrepancies = [
        discrepancy
        for discrepancy in audit_of(with_cpus(evidence, a="1-2", b="2-3")).discrepancies
        if discrepancy.kind is DiscrepancyKind.DOUBLE_ALLOCATION
    ]
    assert [(discrepancy.pod, discrepancy.values) for discrepancy in discrepancies] == [
        ("default/b", {EvidenceSource.STATE: CPUSet.of(2)})
    ]


def test_who_stands_alone_against_all_others_is_the_odd_one() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    assert evidence.cgroups is not None
    (path,) = [path for path in evidence.cgroups.texts if path.endswith("main-a-0")]
    texts = {**evidence.cgroups.texts, path: {**(evidence.cgroups.texts[path] or {}), "cpuset.cpus": "5"}}
    result = replace(evidence, cgroups=replace(evidence.cgroups, texts=texts))
    assert [discrepancy.outlier for discrepancy in audit_of(result).discrepancies] == [EvidenceSource.CGROUPS]
    alone = replace(
        result, pods=tuple(result.pods or ()), pod_resources=None, allocatable=None, state_files=None
    )
    assert [discrepancy.outlier for discrepancy in audit_of(alone).discrepancies] == [None]


def test_pods_that_wait_for_their_kubelet_hold_nothing_yet() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    new = a_guaranteed_pod("new", "3/1Mi", status={"phase": "Pending"})
    assert audit_of(replace(evidence, pods=(*(evidence.pods or ()), new))).discrepancies == ()


def test_without_static_policies_it_is_said_that_nobody_has_anything() -> None:
    async def run() -> AuditEvidence:
        async with AgentBench(a_profile()) as bench:
            await bench.add_pods(a_pod("a", "cpu=1"))
            return audit_evidence(bench)

    audit = audit_of(asyncio.run(run()))
    assert audit.discrepancies == ()
    assert [uncompared_item.reason for uncompared_item in audit.uncompared] == [
        UncomparedReason.NO_EXCLUSIVE_RESOURCES
    ]


def test_nonsense_in_cpuset_files_agrees_with_nobody() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    assert evidence.cgroups is not None
    texts = {
        path: None if found is None else {**found, "cpuset.cpus": "zero"}
        for path, found in evidence.cgroups.texts.items()
    }
    (discrepancy,) = audit_of(replace(evidence, cgroups=replace(evidence.cgroups, texts=texts))).discrepancies
    assert (discrepancy.values[EvidenceSource.CGROUPS], discrepancy.outlier) == (
        SourceText("zero"),
        EvidenceSource.CGROUPS,
    )


def test_statuses_without_ids_leave_groups_untold() -> None:
    evidence = of(a_pod("a", "cpu=1"))
    pods = tuple(
        replace(
            pod,
            status=replace(
                pod.status,
                container_statuses=tuple(
                    replace(each, container_id="") for each in pod.status.container_statuses
                ),
            ),
        )
        for pod in evidence.pods or ()
    )
    gaps = audit_of(replace(evidence, pods=pods)).uncompared
    assert DiscrepancyKind.CGROUP_PRESENCE not in {
        discrepancy.kind for discrepancy in audit_of(replace(evidence, pods=pods)).discrepancies
    }
    assert [gap.names for gap in gaps if gap.reason is UncomparedReason.CGROUP_UNKNOWN] == [
        ("default/a, container main",)
    ]


def test_a_pod_that_the_api_has_no_more_is_told_once_by_its_name() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"), a_guaranteed_pod("b", "2/1Mi"), a_pod("shared", "cpu=1"))
    stays = [pod for pod in evidence.pods or () if pod.metadata.name == "b"]
    audit = audit_of(replace(evidence, pods=tuple(stays)))
    assert audit.transient == ()
    assert [
        (discrepancy.pod, discrepancy.kind, discrepancy.values)
        for discrepancy in audit.discrepancies
        if discrepancy.pod == "default/a"
    ] == [
        (
            "default/a",
            DiscrepancyKind.POD_PRESENCE,
            {
                EvidenceSource.STATE: Presence.PRESENT,
                EvidenceSource.CGROUPS: Presence.PRESENT,
                EvidenceSource.RESOURCES: Presence.PRESENT,
                EvidenceSource.PODS: Presence.MISSING,
            },
        )
    ]
    # Who has nothing of his own cannot be known again: his name and his group stand apart.
    others = [discrepancy for discrepancy in audit.discrepancies if discrepancy.pod not in ("default/a", "")]
    assert [(other.pod, other.kind) for other in others] == [
        ("default/shared", DiscrepancyKind.POD_PRESENCE),
        ("shared", DiscrepancyKind.CGROUP_PRESENCE),
    ]
