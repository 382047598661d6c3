"""An audit finds nothing in what our own agent leaves behind, and each fact that somebody changed exactly once."""

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench
from tests.support.audit_evidence import audit_evidence

from nodewright.engine.core.memory.memory_state import Block
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_resources_api import ContainerDevices, ContainerResources, PodResources
from nodewright.model.values.idset import CPUSet
from nodewright.predict.audit.audit_comparison import audit_of
from nodewright.predict.audit.audit_evidence import AuditEvidence, DiscrepancyKind
from nodewright.predict.audit.container_check import CPUS, MEMS
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

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


def left_behind(kinds: list[str], *, version: int, gone: bool, **kubelet: Any) -> AuditEvidence:
    async def run() -> AuditEvidence:
        profile = a_profile(devices={GPU: "gpu-0@0 gpu-1@1 gpu-2@0,1"}, failCgroupV1=False, **kubelet)
        profile = replace(profile, spec=replace(profile.spec, cgroup_version=version))
        async with AgentBench(profile) as bench:
            for number, kind in enumerate(kinds):
                await bench.add_pods(menu(kind, number))
            if gone and kinds:
                await bench.remove_pod(f"{kinds[0]}-0")
            return audit_evidence(bench)

    return asyncio.run(run())


class Change(NamedTuple):
    """A fact that was changed, and what is to be found."""

    evidence: AuditEvidence
    found: tuple[DiscrepancyKind, str, str, str]


@given(KINDS, st.sampled_from([1, 2]), st.booleans(), st.sampled_from([BOTH, STATIC_CPUS, {}]))
def test_nothing_is_found_in_what_the_agent_leaves_behind(
    kinds: list[str], version: int, gone: bool, kubelet: dict[str, Any]
) -> None:
    evidence = left_behind(kinds, version=version, gone=gone, **kubelet)
    for each in (evidence, *without_one(evidence)):
        assert audit_of(each).discrepancies == ()


@given(KINDS.filter(bool), st.sampled_from([1, 2]), st.randoms(use_true_random=False))
def test_what_somebody_changed_is_found_once(kinds: list[str], version: int, random: Any) -> None:
    evidence = left_behind(kinds, version=version, gone=False, **BOTH)
    changes = [*of_state(evidence), *of_resources(evidence), *of_files(evidence)]
    for change in random.sample(changes, min(len(changes), 12)):
        discrepancies = audit_of(change.evidence).discrepancies
        assert [
            (discrepancy.kind, discrepancy.pod, discrepancy.container, discrepancy.field)
            for discrepancy in discrepancies
        ] == [change.found]


def without_one(evidence: AuditEvidence) -> Iterator[AuditEvidence]:
    """The same when a source does not answer."""
    yield replace(evidence, state_files=None)
    yield replace(evidence, pod_resources=None, allocatable=None)
    yield replace(evidence, cgroups=None)
    yield replace(evidence, pods=None)


def named(evidence: AuditEvidence) -> dict[str, str]:
    return {pod.uid: pod.full_name for pod in evidence.pods or ()}


def of_state(evidence: AuditEvidence) -> Iterator[Change]:
    """One entry of a state file is another."""
    state, names = evidence.state_files, named(evidence)
    assert state is not None
    assert state.cpu is not None
    assert state.memory is not None
    cpu, memory = state.cpu, state.memory
    shared = replace(cpu, default=cpu.default - CPUSet.of(max(cpu.default)))
    yield Change(
        replace(evidence, state_files=replace(state, cpu=shared)),
        (DiscrepancyKind.SHARED_POOL, "", "", "shared cpus"),
    )
    for uid, containers in cpu.assignments.items():
        for name, cpus in containers.items():
            where = (DiscrepancyKind.CPUS, names[uid], name, "cpus")
            for other in (
                cpu.without_assignment(uid, name),
                cpu.with_assignment(uid, name, cpus | CPUSet.of(0)),
            ):
                yield Change(replace(evidence, state_files=replace(state, cpu=other)), where)
    for uid, held in memory.assignments.items():
        for name, blocks in held.items():
            grown = tuple(Block(block.numa, block.resource, block.size + 1) for block in blocks)
            moved = tuple(Block((*block.numa, 7), block.resource, block.size) for block in blocks)
            for changed in (
                memory.without(uid, name),
                memory.with_blocks(uid, name, grown),
                memory.with_blocks(uid, name, moved),
            ):
                where = (DiscrepancyKind.MEMORY, names[uid], name, "memory")
                yield Change(replace(evidence, state_files=replace(state, memory=changed)), where)
    for uid, holders in (state.devices or {}).items():
        for name in holders:
            for ids in (frozenset({"other"}), frozenset[str]()):
                devices = {**(state.devices or {}), uid: {**holders, name: {GPU: ids}}}
                where = (DiscrepancyKind.DEVICES, names[uid], name, GPU)
                yield Change(replace(evidence, state_files=replace(state, devices=devices)), where)


