"""Scores of somebody's own."""

import pytest

from nodewright.fleet import CandidateNode, NodeScorer, Options, node_scorer, run
from nodewright.model.errors import InputError
from nodewright.model.values.custom_policy import CustomPolicyError
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile


@node_scorer("by-name")
def by_name(candidate: CandidateNode) -> int:
    """The last by name."""
    return int(candidate.node_name[1:])


@node_scorer("everything")
def everything(candidate: CandidateNode) -> int:
    """Looks at all that there is."""
    assert candidate.pod.metadata.name == "pod"
    assert candidate.labels == {"kind": "x"}
    assert candidate.allocatable["cpu"] == 7000
    taken = candidate.requested.get("cpu", 0) // 1000
    assert sum(candidate.cpus_free_by_numa) == 7 - taken
    return 100 - 10 * taken - candidate.requests["cpu"] // 1000


def places(scorer: NodeScorer, count: int = 2) -> list[int]:
    strict = a_profile(cpuManagerPolicy="static", reservedSystemCPUs="0")
    nodes = some_nodes(3, strict, labels={"kind": "x"})
    options = Options(scores=scorer.name, policies=(scorer,))
    return [pod.node for pod in run(nodes, some_pods(count, a_template("cpu=2 memory=1Gi")), options).pods]


def test_a_custom_score_chooses_nodes() -> None:
    assert places(by_name, 4) == [2, 2, 2, 1]


def test_a_custom_score_has_access_to_node_and_pod() -> None:
    assert places(everything) == [0, 1]


@pytest.mark.parametrize("answer", [101, -1, 0.5, None])
def test_an_invalid_score_is_an_error(answer: object) -> None:
    broken = NodeScorer(name="broken", score=lambda _: answer)  # type: ignore[arg-type,return-value] # as people do
    with pytest.raises(CustomPolicyError, match="is no whole number from 0 to 100"):
        places(broken)


def test_a_failing_score_is_reported_with_its_line() -> None:
    broken = NodeScorer(name="broken", score=lambda candidate: candidate.labels["rack"])  # type: ignore[arg-type,return-value] # as people do
    with pytest.raises(CustomPolicyError, match="node scorer broken: KeyError: 'rack'"):
        places(broken)


def test_unknown_scores_are_an_error() -> None:
    with pytest.raises(InputError, match="must be one of default, most-allocated, best-fit, numa-aware"):
        run([], [], Options(scores="other"))
