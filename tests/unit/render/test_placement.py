import pytest

from nodewright.ask import Node
from nodewright.model.objects import Pod
from nodewright.node.placement import left_of
from nodewright.render.placement import left_document, placement_document, placement_texts
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import Amounts, a_guaranteed_pod, a_pod, container, pod

DEVICES = {"a.b/gpu": "gpu-0@0 gpu-1@1", "a.b/key": "key-0 key-1", "a.b/wide": "w@0,1"}
GPU: Amounts = {"cpu": "1", "memory": "1Gi", "a.b/gpu": 1, "a.b/key": 1}
ALIGNED = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": "best-effort"}


def shown(node: Node, *pods: Pod, wide: bool = False) -> list[str]:
    answers = list(node.admit_all(pods))
    after = answers[-1].node.state if answers else node.state
    return placement_texts([(one.pod, one.placement) for one in answers], after, wide=wide)


def test_what_is_held_and_what_is_left_are_a_table_each() -> None:
    node = Node.of(a_profile(devices=DEVICES, **ALIGNED))
    held, left = shown(node, a_guaranteed_pod("first", GPU), a_pod("web", "1/1Gi"))
    assert held == (
        "POD             CONTAINER   CPUS   NUMA   MEMORY     DEVICES\n"
        "default/first   main        1      0      1Gi on 0   a.b/gpu=gpu-0 a.b/key=key-0\n"
    )
    assert left == (
        "NUMA   SHARED CPUS   FREE MEMORY   FREE DEVICES\n"
        "0      0,2-3         2Gi           0 a.b/gpu\n"
        "1      4-7           4Gi           1 a.b/gpu\n"
        "-      -             -             1 a.b/key\n"
        "0-1    -             -             1 a.b/wide\n"
    )


def test_wide_has_the_pods_that_were_there_the_reserved_cpus_and_the_ids_of_devices() -> None:
    node = Node.of(a_profile(devices=DEVICES, pods=[a_guaranteed_pod("old", GPU)], **ALIGNED))
    held, left = shown(node, a_guaranteed_pod("new", GPU), wide=True)
    assert [line.split()[0] for line in held.splitlines()] == ["POD", "default/old", "default/new"]
    assert left.splitlines()[1] == "0      0,2-3         0          2Gi           a.b/gpu=-"
    assert left.splitlines()[3].split() == ["-", "-", "-", "-", "a.b/key=-"]


def test_nodes_that_are_used_together_are_named_and_a_hint_that_is_not_preferred_says_so() -> None:
    held, left = shown(Node.of(a_profile(**ALIGNED)), a_guaranteed_pod("large", "5/5Gi"))
    assert held.splitlines()[1].split(None, 2)[2] == "1,4-7   0-1    5Gi on 0-1"
    assert left.splitlines()[1:] == [
        "0      0,2-3         0             1",
        "1      -             2Gi           0",
    ]
    node = Node.of(a_profile(**STATIC_CPUS, topologyManagerPolicy="best-effort"))
    held, _ = shown(
        node, a_guaranteed_pod("a", "2/1Gi"), a_guaranteed_pod("b", "3/1Gi"), a_guaranteed_pod("c", "2/1Gi")
    )
    assert held.splitlines()[3].split(None, 2)[2] == "3,7    0-1 (not preferred)"


def test_pods_that_hold_cpus_as_a_whole_have_a_line_of_their_own() -> None:
    gates = {"PodLevelResourceManagers": True}
    node = Node.of(a_profile(featureGates=gates, topologyManagerScope="pod", **ALIGNED))
    whole = pod(container("a", "1/1Gi", "1/1Gi"), container("b"), name="both", uid="u", whole="3/3Gi")
    (answer,) = node.admit_all([whole])
    held, _ = shown(node, whole)
    assert [line.split(None, 1)[1] for line in held.splitlines()[1:]] == [
        "(the whole pod)   1-3    -      3Gi on 0",
        "a                 1      0      1Gi on 0",
        "b                 2-3    0      2Gi on 0",
    ]
    assert answer.placement is not None
    document = placement_document(answer.placement)
    assert document["podCPUs"] == "1-3"
    assert document["podMemory"] == [{"numaNodes": [0], "type": "memory", "size": 3 << 30}]


def test_a_node_that_gives_nothing_away_has_nothing_to_tell() -> None:
    node = Node.of(a_profile())
    assert shown(node, a_guaranteed_pod("first", "1/1Gi")) == []
    assert left_of(node.state).shared_cpus is None
    assert left_document(node.state) == {"freeDevices": {}}


@pytest.mark.parametrize(
    ("policy", "hint"), [("none", {}), ("best-effort", {"numa": [0], "preferred": True})]
)
def test_the_document_can_be_taken_for_an_allocation(policy: str, hint: dict[str, object]) -> None:
    settings = {**STATIC_CPUS, **STATIC_MEMORY, "topologyManagerPolicy": policy}
    answer = Node.of(a_profile(devices=DEVICES, **settings)).admit(a_guaranteed_pod("first", GPU))
    assert answer.placement is not None
    assert placement_document(answer.placement) == {
        "containers": [
            {
                "container": "main",
                "cpus": "1",
                **hint,
                "memory": [{"numaNodes": [0], "type": "memory", "size": 1 << 30}],
                "devices": {"a.b/gpu": ["gpu-0"], "a.b/key": ["key-0"]},
            }
        ]
    }
    assert left_document(answer.node.state)["sharedCPUs"] == "0,2-7"


def test_a_refused_pod_has_no_placement() -> None:
    answer = Node.of(a_profile(**STATIC_CPUS)).admit(a_guaranteed_pod("huge", "100/1Gi"))
    assert answer.placement is None
