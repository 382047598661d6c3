"""Laws for custom policies, tested with generated inputs.

>>> from nodewright.policies import CPUSet, PickRequest, CustomPolicyError, cpu_picker
>>> @cpu_picker("lowest")
... def lowest(request: PickRequest) -> CPUSet:
...     return CPUSet.from_ids(sorted(request.free)[: request.count])
>>> check_policy_laws(lowest, examples=20)
"""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodewright.engine.core.cpu.cpu_policy import CPUPicker, PickRequest, picked_cpus
from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy, Headroom
from nodewright.engine.core.topology.custom import (
    KUBELET_POLICIES,
    KUBELET_SCOPES,
    POLICY_ANNOTATION,
    SCOPE_ANNOTATION,
    MergeRequest,
    TopologyPolicy,
    custom_affinity,
    topology_manager_for,
)
from nodewright.engine.core.topology.manager_config import TopologyManager
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.release_rules import CPUOptions
from nodewright.model.values.custom_policy import CustomPolicy
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.topology_hints import Offer
from nodewright.testing.strategies import distance_tables, hint_lists, pods, rule_hint_lists, topologies

MAX_NUMA_NODES = 4


def check_policy_laws(policy: CustomPolicy, *, examples: int = 100) -> None:
    """Checks that the policy never fails, never breaks a law, and gives equal answers to equal inputs.

    Errors: CustomPolicyError or AssertionError with the simplest counterexample.
    """
    match policy:
        case CPUPicker():
            _tried(pick_requests(), lambda request: picked_cpus(policy, request), examples)
        case EvictionPolicy():
            _tried(eviction_policy_inputs(), lambda request: policy.interval_ns(*request), examples)
        case TopologyPolicy(choose_policy=None):
            _tried(
                alignment_requests(),
                lambda request: custom_affinity(policy, request, pod_level=False),
                examples,
            )
        case TopologyPolicy():
            _tried(
                alignment_requests(),
                lambda request: topology_manager_for(request.manager, policy, request.pod),
                examples,
            )
        case _:
            raise TypeError(f"there are no laws for a {policy.kind}")


def _tried(questions: st.SearchStrategy[Any], answer: Callable[[Any], object], examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(questions)
    def law(request: Any) -> None:
        assert answer(request) == answer(request), "equal inputs got different answers"

    law()


@st.composite
def pick_requests(draw: st.DrawFn) -> PickRequest:
    """Inputs of CPU pickers: machines of every kind, with some CPUs in use."""
    topology = draw(topologies())
    free = draw(st.lists(st.sampled_from(sorted(topology.cpus)), min_size=1, unique=True))
    options = CPUOptions(full_pcpus_only=draw(st.booleans()), prefer_uncore_cache=draw(st.booleans()))
    count = draw(st.integers(1, len(free)))
    return PickRequest(topology=topology, free=CPUSet.from_ids(free), count=count, options=options)


def eviction_policy_inputs() -> st.SearchStrategy[tuple[tuple[Headroom, ...], int | None]]:
    """Inputs of eviction policies: thresholds at various distances, and running grace periods."""
    rooms = st.builds(
        Headroom,
        margin=st.integers(-(2**40), 2**50),
        capacity=st.integers(0, 2**50),
        growth_per_s=st.integers(-(2**40), 2**40),
    )
    return st.tuples(st.lists(rooms, max_size=4).map(tuple), st.none() | st.integers(1, 2**40))


@st.composite
def alignment_requests(draw: st.DrawFn) -> MergeRequest:
    """Inputs of topology policies: hints that agree, conflict, or have no preference."""
    nodes = draw(st.integers(1, MAX_NUMA_NODES))
    hints = st.one_of(hint_lists(nodes), rule_hint_lists(nodes))
    hints_by_provider = draw(
        st.lists(st.dictionaries(st.sampled_from(("cpu", "a.b/gpu")), hints, max_size=2), max_size=3)
    )
    return MergeRequest(
        pod=draw(annotated_pods()),
        container=draw(st.sampled_from(("", "app"))),
        offers=tuple(
            Offer(name, provider_hints)
            for name, provider_hints in zip(("devices", "cpu", "memory"), hints_by_provider, strict=False)
        ),
        manager=TopologyManager(
            policy=draw(st.sampled_from(KUBELET_POLICIES)),
            scope=draw(st.sampled_from(KUBELET_SCOPES)),
            numa=NUMASet((1 << nodes) - 1),
            distances=draw(distance_tables(nodes)),
        ),
    )


@st.composite
def annotated_pods(draw: st.DrawFn) -> Pod:
    """Pods, some with annotations for a topology policy or a scope, which may be invalid."""
    pod = draw(pods())
    wishes = {}
    if draw(st.booleans()):
        wishes[POLICY_ANNOTATION] = draw(st.sampled_from((*KUBELET_POLICIES, "Restricted", "")))
    if draw(st.booleans()):
        wishes[SCOPE_ANNOTATION] = draw(st.sampled_from((*KUBELET_SCOPES, "node")))
    annotations = {**pod.metadata.annotations, **wishes}
    return Pod(
        metadata=ObjectMeta(
            name=pod.metadata.name, namespace=pod.metadata.namespace, annotations=annotations
        ),
        spec=pod.spec,
    )
