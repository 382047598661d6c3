"""Custom node scores, which replace the scheduler's scores for resources."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.pod_templates import PodShape
from nodewright.fleet.simulation.scores import MAX_NODE_SCORE
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)


class CandidateNode:
    """A node on which a pod fits.

    Units: cpu in thousandths, everything else in bytes or units.
    """

    __slots__ = ("_shape", "_slot")

    def __init__(self, shape: PodShape, slot: NodeSlot) -> None:
        self._shape, self._slot = shape, slot

    @property
    def pod(self) -> Pod:
        """The pod; its name is that of the first pod of its shape."""
        return self._shape.pod

    @property
    def requests(self) -> Mapping[str, int]:
        """The pod's requests."""
        return dict(self._shape.requests)

    @property
    def node_name(self) -> str:
        """Name of the node."""
        return self._slot.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the node."""
        return self._slot.labels

    @property
    def allocatable(self) -> Mapping[str, int]:
        """Allocatable resources of the node."""
        return self._slot.allocatable

    @property
    def requested(self) -> Mapping[str, int]:
        """Requests of all pods on the node."""
        return dict(self._slot.requested)

    @property
    def cpus_free_by_numa(self) -> Sequence[int]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        return self._slot.cpus_free_by_numa()


class NodeScorer(CustomPolicy, frozen=True, kw_only=True):
    """A named score from 0 to 100; it must depend on the candidate only."""

    score: Callable[[CandidateNode], int]

    kind: ClassVar[str] = "node scorer"
    profile_field: ClassVar[str] = "nodeScorer"
    builtin_names: ClassVar[frozenset[str]] = frozenset({"default"})

    def __call__(self, shape: PodShape, slot: NodeSlot) -> int:
        """The score of this node; errors as of `of`."""
        return self.of(CandidateNode(shape, slot))

    def of(self, candidate: CandidateNode) -> int:
        """The score of a candidate.

        Errors: CustomPolicyError if the function fails or returns anything else.
        """
        try:
            score = self.score(candidate)
        except Exception as error:
            raise CustomPolicyError(self, failure_text(error)) from error
        if not isinstance(score, int) or not 0 <= score <= MAX_NODE_SCORE:
            raise CustomPolicyError(self, f"{score!r} is no whole number from 0 to {MAX_NODE_SCORE}")
        return score


def node_scorer(name: str) -> Callable[[Callable[[CandidateNode], int]], NodeScorer]:
    """A decorator that makes a node scorer from a function.

    >>> @node_scorer("quiet")
    ... def quiet(candidate: CandidateNode) -> int:
    ...     "Nodes with few pods."
    ...     return max(100 - candidate.requested.get("cpu", 0) // 1000, 0)
    >>> quiet.description
    'Nodes with few pods.'
    """

    def decorate(function: Callable[[CandidateNode], int]) -> NodeScorer:
        return NodeScorer(name=name, description=docstring_summary(function.__doc__), score=function)

    return decorate
