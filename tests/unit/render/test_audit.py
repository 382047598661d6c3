"""What an audit finds, in words."""

import pytest

from nodewright.audit.values import (
    Audit,
    Blocks,
    Count,
    Finding,
    Gap,
    GapKind,
    Ids,
    Kind,
    Sizes,
    Source,
    Standing,
    Text,
    Value,
)
from nodewright.model.profile import MemoryBlock
from nodewright.render.audit import advice, audit_document, audit_text, gap_sentence, meaning
from nodewright.values.idset import CPUSet, NUMASet

S = Source


def finding(kind: Kind, odd: Source | None = None, pod: str = "ns/p", **said: Value) -> Finding:
    sources = {Source[name.upper()]: value for name, value in said.items()}
    return Finding(kind=kind, pod=pod, container="main", field="f", said=sources, odd=odd, path="/kubepods/x")


SAID: list[tuple[Finding, str, str]] = [
    (finding(Kind.CPUS, S.CGROUPS), "it runs on other CPUs than it was given", "find out who writes to it"),
    (finding(Kind.MEMORY, S.CGROUPS), "from other NUMA nodes than it was given", "find out who writes to it"),
    (finding(Kind.CPUS, S.STATE), "the next start of the kubelet would go by the file", "drain the node"),
    (finding(Kind.DEVICES, S.RESOURCES), "takes something else for true", "drain the node"),
    (finding(Kind.MEMORY, S.PODS), "holds something else than its spec asks for", "make the pod anew"),
    (finding(Kind.CPUS), "nobody can tell who is right", "drain the node"),
    (finding(Kind.TWICE), "neither is alone on them", "all but one"),
    (finding(Kind.POOL), "not those that containers leave", "delete cpu_manager_state"),
    (finding(Kind.ALLOCATABLE), "another configuration", "restart the kubelet"),
    (finding(Kind.HOLDER), "held for a pod that is gone", "nothing"),
    (finding(Kind.LISTED, resources=Standing.THERE), "these pods do not have", "look again"),
    (finding(Kind.LISTED, resources=Standing.MISSING), "the kubelet does not have it", "look again"),
    (finding(Kind.GROUP, cgroups=Standing.THERE), "of a pod that is gone is left", "remove it"),
    (finding(Kind.GROUP, cgroups=Standing.MISSING), "has no cgroup", "make the pod anew"),
    (finding(Kind.FILE, pod=""), "than the configuration", "look again in a minute"),
    (finding(Kind.FILE), "than was asked for", "find out who writes to it"),
]


@pytest.mark.parametrize(("found", "means", "do"), SAID)
def test_each_finding_says_what_it_means_and_what_to_do(found: Finding, means: str, do: str) -> None:
    assert means in meaning(found)
    assert do in advice(found)


def test_every_kind_is_looked_at() -> None:
    assert {found.kind for found, _, _ in SAID} == set(Kind)


@pytest.mark.parametrize(
    ("value", "shown", "plain"),
    [
        (CPUSet.parse("1-2"), "1-2", "1-2"),
        (CPUSet(), "shared", ""),
        (NUMASet.of(1), "on 1", "1"),
        (NUMASet(), "anywhere", ""),
        (Count(2), "2 of its own", 2),
        (Count(0), "shared", 0),
        (Sizes({"memory": 1 << 30}), "1Gi memory", {"memory": 1 << 30}),
        (Sizes({}), "none of its own", {}),
        (
            Blocks((MemoryBlock((0, 1), "memory", 1 << 30),)),
            "1Gi memory on 0,1",
            [{"type": "memory", "size": 1 << 30, "numaNodes": [0, 1]}],
        ),
        (Blocks(()), "none of its own", []),
        (Ids(frozenset({"b", "a"})), "a,b", ["a", "b"]),
        (Ids(frozenset()), "none", []),
        (Text("max"), "max", "max"),
        (Text(""), "(empty)", ""),
        (Standing.ENDED, "ended", "ended"),
    ],
)
def test_values_are_shown_to_people_and_told_to_programs(value: Value, shown: str, plain: object) -> None:
    audit = Audit(findings=(finding(Kind.CPUS, state=value),), passing=(), gaps=(), compared=3)
    head, row = audit_text(audit).splitlines()[:2]
    assert head == "POD    CONTAINER   FIELD   STATE FILES"
    assert row == f"ns/p   main        f       {shown}"
    assert audit_document(audit)["findings"][0]["said"] == {"state": plain}


def test_counts_of_devices_are_only_numbers() -> None:
    audit = Audit(findings=(finding(Kind.DEVICES, pods=Count(2)),), passing=(), gaps=(), compared=1)
    assert audit_text(audit).splitlines()[1].split() == ["ns/p", "main", "f", "2"]


def test_what_goes_by_itself_stands_apart() -> None:
    gone = finding(Kind.HOLDER, state=CPUSet.of(1))
    said = audit_text(Audit(findings=(), passing=(gone,), gaps=(), compared=1))
    assert said.startswith("taken back when the next pod comes:\nPOD")
    assert said.endswith("0 facts disagree of 1 compared\n")


@pytest.mark.parametrize("kind", GapKind)
def test_what_was_not_compared_is_said(kind: GapKind) -> None:
    gap = Gap(what=kind, source=Source.STATE, because="torn", names=("a", "b"))
    assert gap_sentence(gap).startswith("not compared: ")
    document = audit_document(Audit(findings=(), passing=(), gaps=(gap,), compared=0))
    assert document["notCompared"][0]["reason"] == str(kind)
