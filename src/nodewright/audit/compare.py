"""All that is known of a node, side by side: each fact that sources disagree about, once."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from nodewright.audit.gone import joined
from nodewright.audit.groups import file_findings, groups_to_read, strange_groups
from nodewright.audit.held import (
    Place,
    Rules,
    blocks_of,
    cpus_agree,
    cpus_said,
    devices_agree,
    devices_said,
    disagreement,
    is_divided,
    memory_agree,
    memory_said,
    resources_of,
)
from nodewright.audit.values import (
    Audit,
    Evidence,
    Finding,
    Gap,
    GapKind,
    Ids,
    Kind,
    Source,
    Standing,
    ToRead,
    Value,
)
from nodewright.core.cgroups.names import uid_on_node
from nodewright.core.cgroups.plan import Level
from nodewright.model.objects import Pod
from nodewright.model.profile import MemoryBlock
from nodewright.node.pod_resources import allocatable_of_managers
from nodewright.values.idset import CPUSet


def audited(evidence: Evidence) -> Audit:
    """Where sources disagree, each fact once; what goes by itself; and what could not be compared.

    Without pods nothing is compared but what speaks of the node: files know pods by uid, sockets by name.
    """
    findings: list[Finding] = []
    gaps: list[Gap] = []
    counted = 0
    passing: list[Finding] = []
    if evidence.pods is not None:
        came = _of_pods(evidence, evidence.pods)
        findings, gaps, counted, passing = [*came.findings], [*came.gaps], came.compared, [*came.passing]
    elif evidence.state is not None and evidence.resources is not None:
        gaps.append(Gap(what=GapKind.NAMES_UNKNOWN))
    findings, passing = joined(findings, passing, evidence)
    node = [*_of_node(evidence, findings)]
    found = [*findings, *(one for _, one in node if one is not None)]
    return Audit(
        findings=tuple(sorted(found, key=_order)),
        passing=tuple(sorted(passing, key=_order)),
        gaps=tuple(gaps),
        compared=counted + len(node),
    )


class _OfPods(NamedTuple):
    findings: list[Finding]
    passing: list[Finding]
    gaps: list[Gap]
    compared: int


def _of_pods(evidence: Evidence, pods: tuple[Pod, ...]) -> _OfPods:
    came = _OfPods([], [], [], 0)
    asked = groups_to_read(evidence.config, pods, evidence.groups.rules) if evidence.groups else None
    if asked is not None and asked.untold:
        came.gaps.append(Gap(what=GapKind.GROUP_UNTOLD, names=asked.untold))
    places = [*_places(evidence, pods, asked)]
    rules = Rules.of(evidence.config, _pools(evidence))
    if rules.cpu is None and rules.memory is None:
        came.gaps.append(Gap(what=GapKind.NO_OWN))
    counted = 0
    for place in places:
        for finding, is_compared in _of_container(place, evidence, rules):
            counted += is_compared
            if finding is not None:
                came.findings.append(finding)
    for place, resource in ((one, name) for name in resources_of(evidence, places) for one in places):
        said = devices_said(place, evidence, resource)
        counted += len(said) > 1
        finding = disagreement(Kind.DEVICES, place, resource, said, devices_agree(said))
        if finding is not None:
            came.findings.append(finding)
    came.findings.extend(_listed(evidence, pods))
    came.passing.extend(_held_for_nobody(evidence, pods))
    if asked is not None and evidence.groups is not None:
        files = file_findings(asked, evidence.groups)
        came.findings.extend(files.findings)
        came.findings.extend(strange_groups(evidence, map(uid_on_node, pods)))
        counted += files.compared
        if files.lacking:
            came.gaps.append(Gap(what=GapKind.FILES_LACKING, names=files.lacking))
    return came._replace(compared=counted)


def _of_container(place: Place, evidence: Evidence, rules: Rules) -> Iterator[tuple[Finding | None, bool]]:
    cpus = cpus_said(place, evidence, rules)
    yield disagreement(Kind.CPUS, place, "cpus", cpus, cpus_agree(cpus, rules)), len(cpus) > 1
    memory = memory_said(place, evidence, rules)
    yield disagreement(Kind.MEMORY, place, "memory", memory, memory_agree(memory, rules)), len(memory) > 1


def _places(evidence: Evidence, pods: Iterable[Pod], asked: ToRead | None) -> Iterator[Place]:
    """The containers of active pods, but those that the kubelet has not looked at yet."""
    told = {one.full_name: one for one in evidence.resources or ()}
    groups = {
        (one.pod, one.container): one
        for one in (asked.groups if asked else ())
        if one.level is Level.CONTAINER
    }
    for pod in pods:
        answer = told.get(pod.full_name)
        if not (_is_begun(pod) or answer):
            continue
        by_name = {one.name: one for one in answer.containers} if answer else {}
        passing = _passing(pod)
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            group = groups.get((pod.full_name, container.name))
            texts = evidence.groups.texts.get(group.path) if group and evidence.groups else None
            yield Place(
                pod,
                container,
                container.name in passing,
                by_name.get(container.name),
                group,
                # Who divides the pod's CPUs runs on those that others of the pod have left.
                {} if texts is None or is_divided(pod, evidence.config) else texts,
            )


def _is_begun(pod: Pod) -> bool:
    return pod.status.phase == "Running" or bool(
        pod.status.container_statuses or pod.status.init_container_statuses
    )


def _listed(evidence: Evidence, pods: Iterable[Pod]) -> Iterator[Finding]:
    """Pods that only the API has, or only PodResources."""
    if evidence.resources is None:
        return
    told, there = {one.full_name for one in evidence.resources}, {one.full_name: one for one in pods}
    for name in sorted(told - {*there}):
        said: dict[Source, Value] = {Source.RESOURCES: Standing.THERE, Source.PODS: Standing.MISSING}
        yield Finding(kind=Kind.LISTED, pod=name, field="pod", said=said)
    for name, pod in sorted(there.items()):
        if name not in told and pod.status.phase == "Running":
            said = {Source.RESOURCES: Standing.MISSING, Source.PODS: Standing.RUNNING}
            yield Finding(kind=Kind.LISTED, pod=name, field="pod", said=said)


def _held_for_nobody(evidence: Evidence, pods: Iterable[Pod]) -> Iterator[Finding]:
    """What state files keep for pods that are gone: it is taken back when the next pod comes."""
    known, state = {uid_on_node(pod) for pod in pods}, evidence.state
    if state is None:
        return
    holders: dict[str, list[tuple[str, Value]]] = {}
    if state.cpu is not None:
        for one in state.cpu.holders():
            holders.setdefault(one.pod, []).append(("cpus", one.cpus))
    if state.memory is not None:
        for uid, held in state.memory.assignments.items():
            for blocks in held.values():
                for block in blocks:
                    told = MemoryBlock(block.numa, block.resource, block.size)
                    holders.setdefault(uid, []).append(("memory", blocks_of([told])))
    for uid, containers in (state.devices or {}).items():
        for resources in containers.values():
            for resource, ids in resources.items():
                holders.setdefault(uid, []).append((resource, Ids(ids)))
    for uid in sorted({*holders} - known):
        standing = Standing.ENDED if uid in evidence.ended else Standing.MISSING
        for field, value in holders[uid]:
            yield Finding(
                kind=Kind.HOLDER,
                pod=uid,
                field=field,
                said={Source.STATE: value, Source.PODS: standing},
            )


# ---------------------------------------------------------------- the node


def _of_node(evidence: Evidence, found: list[Finding]) -> Iterator[tuple[str, Finding | None]]:
    """What is compared of the node as a whole, with what is told of it."""
    doubted = [one for one in found if one.kind is Kind.CPUS]
    state = evidence.state.cpu if evidence.state else None
    computed = _left(evidence)
    if state is not None and computed is not None:
        involved = CPUSet()
        for one in doubted:
            for value in one.said.values():
                involved |= value if isinstance(value, CPUSet) else CPUSet()
        is_off = ((state.default - computed) | (computed - state.default)) - involved
        said: dict[Source, Value] = {Source.STATE: state.default, Source.CONFIGURATION: computed}
        pool = Finding(kind=Kind.POOL, pod="", field="shared cpus", said=said, odd=Source.STATE)
        yield "pool", pool if is_off else None
    for source, holders in _owners(evidence):
        doubtful = {(one.pod, one.container) for one in doubted}
        for twice in _twice(source, {who: cpus for who, cpus in holders.items() if who not in doubtful}):
            yield "twice", twice
    if evidence.allocatable is not None:
        ours = allocatable_of_managers(evidence.config)
        for field, told, own in (
            ("allocatable cpus", evidence.allocatable.cpus, ours.cpus),
            ("allocatable memory", blocks_of(evidence.allocatable.memory), blocks_of(ours.memory)),
        ):
            said = {Source.RESOURCES: told, Source.CONFIGURATION: own}
            differs = Finding(kind=Kind.ALLOCATABLE, pod="", field=field, said=said)
            yield field, None if told == own else differs


def _pools(evidence: Evidence) -> Iterator[CPUSet]:
    """What the shared CPUs may be."""
    state = evidence.state.cpu if evidence.state else None
    if state is not None:
        yield state.default
    computed = _left(evidence)
    if computed is not None:
        yield computed


def _left(evidence: Evidence) -> CPUSet | None:
    """The CPUs that are left to share by what is held; None: nobody says what is held, or nothing ever is."""
    policy = Rules.of(evidence.config, ()).cpu
    if policy is None:
        return None
    all_cpus = policy.topology.cpus
    if policy.options.strict_reservation:
        all_cpus -= policy.reserved
    state = evidence.state.cpu if evidence.state else None
    if state is not None:
        for one in state.holders():
            all_cpus -= one.cpus
        return all_cpus
    if evidence.resources is None:
        return None
    for pod in evidence.resources:
        for container in pod.containers:
            all_cpus -= container.cpus
    return all_cpus


def _owners(evidence: Evidence) -> Iterator[tuple[Source, Mapping[tuple[str, str], CPUSet]]]:
    """Who has CPUs for himself: by what files say or, without them, by what PodResources says.

    What a pod holds as a whole its containers divide, and what an init container held its successors hold.
    """
    pods = {pod.uid: pod for pod in evidence.pods or ()}
    state = evidence.state.cpu if evidence.state else None
    if state is not None:
        yield (
            Source.STATE,
            {
                (pods[uid].full_name if uid in pods else uid, container): cpus
                for uid, containers in state.assignments.items()
                if uid not in state.pods
                for container, cpus in containers.items()
                if container not in _passing(pods.get(uid))
            },
        )
    elif evidence.resources is not None:
        divided = {pod.full_name for pod in pods.values() if is_divided(pod, evidence.config)}
        yield (
            Source.RESOURCES,
            {
                (pod.full_name, one.name): one.cpus
                for pod in evidence.resources
                if pod.full_name not in divided
                for one in pod.containers
                if one.cpus
            },
        )


def _passing(pod: Pod | None) -> frozenset[str]:
    """The init containers that end."""
    return frozenset(one.name for one in (pod.spec.init_containers if pod else ()) if not one.is_sidecar)


def _twice(source: Source, owners: Mapping[tuple[str, str], CPUSet]) -> Iterator[Finding]:
    """Containers whose CPUs others have, too: each after the first who has them."""
    taken = CPUSet()
    for (pod, container), cpus in sorted(owners.items()):
        both = cpus & taken
        taken |= cpus
        if both:
            yield Finding(kind=Kind.TWICE, pod=pod, container=container, field="cpus", said={source: both})


def _order(one: Finding) -> tuple[str, str, str, str]:
    return one.pod, one.container, one.kind, one.field
