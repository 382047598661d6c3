"""What fits on small nodes: shapes, pods to move, copies, and bounds of searches."""

import pytest
from msgspec.structs import replace
from tests.support.small_nodes import GPU, MIB, a_numa_pod, a_small_profile

from nodewright.documents.formats.workloads import Workload
from nodewright.engine.admission.admission_plugins import with_uid
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import sentence
from nodewright.predict.fit.fit_text import fit_text
from nodewright.predict.fit.multiples import NodeForPod
from nodewright.predict.fit.node_fit import FitQuestion, FitReport, GroupFit
from nodewright.predict.fit.shapes import NUMAPlacement, largest_shapes
from nodewright.predict.fit.stranded import (
    copies,
    held_numa_nodes,
    pods_to_admit,
    pods_to_move,
)
from nodewright.predict.node import Node
from nodewright.testing.objects import a_pod

SINGLE = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}


def a_node(*pods: Pod, **profile: object) -> Node:
    """A node of two NUMA nodes of four CPUs under single-numa-node, with pods."""
    node = Node.from_profile(a_small_profile(**{**SINGLE, **profile}))  # type: ignore[arg-type]  # keywords
    for pod in pods:
        node = node.admit(pod).node
    return node


def a_job(name: str, cpus: int, gpus: int = 0, *, owner: str = "") -> Pod:
    requests = {"cpu": str(cpus), "memory": "16Mi"} | ({GPU: str(gpus)} if gpus else {})
    owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "owner"}] if owner else []
    return a_pod(name, requests, requests, metadata={"ownerReferences": owners})


def test_pods_that_come_back_are_moved_last_and_named() -> None:
    node = a_node(a_job("web", 2), a_job("agent", 4, owner="DaemonSet"), a_job("db", 1))
    (move,) = pods_to_move(node.state)
    assert (move.frees, [pod.metadata.name for pod in move.pods]) == ("NUMA node 0", ["web", "db"])
    assert move.cannot_move == ()
    both = a_node(a_job("agent", 3, owner="DaemonSet"), a_job("agent-2", 3, owner="DaemonSet"))
    (move,) = pods_to_move(both.state)
    assert len(move.cannot_move) == len(move.pods) == 1


def test_sockets_of_several_numa_nodes_are_freed_as_well() -> None:
    node = Node.open("2s-4n-4c-smt2")
    assert [move.frees for move in pods_to_move(node.state)] == ["NUMA node 0", "socket 0"]


def test_a_numa_node_is_held_open_while_devices_of_it_are_free() -> None:
    node = a_node(a_job("small", 1, 1), gpus=2)
    first, second = held_numa_nodes(node.state, GPU)
    assert (first.is_held_open, first.free[GPU], second.is_held_open, second.free[GPU]) == (True, 1, False, 2)
    assert not held_numa_nodes(a_node(a_job("both", 1, 2), gpus=2).state, GPU)[0].is_held_open


def test_without_a_policy_only_the_whole_node_counts() -> None:
    node = a_node(topologyManagerPolicy="none", gpus=1)
    shapes = largest_shapes(node.state, GPU)
    assert {shape.placement for shape in shapes} == {NUMAPlacement.NODE}
    assert [(shape.devices, shape.cpus) for shape in shapes] == [(0, 7), (1, 7), (2, 7)]


def test_cpus_that_are_not_exclusive_are_on_no_numa_node() -> None:
    node = a_node(cpuManagerPolicy="none", topologyManagerPolicy="restricted")
    assert {shape.placement for shape in largest_shapes(node.state, "")} == {NUMAPlacement.NODE}


def test_the_search_for_pods_to_move_ends_with_a_set_of_which_each_pod_is_needed() -> None:
    sizes = (4, 4, 1, 1, 1, 1, 1, 1, 1)
    node = a_node(*(a_job(f"job-{number}", cpus) for number, cpus in enumerate(sizes)), cores=8)
    pod = a_job("large", 7)
    moves = pods_to_admit(node.state, pod), pods_to_admit(node.state, pod, budget=2)
    assert [move and move.is_smallest for move in moves] == [True, False]
    for move in filter(None, moves):
        without = node
        for other in move.pods:
            assert not without.admit(pod).admitted
            without = without.without_pod(other.uid)
        assert without.admit(pod).admitted


def test_sets_that_free_too_little_by_amounts_are_not_tried() -> None:
    node = a_node(*(a_job(f"job-{number:02}", 1) for number in range(15)), cores=8)
    move = pods_to_admit(node.state, a_job("large", 8), budget=1)
    assert move is not None
    assert (move.is_smallest, len(move.pods)) == (True, 8)


def test_a_pod_that_no_move_lets_in_has_none() -> None:
    node = a_node(a_job("web", 1))
    assert pods_to_admit(node.state, a_job("huge", 9)) is None
    assert pods_to_admit(node.state, a_job("small", 1)) is None


def test_a_device_that_another_container_of_the_pod_has_got_is_held_by_the_pods_name() -> None:
    node = a_node(topologyManagerPolicy="best-effort", gpus=1)
    pod = with_uid(
        a_numa_pod("pair", {"cpu": 1000, "memory": 16, GPU: 2}, {"cpu": 1000, "memory": 16, GPU: 1})
    )
    admitted, copied = node.admit(pod), copies(node.state, pod)
    assert any(f"of pod {pod.full_name}" in text for text in admitted.sentences)
    assert any(
        f"of pod {pod.full_name}-0" in str(sentence(why)) for why in copied[1] if not isinstance(why, str)
    )


