"""HiGHS, a solver of integer programs, as another way to the smallest choice of victims (extra `exact`)."""

from importlib import import_module
from math import gcd
from typing import Any

from nodewright.core.preemption import Cover
from nodewright.world.errors import WorldError

MAX_NODES = 5_000
_LARGEST_EXACT_FLOAT = 2**53


def cheapest_cover(cover: Cover) -> tuple[int, ...] | None:
    """The items of the cheapest set that covers all needs, by HiGHS; None if it does not prove one.

    HiGHS computes in floats, so what it finds is to be checked; amounts that floats cannot hold are left alone.

    Errors: WorldError if the package is not installed.
    """
    needs = [_scaled([item.gives[at] for item in cover.items], need) for at, need in enumerate(cover.needs)]
    goals = [[float(item.tier == tier) for item in cover.items] for tier in range(3)]
    goals += [_scaled(list(sizes))[0] for sizes in zip(*(item.sizes for item in cover.items), strict=True)]
    if any(sum(row) >= _LARGEST_EXACT_FLOAT for row in (*goals, *(row for row, _ in needs))):
        return None
    program = _Program(len(cover.items))
    for row, need in needs:
        program.require(row, at_least=need)
    taken = None
    for goal in goals:
        taken = program.smallest(goal)
        if taken is None:
            return None
        # The next goal may not make this one worse.
        program.require(goal, at_most=sum(goal[index] for index in taken))
    return taken


class _Program:
    """Which items to take, one binary variable each."""

    def __init__(self, items: int) -> None:
        try:
            highspy: Any = import_module("highspy")  # an extra, wanted only here
        except ImportError as error:
            raise WorldError("load", "highspy", f"{error}; pip install 'nodewright[exact]'") from error
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

    def require(
        self, row: list[float], *, at_least: float | None = None, at_most: float | None = None
    ) -> None:
        """Keep the sum of the row over what is taken within bounds."""
        low = -self.infinity if at_least is None else at_least
        high = self.infinity if at_most is None else at_most
        self.solver.addRow(low, high, len(row), self.items, row)

    def smallest(self, goal: list[float]) -> tuple[int, ...] | None:
        """What to take for the smallest sum of the goal; None if that is not proved."""
        self.solver.changeColsCost(len(goal), self.items, goal)
        self.solver.run()
        if self.solver.getModelStatus() != self.optimal:
            return None
        values = self.solver.getSolution().col_value
        return tuple(index for index in self.items if round(values[index]))


def _scaled(row: list[int], need: int = 0) -> tuple[list[float], float]:
    """The same numbers without their common divisor: the smaller they are, the surer is the solver."""
    divisor = gcd(*row) or 1
    return [float(number // divisor) for number in row], float(-(-need // divisor))
