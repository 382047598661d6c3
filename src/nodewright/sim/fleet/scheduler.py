"""Which node a pod is given: filters, scores, and the best of what is left; of equals the first.

Follows: v1.36, pkg/scheduler/schedule_one.go, schedulePod, findNodesThatFitPod, prioritizeNodes.
Departs: all nodes are looked at, however many there are (percentageOfNodesToScore is 100); of nodes that score
    the same the first is taken, where the scheduler draws one at random.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.sim.fleet.around import Around
from nodewright.sim.fleet.board import Board, Seat
from nodewright.sim.fleet.filters import Objection, has_room, repelling, room_objection, standing_objection
from nodewright.sim.fleet.ranking import Ranking
from nodewright.sim.fleet.scores import BY_AMOUNTS, MOST
from nodewright.sim.fleet.shapes import PodShape
from nodewright.sim.fleet.spreading import Spreading
from nodewright.sim.fleet.values import Lack

LocalScore: TypeAlias = Callable[[PodShape, Seat], int]
"""How well a node suits a pod by nothing but the two of them: weighted sums of scores from 0 to 100."""

TAINT_WEIGHT, AFFINITY_WEIGHT, SPREAD_WEIGHT, NEARNESS_WEIGHT = 3, 2, 2, 2
"""Of TaintToleration, NodeAffinity, PodTopologySpread and InterPodAffinity.

