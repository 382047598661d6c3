"""Finds the smallest set of preemption victims with HiGHS, an integer program solver (extra `exact`)."""

from importlib import import_module
from math import gcd
from typing import Any

from nodewright.engine.core.preemption.set_cover import Cover
from nodewright.model.errors import HostError

MAX_NODES = 5_000
_LARGEST_EXACT_FLOAT = 2**53


def cheapest_cover(cover: Cover) -> tuple[int, ...] | None:
    """The items of the cheapest set that covers all needs, by HiGHS; None if it does not prove one.

    HiGHS computes in floats, so the caller must check the result. Returns None for amounts that floats cannot hold.

    Errors: HostError if the package is not installed.
    """
    needs = [
        _scaled([item.contribution[at] for item in cover.items], need) for at, need in enumerate(cover.needs)
    ]
    goals = [[float(item.tier == tier) for item in cover.items] for tier in range(3)]
    goals += [_scaled(list(sizes))[0] for sizes in zip(*(item.sizes for item in cover.items), strict=True)]
    if any(sum(row) >= _LARGEST_EXACT_FLOAT for row in (*goals, *(row for row, _ in needs))):
        return None
    program = _IntegerProgram(len(cover.items))
    for row, need in needs:
        program.add_constraint(row, at_least=need)
    items = None
    for goal in goals:
        items = program.minimise(goal)
        if items is None:
            return None
        # The next goal may not make this one worse.
        program.add_constraint(goal, at_most=sum(goal[index] for index in items))
    return items


class _IntegerProgram:
    """A program with one binary variable for each item: selected or not."""

    def __init__(self, items: int) -> None:
        try:
            highspy: Any = import_module("highspy")  # an optional dependency, used only here
        except ImportError as error:
            raise HostError("load", "highspy", f"{error}; pip install 'nodewright[exact]'") from error
        self.items = list(range(items))
        self.optimal = highspy.HighsModelStatus.kOptimal
        self.infinity = highspy.kHighsInf
        self.solver: Any = highspy.Highs()
        options = {
            "output_flag": False,
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_max_nodes": MAX_NODES,
        }
        for name, value in options.items():
            self.solver.setOptionValue(name, value)
        for index in self.items:
            self.solver.addVar(0.0, 1.0)
            self.solver.changeColIntegrality(index, highspy.HighsVarType.kInteger)

    def add_constraint(
        self, row: list[float], *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Bound the sum of the row over the selected items."""
        low = -self.infinity if at_least is None else at_least
        high = self.infinity if at_most is None else at_most
        self.solver.addRow(low, high, len(row), self.items, row)

    def minimise(self, goal: list[float]) -> tuple[int, ...] | None:
        """The items that minimise the sum of the goal; None if the solver does not prove the minimum."""
        self.solver.changeColsCost(len(goal), self.items, goal)
        self.solver.run()
        if self.solver.getModelStatus() != self.optimal:
            return None
        values = self.solver.getSolution().col_value
        return tuple(index for index in self.items if round(values[index]))


def _scaled(row: list[int], need: int = 0) -> tuple[list[float], float]:
    """The numbers divided by their common divisor: the solver is more reliable with small numbers."""
    divisor = gcd(*row) or 1
    return [float(number // divisor) for number in row], float(-(-need // divisor))
