"""What `fit` says is admitted is what `admit` admits, one step more is not, and no smaller set of pods does."""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, count

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.costly_laws import COSTLY
from tests.support.small_nodes import GPU, MIB, guaranteed_pods, profiles

from nodewright.engine.admission.admission_plugins import pod_as_stored
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.node.placement_cost import NUMALayout
from nodewright.engine.node.pod_admission import placement_of
from nodewright.engine.node.what_if.candidate_changes import RequestingPod
from nodewright.engine.node.what_if.changes import RequestsChanged, changed_pod
from nodewright.engine.node.what_if.largest_pod import change_of_steps, emptied_node, request_dimensions
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import sentence
from nodewright.model.values.idset import NUMASet
from nodewright.predict.fit.multiples import MAX_SCANNED, NodeForPod
from nodewright.predict.fit.shapes import NUMAPlacement, Shape, largest_shapes, regions_of, shape_pod
from nodewright.predict.fit.stranded import copies, copies_by_amounts, pods_to_admit, pods_to_move
from nodewright.predict.node import Node

FEW = settings(COSTLY, max_examples=max(COSTLY.max_examples // 5, 5))
"""All shapes of each node are tried."""


@st.composite
def nodes(draw: st.DrawFn, largest: int = 3) -> Node:
    """A node with some pods."""
    node = Node.from_profile(draw(profiles()))
    for at in range(draw(st.integers(0, 5))):
        node = node.admit(draw(guaranteed_pods(f"old{at}", largest=largest))).node
    return node


def _multiplied(node: Node, pod: Pod, resource: str | None, factor: int) -> Pod:
    """The pod with a resource, or all, at a factor."""
    scaled = [
        each
        for each in request_dimensions(RequestingPod.of(node.state, pod))
        if resource in (None, each.resource)
    ]
    parts = min(each.most for each in scaled)
    return changed_pod(pod, change_of_steps(scaled, [max(each.most * factor // parts, 1) for each in scaled]))


def _exceeds_node(node: Node, pod: Pod) -> bool:
    return any(
        amount > node.config.view.allocatable.get(name, MAX_SCANNED)
        for name, amount in scheduler_requests(pod).items()
    )


@pytest.mark.slow
@COSTLY
@given(nodes(), guaranteed_pods("new", largest=6), st.booleans())
def test_the_largest_multiple_is_admitted_and_no_larger_one_is(
    node: Node, pod: Pod, is_emptied: bool
) -> None:
    if is_emptied:
        empty = emptied_node(node.state)
        assert empty is not None
        node = replace(node, state=empty)
    asked = NodeForPod(state=node.state, pod=pod)
    resources = {each.resource for each in request_dimensions(RequestingPod.of(node.state, pod))}
    for resource in (None, *sorted(resources)):
        multiple = asked.largest(resource)
        factor = 0 if multiple is None else multiple.factor
        if multiple is not None:
            # Of a resource that the node does not list, the kubelet admits any amount.
            assert multiple.is_proved or resources - node.config.view.allocatable.keys()
            assert node.admit(changed_pod(pod, RequestsChanged(amounts=multiple.amounts))).admitted
            assert node.admit(_multiplied(node, pod, resource, factor)).admitted
        for larger in count(factor + 1) if multiple is None or multiple.is_proved else ():
            multiplied = _multiplied(node, pod, resource, larger)
            assert not node.admit(multiplied).admitted
            if _exceeds_node(node, multiplied):
                break


def _scanned(node: Node, shape_sets: Sequence[NUMASet], devices: int) -> tuple[int, int] | None:
    """The most CPUs, and with these the most memory, of all shapes within one of the sets of NUMA nodes."""
    allocatable = node.config.view.allocatable
    for cpus in range(allocatable["cpu"] // 1000, 0, -1):
        for mebibytes in range(allocatable["memory"] // MIB, 0, -1):
            if _is_within(node, cpus, mebibytes * MIB, devices, shape_sets):
                return cpus, mebibytes * MIB
    return None


def _is_within(node: Node, cpus: int, memory: int, devices: int, sets: Sequence[NUMASet]) -> bool:
    result = node.admit(shape_pod(cpus, memory, {GPU: devices} if devices else {}))
    if not result.admitted or result.placement is None:
        return False
    layout = NUMALayout.of(node.state)
    # A pod without exclusive resources runs on all NUMA nodes.
    numa = layout.numa_nodes(result.state_when_decided, result.placement) or NUMASet.from_ids(layout.cpus)
    return any(numa <= each for each in sets)


@pytest.mark.slow
@FEW
@given(nodes())
def test_shapes_are_the_largest_of_all(node: Node) -> None:
    shapes = {(shape.devices, shape.placement): shape for shape in largest_shapes(node.state, GPU)}
    regions = regions_of(node.state)
    if node.config.managers.policy == "none":
        regions = regions[-1:]
    for placement in {region.placement for region in regions}:
        sets = [region.numa for region in regions if region.placement is placement]
        for devices in range(len(node.config.facts.devices.get(GPU, ())) + 1):
            shape = shapes.get((devices, placement))
            found = None if shape is None else (shape.cpus, shape.memory)
            assert found == _scanned(node, sets, devices)
            if shape is not None:
                _check_fewest(node, shape, sets)


def _check_fewest(node: Node, shape: Shape, sets: Sequence[NUMASet]) -> None:
    """From the fewest CPUs to the most, each whole number of cores is admitted, and one less than the fewest is not."""
    static = node.config.managers.static_cpu_policy
    unit = static.topology.cpus_per_core if static and static.options.full_pcpus_only else 1
    for cpus in range(shape.fewest_cpus, shape.cpus + 1, unit):
        assert _is_within(node, cpus, shape.memory, shape.devices, sets)
    if shape.fewest_cpus > unit:
        assert not _is_within(node, shape.fewest_cpus - unit, shape.memory, shape.devices, sets)


def _subsets(pods: Sequence[Pod]) -> Iterator[tuple[Pod, ...]]:
    return chain.from_iterable(combinations(pods, size) for size in range(len(pods) + 1))


def _without(node: Node, pods: Sequence[Pod]) -> Node:
    for pod in pods:
        node = node.without_pod(pod.uid)
    return node


@COSTLY
@given(nodes(), guaranteed_pods("new", largest=8))
def test_no_smaller_set_of_pods_makes_room(node: Node, pod: Pod) -> None:
    assume(not node.admit(pod).admitted)
    smallest = next((each for each in _subsets(node.pods) if _without(node, each).admit(pod).admitted), None)
    found = pods_to_admit(node.state, pod)
    assert (None if found is None else len(found.pods)) == (None if smallest is None else len(smallest))
    if found is not None:
        assert found.is_smallest
        assert _without(node, found.pods).admit(pod).admitted
    bounded = pods_to_admit(node.state, pod, budget=1)
    if bounded is not None:
        assert smallest is not None
        assert len(bounded.pods) == len(smallest) or not bounded.is_smallest
        assert _without(node, bounded.pods).admit(pod).admitted


def _free_regions(node: Node, placement: NUMAPlacement) -> list[str]:
    """The regions on which no pod has CPUs, memory or devices."""
    layout = NUMALayout.of(node.state)
    used = {
        numa for pod in node.pods for numa in layout.numa_nodes(node.state, placement_of(node.state, pod))
    }
    return [
        region.name
        for region in regions_of(node.state)
        if region.placement is placement and not used.intersection(region.numa)
    ]


@COSTLY
@given(nodes())
def test_no_smaller_set_of_pods_frees_a_numa_node(node: Node) -> None:
    for move in pods_to_move(node.state):
        smallest = next(
            each
            for each in _subsets(node.pods)
            if _free_regions(_without(node, each), NUMAPlacement.NUMA_NODE)
        )
        assert len(move.pods) == len(smallest)
        assert move.frees in _free_regions(_without(node, move.pods), NUMAPlacement.NUMA_NODE)


@COSTLY
@given(nodes(), guaranteed_pods("new", largest=2))
def test_copies_are_admitted_one_after_the_other_and_never_more_than_amounts_suffice_for(
    node: Node, pod: Pod
) -> None:
    stored = pod_as_stored(pod, node.config.gates)
    copied, because = copies(node.state, stored)
    assert copied <= copies_by_amounts(node.state, stored, node.config.view.allocatable)
    assert copies(node.state, stored, most=1) == (min(copied, 1), () if copied else because)
    last: tuple[str, ...] = ()
    for number in range(copied + 1):
        name = f"{pod.metadata.name}-{number}"
        result = node.admit(replace(pod, metadata=replace(pod.metadata, name=name, uid=f"copy-{number}")))
        assert result.admitted is (number < copied)
        node, last = result.node, result.sentences
    assert tuple(why if isinstance(why, str) else sentence(why) for why in because) == last
