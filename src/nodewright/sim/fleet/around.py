"""What other pods say to a pod's place: topology spread, pod affinity and anti-affinity; filter and score."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.filters import Objection, forbidding
from nodewright.sim.fleet.scores import MOST
from nodewright.sim.fleet.shapes import PodShape
from nodewright.sim.fleet.terms import Spread, Term, mean_all

HOSTNAME = "kubernetes.io/hostname"
HARD_AFFINITY_WEIGHT = 1
"""What a required affinity of a pod that is there counts for one that it means.

Follows: v1.36, pkg/scheduler/apis/config/v1/defaults.go, SetDefaults_InterPodAffinityArgs.
"""

Counts: TypeAlias = dict[tuple[str, str], int]
"""By a label and its value, how many pods there are on nodes that have it."""


class Around:
    """The pods that are somewhere, as one that wants in sees them at this moment."""

    def __init__(self, shape: PodShape, board: Board) -> None:
        self.shape, self.board = shape, board
        self.hard = [one for one in shape.spreads if one.is_hard]
        self._by_value = [self._spread_counts(one, self.hard) for one in self.hard]
        self._repelled = self._repelled_by()
        self._near, self._far = self._attracted()

    def objection(self, seat: Seat) -> Objection | None:
        """What other pods have against this node."""
        for spread, counts in zip(self.hard, self._by_value, strict=True):
            value = seat.labels.get(spread.key)
            if value is None:
                return Objection("PodTopologySpread", spread.key, for_good=True)
            fewest = min(counts.values(), default=0) if len(counts) >= spread.min_domains else 0
            is_one = spread.selector.matches(self.shape.labels)
            if counts.get(value, 0) + is_one - fewest > spread.max_skew:
                return Objection("PodTopologySpread", spread.key)
        if not self._is_near(seat):
            return Objection("InterPodAffinity", "affinity", for_good=True)
        labels = seat.labels
        if any(
            term.key in labels and self._far.get((term.key, labels[term.key]), 0)
            for term in self.shape.terms.far
        ):
            return Objection("InterPodAffinity", "anti-affinity")
        if self._repelled and any(self._repelled.get(pair, 0) > 0 for pair in seat.labels.items()):
            return Objection("InterPodAffinity", "anti-affinity of pods that are there")
        return None

    def _spread_counts(self, spread: Spread, together: Sequence[Spread]) -> dict[str, int]:
        """How many pods are meant, by the value of the label, of the nodes that count for it.

        Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/filtering.go, calPreFilterState.
        """
        counts: dict[str, int] = {}
        here = meant_by_node(self.shape, self.board, spread)
        for seat in self.board.seats:
            if all(one.key in seat.labels for one in together) and counts_for(self.shape, spread, seat):
                value = seat.labels.get(spread.key, "")
                counts[value] = counts.get(value, 0) + here.get(seat.number, 0)
        return counts

    def _repelled_by(self) -> Counts:
        """Where pods are that will not have this one near them."""
        counts: Counts = {}
        for shape in self.board.shapes.values():
            for term in shape.terms.far:
                if term.means(self.shape.namespace, self.shape.labels):
                    self._spread_out(counts, shape, term, 1)
        return counts

    def _attracted(self) -> tuple[Counts, Counts]:
        """Where pods are that this one has to be near, and where those that it will not be near."""
        near: Counts = {}
        far: Counts = {}
        terms = self.shape.terms
        for shape in self.board.shapes.values() if terms.near or terms.far else ():
            if mean_all(terms.near, shape.namespace, shape.labels):
                for term in terms.near:
                    self._spread_out(near, shape, term, 1)
            for term in terms.far:
                if term.means(shape.namespace, shape.labels):
                    self._spread_out(far, shape, term, 1)
        return near, far

    def _spread_out(self, counts: Counts, shape: PodShape, term: Term, weight: int) -> None:
        """Count the pods of a shape wherever the term's label is the same as on their nodes."""
        for node, count in self.board.where[shape.number].items():
            value = self.board.seats[node].labels.get(term.key)
            if value is not None:
                pair = (term.key, value)
                counts[pair] = counts.get(pair, 0) + count * weight

    def _is_near(self, seat: Seat) -> bool:
        """Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/filtering.go, satisfyPodAffinity."""
        near = self.shape.terms.near
        if any(term.key not in seat.labels for term in near):
            return False
        if all(self._near.get((term.key, seat.labels[term.key]), 0) for term in near):
            return True
        # The first of pods that want to be together is let in.
        return not self._near and mean_all(near, self.shape.namespace, self.shape.labels)

    def affinity_scores(self, seats: Sequence[Seat]) -> list[int]:
        """How near each node is to pods that this one likes, and that like it.

        Follows: v1.36, pkg/scheduler/framework/plugins/interpodaffinity/scoring.go.
        """
        counts: Counts = {}
        for shape, term, weight in self._liked():
            self._spread_out(counts, shape, term, weight)
        if not counts:
            return [0] * len(seats)
        keys = {key for key, _ in counts}
        found = [
            sum(counts.get((key, seat.labels[key]), 0) for key in keys if key in seat.labels)
            for seat in seats
        ]
        least, span = min(found), max(found) - min(found)
        return [int(MOST * ((one - least) / span)) if span else 0 for one in found]

    def _liked(self) -> Iterator[tuple[PodShape, Term, int]]:
        mine, namespace, labels = self.shape.terms, self.shape.namespace, self.shape.labels
        for shape in self.board.shapes.values():
            for sign, terms in ((1, mine.towards), (-1, mine.against)):
                for term in terms:
                    if term.means(shape.namespace, shape.labels):
                        yield shape, term, sign * term.weight
            theirs = shape.terms
            for sign, terms in (
                (HARD_AFFINITY_WEIGHT, theirs.near),
                (1, theirs.towards),
                (-1, theirs.against),
            ):
                for term in terms:
                    if term.means(namespace, labels):
                        yield shape, term, sign * (term.weight or 1)

    def spread_scores(self, seats: Sequence[Seat]) -> list[int]:
        """How evenly the pods that are meant would be spread with this one on each node.

        Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/scoring.go.
        """
        soft = [one for one in self.shape.spreads if not one.is_hard]
        if not soft:
            return [0] * len(seats)
        # By default, nodes count that have only some of the labels.
        together = () if self.shape.spreads_by_default else soft
        known = [seat for seat in seats if all(one.key in seat.labels for one in together)]
        found = {seat.number: 0.0 for seat in known}
        for spread in soft:
            self._add_spread(spread, together, known, found)
        rounded = {number: math.floor(value + 0.5) for number, value in found.items()}
        most, least = max(rounded.values(), default=0), min(rounded.values(), default=0)
        return [
            0
            if seat.number not in rounded
            else MOST * (most + least - rounded[seat.number]) // most
            if most
            else MOST
            for seat in seats
        ]

    def _add_spread(
        self, spread: Spread, together: Sequence[Spread], known: Sequence[Seat], found: dict[int, float]
    ) -> None:
        if spread.key == HOSTNAME:
            here, sizes = meant_by_node(self.shape, self.board, spread), len(known)
            counts: Mapping[str, int] = {}
        else:
            here = {}
            counts, sizes = (
                self._spread_counts(spread, together),
                len({seat.labels.get(spread.key) for seat in known}),
            )
        weight = math.log(sizes + 2)
        for seat in known:
            value = seat.labels.get(spread.key)
            if value is not None:
                count = here.get(seat.number, 0) if spread.key == HOSTNAME else counts.get(value, 0)
                found[seat.number] += count * weight + (spread.max_skew - 1)


def meant_by_node(shape: PodShape, board: Board, spread: Spread) -> dict[int, int]:
    """How many pods that are meant are on each node that has any."""
    found: dict[int, int] = {}
    # A selector that means every pod counts none.
    for other in () if spread.selector.is_empty else board.shapes.values():
        if other.namespace == shape.namespace and spread.selector.matches(other.labels):
            for node, count in board.where[other.number].items():
                found[node] = found.get(node, 0) + count
    return found


def counts_for(shape: PodShape, spread: Spread, seat: Seat) -> bool:
    """Whether pods on this node count, by the constraint's policies for affinity and taints."""
    if spread.honors_affinity and affinity_mismatch(shape.pod.spec, seat.name, seat.labels) is not None:
        return False
    return not spread.honors_taints or forbidding(shape, seat) is None
