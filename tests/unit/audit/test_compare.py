"""Odd corners of an audit that no agent of ours leaves behind."""

import asyncio

from msgspec.structs import replace

from nodewright.audit.compare import audited
from nodewright.audit.values import Evidence, GapKind, Kind, Source, Standing, StateTold, Text
from nodewright.core.cpu.state import CPUState
from nodewright.model.objects import Pod
from nodewright.testing.agents import AgentBench
from nodewright.testing.audits import evidence_of
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.values.idset import CPUSet


def of(*pods: Pod) -> Evidence:
    async def run() -> Evidence:
        async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
            await bench.want(*pods)
            return evidence_of(bench)

    return asyncio.run(run())


def with_cpus(evidence: Evidence, **cpus: str) -> Evidence:
    """State files and PodResources agree that these containers `main` have these CPUs."""
    assignments = {uid: {"main": CPUSet.parse(text)} for uid, text in cpus.items()}
    state = StateTold(cpu=CPUState(CPUSet.of(0), assignments))
    return replace(evidence, state=state, groups=None, resources=None, allocatable=None)


def test_cpus_that_two_have_for_themselves_are_told_once() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"), a_guaranteed_pod("b", "2/1Mi"))
    found = [one for one in audited(with_cpus(evidence, a="1-2", b="2-3")).findings if one.kind is Kind.TWICE]
    assert [(one.pod, one.said) for one in found] == [("default/b", {Source.STATE: CPUSet.of(2)})]


def test_who_stands_alone_against_all_others_is_the_odd_one() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    assert evidence.groups is not None
    (path,) = [path for path in evidence.groups.texts if path.endswith("main-a-0")]
    texts = {**evidence.groups.texts, path: {**(evidence.groups.texts[path] or {}), "cpuset.cpus": "5"}}
    told = replace(evidence, groups=replace(evidence.groups, texts=texts))
    assert [one.odd for one in audited(told).findings] == [Source.CGROUPS]
    alone = replace(told, pods=tuple(told.pods or ()), resources=None, allocatable=None, state=None)
    assert [one.odd for one in audited(alone).findings] == [None]


def test_pods_that_wait_for_their_kubelet_hold_nothing_yet() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    new = a_guaranteed_pod("new", "3/1Mi", status={"phase": "Pending"})
    assert audited(replace(evidence, pods=(*(evidence.pods or ()), new))).findings == ()


def test_without_static_policies_it_is_said_that_nobody_has_anything() -> None:
    async def run() -> Evidence:
        async with AgentBench(a_profile()) as bench:
            await bench.want(a_pod("a", "cpu=1"))
            return evidence_of(bench)

    audit = audited(asyncio.run(run()))
    assert audit.findings == ()
    assert [one.what for one in audit.gaps] == [GapKind.NO_OWN]


def test_nonsense_in_cpuset_files_agrees_with_nobody() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"))
    assert evidence.groups is not None
    texts = {
        path: None if found is None else {**found, "cpuset.cpus": "zero"}
        for path, found in evidence.groups.texts.items()
    }
    (found,) = audited(replace(evidence, groups=replace(evidence.groups, texts=texts))).findings
    assert (found.said[Source.CGROUPS], found.odd) == (Text("zero"), Source.CGROUPS)


def test_statuses_without_ids_leave_groups_untold() -> None:
    evidence = of(a_pod("a", "cpu=1"))
    pods = tuple(
        replace(
            one,
            status=replace(
                one.status,
                container_statuses=tuple(
                    replace(each, container_id="") for each in one.status.container_statuses
                ),
            ),
        )
        for one in evidence.pods or ()
    )
    gaps = audited(replace(evidence, pods=pods)).gaps
    assert Kind.GROUP not in {one.kind for one in audited(replace(evidence, pods=pods)).findings}
    assert [one.names for one in gaps if one.what is GapKind.GROUP_UNTOLD] == [("default/a, container main",)]


def test_a_pod_that_the_api_has_no_more_is_told_once_by_its_name() -> None:
    evidence = of(a_guaranteed_pod("a", "2/1Mi"), a_guaranteed_pod("b", "2/1Mi"), a_pod("shared", "cpu=1"))
    stays = [one for one in evidence.pods or () if one.metadata.name == "b"]
    audit = audited(replace(evidence, pods=tuple(stays)))
    assert audit.passing == ()
    assert [(one.pod, one.kind, one.said) for one in audit.findings if one.pod == "default/a"] == [
        (
            "default/a",
            Kind.LISTED,
            {
                Source.STATE: Standing.THERE,
                Source.CGROUPS: Standing.THERE,
                Source.RESOURCES: Standing.THERE,
                Source.PODS: Standing.MISSING,
            },
        )
    ]
    # Who has nothing of his own cannot be known again: his name and his group stand apart.
    others = [one for one in audit.findings if one.pod not in ("default/a", "")]
    assert [(one.pod, one.kind) for one in others] == [
        ("default/shared", Kind.LISTED),
        ("shared", Kind.GROUP),
    ]
