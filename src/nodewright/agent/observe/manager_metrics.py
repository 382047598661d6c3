"""Counts of what the resource managers did for a pod, as the kubelet's metrics count them."""

from collections.abc import Iterator
from typing import TypeAlias

from nodewright.agent.observe.metric_names import CounterMetric, Labels
from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.topology.manager_config import NONE_POLICY, SINGLE_NUMA_NODE
from nodewright.engine.node.managers.hint_providers import CPUProvider, MemoryProvider
from nodewright.engine.node.managers.manager_trace import AllocationCall, ManagerTrace, manager_trace
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, Step
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.eviction import NodeUnderPressure
from nodewright.model.reasons.reason import SysctlForbidden
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet

LabelledCounter: TypeAlias = tuple[CounterMetric, Labels]
"""A counter and its labels."""
_CONTAINER, _POD = "container", "pod"
_NUMA, _CORE, _CACHE = "numa_node", "physical_cpu", "uncore_cache"


def reached_managers(node_step: Step) -> bool:
    """Whether the admission of a pod reached the resource managers: earlier handlers reject some pods."""
    if node_step.decision is not Decision.REFUSED or not node_step.because:
        return node_step.decision is Decision.ADMITTED
    return not isinstance(node_step.because[0], NodeUnderPressure | SysctlForbidden)


def manager_counts(node: NodeState, pod: Pod) -> Iterator[LabelledCounter]:
    """The counts of the managers for a pod that is admitted or rejected at this node.

    Follows: v1.36, topologymanager/{topology_manager,scope_container,scope_pod}.go, cpumanager/policy_static.go,
        memorymanager/policy_static.go: where metrics are counted.
    """
    yield CounterMetric.ALIGNMENTS, ()
    trace = manager_trace(node, pod)
    is_refused = bool(trace.aligned.rejected_for)
    if is_refused and trace.managers.policy != NONE_POLICY:
        yield CounterMetric.ALIGNMENT_ERRORS, ()
    if trace.managers.policy == SINGLE_NUMA_NODE:
        yield from _alignment_counts(trace)
    for call in trace.allocations:
        for provider in trace.managers.providers:
            if provider.name == call.provider:
                yield from _allocation_counts(provider, call, pod)


def _alignment_counts(trace: ManagerTrace) -> Iterator[LabelledCounter]:
    """Counts of NUMA alignment, which only this policy guarantees."""
    is_refused = bool(trace.aligned.rejected_for)
    if any(not attempt.admits for attempt in trace.rounds):
        last = trace.rounds[-1]
        yield CounterMetric.UNALIGNED, (_CONTAINER if last.container else _POD, _NUMA)
    if trace.rounds and not trace.rounds[0].container:
        if not is_refused:
            yield CounterMetric.ALIGNED, (_POD, _NUMA)
        return
    refused_at = trace.allocations[-1].container if is_refused and trace.allocations else None
    for attempt in trace.rounds:
        is_served = any(call.container == attempt.container for call in trace.allocations)
        if attempt.admits and is_served and attempt.container != refused_at:
            yield CounterMetric.ALIGNED, (_CONTAINER, _NUMA)


def _allocation_counts(provider: object, call: AllocationCall, pod: Pod) -> Iterator[LabelledCounter]:
    verdict = call.verdict
    match provider:
        case MemoryProvider() if isinstance(verdict, Refused) or verdict.value is not None:
            yield CounterMetric.MEMORY_PINS, ()
            if isinstance(verdict, Refused):
                yield CounterMetric.MEMORY_PIN_ERRORS, ()
        case CPUProvider(policy=StaticCPUPolicy() as policy):
            yield from _cpu_pin_counts(policy, call, pod)
        case _:
            pass


def _cpu_pin_counts(policy: StaticCPUPolicy, call: AllocationCall, pod: Pod) -> Iterator[LabelledCounter]:
    verdict, requests = call.verdict, policy.cpu_requests(pod)
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    containers_with_cpus = [
        container
        for container in containers
        if call.container in ("", container.name) and requests.container_cpus(container)
    ]
    if requests.is_skipped or not containers_with_cpus:
        return
    for _ in containers_with_cpus:
        yield CounterMetric.CPU_PINS, ()
    is_refused = isinstance(verdict, Refused)
    if is_refused:
        yield CounterMetric.CPU_PIN_ERRORS, ()
    if policy.options.full_pcpus_only:
        yield (CounterMetric.UNALIGNED if is_refused else CounterMetric.ALIGNED), (_CONTAINER, _CORE)
    if isinstance(verdict, Granted) and call.after is not call.before:
        cpus = verdict.value
        if isinstance(cpus, CPUSet) and _in_one_cache(policy.topology, cpus):
            yield CounterMetric.ALIGNED, (_CONTAINER, _CACHE)


def _in_one_cache(topology: CPUTopology, cpus: CPUSet) -> bool:
    """Whether CPUs share a cache.

    Follows: v1.36, cpumanager/topology/alignment.go, isAlignedAtUncoreCache.
    """
    caches = {info.cpu: info.uncore_cache for info in topology.cpu_info}
    return len({caches.get(cpu) for cpu in cpus}) <= 1 and all(cpu in caches for cpu in cpus)
