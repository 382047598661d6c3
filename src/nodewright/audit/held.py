"""Who has what, as each source says it, and where they disagree."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from nodewright.audit.groups import CPUS, MEMS
from nodewright.audit.values import (
    Blocks,
    Count,
    Evidence,
    Finding,
    Ids,
    Kind,
    Sizes,
    Source,
    Text,
    Value,
)
from nodewright.core.cgroups.plan import Group
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.devices.state import NONE
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.requests import pod_level_resources_set
from nodewright.model.objects import Container, Pod
from nodewright.model.pod_resources import ContainerResources
from nodewright.model.profile import MemoryBlock
from nodewright.node.config import NodeConfig
from nodewright.node.providers import CPUs, Memory
from nodewright.values.idset import CPUSet, IdSetError, NUMASet

Said = dict[Source, Value]


class Place(NamedTuple):
    """A container of an active pod, with what there is to look at."""

    pod: Pod
    container: Container
    is_passing: bool
    """It is an init container that ends: what it holds goes over to others."""
    told: ContainerResources | None
    """What PodResources says of it."""
    group: Group | None
    """None: it does not run, or nobody can tell where its group is."""
    texts: Mapping[str, str]


class Rules(NamedTuple):
    """What of the node decides which answers agree."""

    config: NodeConfig
    cpu: StaticPolicy | None
    """None: no CPU is anybody's own."""
    memory: StaticMemory | None
    pools: frozenset[CPUSet]
    """What the shared CPUs may be: as they are told, and as they are left by what is held."""
    numa: NUMASet

    @classmethod
    def of(cls, config: NodeConfig, pools: Iterable[CPUSet]) -> "Rules":
        """Those of this node."""
        cpu = memory = None
        for provider in config.managers.providers:
            match provider:
                case CPUs(policy=StaticPolicy() as found):
                    cpu = found
                case Memory(policy=StaticMemory() as blocks):
                    memory = blocks
                case _:
                    pass
        machine = config.parts.machine.topology
        return cls(config, cpu, memory, frozenset(pools), NUMASet.from_ids(one.node_id for one in machine))


def cpus_said(place: Place, evidence: Evidence, rules: Rules) -> Said:
    """What each source says of the CPUs of a container."""
    if rules.cpu is None:
        return {}
    said: Said = {}
    state = evidence.state.cpu if evidence.state else None
    if state is not None:
        said[Source.STATE] = state.exclusive(place.pod.uid, place.container.name) or CPUSet()
    if place.told is not None:
        said[Source.RESOURCES] = place.told.cpus
    if (read := _cpus_read(place.texts)) is not None:
        said[Source.CGROUPS] = read
    wants = rules.cpu.wants(place.pod)
    if not (place.is_passing or wants.is_pod_managed or wants.is_skipped):
        said[Source.PODS] = Count(wants.container(place.container))
    return said


def cpus_agree(said: Said, rules: Rules) -> Callable[[Source, Source], bool]:
    """Whether two sources agree on the CPUs of a container; one that runs in the shared pool has none of its own."""

    def agree(one: Source, other: Source) -> bool:
        values = {one: said[one], other: said[other]}
        runs_on = values.pop(Source.CGROUPS, None)
        count = values.pop(Source.PODS, None)
        owned = next(iter(values.values()), None)
        if len(values) == 2:
            return said[one] == said[other]
        if isinstance(runs_on, Text):
            return False
        if isinstance(runs_on, CPUSet):
            if isinstance(owned, CPUSet) and owned:
                return runs_on == owned
            if isinstance(count, Count) and count.number:
                return len(runs_on) == count.number and runs_on not in rules.pools
            return not rules.pools or runs_on in rules.pools
        assert isinstance(owned, CPUSet)
        assert isinstance(count, Count)
        return len(owned) == count.number

    return agree


def memory_said(place: Place, evidence: Evidence, rules: Rules) -> Said:
    """What each source says of the memory of a container."""
    if rules.memory is None:
        return {}
    said: Said = {}
    state = evidence.state.memory if evidence.state else None
    if state is not None:
        held = state.blocks(place.pod.uid, place.container.name) or ()
        said[Source.STATE] = blocks_of(MemoryBlock(one.numa, one.resource, one.size) for one in held)
    if place.told is not None:
        said[Source.RESOURCES] = blocks_of(place.told.memory)
    if (read := _numa_read(place.texts)) is not None:
        said[Source.CGROUPS] = read
    wants = rules.memory.wants(place.pod)
    amounts = wants.container(place.container)
    if not (place.is_passing or wants.is_pod_managed or wants.is_skipped) and isinstance(amounts, Mapping):
        wanted = {kind: size for kind, size in amounts.items() if size} if wants.is_guaranteed else {}
        said[Source.PODS] = Sizes(wanted)
    return said


