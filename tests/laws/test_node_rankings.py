"""Law of rankings: whatever comes and goes, the incremental scheduler chooses as the one that looks at every node."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from nodewright.fleet.simulation import node_ranking as node_groups
from nodewright.fleet.simulation.cluster_view import AssignedPod, ClusterView, NodeSlot
from nodewright.fleet.simulation.scheduler import ExhaustiveScheduler, IncrementalScheduler, NodeScore
from nodewright.fleet.simulation.scores import best_fit, default_score, most_allocated_score, numa_aware_score
from nodewright.testing.fleets import a_shape

GPU = "example.com/gpu"
SMALL = {"cpu": "1", "memory": "1Gi"}
MAIN = {"name": "main", "resources": {"requests": SMALL, "limits": SMALL}}
SOFT = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
}
SHAPES = (
    a_shape(0, "cpu=500m memory=512Mi"),
    a_shape(1, "cpu=1 memory=1Gi"),
    a_shape(2, "cpu=2 memory=4Gi", {"app": "web"}),
    a_shape(3, f"cpu=1 memory=1Gi {GPU}=1"),
    a_shape(4, containers=[{**MAIN, "ports": [{"containerPort": 80, "hostPort": 80}]}]),
    a_shape(5, "cpu=1 memory=1Gi", nodeSelector={"zone": "a"}),
    a_shape(6),
    a_shape(7, "cpu=1 memory=1Gi", {"app": "web"}, topologySpreadConstraints=[SOFT]),
)
SCORES = (default_score, most_allocated_score, best_fit, numa_aware_score)
NODES, STEPS = 6, 120


@given(score=st.sampled_from(SCORES), random=st.randoms(use_true_random=True), forgets=st.booleans())
def test_the_best_group_of_nodes_has_the_best_node(
    score: NodeScore, random: Random, *, forgets: bool
) -> None:
    slots = [slot_of_kind(number, random.choice((0, 1, 1, 2))) for number in range(NODES)]
    cluster, shapes = ClusterView(slots), random.sample(SHAPES, 3)
    running: list[tuple[int, str]] = []
    with remembering(2 - NODES if forgets else 4096):
        slow, fast = ExhaustiveScheduler(cluster, score), IncrementalScheduler(cluster, score)
        for number in range(STEPS):
            shape = random.choice(shapes)
            excluded = set(random.sample(range(NODES), random.choice((0, 0, 1, 3))))
            node = fast.choose(shape, excluded)
            assert node == slow.choose(shape, excluded)
            if random.random() < 0.3:
                node = random.randrange(NODES)
            if node is not None:
                cluster.add_pod(slots[node], str(number), AssignedPod(number, shape, 0.0))
                running.append((node, str(number)))
            while running and random.random() < 0.5:
                left, uid = running.pop(random.randrange(len(running)))
                cluster.remove_pod(slots[left], uid)


@contextmanager
def remembering(groups: int) -> Iterator[None]:
    """Within the context, so many groups beyond the number of nodes are remembered."""
    before, node_groups._MAX_EMPTY_GROUPS = node_groups._MAX_EMPTY_GROUPS, groups
    try:
        yield
    finally:
        node_groups._MAX_EMPTY_GROUPS = before


def slot_of_kind(number: int, kind: int) -> NodeSlot:
    """A node, some with a GPU, some with room for few pods; its NUMA nodes are like those of no other."""
    amounts = {"cpu": 8000 if kind else 4000, "memory": 8 << 30, "pods": 2 if kind == 2 else 6, GPU: kind % 2}
    slot = NodeSlot(number, f"n{number}", amounts, {"zone": "ab"[number % 2]})
    slot.cpus_free_by_numa = partial(tuple, (number % 3, 1))
    return slot
