"""Laws of scheduling: shared verdicts are each node's own, safe orders are safe, victims make room."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.small_nodes import guaranteed_pods, profiles
from tests.unit.scheduling.verdicts.test_tracked_cluster import with_pods

from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.placement_cost import NUMALayout
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node
from nodewright.scheduling.verdicts.placement_decisions import ProposedVictims, sufficient_victims
from nodewright.scheduling.verdicts.pod_queries import pod_query
from nodewright.scheduling.verdicts.shared_states import StatePool
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster

NAMES = ("a", "b", "c", "d")
pod_lists = st.tuples(*[guaranteed_pods(name, largest=3) for name in NAMES])


@given(profiles(), pod_lists)
def test_a_verdict_without_names_is_the_nodes_own(profile: NodeProfile, pods: tuple[Pod, ...]) -> None:
    node, state = Node.from_profile(profile), StatePool().state_of(profile)
    for pod in pods:
        own, verdict = node.admit(pod), state.verdict(pod_query(pod))
        assert verdict.decision is own.decision
        if own.decision is Decision.REFUSED:
            text = kubelet_text(own.because[0])
            assert (verdict.reason, verdict.message) == (text.reason, text.message)
        # Containers have not started, so that the memory of finished init containers is not free.
        node, state = Node(own.state_when_decided), state.after(pod_query(pod))


@given(profiles(), pod_lists)
def test_what_is_safe_in_any_order_is_refused_in_none(profile: NodeProfile, pods: tuple[Pod, ...]) -> None:
    state, queries = StatePool().state_of(profile), [pod_query(pod) for pod in pods[:3]]
    refused = []
    for order in permutations(pods[:3]):
        node = Node.from_profile(profile)
        for pod in order:
            result = node.admit(pod)
            refused.append(result.decision is Decision.REFUSED)
            node = Node(result.state_when_decided)
    assert state.admits_in_any_order(queries) == (not any(refused))


@given(profiles(), pod_lists, st.integers(0, 2))
def test_victims_make_room(profile: NodeProfile, pods: tuple[Pod, ...], first: int) -> None:
    node = Node.from_profile(profile)
    running: list[Pod] = []
    for pod in pods[:3]:
        result = node.admit(pod)
        if result.admitted:
            node, running = result.node, [*running, pod]
    if not running or any(pod.spec.init_containers for pod in running):
        return
    cluster = TrackedCluster()
    for pod in running:
        cluster.pod_bound("n", pod_query(pod), now_s=0.0)
    cluster.put_export("n", with_pods(profile, *running), generation=1, now_s=0.0)
    spec = {
        "priority": 10,
        **{name: getattr(pods[3].spec, name) for name in ("containers", "init_containers")},
    }
    urgent = pod_query(Pod(metadata=pods[3].metadata, spec=type(pods[3].spec)(**spec)))
    proposal = {"n": ProposedVictims((running[first % len(running)].uid,))}
    chosen = sufficient_victims(cluster, urgent, proposal)
    everything = {pod.number for pod in cluster.pods_on("n")}
    if not chosen:
        empty = cluster.state_after_reservations("n").without(everything)
        assert empty.verdict(urgent).decision is not Decision.ADMITTED
        return
    assert proposal["n"].uids[0] in chosen["n"].uids
    numbers = [pod.number for pod in cluster.pods_on("n") if pod.uid in chosen["n"].uids]
    after = cluster.state_after_reservations("n").without(numbers)
    assert after.verdict(urgent).decision is Decision.ADMITTED


CHANGES = st.sampled_from(("export", "reserve", "bind", "end", "release", "lose"))


@given(profiles(), pod_lists, st.lists(st.tuples(CHANGES, st.integers(0, 2)), max_size=8))
def test_remembered_answers_are_those_of_now(
    profile: NodeProfile, pods: tuple[Pod, ...], changes: list[tuple[str, int]]
) -> None:
    cluster, queries = TrackedCluster(), [pod_query(pod) for pod in pods]
    cluster.put_export("n", profile, generation=0, now_s=0.0)
    for generation, (change, place) in enumerate(changes, 1):
        query = queries[place]
        match change:
            case "export":
                cluster.put_export("n", with_pods(profile, pods[place]), generation=generation, now_s=0.0)
            case "reserve":
                cluster.reserve("n", query, now_s=0.0)
            case "bind":
                cluster.pod_bound("n", query, now_s=0.0)
            case "end":
                cluster.pod_gone("n", query.uid)
            case "release":
                cluster.release("n", query.uid)
            case _:
                cluster.mark_unknown("n", "lost")
        remembered = [cluster.verdict("n", query) for query in queries]
        together = [cluster.verdicts(("n", "other"), query)[0] for query in queries]
        cluster.answers.forget_node("n")
        assert remembered == together == [cluster.verdict("n", query) for query in queries]


@given(profiles(), pod_lists)
def test_the_cost_of_a_placement_is_the_difference_of_whole_sums(
    profile: NodeProfile, pods: tuple[Pod, ...]
) -> None:
    node = Node.from_profile(profile)
    layout = NUMALayout.of(node.state)
    for pod in pods:
        before = node.state
        node = Node(node.admit(pod).state_when_decided)
        growth = whole_sum(layout, node.state) - whole_sum(layout, before)
        assert layout.growth(before, node.state) == growth
        assert layout.growth(node.state, before) == -growth


def whole_sum(layout: NUMALayout, state: NodeState) -> int:
    """How many NUMA nodes are partly used, each of them computed."""
    parts, devices = [], state.held.devices
    if layout.has_exclusive_cpus:
        free = state.held.cpu.default - CPUSet(layout.reserved)
        for mask in layout.cpus.values():
            cpus = CPUSet(mask) - CPUSet(layout.reserved)
            parts.append((len(free & cpus), len(cpus)))
    for resource, listed in devices.device_lists.items():
        for mask in set(listed.numa_masks.values()):
            names = [name for name, own in listed.numa_masks.items() if own == mask]
            parts.append((len([name for name in names if name in devices.free(resource)]), len(names)))
    return sum(4000 * free * (count - free) // count**2 for free, count in parts if count)