def of_resources(evidence: AuditEvidence) -> Iterator[Change]:
    """One answer of PodResources is another."""
    resources = evidence.pod_resources or ()
    assert evidence.allocatable is not None
    less = replace(evidence.allocatable, cpus=CPUSet.of(1))
    where = (DiscrepancyKind.ALLOCATABLE, "", "", "allocatable cpus")
    yield Change(replace(evidence, allocatable=less), where)
    more = (*resources, PodResources(namespace="default", name="ghost"))
    yield Change(
        replace(evidence, pod_resources=more), (DiscrepancyKind.POD_PRESENCE, "default/ghost", "", "pod")
    )
    for index, told in enumerate(resources):
        rest = (*resources[:index], *resources[index + 1 :])
        yield Change(
            replace(evidence, pod_resources=rest), (DiscrepancyKind.POD_PRESENCE, told.full_name, "", "pod")
        )
        for place, one in enumerate(told.containers):
            for kind, field, other in others(one):
                containers = (*told.containers[:place], other, *told.containers[place + 1 :])
                answers = (*rest, replace(told, containers=containers))
                yield Change(
                    replace(evidence, pod_resources=answers), (kind, told.full_name, one.name, field)
                )


def others(one: ContainerResources) -> Iterator[tuple[DiscrepancyKind, str, ContainerResources]]:
    yield DiscrepancyKind.CPUS, "cpus", replace(one, cpus=one.cpus | CPUSet.of(0))
    yield (
        DiscrepancyKind.MEMORY,
        "memory",
        replace(one, memory=(*one.memory, MemoryBlock((1,), "memory", 4096))),
    )
    yield (
        DiscrepancyKind.DEVICES,
        GPU,
        replace(one, devices=(*one.devices, ContainerDevices(GPU, ("gpu-9",), (0,)))),
    )


def of_files(evidence: AuditEvidence) -> Iterator[Change]:
    """One cgroup file says something else, or a group is gone, or one is there that nobody knows."""
    groups, names = evidence.cgroups, named(evidence)
    assert groups is not None
    strange = replace(groups, uids=(groups.uids or frozenset()) | {"ghost"})
    yield Change(replace(evidence, cgroups=strange), (DiscrepancyKind.CGROUP_PRESENCE, "ghost", "", "cgroup"))
    for path, texts in groups.texts.items():
        assert texts is not None
        last = path.rpartition("/")[2]
        uid = next((uid for uid in names if f"/pod{uid}" in path), "")
        name = last.split("-")[0] if f"/pod{uid}/" in path and uid else ""
        who = names.get(uid, "")
        if uid:
            missing = replace(groups, texts={**groups.texts, path: None})
            yield Change(
                replace(evidence, cgroups=missing), (DiscrepancyKind.CGROUP_PRESENCE, who, name, "cgroup")
            )
        for file in texts:
            kind = {CPUS: DiscrepancyKind.CPUS, MEMS: DiscrepancyKind.MEMORY}.get(
                file, DiscrepancyKind.CGROUP_FILE
            )
            field = {CPUS: "cpus", MEMS: "memory"}.get(file, file)
            text = {CPUS: "0,5,7", MEMS: "5"}.get(file, "4321")
            changed = replace(groups, texts={**groups.texts, path: {**texts, file: text}})
            yield Change(replace(evidence, cgroups=changed), (kind, who, name, field))
