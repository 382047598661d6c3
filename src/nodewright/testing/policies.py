"""Laws for policies of your own: each is tried with questions that nobody chose.

>>> from nodewright.policies import CPUSet, PickAsked, PolicyError, cpu_picker
>>> @cpu_picker("lowest")
... def lowest(asked: PickAsked) -> CPUSet:
...     return CPUSet.from_ids(sorted(asked.free)[: asked.count])
>>> holds_laws(lowest, examples=20)
"""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodewright.core.cpu.options import CPUOptions
from nodewright.core.cpu.own import CPUPicker, PickAsked, picked
from nodewright.core.eviction import EvictionPolicy, Room
from nodewright.core.topology import TopologyManager
from nodewright.core.topology.own import (
    POLICIES,
    SCOPES,
    Alignment,
    TopologyPolicy,
    manager_for,
    own_affinity,
)
from nodewright.core.topology.pod_wish import POLICY, SCOPE
from nodewright.model.hints import Offer
from nodewright.model.objects import ObjectMeta, Pod
from nodewright.model.policies import Policy
from nodewright.testing.hints import distance_tables, listed, rules
from nodewright.testing.strategies import pods
from nodewright.testing.topologies import topologies
from nodewright.values.idset import CPUSet, NUMASet

MOST_NODES = 4


def holds_laws(policy: Policy, *, examples: int = 100) -> None:
    """Nothing, if the policy never fails, never breaks a law, and gives the same question the same answer.

    Errors: PolicyError or AssertionError with the simplest question found that shows otherwise.
    """
    match policy:
        case CPUPicker():
            _tried(picks_asked(), lambda asked: picked(policy, asked), examples)
        case EvictionPolicy():
            _tried(looks(), lambda asked: policy.interval_ns(*asked), examples)
        case TopologyPolicy(choosing=None):
            _tried(alignments(), lambda asked: own_affinity(policy, asked, pod_level=False), examples)
        case TopologyPolicy():
            _tried(alignments(), lambda asked: manager_for(asked.manager, policy, asked.pod), examples)
        case _:
            raise TypeError(f"there are no laws for a {policy.kind}")


def _tried(questions: st.SearchStrategy[Any], answer: Callable[[Any], object], examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(questions)
    def law(asked: Any) -> None:
        assert answer(asked) == answer(asked), "the same question got two answers"

    law()


@st.composite
def picks_asked(draw: st.DrawFn) -> PickAsked:
    """Questions to CPU pickers: machines of every kind, with CPUs taken here and there."""
    topology = draw(topologies())
    free = draw(st.lists(st.sampled_from(sorted(topology.cpus)), min_size=1, unique=True))
    options = CPUOptions(full_pcpus_only=draw(st.booleans()), prefer_uncore_cache=draw(st.booleans()))
    count = draw(st.integers(1, len(free)))
    return PickAsked(topology=topology, free=CPUSet.from_ids(free), count=count, options=options)


def looks() -> st.SearchStrategy[tuple[tuple[Room, ...], int | None]]:
    """Questions to eviction policies: thresholds far and near, and grace periods that run."""
    rooms = st.builds(
        Room,
        left=st.integers(-(2**40), 2**50),
        capacity=st.integers(0, 2**50),
        growth=st.integers(-(2**40), 2**40),
    )
    return st.tuples(st.lists(rooms, max_size=4).map(tuple), st.none() | st.integers(1, 2**40))


@st.composite
def alignments(draw: st.DrawFn) -> Alignment:
    """Questions to topology policies: hints that agree, that do not, that leave everything open."""
    nodes = draw(st.integers(1, MOST_NODES))
    hints = st.one_of(listed(nodes), rules(nodes))
    said = draw(st.lists(st.dictionaries(st.sampled_from(("cpu", "a.b/gpu")), hints, max_size=2), max_size=3))
    return Alignment(
        pod=draw(wishing_pods()),
        container=draw(st.sampled_from(("", "app"))),
        offers=tuple(Offer(name, one) for name, one in zip(("devices", "cpu", "memory"), said, strict=False)),
        manager=TopologyManager(
            policy=draw(st.sampled_from(POLICIES)),
            scope=draw(st.sampled_from(SCOPES)),
            numa=NUMASet((1 << nodes) - 1),
            distances=draw(distance_tables(nodes)),
        ),
    )


@st.composite
def wishing_pods(draw: st.DrawFn) -> Pod:
    """Pods, some of which wish for a topology policy or a scope by annotation; not all wishes make sense."""
    pod = draw(pods())
    wishes = {}
    if draw(st.booleans()):
        wishes[POLICY] = draw(st.sampled_from((*POLICIES, "Restricted", "")))
    if draw(st.booleans()):
        wishes[SCOPE] = draw(st.sampled_from((*SCOPES, "node")))
    annotations = {**pod.metadata.annotations, **wishes}
    return Pod(
        metadata=ObjectMeta(
            name=pod.metadata.name, namespace=pod.metadata.namespace, annotations=annotations
        ),
        spec=pod.spec,
    )
