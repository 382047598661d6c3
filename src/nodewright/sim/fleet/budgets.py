"""Disruption budgets: whom a pod of higher priority had better not send away.

Follows: v1.36, pkg/controller/disruption/disruption.go, getExpectedPodCount, updatePdbStatus;
    pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go, filterPodsWithPDBViolation.
Departs: every pod that runs is healthy, and a controller stands behind each that runs or waits.
"""

from collections.abc import Iterable, Mapping, Sequence

from nodewright.model.fleet import Budget
from nodewright.sim.fleet.board import Board, Tenant
from nodewright.sim.fleet.selectors import Selector
from nodewright.sim.fleet.shapes import PodShape


class Budgets:
    """The budgets of a fleet."""

    def __init__(self, budgets: Sequence[Budget] = ()) -> None:
        self._budgets = [(one, Selector(one.selector)) for one in budgets]
        self._meaning: dict[int, tuple[int, ...]] = {}

    def left(self, board: Board, waiting: Mapping[int, tuple[PodShape, int]]) -> list[int]:
        """How many pods of each budget may go; ``waiting`` are pods by the number of their shape."""
        if not self._budgets:
            return []
        healthy, wanted = [0] * len(self._budgets), [0] * len(self._budgets)
        for number, shape in board.shapes.items():
            for at in self._of(shape):
                healthy[at] += sum(board.where[number].values())
        for shape, count in waiting.values():
            for at in self._of(shape):
                wanted[at] += count
        return [
            max(have - budget.least(have + more), 0) if have + more else 0
            for (budget, _), have, more in zip(self._budgets, healthy, wanted, strict=True)
        ]

    def violated(self, tenants: Iterable[tuple[str, Tenant]], left: Sequence[int]) -> frozenset[str]:
        """The uids of those pods whose budgets have nothing left, once those before them are gone."""
        still, found = list(left), set()
        for uid, tenant in tenants if still else ():
            for at in self._of(tenant.shape):
                still[at] -= 1
                if still[at] < 0:
                    found.add(uid)
        return frozenset(found)

    def _of(self, shape: PodShape) -> tuple[int, ...]:
        """The budgets that mean pods of this shape: none means a pod without labels, and an empty one means nobody."""
        found = self._meaning.get(shape.number)
        if found is None:
            found = self._meaning[shape.number] = tuple(
                at
                for at, (budget, selector) in enumerate(self._budgets)
                if budget.namespace == shape.namespace
                and shape.labels
                and not selector.is_empty
                and selector.matches(shape.labels)
            )
        return found