def test_copies_end_where_the_node_is_full_of_pods() -> None:
    node = Node.from_profile(a_small_profile(maxPods=3))
    assert copies(node.state, a_pod("web", {"memory": "1Mi"}))[0] == 3


@pytest.mark.parametrize(("cpu", "largest"), [("500m", 7000), ("3", 7000)])
def test_shared_and_exclusive_cpus_have_multiples_of_their_own_steps(cpu: str, largest: int) -> None:
    requests = {"cpu": cpu, "memory": "16Mi"}
    limits = requests if cpu == "3" else {"cpu": "2", "memory": "64Mi"}
    node = a_node(topologyManagerPolicy="none")
    multiple = NodeForPod(state=node.state, pod=a_pod("web", requests, limits)).largest("cpu")
    assert multiple is not None
    assert [amount.now for amount in multiple.amounts] == [largest]


def test_requests_of_several_containers_grow_together() -> None:
    pod = a_numa_pod("pair", {"cpu": 1000, "memory": 16}, {"cpu": 2000, "memory": 8})
    node = a_node(topologyManagerPolicy="none")
    multiple = NodeForPod(state=node.state, pod=pod).largest()
    assert multiple is not None
    assert (multiple.factor, multiple.parts, multiple.is_proved) == (2, 1, True)
    amounts = [(each.container, each.resource, each.now) for each in multiple.amounts]
    assert amounts == [
        ("c0", "cpu", 2000),
        ("c0", "memory", 32 * MIB),
        ("c1", "cpu", 4000),
        ("c1", "memory", 16 * MIB),
    ]


def named_nodes(count: int, *pods: Pod) -> list[Node]:
    """Equal nodes; the last of them has the pods."""
    node = a_node()
    config = node.config
    nodes = []
    for number in range(count):
        facts = replace(config.facts, name=f"n{number:02}")
        nodes.append(
            replace(node, state=replace(node.state, config=config.with_facts(facts, config.managers)))
        )
    for pod in pods:
        nodes[-1] = nodes[-1].admit(pod).node
    return nodes


def a_question(pod: Pod) -> FitQuestion:
    meta = pod.metadata
    workload = Workload(
        source="", api_version="v1", kind="Pod", name=meta.name, namespace="default", replicas=1, pod=pod
    )
    return FitQuestion(workloads=(workload,), kubelet_only=True)


def a_report(groups: tuple[GroupFit, ...]) -> FitReport:
    return FitReport(groups=groups, queues=(), unread={}, skipped={}, warnings=())


def test_many_nodes_with_equal_answers_have_one_row_and_are_counted_as_they_are_answered() -> None:
    question = a_question(a_job("web", 2))
    answered: list[None] = []
    groups = question.groups(named_nodes(22, a_job("db", 3)), lambda: answered.append(None))
    assert len(answered) == 22
    rows = [line.split() for line in fit_text(a_report(groups)).splitlines() if "default/web" in line]
    assert rows[0] == ["n00,", "n01,", "n02,", "n03,", "...", "(21", "nodes)", "default/web", *"333", "-"]
    assert rows[1][:2] == ["n21", "default/web"]
    few = question.groups(named_nodes(20))
    assert fit_text(a_report(few)).count("default/web") == 20


@pytest.mark.parametrize("selector", [{}, {"zone": "a"}])
def test_nodes_with_equal_room_share_multiples_unless_the_pod_names_nodes(selector: dict[str, str]) -> None:
    pod = a_pod("web", {"cpu": "2", "memory": "16Mi"}, {"cpu": "2", "memory": "16Mi"}, nodeSelector=selector)
    nodes = named_nodes(3, a_job("db", 3))
    facts = replace(nodes[0].config.facts, labels={"zone": "a"})
    config = nodes[0].config.with_facts(facts, nodes[0].config.managers)
    nodes[0] = replace(nodes[0], state=replace(nodes[0].state, config=config))
    question = a_question(pod)
    (group,) = question.groups(nodes)
    alone = [question.groups([node])[0].now[0].pods[0].largest for node in nodes]
    assert [fit.pods[0].largest for fit in group.now] == alone
    assert (alone[0] == alone[1]) is not bool(selector)
    assert alone[1] != alone[2] or selector
    (text_group,) = replace(question, multiples_up_to=1).groups(nodes)
    assert [fit.pods[0].largest for fit in text_group.now] == [(), (), ()]
    assert replace(question, multiples_up_to=1).groups(nodes[:1])[0].now[0].pods[0].largest == alone[0]


def test_a_critical_pod_may_have_what_it_can_preempt() -> None:
    node = a_node(
        *(a_pod(f"web-{number}", {"cpu": "3500m"}) for number in range(2)), topologyManagerPolicy="none"
    )
    requests = {"cpu": "500m", "memory": "16Mi"}
    pods = [
        a_pod("agent", requests, priority=priority, priorityClassName=name)
        for priority, name in ((2_000_001_000, "system-node-critical"), (0, ""))
    ]
    largest = [NodeForPod(state=node.state, pod=pod).largest("cpu") for pod in pods]
    assert [each and each.amounts[0].now for each in largest] == [7000, None]
    assert pods_to_admit(node.state, pods[0]) is None
    move = pods_to_admit(node.state, pods[1])
    assert move is not None
    assert len(move.pods) == 1
