"""What a pod asked of the resource managers and what came of it, as the kubelet counts it."""

from collections.abc import Iterator
from typing import TypeAlias

from nodewright.agent.counted import Counted, Labels
from nodewright.core.cpu.policy import StaticPolicy
from nodewright.core.cpu.topology import CPUTopology
from nodewright.core.topology.policy import NONE, SINGLE_NUMA_NODE
from nodewright.model.eviction_reasons import NodeUnderPressure
from nodewright.model.objects import Pod
from nodewright.model.reasons import SysctlForbidden
from nodewright.model.verdict import Granted, Refused
from nodewright.node.providers import CPUs, Memory
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step
from nodewright.node.trail import Serving, Trail, trail
from nodewright.values.idset import CPUSet

One: TypeAlias = tuple[Counted, Labels]
"""What is counted, and what it is told apart by."""
_CONTAINER, _POD = "container", "pod"
_NUMA, _CORE, _CACHE = "numa_node", "physical_cpu", "uncore_cache"


def met_managers(done: Step) -> bool:
    """Whether a pod that arrived came as far as the managers: handlers before them turn some away."""
    if done.decision is not Decision.REFUSED or not done.because:
        return done.decision is Decision.ADMITTED
    return not isinstance(done.because[0], NodeUnderPressure | SysctlForbidden)


def managers_counted(node: NodeState, pod: Pod) -> Iterator[One]:
    """What the managers count for a pod that arrives at this node, one thing at a time.

    Follows: v1.36, topologymanager/{topology_manager,scope_container,scope_pod}.go, cpumanager/policy_static.go,
        memorymanager/policy_static.go: where metrics are counted.
    """
    yield Counted.ALIGNMENTS, ()
    found = trail(node, pod)
    is_refused = bool(found.aligned.refused_for)
    if is_refused and found.managers.policy != NONE:
        yield Counted.ALIGNMENT_ERRORS, ()
    if found.managers.policy == SINGLE_NUMA_NODE:
        yield from _aligned(found)
    for serving in found.servings:
        for provider in found.managers.providers:
            if provider.name == serving.provider:
                yield from _served(provider, serving, pod)


def _aligned(found: Trail) -> Iterator[One]:
    """NUMA alignment, which this policy alone guarantees."""
    is_refused = bool(found.aligned.refused_for)
    if any(not one.admits for one in found.rounds):
        last = found.rounds[-1]
        yield Counted.UNALIGNED, (_CONTAINER if last.container else _POD, _NUMA)
    if found.rounds and not found.rounds[0].container:
        if not is_refused:
            yield Counted.ALIGNED, (_POD, _NUMA)
        return
    refused_at = found.servings[-1].container if is_refused and found.servings else None
    for one in found.rounds:
        is_served = any(serving.container == one.container for serving in found.servings)
        if one.admits and is_served and one.container != refused_at:
            yield Counted.ALIGNED, (_CONTAINER, _NUMA)


def _served(provider: object, serving: Serving, pod: Pod) -> Iterator[One]:
    verdict = serving.verdict
    match provider:
        case Memory() if isinstance(verdict, Refused) or verdict.value is not None:
            yield Counted.MEMORY_PINS, ()
            if isinstance(verdict, Refused):
                yield Counted.MEMORY_PIN_ERRORS, ()
        case CPUs(policy=StaticPolicy() as policy):
            yield from _pinned(policy, serving, pod)
        case _:
            pass


def _pinned(policy: StaticPolicy, serving: Serving, pod: Pod) -> Iterator[One]:
    verdict, wants = serving.verdict, policy.wants(pod)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    asking = [one for one in containers if serving.container in ("", one.name) and wants.container(one)]
    if wants.is_skipped or not asking:
        return
    for _ in asking:
        yield Counted.CPU_PINS, ()
    is_refused = isinstance(verdict, Refused)
    if is_refused:
        yield Counted.CPU_PIN_ERRORS, ()
    if policy.options.full_pcpus_only:
        yield (Counted.UNALIGNED if is_refused else Counted.ALIGNED), (_CONTAINER, _CORE)
    if isinstance(verdict, Granted) and serving.after is not serving.before:
        cpus = verdict.value
        if isinstance(cpus, CPUSet) and _in_one_cache(policy.topology, cpus):
            yield Counted.ALIGNED, (_CONTAINER, _CACHE)


def _in_one_cache(topology: CPUTopology, cpus: CPUSet) -> bool:
    """Whether CPUs share a cache.

    Follows: v1.36, cpumanager/topology/alignment.go, isAlignedAtUncoreCache.
    """
    caches = {one.cpu: one.uncore_cache for one in topology.places}
    return len({caches.get(cpu) for cpu in cpus}) <= 1 and all(cpu in caches for cpu in cpus)
