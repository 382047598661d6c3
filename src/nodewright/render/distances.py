"""Distances between NUMA nodes as a matrix; nodes that are alike are folded where it would be too wide."""

from collections.abc import Callable, Sequence

from nodewright.model.machine import NUMANode
from nodewright.render.boxes import wrapped
from nodewright.values.idset import NUMASet

LARGEST_MATRIX = 16
GROUPED = "distances (nodes that are alike share a row; 10 to itself)"


def distance_lines(nodes: Sequence[NUMANode], width: int) -> list[str]:
    """The matrix with a row for each NUMA node, or for each group of nodes that no distance tells apart.

    A group's distance to itself is that from one of its nodes to another. Where even that is too large, a line
    for each node.
    """
    distance = _lookup(nodes)
    ids = [node.node_id for node in nodes]
    each = [[number] for number in ids]
    for title, groups in (("distances", each), (GROUPED, _alike(ids, distance))):
        lines = _matrix(groups, distance)
        if len(groups) <= LARGEST_MATRIX and len(lines[0]) + 2 <= width:
            return [title, *(f"  {line}" for line in lines)]
    return ["distances", *(f"  {line}" for line in _listed(ids, distance, width - 2))]


def _lookup(nodes: Sequence[NUMANode]) -> Callable[[int, int], str]:
    """The distance from one node to another as text; `-` where it is not known.

    The kernel lists the nodes that it has; descriptions may list every number up to the largest.
    """
    ids = [node.node_id for node in nodes]
    by_id = {node.node_id: node.distances for node in nodes}
    ranks = {number: rank for rank, number in enumerate(ids)}

    def distance(one: int, other: int) -> str:
        row = by_id[one]
        place = other if len(row) > ids[-1] else ranks[other]
        return str(row[place]) if place < len(row) else "-"

    return distance


def _alike(ids: Sequence[int], distance: Callable[[int, int], str]) -> list[list[int]]:
    """Groups of nodes of which any two may change places."""
    groups: list[list[int]] = []
    for number in ids:
        for group in groups:
            if _twins(group[0], number, ids, distance):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _twins(one: int, other: int, ids: Sequence[int], distance: Callable[[int, int], str]) -> bool:
    return distance(one, other) == distance(other, one) and all(
        (distance(one, third), distance(third, one)) == (distance(other, third), distance(third, other))
        for third in ids
        if third not in (one, other)
    )


def _matrix(groups: Sequence[Sequence[int]], distance: Callable[[int, int], str]) -> list[str]:
    names = [str(NUMASet.from_ids(group)) for group in groups]
    # From the first of a group to the last of another: within a group, from one node to another.
    rows = [[distance(one[0], other[-1]) for other in groups] for one in groups]
    first = max(map(len, names))
    widths = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(names)]
    head = [" " * first, *(name.rjust(width) for name, width in zip(names, widths, strict=True))]
    body = [
        [name.rjust(first), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))]
        for name, row in zip(names, rows, strict=True)
    ]
    return [" ".join(cells) for cells in (head, *body)]


def _listed(ids: Sequence[int], distance: Callable[[int, int], str], width: int) -> list[str]:
    """For each node the others by their distance."""
    lines = []
    for one in ids:
        by_distance: dict[str, list[int]] = {}
        for other in ids:
            by_distance.setdefault(distance(one, other), []).append(other)
        order = sorted(by_distance.items(), key=lambda item: (len(item[0]), item[0]))
        parts = [f"{far} to {NUMASet.from_ids(near)}" for far, near in order]
        lines += wrapped([f"{one}: {parts[0]}", *parts[1:]], width, joint="; ", indent=4)
    return lines
