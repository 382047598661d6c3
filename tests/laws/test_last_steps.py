"""The largest pod is admitted and none a step larger; pairs of changes work; a pod that is never admitted is not."""

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.costly_laws import COSTLY
from tests.support.small_nodes import MIB, guaranteed_pods, profiles

from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.changes import RequestsChanged, changed_pod
from nodewright.engine.node.what_if.counterfactuals import Trial
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.node import Node


@st.composite
def refusals(draw: st.DrawFn) -> tuple[Node, Pod]:
    """A node with pods, and one that it refuses."""
    node = Node.from_profile(draw(profiles()))
    for at in range(draw(st.integers(0, 5))):
        node = node.admit(draw(guaranteed_pods(f"old{at}", largest=3))).node
    pods = [draw(guaranteed_pods(f"new{at}", largest=12)) for at in range(3)]
    refused = next((pod for pod in pods if node.admit(pod).decision is Decision.REFUSED), None)
    assume(refused is not None)
    assert refused is not None
    return node, refused


def _steps_larger(node: Node, pod: Pod, largest: RequestsChanged) -> list[RequestsChanged]:
    """The largest pod with one request a step larger, up to what the pod requests."""
    options = node.config.parts.kubelet.cpu_manager_policy_options
    core = len(node.config.parts.machine.topology[0].cores[0].thread_ids)
    larger = []
    for at, amount in enumerate(largest.amounts):
        step_size = {"memory": MIB, "cpu": 1}.get(amount.resource, 1)
        if amount.resource == "cpu" and node.config.parts.kubelet.cpu_manager_policy == "static":
            if amount.was % 1000 or amount.now % 1000:
                continue
            step_size = 1000 * (core if options.get("full-pcpus-only") else 1)
        if amount.now + step_size <= amount.was:
            raised = replace(amount, now=amount.now + step_size)
            larger.append(
                RequestsChanged(amounts=(*largest.amounts[:at], raised, *largest.amounts[at + 1 :]))
            )
    return larger


@COSTLY
@given(refusals())
def test_the_largest_pod_is_admitted_and_the_next_larger_is_not(case: tuple[Node, Pod]) -> None:
    node, pod = case
    largest = node.explain(pod).largest
    assume(largest is not None)
    assert largest is not None
    assert node.admit(changed_pod(pod, largest)).admitted
    assert all(amount.now <= amount.was or amount.was < 2000 for amount in largest.amounts)
    for larger in _steps_larger(node, pod, largest):
        assert not node.admit(changed_pod(pod, larger)).admitted


@COSTLY
@given(refusals())
def test_every_pair_of_changes_lets_the_pod_in_where_none_alone_does(case: tuple[Node, Pod]) -> None:
    node, pod = case
    explained = node.explain(pod)
    if explained.counterfactuals.suggestions:
        assert not explained.pairs
    check_pairs(node, pod, explained)


def check_pairs(node: Node, pod: Pod, explained: Explanation) -> None:
    trial = Trial(node.state, pod)
    for pair in explained.pairs:
        assert trial.outcome(pair.first.change) is None
        first = trial.changed(pair.first.change)
        assert first is not None
        second = Trial(*first).changed(pair.second.change)
        assert second is not None
        state, changed = second
        assert step(state, PodAdded(with_defaults(changed))).decision is Decision.ADMITTED


@COSTLY
@given(refusals())
def test_the_smallest_pod_that_is_said_to_be_refused_is_refused_and_no_larger_one_is_found(
    case: tuple[Node, Pod],
) -> None:
    node, pod = case
    explained = node.explain(pod)
    smallest = explained.smallest_refused
    assume(smallest is not None)
    assert smallest is not None
    assert explained.largest is None
    assert not node.admit(changed_pod(pod, smallest)).admitted
    assert "Not even the smallest pod of this shape is admitted now: " in explained.text(width=200)


@COSTLY
@given(refusals(), st.data())
def test_a_pod_that_is_never_admitted_is_refused_whatever_the_node_holds(
    case: tuple[Node, Pod], data: st.DataObject
) -> None:
    node, pod = case
    never = node.explain(pod).never
    assume(never)
    for other in node.pods:
        if data.draw(st.booleans()):
            node = node.without_pod(other.uid)
        assert not node.admit(pod).admitted
    for at in range(3):
        node = node.admit(data.draw(guaranteed_pods(f"more{at}", largest=3))).node
        assert not node.admit(pod).admitted
