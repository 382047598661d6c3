"""Laws of resizes: invariants, limits, and the truth of the report."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.predicates.predicate_check import node_usage
from nodewright.engine.node.events import PodRemoved, PodResized
from nodewright.engine.node.resize import ResizeOutcome
from nodewright.engine.node.step import step
from nodewright.engine.node.what_if.changes import PodLeaves, RequestsChanged, changed_pod
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import InsufficientResource
from nodewright.model.reasons.resize import ResizeBeyondNode, StaticPolicyInTheWay
from nodewright.predict.node import Node
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

CPUS = st.sampled_from(("500m", "1", "1500m", "2", "3", "4"))
MEMORY = st.sampled_from(("512Mi", "1Gi", "2Gi", "3Gi", "5Gi"))
NAMES = ("a", "b", "c")


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A node of four CPUs and 4 GiB, with pods whose requests may be more than it has: they are counted as they are."""
    pods = [draw(pods_named(name)) for name in NAMES[: draw(st.integers(1, 3))]]
    policies = draw(st.sampled_from(({}, STATIC_CPUS, STATIC_MEMORY)))
    return Node.from_profile(a_profile(numa=1, cpus=4, pods=pods, **policies))


@st.composite
def pods_named(draw: st.DrawFn, name: str) -> Pod:
    asked, priority = f"{draw(CPUS)}/{draw(MEMORY)}", draw(st.sampled_from((0, 5)))
    if draw(st.booleans()):
        return a_guaranteed_pod(name, asked, priority=priority)
    return a_pod(name, asked, priority=priority)


@given(node=nodes())
def test_a_resize_to_the_current_resources_changes_nothing(node: Node) -> None:
    for pod in node.pods:
        answer = node.resize(pod)
        assert answer.requested.outcome is ResizeOutcome.DONE
        assert not answer.requested.changes
        assert answer.after == node.state


@given(node=nodes(), wanted=pods_named("a"))
def test_the_outcome_agrees_with_the_free_resources(node: Node, wanted: Pod) -> None:
    """Done fits beside the others; deferred fits the node but not beside them; beyond the node is forbidden."""
    resize_attempt = node.resize(wanted).requested
    allocatable = node.config.view.allocatable
    others = node_usage(pod for pod in node.pods if pod.uid != "a").requests
    requests = node_usage([resize_attempt.pod]).requests
    over_node = {name for name, amount in requests.items() if amount > allocatable[name]}
    over_room = {name for name in requests if requests[name] + others.get(name, 0) > allocatable[name]}
    first = resize_attempt.because[0] if resize_attempt.because else None
    if resize_attempt.outcome is ResizeOutcome.DONE and resize_attempt.changes:
        assert not over_room
    elif resize_attempt.outcome is ResizeOutcome.DEFERRED:
        assert not over_node
        assert {
            each.resource for each in resize_attempt.because if isinstance(each, InsufficientResource)
        } == over_room
    elif isinstance(first, ResizeBeyondNode):
        assert {excess.resource for excess in first.excesses} == over_node
    elif isinstance(first, StaticPolicyInTheWay):
        before = resize_attempt.before.spec.containers[0].resources.requests[first.resource]
        assert resize_attempt.pod.spec.containers[0].resources.requests[first.resource] != before


@given(node=nodes(), wanted=pods_named("a"))
def test_each_suggestion_makes_the_resize_succeed(node: Node, wanted: Pod) -> None:
    answer = node.resize(wanted)
    alone = replace(node.state, pending_resizes={})
    for suggestion in answer.suggestions:
        state, pod = alone, answer.requested.pod
        if isinstance(suggestion.change, PodLeaves):
            state = step(state, PodRemoved(suggestion.change.pod.uid)).state
        else:
            assert isinstance(suggestion.change, RequestsChanged)
            pod = changed_pod(pod, suggestion.change)
        (done,) = step(state, PodResized(pod)).resizes
        assert done.outcome is ResizeOutcome.DONE


@given(node=nodes(), wanted=st.lists(st.one_of(*map(pods_named, NAMES)), max_size=5))
def test_the_usage_equals_the_sum_of_the_pods(node: Node, wanted: list[Pod]) -> None:
    state = node.state
    for pod in wanted:
        state = step(state, PodResized(pod)).state
        counted = node_usage(state.pods.values())
        assert {name: amount for name, amount in state.usage.requests.items() if amount} == {
            name: amount for name, amount in counted.requests.items() if amount
        }
        assert set(state.pending_resizes) <= set(state.pods)
