"""A sharper bound for packing pods onto nodes, by HiGHS (extra `exact`): the linear program over whole loads of nodes.

A load is a set of pods that one node can hold. The program combines fractions of loads so that all pods are held by the
fewest nodes; no integral packing needs fewer. Loads are generated on demand (column generation), and in each
round the dual prices of the pods prove a bound (Farley's).
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from math import ceil
from typing import Any

from nodewright.model.errors import HostError

_MAX_ROUNDS = 300
_TOLERANCE = 1e-6
"""Tolerance for results of HiGHS, which computes in floats."""

Amounts = Mapping[str, int]


def packing_lower_bound(
    requests: Sequence[Amounts],
    counts: Sequence[int],
    nodes: Sequence[Amounts],
    allowed: Sequence[Sequence[bool]],
) -> int:
    """A lower bound for the number of nodes that hold these counts of pods of each kind, by their requests.

    ``allowed`` states for each kind of node which kinds of pods may run on it.
    Errors: HostError if the package is not installed.
    """
    highs = _highs()
    loads = [_single_kind_load(at, requests, nodes, allowed) for at in range(len(requests))]
    if any(load is None for load in loads):
        return 0
    columns = [load for load in loads if load is not None]
    best = 0.0
    for _ in range(_MAX_ROUNDS):
        value, prices = _fractional_solution(highs, columns, counts)
        new = [
            load
            for node, is_allowed in zip(nodes, allowed, strict=True)
            if any(load := _most_valuable_load(highs, requests, counts, prices, (node, is_allowed)))
        ]
        value_of_load = max(
            (sum(p * n for p, n in zip(prices, load, strict=True)) for load in new), default=0.0
        )
        best = max(best, value / max(value_of_load, 1.0))
        if value_of_load <= 1 + _TOLERANCE or ceil(best - _TOLERANCE) >= ceil(value - _TOLERANCE):
            break
        columns += new
    return ceil(best - _TOLERANCE)


def _highs() -> Any:
    try:
        return import_module("highspy")  # an optional extra
    except ImportError as error:
        raise HostError("load", "highspy", f"{error}; pip install 'nodewright[exact]'") from error


def _single_kind_load(
    at: int, requests: Sequence[Amounts], nodes: Sequence[Amounts], allowed: Sequence[Sequence[bool]]
) -> tuple[int, ...] | None:
    """The largest load of pods of one kind; None: no node holds one."""
    count_per_node = 0
    for node, is_allowed in zip(nodes, allowed, strict=True):
        if is_allowed[at]:
            count_per_node = max(
                count_per_node,
                min(node.get(name, 0) // amount for name, amount in requests[at].items() if amount),
            )
    return (
        tuple(count_per_node if at == kind else 0 for kind in range(len(requests)))
        if count_per_node
        else None
    )


def _solver(highs: Any) -> Any:
    solver = highs.Highs()
    for name, value in {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0}.items():
        solver.setOptionValue(name, value)
    return solver


def _fractional_solution(
    highs: Any, columns: Sequence[tuple[int, ...]], counts: Sequence[int]
) -> tuple[float, list[float]]:
    """Solves the linear program: its number of nodes, and the dual price of a pod of each kind."""
    solver = _solver(highs)
    for _ in columns:
        solver.addVar(0.0, highs.kHighsInf)
    indexes = list(range(len(columns)))
    solver.changeColsCost(len(columns), indexes, [1.0] * len(columns))
    for at, count in enumerate(counts):
        row = [float(load[at]) for load in columns]
        solver.addRow(float(count), highs.kHighsInf, len(indexes), indexes, row)
    solver.run()
    prices = [max(price, 0.0) for price in solver.getSolution().row_dual]
    return float(solver.getInfo().objective_function_value), prices


def _most_valuable_load(
    highs: Any,
    requests: Sequence[Amounts],
    counts: Sequence[int],
    prices: Sequence[float],
    node: tuple[Amounts, Sequence[bool]],
) -> tuple[int, ...]:
    """The load of a node with the highest value at these prices."""
    capacity, is_allowed = node
    solver = _solver(highs)
    indexes = list(range(len(requests)))
    for at in indexes:
        solver.addVar(0.0, float(counts[at] if is_allowed[at] else 0))
        solver.changeColIntegrality(at, highs.HighsVarType.kInteger)
    solver.changeColsCost(len(indexes), indexes, [-price for price in prices])
    for name in sorted({name for request in requests for name in request}):
        unit = max([1, capacity.get(name, 0), *(request.get(name, 0) for request in requests)])
        row = [request.get(name, 0) / unit for request in requests]
        # Capacity plus tolerance: a load lost to rounding could make the bound too high.
        solver.addRow(-highs.kHighsInf, capacity.get(name, 0) / unit + _TOLERANCE, len(indexes), indexes, row)
    solver.run()
    return tuple(round(value) for value in solver.getSolution().col_value)
