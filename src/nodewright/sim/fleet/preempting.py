"""Who makes way for a pod of higher priority, before it is given a node.

Follows: v1.36, pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go, SelectVictimsOnNode;
    pkg/scheduler/framework/preemption/preemption.go, pickOneNodeForPreemption.
Departs: disruption budgets are not looked at, all nodes are candidates, of equal ones the first is taken (there:
    a tenth of the nodes, at least 100, from a random one on); victims are gone at once.
"""

from typing import NamedTuple

from nodewright.sim.fleet.around import Around
from nodewright.sim.fleet.board import Board, Seat, Tenant
from nodewright.sim.fleet.filters import has_room, standing_objection
from nodewright.sim.fleet.shapes import PodShape

_ABOVE_ALL = 2**31
"""Added to each priority, so that more victims never look better for being of negative priority."""


class Way(NamedTuple):
    """A node on which pods can make way, and which they are, the most important first."""

    node: int
    uids: tuple[str, ...]


def way_for(shape: PodShape, board: Board) -> Way | None:
    """The pods that had best go for one of this shape; None: it may send none away, or that would not help."""
    if not shape.may_preempt or all(priority >= shape.priority for priority in board.priorities):
        return None
    best: tuple[tuple[float, ...], Way] | None = None
    for seat in board.seats:
        if not any(one.shape.priority < shape.priority for one in seat.tenants.values()):
            continue
        if standing_objection(shape, seat) is not None:
            continue
        victims = _victims(shape, board, seat)
        if victims:
            cost = (*_cost(seat, victims), seat.number)
            if best is None or cost < best[0]:
                best = (cost, Way(seat.number, victims))
    return best[1] if best else None


def _victims(shape: PodShape, board: Board, seat: Seat) -> tuple[str, ...]:
    """The pods of this node without which there is room, spared as far as can be; empty: it is no use.

    The board is as before afterwards.
    """
    before = dict(seat.tenants)
    lower = [uid for uid, one in before.items() if one.shape.priority < shape.priority]
    victims: list[str] = []
    with board.trial(seat):
        for uid in lower:
            board.take(seat, uid)
        missing = lower
        if _fits(shape, board, seat):
            for uid in sorted(lower, key=lambda uid: _importance(before[uid])):
                board.put(seat, uid, before[uid])
                if not _fits(shape, board, seat):
                    board.take(seat, uid)
                    victims.append(uid)
            missing = victims
        for uid in missing:
            board.put(seat, uid, before[uid])
    return tuple(victims)


def _fits(shape: PodShape, board: Board, seat: Seat) -> bool:
    if not has_room(shape, seat):
        return False
    if not shape.looks_around and not board.looking:
        return True
    return Around(shape, board).objection(seat) is None


def _importance(tenant: Tenant) -> tuple[float, ...]:
    """Follows: v1.36, pkg/scheduler/util/utils.go, MoreImportantPod."""
    return (-tenant.shape.priority, tenant.since_s, tenant.pod)


def _cost(seat: Seat, victims: tuple[str, ...]) -> tuple[float, ...]:
    """What is the least where it had best be: the highest priority, all of them, how many, and who came early."""
    tenants = [seat.tenants[uid] for uid in victims]
    highest = max(one.shape.priority for one in tenants)
    earliest = min(one.since_s for one in tenants if one.shape.priority == highest)
    total = sum(one.shape.priority + _ABOVE_ALL for one in tenants)
    return (highest, total, len(tenants), -earliest)
