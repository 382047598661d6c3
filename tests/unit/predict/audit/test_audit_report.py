"""What an audit finds, in words."""

import pytest

from nodewright.documents.output.json_yaml import plain_value
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.predict.audit.audit_evidence import (
    AuditGap,
    AuditResult,
    DeviceIdSet,
    Discrepancy,
    DiscrepancyKind,
    EvidenceSource,
    EvidenceValue,
    MemoryBlockSet,
    MemorySizes,
    Presence,
    ResourceCount,
    SourceText,
    UncomparedReason,
)
from nodewright.predict.audit.audit_report import (
    advice,
    audit_report,
    audit_text,
    meaning,
    uncompared_sentence,
)

S = EvidenceSource


def finding(
    kind: DiscrepancyKind, odd: EvidenceSource | None = None, pod: str = "ns/p", **said: EvidenceValue
) -> Discrepancy:
    sources = {EvidenceSource[name.upper()]: value for name, value in said.items()}
    return Discrepancy(
        kind=kind,
        pod=pod,
        container="main",
        field="f",
        values=sources,
        outlier=odd,
        cgroup_path="/kubepods/x",
    )


MEANINGS: list[tuple[Discrepancy, str, str]] = [
    (
        finding(DiscrepancyKind.CPUS, S.CGROUPS),
        "it runs on other CPUs than were allocated",
        "find the process that writes to it",
    ),
    (
        finding(DiscrepancyKind.MEMORY, S.CGROUPS),
        "from other NUMA nodes than were allocated",
        "find the process that writes to it",
    ),
    (
        finding(DiscrepancyKind.CPUS, S.STATE),
        "the kubelet would use this value after its next restart",
        "drain the node",
    ),
    (finding(DiscrepancyKind.DEVICES, S.RESOURCES), "differs from its state file", "drain the node"),
    (
        finding(DiscrepancyKind.MEMORY, S.PODS),
        "the allocation differs from the pod spec",
        "recreate the pod",
    ),
    (finding(DiscrepancyKind.CPUS), "it is unknown which source is right", "drain the node"),
    (finding(DiscrepancyKind.DOUBLE_ALLOCATION), "several containers hold these as exclusive", "all but one"),
    (finding(DiscrepancyKind.SHARED_POOL), "not what the exclusive CPUs leave", "delete cpu_manager_state"),
    (finding(DiscrepancyKind.ALLOCATABLE), "another configuration", "restart the kubelet"),
    (finding(DiscrepancyKind.REQUESTS), "a resize is pending", "explain pod/NAME"),
    (finding(DiscrepancyKind.STALE_ALLOCATION), "allocated to a pod that no longer exists", "nothing"),
    (
        finding(DiscrepancyKind.POD_PRESENCE, resources=Presence.PRESENT),
        "not in the list of pods",
        "run the audit again",
    ),
    (
        finding(DiscrepancyKind.POD_PRESENCE, resources=Presence.MISSING),
        "the kubelet does not have it",
        "run the audit again",
    ),
    (
        finding(DiscrepancyKind.CGROUP_PRESENCE, cgroups=Presence.PRESENT),
        "of a removed pod still exists",
        "remove it",
    ),
    (
        finding(DiscrepancyKind.CGROUP_PRESENCE, cgroups=Presence.MISSING),
        "has no cgroup",
        "recreate the pod",
    ),
    (
        finding(DiscrepancyKind.CGROUP_FILE, pod=""),
        "from the configuration",
        "run the audit again in a minute",
    ),
    (finding(DiscrepancyKind.CGROUP_FILE), "differs from the pod spec", "find the process that writes to it"),
    (finding(DiscrepancyKind.STATE_FILE_PARTS), "older ones the other members", "delete the file"),
]


@pytest.mark.parametrize(("discrepancy", "means", "do"), MEANINGS)
def test_each_discrepancy_has_a_meaning_and_a_remedy(discrepancy: Discrepancy, means: str, do: str) -> None:
    assert means in meaning(discrepancy)
    assert do in advice(discrepancy)


def test_every_kind_is_looked_at() -> None:
    assert {found.kind for found, _, _ in MEANINGS} == set(DiscrepancyKind)


@pytest.mark.parametrize(
    ("value", "shown", "plain"),
    [
        (CPUSet.parse("1-2"), "1-2", "1-2"),
        (CPUSet(), "shared", ""),
        (NUMASet.of(1), "on 1", "1"),
        (NUMASet(), "anywhere", ""),
        (ResourceCount(2), "2 exclusive", 2),
        (ResourceCount(0), "shared", 0),
        (MemorySizes({"memory": 1 << 30}), "1Gi memory", {"memory": 1 << 30}),
        (MemorySizes({}), "none", {}),
        (
            MemoryBlockSet((MemoryBlock((0, 1), "memory", 1 << 30),)),
            "1Gi memory on 0,1",
            [{"type": "memory", "size": 1 << 30, "numaNodes": [0, 1]}],
        ),
        (MemoryBlockSet(()), "none", []),
        (DeviceIdSet(frozenset({"b", "a"})), "a,b", ["a", "b"]),
        (DeviceIdSet(frozenset()), "none", []),
        (SourceText("max"), "max", "max"),
        (SourceText(""), "(empty)", ""),
        (Presence.ENDED, "ended", "ended"),
    ],
)
def test_values_are_shown_to_people_and_told_to_programs(
    value: EvidenceValue, shown: str, plain: object
) -> None:
    audit = AuditResult(
        discrepancies=(finding(DiscrepancyKind.CPUS, state=value),),
        transient=(),
        uncompared=(),
        compared_count=3,
    )
    head, row = audit_text(audit).splitlines()[:2]
    assert head == "POD    CONTAINER   FIELD   STATE FILES"
    assert row == f"ns/p   main        f       {shown}"
    assert plain_value(audit_report(audit))["findings"][0]["said"] == {"state": plain}


def test_counts_of_devices_are_only_numbers() -> None:
    audit = AuditResult(
        discrepancies=(finding(DiscrepancyKind.DEVICES, pods=ResourceCount(2)),),
        transient=(),
        uncompared=(),
        compared_count=1,
    )
    assert audit_text(audit).splitlines()[1].split() == ["ns/p", "main", "f", "2"]


def test_transient_discrepancies_have_a_table_of_their_own() -> None:
    gone = finding(DiscrepancyKind.STALE_ALLOCATION, state=CPUSet.of(1))
    text = audit_text(AuditResult(discrepancies=(), transient=(gone,), uncompared=(), compared_count=1))
    assert text.startswith("released when the next pod is admitted:\nPOD")
    assert text.endswith("0 facts disagree of 1 compared\n")


@pytest.mark.parametrize("kind", UncomparedReason)
def test_each_reason_for_no_comparison_has_a_sentence(kind: UncomparedReason) -> None:
    gap = AuditGap(reason=kind, source=EvidenceSource.STATE, because="torn", names=("a", "b"))
    assert uncompared_sentence(gap).startswith("not compared: ")
    report = audit_report(AuditResult(discrepancies=(), transient=(), uncompared=(gap,), compared_count=0))
    assert report.not_compared[0].reason is kind
