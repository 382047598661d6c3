"""A sharper bound for packing pods onto nodes, by HiGHS (extra `exact`): the linear program over whole loads of nodes.

A load is what one node can hold. The program mixes loads, in parts if need be, so that all pods are held by the
fewest nodes; no real packing can do with less. Loads are made as they are needed (column generation), and at each
moment the prices of the pods prove a bound (Farley's).
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import ceil
from typing import Any

from nodewright.world.errors import WorldError

_MOST_ROUNDS = 300
_SURE = 1e-6
"""HiGHS computes in floats: what is nearer to a whole number is taken for it."""

Amounts = Mapping[str, int]


def packing_bound(
    asks: Sequence[Amounts],
    counts: Sequence[int],
    nodes: Sequence[Amounts],
    allowed: Sequence[Sequence[bool]],
) -> int:
    """The least number of nodes that could hold so many pods of each kind, by their amounts.

    ``allowed`` says for each kind of node which pods may be on it.
    Errors: WorldError if the package is not installed.
    """
    highs = _highs()
    loads = [_single(at, asks, nodes, allowed) for at in range(len(asks))]
    if any(load is None for load in loads):
        return 0
    columns = [load for load in loads if load is not None]
    best = 0.0
    for _ in range(_MOST_ROUNDS):
        value, prices = _mixed(highs, columns, counts)
        new = [
            load
            for node, may in zip(nodes, allowed, strict=True)
            if any(load := _dearest(highs, asks, counts, prices, (node, may)))
        ]
        worth = max((sum(p * n for p, n in zip(prices, load, strict=True)) for load in new), default=0.0)
        best = max(best, value / max(worth, 1.0))
        if worth <= 1 + _SURE or ceil(best - _SURE) >= ceil(value - _SURE):
            break
        columns += new
    return ceil(best - _SURE)


def _highs() -> Any:
    try:
        return import_module("highspy")  # an extra, wanted only here
    except ImportError as error:
        raise WorldError("load", "highspy", f"{error}; pip install 'nodewright[exact]'") from error


def _single(
    at: int, asks: Sequence[Amounts], nodes: Sequence[Amounts], allowed: Sequence[Sequence[bool]]
) -> tuple[int, ...] | None:
    """A load of pods of one kind alone; None: no node holds one."""
    most = 0
    for node, may in zip(nodes, allowed, strict=True):
        if may[at]:
            most = max(most, min(node.get(name, 0) // amount for name, amount in asks[at].items() if amount))
    return tuple(most if at == one else 0 for one in range(len(asks))) if most else None


def _solver(highs: Any) -> Any:
    solver = highs.Highs()
    for name, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(name, value)
    return solver


def _mixed(
    highs: Any, columns: Sequence[tuple[int, ...]], counts: Sequence[int]
) -> tuple[float, list[float]]:
    """How many nodes the cheapest mix of loads takes, and what a pod of each kind is worth in it."""
    solver = _solver(highs)
    for _ in columns:
        solver.addVar(0.0, highs.kHighsInf)
    places = list(range(len(columns)))
    solver.changeColsCost(len(columns), places, [1.0] * len(columns))
    for at, count in enumerate(counts):
        row = [float(load[at]) for load in columns]
        solver.addRow(float(count), highs.kHighsInf, len(places), places, row)
    solver.run()
    prices = [max(price, 0.0) for price in solver.getSolution().row_dual]
    return float(solver.getInfo().objective_function_value), prices


def _dearest(
    highs: Any,
    asks: Sequence[Amounts],
    counts: Sequence[int],
    prices: Sequence[float],
    node: tuple[Amounts, Sequence[bool]],
) -> tuple[int, ...]:
    """The load of a node that is worth most at these prices."""
    has, may = node
    solver = _solver(highs)
    places = list(range(len(asks)))
    for at in places:
        solver.addVar(0.0, float(counts[at] if may[at] else 0))
        solver.changeColIntegrality(at, highs.HighsVarType.kInteger)
    solver.changeColsCost(len(places), places, [-price for price in prices])
    for name in sorted({name for one in asks for name in one}):
        unit = max([1, has.get(name, 0), *(one.get(name, 0) for one in asks)])
        row = [one.get(name, 0) / unit for one in asks]
        # A hair more than there is: what is left out for rounding could make the bound too high.
        solver.addRow(-highs.kHighsInf, has.get(name, 0) / unit + _SURE, len(places), places, row)
    solver.run()
    return tuple(round(value) for value in solver.getSolution().col_value)
