"""An audit finds nothing in what our own agent leaves behind, and each fact that somebody changed exactly once."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.audit.compare import audited
from nodewright.audit.groups import CPUS, MEMS
from nodewright.audit.values import Evidence, Kind
from nodewright.core.memory.state import Block
from nodewright.model.objects import Container, Pod
from nodewright.model.pod_resources import ContainerDevices, ContainerResources, PodResources
from nodewright.model.profile import MemoryBlock
from nodewright.testing.agents import AgentBench
from nodewright.testing.audits import evidence_of
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod
from nodewright.values.idset import CPUSet

GPU = "nvidia.com/gpu"
BOTH = {**STATIC_CPUS, **STATIC_MEMORY}
SIDE = Container(name="side", restart_policy="Always", resources=container("", "1/64Mi", "1/64Mi").resources)


def menu(kind: str, number: int) -> Pod:
    name = f"{kind}-{number}"
    match kind:
        case "pinned":
            return a_guaranteed_pod(name, f"{1 + number % 2}/256Mi")
        case "big":
            return a_guaranteed_pod(name, "1/3Gi")
        case "half":
            return a_guaranteed_pod(name, "500m/64Mi")
        case "gpu":
            return a_guaranteed_pod(name, f"cpu=1 memory=64Mi {GPU}=1")
        case "lazy":
            return a_pod(name)
        case "side":
            return pod(container("main", "1/64Mi", "1/64Mi"), name=name, uid=name, init=(SIDE,))
        case _:
            return a_pod(name, "100m/32Mi", "memory=64Mi")


KINDS = st.lists(st.sampled_from(["pinned", "big", "half", "gpu", "lazy", "side", "burst"]), max_size=5)


def left_behind(kinds: list[str], *, version: int, gone: bool, **kubelet: Any) -> Evidence:
    async def run() -> Evidence:
        profile = a_profile(devices={GPU: "gpu-0@0 gpu-1@1 gpu-2@0,1"}, failCgroupV1=False, **kubelet)
        profile = replace(profile, spec=replace(profile.spec, cgroup_version=version))
        async with AgentBench(profile) as bench:
            for number, kind in enumerate(kinds):
                await bench.want(menu(kind, number))
            if gone and kinds:
                await bench.drop(f"{kinds[0]}-0")
            return evidence_of(bench)

    return asyncio.run(run())


class Change(NamedTuple):
    """A fact that was changed, and what is to be found."""

    evidence: Evidence
    found: tuple[Kind, str, str, str]


@given(KINDS, st.sampled_from([1, 2]), st.booleans(), st.sampled_from([BOTH, STATIC_CPUS, {}]))
def test_nothing_is_found_in_what_the_agent_leaves_behind(
    kinds: list[str], version: int, gone: bool, kubelet: dict[str, Any]
) -> None:
    evidence = left_behind(kinds, version=version, gone=gone, **kubelet)
    for told in (evidence, *without_one(evidence)):
        assert audited(told).findings == ()


@given(KINDS.filter(bool), st.sampled_from([1, 2]), st.randoms(use_true_random=False))
def test_what_somebody_changed_is_found_once(kinds: list[str], version: int, random: Any) -> None:
    evidence = left_behind(kinds, version=version, gone=False, **BOTH)
    changes = [*of_state(evidence), *of_resources(evidence), *of_files(evidence)]
    for change in random.sample(changes, min(len(changes), 12)):
        found = audited(change.evidence).findings
        assert [(one.kind, one.pod, one.container, one.field) for one in found] == [change.found]


def without_one(evidence: Evidence) -> Iterator[Evidence]:
    """The same when a source does not answer."""
    yield replace(evidence, state=None)
    yield replace(evidence, resources=None, allocatable=None)
    yield replace(evidence, groups=None)
    yield replace(evidence, pods=None)


def named(evidence: Evidence) -> dict[str, str]:
    return {one.uid: one.full_name for one in evidence.pods or ()}


def of_state(evidence: Evidence) -> Iterator[Change]:
    """One entry of a state file is another."""
    state, names = evidence.state, named(evidence)
    assert state is not None
    assert state.cpu is not None
    assert state.memory is not None
    cpu, memory = state.cpu, state.memory
    shared = replace(cpu, default=cpu.default - CPUSet.of(max(cpu.default)))
    yield Change(replace(evidence, state=replace(state, cpu=shared)), (Kind.POOL, "", "", "shared cpus"))
    for uid, containers in cpu.assignments.items():
        for name, cpus in containers.items():
            where = (Kind.CPUS, names[uid], name, "cpus")
            for other in (
                cpu.without_assignment(uid, name),
                cpu.with_assignment(uid, name, cpus | CPUSet.of(0)),
            ):
                yield Change(replace(evidence, state=replace(state, cpu=other)), where)
    for uid, held in memory.assignments.items():
        for name, blocks in held.items():
            grown = tuple(Block(one.numa, one.resource, one.size + 1) for one in blocks)
            moved = tuple(Block((*one.numa, 7), one.resource, one.size) for one in blocks)
            for changed in (
                memory.without(uid, name),
                memory.with_blocks(uid, name, grown),
                memory.with_blocks(uid, name, moved),
            ):
                where = (Kind.MEMORY, names[uid], name, "memory")
                yield Change(replace(evidence, state=replace(state, memory=changed)), where)
    for uid, holders in (state.devices or {}).items():
        for name in holders:
            for ids in (frozenset({"other"}), frozenset[str]()):
                devices = {**(state.devices or {}), uid: {**holders, name: {GPU: ids}}}
                where = (Kind.DEVICES, names[uid], name, GPU)
                yield Change(replace(evidence, state=replace(state, devices=devices)), where)


def of_resources(evidence: Evidence) -> Iterator[Change]:
    """One answer of PodResources is another."""
    resources = evidence.resources or ()
    assert evidence.allocatable is not None
    less = replace(evidence.allocatable, cpus=CPUSet.of(1))
    where = (Kind.ALLOCATABLE, "", "", "allocatable cpus")
    yield Change(replace(evidence, allocatable=less), where)
    more = (*resources, PodResources(namespace="default", name="ghost"))
    yield Change(replace(evidence, resources=more), (Kind.LISTED, "default/ghost", "", "pod"))
    for index, told in enumerate(resources):
        rest = (*resources[:index], *resources[index + 1 :])
        yield Change(replace(evidence, resources=rest), (Kind.LISTED, told.full_name, "", "pod"))
        for place, one in enumerate(told.containers):
            for kind, field, other in others(one):
                containers = (*told.containers[:place], other, *told.containers[place + 1 :])
                answers = (*rest, replace(told, containers=containers))
                yield Change(replace(evidence, resources=answers), (kind, told.full_name, one.name, field))


def others(one: ContainerResources) -> Iterator[tuple[Kind, str, ContainerResources]]:
    yield Kind.CPUS, "cpus", replace(one, cpus=one.cpus | CPUSet.of(0))
    yield Kind.MEMORY, "memory", replace(one, memory=(*one.memory, MemoryBlock((1,), "memory", 4096)))
    yield Kind.DEVICES, GPU, replace(one, devices=(*one.devices, ContainerDevices(GPU, ("gpu-9",), (0,))))


def of_files(evidence: Evidence) -> Iterator[Change]:
    """One cgroup file says something else, or a group is gone, or one is there that nobody knows."""
    groups, names = evidence.groups, named(evidence)
    assert groups is not None
    strange = replace(groups, uids=(groups.uids or frozenset()) | {"ghost"})
    yield Change(replace(evidence, groups=strange), (Kind.GROUP, "ghost", "", "cgroup"))
    for path, texts in groups.texts.items():
        assert texts is not None
        last = path.rpartition("/")[2]
        uid = next((uid for uid in names if f"/pod{uid}" in path), "")
        name = last.split("-")[0] if f"/pod{uid}/" in path and uid else ""
        who = names.get(uid, "")
        if uid:
            missing = replace(groups, texts={**groups.texts, path: None})
            yield Change(replace(evidence, groups=missing), (Kind.GROUP, who, name, "cgroup"))
        for file in texts:
            kind = {CPUS: Kind.CPUS, MEMS: Kind.MEMORY}.get(file, Kind.FILE)
            field = {CPUS: "cpus", MEMS: "memory"}.get(file, file)
            said = {CPUS: "0,5,7", MEMS: "5"}.get(file, "4321")
            changed = replace(groups, texts={**groups.texts, path: {**texts, file: said}})
            yield Change(replace(evidence, groups=changed), (kind, who, name, field))
