"""Distance lists that end before a NUMA node's id, as on a machine whose nodes are numbered 0 and 8."""

import pytest

from nodewright.engine.core.topology.hint_merge import numa_affinity
from nodewright.engine.core.topology.manager_config import TopologyManager, topology_manager
from nodewright.model.hardware import NUMANode
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.model.reasons.topology import DistanceMissing
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.topology_hints import Hint, HintList, Offer

TOPOLOGY = [NUMANode(node_id=0, distances=(10, 20)), NUMANode(node_id=8, distances=(20, 10))]


def manager(policy: str = "best-effort", *, counts: bool = True) -> TopologyManager:
    options = {"prefer-closest-numa-nodes": str(counts).lower()}
    result = topology_manager(policy, "container", options, TOPOLOGY)
    assert isinstance(result, Granted)
    return result.value


def offer(*nodes: int) -> Offer:
    return Offer("cpu", {"cpu": HintList(tuple(Hint(NUMASet.of(node), preferred=True) for node in nodes))})


def test_the_kubelet_crashes_over_a_distance_that_is_not_listed() -> None:
    verdict = numa_affinity(manager(), [offer(0, 8)])
    crash = DistanceMissing(numa=0, other=8, listed=2)
    assert verdict == Refused((crash,))
    assert kubelet_text(crash) == ("KubeletCrashes", "index out of range [8] with length 2")
    assert sentence(crash).startswith("the kubelet crashes: it looks up the distance from NUMA node 0 to 8")


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        (manager(), offer(0)),
        (manager(counts=False), offer(0, 8)),
        (manager("single-numa-node"), offer(0, 8)),
        (manager(), Offer("cpu", None)),
    ],
)
def test_it_does_not_where_no_such_distance_counts(asked: TopologyManager, offered: Offer) -> None:
    assert isinstance(numa_affinity(asked, [offered]), Granted)
