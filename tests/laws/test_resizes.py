"""Laws of resizes: what they leave as it is, what they never exceed, and that what is told about them is true."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.core.predicates import others_of
from nodewright.model.objects import Pod
from nodewright.model.reasons import InsufficientResource
from nodewright.model.resize_reasons import ResizeBeyondNode, StaticPolicyInTheWay
from nodewright.node.changes import PodLeaves, RequestsChanged, changed_pod
from nodewright.node.events import PodGone, PodResized
from nodewright.node.resizing import Outcome
from nodewright.node.step import step
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
    return Node.of(a_profile(numa=1, cpus=4, pods=pods, **policies))


@st.composite
def pods_named(draw: st.DrawFn, name: str) -> Pod:
    asked, priority = f"{draw(CPUS)}/{draw(MEMORY)}", draw(st.sampled_from((0, 5)))
    if draw(st.booleans()):
        return a_guaranteed_pod(name, asked, priority=priority)
    return a_pod(name, asked, priority=priority)


@given(node=nodes())
def test_the_resources_that_a_pod_has_are_done_and_change_nothing(node: Node) -> None:
    for pod in node.pods:
        answer = node.resize(pod)
        assert answer.asked.outcome is Outcome.DONE
        assert not answer.asked.changes
        assert answer.after == node.state


@given(node=nodes(), wanted=pods_named("a"))
def test_the_outcome_says_where_the_limit_lies(node: Node, wanted: Pod) -> None:
    """Done fits beside the others; deferred fits the node but not beside them; beyond the node is forbidden."""
    asked = node.resize(wanted).asked
    allocatable = node.config.view.allocatable
    others = others_of(pod for pod in node.pods if pod.uid != "a").requests
    requests = others_of([asked.pod]).requests
    over_node = {name for name, amount in requests.items() if amount > allocatable[name]}
    over_room = {name for name in requests if requests[name] + others.get(name, 0) > allocatable[name]}
    first = asked.because[0] if asked.because else None
    if asked.outcome is Outcome.DONE and asked.changes:
        assert not over_room
    elif asked.outcome is Outcome.DEFERRED:
        assert not over_node
        assert {one.resource for one in asked.because if isinstance(one, InsufficientResource)} == over_room
    elif isinstance(first, ResizeBeyondNode):
        assert {one.resource for one in first.excesses} == over_node
    elif isinstance(first, StaticPolicyInTheWay):
        before = asked.before.spec.containers[0].resources.requests[first.resource]
        assert asked.pod.spec.containers[0].resources.requests[first.resource] != before


@given(node=nodes(), wanted=pods_named("a"))
def test_what_is_told_to_let_it_through_does(node: Node, wanted: Pod) -> None:
    answer = node.resize(wanted)
    alone = replace(node.state, resizing={})
    for one in answer.suggestions:
        state, pod = alone, answer.asked.pod
        if isinstance(one.change, PodLeaves):
            state = step(state, PodGone(one.change.pod.uid)).state
        else:
            assert isinstance(one.change, RequestsChanged)
            pod = changed_pod(pod, one.change)
        (done,) = step(state, PodResized(pod)).resizes
        assert done.outcome is Outcome.DONE


@given(node=nodes(), wanted=st.lists(st.one_of(*map(pods_named, NAMES)), max_size=5))
def test_the_node_counts_what_its_pods_have(node: Node, wanted: list[Pod]) -> None:
    state = node.state
    for pod in wanted:
        state = step(state, PodResized(pod)).state
        counted = others_of(state.pods.values())
        assert {name: amount for name, amount in state.totals.requests.items() if amount} == {
            name: amount for name, amount in counted.requests.items() if amount
        }
        assert set(state.resizing) <= set(state.pods)