def memory_agree(said: Said, rules: Rules) -> Callable[[Source, Source], bool]:
    """Whether two sources agree on the memory of a container; one that has none of its own may take it anywhere."""

    def agree(one: Source, other: Source) -> bool:
        values = {one: said[one], other: said[other]}
        takes_from = values.pop(Source.CGROUPS, None)
        sizes = values.pop(Source.PODS, None)
        owned = next(iter(values.values()), None)
        if len(values) == 2:
            return said[one] == said[other]
        if isinstance(takes_from, Text):
            return False
        if isinstance(takes_from, NUMASet):
            nodes = NUMASet()
            if isinstance(owned, Blocks):
                nodes = NUMASet.from_ids(numa for block in owned.blocks for numa in block.numa_nodes)
            if nodes:
                return takes_from == nodes
            has_own = isinstance(sizes, Sizes) and bool(sizes.by_kind)
            return has_own or takes_from in (NUMASet(), rules.numa)
        assert isinstance(owned, Blocks)
        assert isinstance(sizes, Sizes)
        return _sizes(owned) == dict(sizes.by_kind)

    return agree


def devices_said(place: Place, evidence: Evidence, resource: str) -> Said:
    """What each source says of a container's devices of one resource."""
    said: Said = {}
    held = evidence.state.devices if evidence.state else None
    uid, name = place.pod.uid, place.container.name
    if held is not None:
        said[Source.STATE] = Ids(held.get(uid, {}).get(name, {}).get(resource, NONE))
    if place.told is not None:
        said[Source.RESOURCES] = Ids(place.told.device_ids.get(resource, frozenset()))
    if not place.is_passing and place.pod.status.extended_resource_claim_status is None:
        limit = place.container.resources.limits.get(resource)
        said[Source.PODS] = Count(limit.value() if limit is not None else 0)
    return said


def devices_agree(said: Said) -> Callable[[Source, Source], bool]:
    """Whether two sources agree on devices."""

    def agree(one: Source, other: Source) -> bool:
        numbers = [
            value.number if isinstance(value, Count) else len(value.ids)
            for value in (said[one], said[other])
            if isinstance(value, Count | Ids)
        ]
        return said[one] == said[other] or (Source.PODS in (one, other) and numbers[0] == numbers[1])

    return agree


def disagreement(
    kind: Kind, place: Place, field: str, said: Said, agree: Callable[[Source, Source], bool]
) -> Finding | None:
    """A finding where two sources disagree; whoever stands alone against all others is the odd one."""
    sources = [one for one in Source if one in said]
    pairs = [(one, other) for index, one in enumerate(sources) for other in sources[index + 1 :]]
    against = [pair for pair in pairs if not agree(*pair)]
    if not against:
        return None
    alone = [one for one in sources if all(one in pair for pair in against)]
    return Finding(
        kind=kind,
        pod=place.pod.full_name,
        container=place.container.name,
        field=field,
        said={one: said[one] for one in sources},
        odd=alone[0] if len(alone) == 1 and len(sources) > 2 else None,
        path=place.group.path if place.group is not None and Source.CGROUPS in said else "",
    )


def resources_of(evidence: Evidence, places: Iterable[Place]) -> Iterator[str]:
    """The resources that device plugins are known to have, by name."""
    found = {one.resource for one in evidence.allocatable.devices} if evidence.allocatable else set()
    held = evidence.state.devices if evidence.state else None
    for containers in (held or {}).values():
        for resources in containers.values():
            found |= {*resources}
    for place in places:
        if place.told is not None:
            found |= {one.resource for one in place.told.devices}
    yield from sorted(found)


def blocks_of(blocks: Iterable[MemoryBlock]) -> Blocks:
    """Blocks, in one order and without empty ones."""
    found = [MemoryBlock(tuple(sorted(one.numa_nodes)), one.type, one.size) for one in blocks if one.size]
    return Blocks(tuple(sorted(found, key=lambda one: (one.type, one.numa_nodes, one.size))))


def is_divided(pod: Pod, config: NodeConfig) -> bool:
    """Whether the pod's containers divide what the pod holds as a whole."""
    return config.gates["PodLevelResourceManagers"] and pod_level_resources_set(pod)


def _sizes(blocks: Blocks) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in blocks.blocks:
        found[one.type] = found.get(one.type, 0) + one.size
    return found


def _cpus_read(texts: Mapping[str, str]) -> CPUSet | Text | None:
    """None: the file is not there, or nobody has written to it."""
    text = texts.get(CPUS, "")
    try:
        return CPUSet.parse(text) or None
    except IdSetError:
        return Text(text)


def _numa_read(texts: Mapping[str, str]) -> NUMASet | Text | None:
    try:
        return NUMASet.parse(texts[MEMS]) if MEMS in texts else None
    except IdSetError:
        return Text(texts[MEMS])
