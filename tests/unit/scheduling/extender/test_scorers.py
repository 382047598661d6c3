"""Custom node scorers, as of fleets, for nodes of a cluster."""

from pathlib import Path

import pytest
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_cluster, a_profile, a_query

from nodewright.model.errors import InputError
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.scheduling.extender.scorers import scorer_of
from nodewright.scheduling.verdicts.placement_decisions import node_scores

SCORER = """
from nodewright.policies import CandidateNode, node_scorer

@node_scorer("tight")
def tight(candidate: CandidateNode) -> int:
    "Nodes with few free CPUs, of the label that the pod wants."
    assert candidate.requests["cpu"] == 1000 and candidate.pod.metadata.name == "pod"
    assert candidate.allocatable["cpu"] == 7000 and candidate.node_name in ("n1", "n2")
    used = candidate.requested.get("cpu", 0) // 1000
    return 10 * (7 - sum(candidate.cpus_free_by_numa)) + used + 50 * ("ssd" in candidate.labels)

@node_scorer("broken")
def broken(candidate: CandidateNode) -> int:
    "Fails."
    return 101
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "scorers.py"
    path.write_text(SCORER, "utf-8")
    return str(path)


def test_a_scorer_sees_the_node_after_the_pods_on_their_way(file: str) -> None:
    cluster = a_cluster(a_profile(), "n1", "n2")
    cluster.set_labels("n2", {"ssd": ""})
    cluster.reserve("n1", a_query("first", 4), now_s=0.0)
    scorer = scorer_of("tight", [file], cluster)
    assert scorer is not None
    query = a_query("pod", 1)
    assert [scorer(query, name) for name in ("n1", "n2", "nowhere")] == [44, 50, 0]
    assert node_scores(cluster, query, ["n1", "n2"], scorer) == {"n1": 4, "n2": 5}


def test_without_a_name_there_is_none_and_unknown_names_are_errors(file: str) -> None:
    cluster = a_cluster(a_profile(), "n1")
    assert scorer_of("", [file], cluster) is None
    with pytest.raises(InputError, match="there are broken, tight"):
        scorer_of("tigth", [file], cluster)


def test_a_scorer_that_fails_says_so(file: str) -> None:
    cluster = a_cluster(a_profile(), "n1")
    scorer = scorer_of("broken", [file], cluster)
    assert scorer is not None
    with pytest.raises(CustomPolicyError, match="101"):
        scorer(a_query("pod", 1), "n1")
