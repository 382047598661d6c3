"""Scores of somebody's own: how well a node suits a pod, in place of what the scheduler makes of resources."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from nodewright.model.objects import Pod
from nodewright.model.policies import Policy, PolicyError, failure, first_line
from nodewright.sim.fleet.board import Seat
from nodewright.sim.fleet.scores import MOST
from nodewright.sim.fleet.shapes import PodShape


class Candidate:
    """A node that has room for a pod.

    Units: cpu in thousandths, everything else in bytes or pieces.
    """

    __slots__ = ("_seat", "_shape")

    def __init__(self, shape: PodShape, seat: Seat) -> None:
        self._shape, self._seat = shape, seat

    @property
    def pod(self) -> Pod:
        """The pod, under the name of the first of its kind."""
        return self._shape.pod

    @property
    def asked(self) -> Mapping[str, int]:
        """What it requests."""
        return dict(self._shape.asks)

    @property
    def node(self) -> str:
        """The node's name."""
        return self._seat.name

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""
        return self._seat.labels

    @property
    def allocatable(self) -> Mapping[str, int]:
        """What it has for pods."""
        return self._seat.allocatable

    @property
    def used(self) -> Mapping[str, int]:
        """What its pods request."""
        return dict(self._seat.used)

    @property
    def cpus_free_by_numa(self) -> Sequence[int]:
        """How many CPUs of each NUMA node nobody has for himself."""
        return self._seat.cpus_free_by_numa()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeScorer(Policy):
    """A score under a name: from 0 to 100, by nothing but the candidate, the same whenever that is the same."""

    score: Callable[[Candidate], int]

    kind: ClassVar[str] = "node scorer"
    field: ClassVar[str] = "nodeScorer"
    kubelets: ClassVar[frozenset[str]] = frozenset({"default"})

    def __call__(self, shape: PodShape, seat: Seat) -> int:
        """The score of this node.

        Errors: PolicyError if the function fails, or if that is no score.
        """
        try:
            found = self.score(Candidate(shape, seat))
        except Exception as error:
            raise PolicyError(self, failure(error)) from error
        if not isinstance(found, int) or not 0 <= found <= MOST:
            raise PolicyError(self, f"{found!r} is no whole number from 0 to {MOST}")
        return found


def node_scorer(name: str) -> Callable[[Callable[[Candidate], int]], NodeScorer]:
    """Make a node scorer of a function.

    >>> @node_scorer("quiet")
    ... def quiet(candidate: Candidate) -> int:
    ...     "Nodes with few pods."
    ...     return max(100 - candidate.used.get("cpu", 0) // 1000, 0)
    >>> quiet.about
    'Nodes with few pods.'
    """

    def made(function: Callable[[Candidate], int]) -> NodeScorer:
        return NodeScorer(name=name, about=first_line(function.__doc__), score=function)

    return made
