"""Who makes way for a pod of higher priority, before it is given a node.

Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode;
    pkg/scheduler/framework/preemption/preemption.go, pickOneNodeForPreemption.
Departs: all nodes are candidates, of equal ones the first is taken (there: a tenth of the nodes, at least 100,
    from a random one on); victims are gone at once.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from nodewright.sim.fleet.around import Around
from nodewright.sim.fleet.board import Board, Seat, Tenant
from nodewright.sim.fleet.budgets import Budgets
from nodewright.sim.fleet.filters import has_room, standing_objection
from nodewright.sim.fleet.shapes import PodShape

Waiting: TypeAlias = Mapping[int, tuple[PodShape, int]]
"""Shapes and how many pods of them have no node, by the shape's number."""

NO_BUDGETS = Budgets()
_ABOVE_ALL = 2**31
"""Added to each priority, so that more victims never look better for being of negative priority."""


class Way(NamedTuple):
    """A node on which pods can make way, and which they are, the most important first."""

    node: int
    uids: tuple[str, ...]


class Victims(NamedTuple):
    """Pods of a node that make way, the most important first, and how many of them their budgets would spare."""

    uids: tuple[str, ...]
    violations: int


def way_for(
    shape: PodShape, board: Board, budgets: Budgets = NO_BUDGETS, waiting: Waiting = MappingProxyType({})
) -> Way | None:
    """The pods that had best go for one of this shape; None: it may send none away, or that would not help.

    ``waiting`` are the pods without a node by the number of their shape: budgets count with them.
    """
    if not shape.may_preempt or all(priority >= shape.priority for priority in board.priorities):
        return None
    best: tuple[tuple[float, ...], Way] | None = None
    sparing = Sparing(budgets, budgets.left(board, waiting))
    for seat in board.seats:
        if not any(one.shape.priority < shape.priority for one in seat.tenants.values()):
            continue
        if standing_objection(shape, seat) is not None:
            continue
        victims = _victims(shape, board, seat, sparing)
        if victims.uids:
            cost = (*_cost(seat, victims), seat.number)
            if best is None or cost < best[0]:
                best = (cost, Way(seat.number, victims.uids))
    return best[1] if best else None


class Sparing(NamedTuple):
    """The budgets, and how many pods of each may go."""

    budgets: Budgets
    left: Sequence[int]


def _victims(shape: PodShape, board: Board, seat: Seat, sparing: Sparing) -> Victims:
    """The pods of this node without which there is room, spared as far as can be; none: it is no use.

    Those whose budgets would be violated are spared first. The board is as before afterwards.
    """
    before = dict(seat.tenants)
    lower = sorted(
        (uid for uid, one in before.items() if one.shape.priority < shape.priority),
        key=lambda uid: _importance(before[uid]),
    )
    violated = sparing.budgets.violated(((uid, before[uid]) for uid in lower), sparing.left)
    victims: set[str] = set()
    with board.trial(seat):
        for uid in lower:
            board.take(seat, uid)
        missing: Iterable[str] = lower
        if _fits(shape, board, seat):
            for uid in sorted(lower, key=lambda uid: uid not in violated):
                board.put(seat, uid, before[uid])
                if not _fits(shape, board, seat):
                    board.take(seat, uid)
                    victims.add(uid)
            missing = sorted(victims)
        for uid in missing:
            board.put(seat, uid, before[uid])
    return Victims(tuple(uid for uid in lower if uid in victims), len(victims & violated))


def _fits(shape: PodShape, board: Board, seat: Seat) -> bool:
    if not has_room(shape, seat):
        return False
    if not shape.is_kept_by_others and not board.looking:
        return True
    return Around(shape, board).objection(seat) is None


def _importance(tenant: Tenant) -> tuple[float, ...]:
    """Follows: v1.36, pkg/scheduler/util/utils.go, MoreImportantPod."""
    return (-tenant.shape.priority, tenant.since_s, tenant.pod)


def _cost(seat: Seat, victims: Victims) -> tuple[float, ...]:
    """What is the least where it had best be: violated budgets, the highest priority, all of them, how many, who came early."""
    tenants = [seat.tenants[uid] for uid in victims.uids]
    highest = max(one.shape.priority for one in tenants)
    earliest = min(one.since_s for one in tenants if one.shape.priority == highest)
    total = sum(one.shape.priority + _ABOVE_ALL for one in tenants)
    return (victims.violations, highest, total, len(tenants), -earliest)