Follows: v1.36, pkg/scheduler/apis/config/v1/default_plugins.go, getDefaultPlugins.
"""
_REMEMBERED = 2_000_000
"""How many scores of nodes are kept at most, for all shapes together."""


class Scheduler(Protocol):
    """Whoever says where a pod goes."""

    def choose(self, shape: PodShape, without: Collection[int] = ()) -> int | None:
        """The number of the node, but none of those; None: there is none."""


@dataclass(frozen=True, slots=True)
class PlainScheduler:
    """The obvious scheduler, which asks every node about every pod: what others are measured by."""

    board: Board
    score: LocalScore

    def choose(self, shape: PodShape, without: Collection[int] = ()) -> int | None:
        """As Scheduler."""
        around = Around(shape, self.board)
        found = [
            seat
            for seat in self.board.seats
            if seat.number not in without and objection(shape, seat, around) is None
        ]
        return best(shape, found, around, self.score)


class FastScheduler:
    """The same choices at less cost: what was found for a node holds until the node changes.

    That works for pods that look at no others and are not looked at, which is most of them; the rest are asked
    about at every node.
    """

    def __init__(self, board: Board, score: LocalScore) -> None:
        self._board, self._score = board, score
        self._by_name = {seat.name: seat for seat in board.seats}
        self._rankings: dict[Hashable, Ranking] = {}
        """By what shapes have in common that go the same way."""
        self._standing: dict[int, Standing] = {}
        """By shape, the nodes against which nothing stands for good."""
        self._known: dict[tuple[int, ...], Standing] = {}
        self._spreadings: dict[int, Spreading] = {}
        """By shape, how evenly it is spread."""

    def choose(self, shape: PodShape, without: Collection[int] = ()) -> int | None:
        """As Scheduler."""
        standing = self._standing.get(shape.number)
        if standing is None:
            standing = self._standing[shape.number] = self._standing_of(shape)
        if self._is_by_itself(shape, standing):
            if shape.only_on and not shape.is_kept_by_others:
                has = [one.number for one in standing.seats if has_room(shape, one)]
                return has[0] if has and has[0] not in without else None
            if not shape.looks_around:
                return self._ranking(shape, standing).best(without)
            if shape.only_wishes_to_spread:
                return self._spread_out(shape, standing, without)
        around = Around(shape, self._board)
        found = [
            seat
            for seat in standing.seats
            if seat.number not in without and has_room(shape, seat) and around.objection(seat) is None
        ]
        return best(shape, found, around, self._score)

    def _standing_of(self, shape: PodShape) -> "Standing":
        seats: Sequence[Seat] = self._board.seats
        if shape.only_on:
            seats = [self._by_name[shape.only_on]] if shape.only_on in self._by_name else []
        seats = [one for one in seats if standing_objection(shape, one) is None]
        is_repelled = any(repelling(shape, one) for one in seats)
        key = (is_repelled, *(one.number for one in seats))
        return self._known.setdefault(key, Standing(len(self._known), seats, is_repelled))

    def _is_by_itself(self, shape: PodShape, standing: "Standing") -> bool:
        """Whether no taint would rather not have it, and no pod that is there says anything to where it goes."""
        return not standing.is_repelled and not any(
            _looks_at(other, shape) for other in self._board.looking.values()
        )

    def _spread_out(self, shape: PodShape, standing: "Standing", without: Collection[int]) -> int | None:
        found = self._spreadings.pop(shape.number, None)
        if found is None:
            self._make_room(self._spreadings)
            found = Spreading(shape, standing.seats, self._board)
        self._spreadings[shape.number] = found
        return found.best(self._ranking(shape, standing).scores(), without, weight=SPREAD_WEIGHT)

    def _ranking(self, shape: PodShape, standing: "Standing") -> Ranking:
        is_shared = self._score in BY_AMOUNTS
        key = (standing.number, shape.amounts if is_shared else shape.number)
        found = self._rankings.pop(key, None)
        if found is None:
            self._make_room(self._rankings)
            found = Ranking(shape, standing.seats, self._board, self._score)
        self._rankings[key] = found
        return found

    def _make_room(self, kept: dict[Any, Any]) -> None:
        """Forget those that were asked longest ago, so that one more is not too many."""
        while kept and (len(kept) + 1) * len(self._board.seats) > _REMEMBERED:
            del kept[next(iter(kept))]


class Standing(NamedTuple):
    """The nodes against which nothing stands for good, and whether one of them would rather not have the pod."""

    number: int
    seats: Sequence[Seat]
    is_repelled: bool


def objection(shape: PodShape, seat: Seat, around: Around) -> Objection | None:
    """The first that speaks against the node."""
    return standing_objection(shape, seat) or room_objection(shape, seat) or around.objection(seat)


def best(shape: PodShape, seats: Sequence[Seat], around: Around, score: LocalScore) -> int | None:
    """The number of the node with the highest score of these; None: there are none."""
    if not seats:
        return None
    repelled = normalized([repelling(shape, seat) for seat in seats], reverse=True)
    liked = normalized([preference(shape, seat) for seat in seats])
    spread, near = around.spread_scores(seats), around.affinity_scores(seats)
    totals = [
        score(shape, seat)
        + TAINT_WEIGHT * repelled[index]
        + AFFINITY_WEIGHT * liked[index]
        + SPREAD_WEIGHT * spread[index]
        + NEARNESS_WEIGHT * near[index]
        for index, seat in enumerate(seats)
    ]
    return seats[totals.index(max(totals))].number


def lacks(shape: PodShape, board: Board) -> tuple[Lack, ...]:
    """Why there is no node for the pod: of each node the first objection, most frequent first."""
    around, counts = Around(shape, board), dict[tuple[str, str], int]()
    for seat in board.seats:
        found = objection(shape, seat, around)
        if found is not None:
            key = (found.filter, found.what)
            counts[key] = counts.get(key, 0) + 1
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(Lack(name, what, count) for (name, what), count in ranked)


def preference(shape: PodShape, seat: Seat) -> int:
    """How much of what the pod would like its node to have it has, by weight.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go, Score.
    """
    return sum(
        one.weight
        for one in shape.preferred
        if affinity_mismatch(one.as_spec, seat.name, seat.labels) is None
    )


def normalized(scores: Sequence[int], *, reverse: bool = False) -> list[int]:
    """The scores brought to 0 to 100, where the highest is 100; ``reverse``: where it is 0.

    Follows: v1.36, pkg/scheduler/framework/plugins/helper/normalize_score.go, DefaultNormalizeScore.
    """
    most = max(scores)
    found = [MOST * one // most if most else 0 for one in scores]
    return [MOST - one for one in found] if reverse else found


def _looks_at(there: PodShape, shape: PodShape) -> bool:
    """Whether a pod that is there says anything to where this one goes."""
    terms = there.terms
    return any(
        term.means(shape.namespace, shape.labels)
        for term in (*terms.near, *terms.far, *terms.towards, *terms.against)
    )
