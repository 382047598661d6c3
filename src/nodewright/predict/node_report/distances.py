"""Distances between NUMA nodes as a matrix; equivalent nodes share a row if it is too wide otherwise."""

from collections.abc import Callable, Sequence

from nodewright.documents.output.text_layout import wrapped
from nodewright.model.hardware.machine_info import NUMANode
from nodewright.model.values.idset import NUMASet

MAX_MATRIX_SIZE = 16
GROUPED_TITLE = "distances (equivalent nodes share a row; 10 to itself)"


def distance_lines(nodes: Sequence[NUMANode], width: int) -> list[str]:
    """The matrix with a row for each NUMA node, or for each group of nodes with equal distances.

    A group's distance to itself is the distance between two of its nodes. If the grouped matrix is too large, too,
    each node gets a line.
    """
    distance = _lookup(nodes)
    ids = [node.node_id for node in nodes]
    single_nodes = [[number] for number in ids]
    for title, groups in (("distances", single_nodes), (GROUPED_TITLE, _alike(ids, distance))):
        lines = _matrix(groups, distance)
        if len(groups) <= MAX_MATRIX_SIZE and len(lines[0]) + 2 <= width:
            return [title, *(f"  {line}" for line in lines)]
    return ["distances", *(f"  {line}" for line in _listed(ids, distance, width - 2))]


def _lookup(nodes: Sequence[NUMANode]) -> Callable[[int, int], str]:
    """The distance between two nodes as text; `-` if unknown.

    The kernel lists distances to existing nodes; profiles may list them for every id up to the largest.
    """
    ids = [node.node_id for node in nodes]
    by_id = {node.node_id: node.distances for node in nodes}
    ranks = {number: rank for rank, number in enumerate(ids)}

    def distance(source: int, target: int) -> str:
        row = by_id[source]
        place = target if len(row) > ids[-1] else ranks[target]
        return str(row[place]) if place < len(row) else "-"

    return distance


def _alike(ids: Sequence[int], distance: Callable[[int, int], str]) -> list[list[int]]:
    """Groups of nodes that are interchangeable."""
    groups: list[list[int]] = []
    for number in ids:
        for group in groups:
            if _twins(group[0], number, ids, distance):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups


def _twins(first: int, second: int, ids: Sequence[int], distance: Callable[[int, int], str]) -> bool:
    return distance(first, second) == distance(second, first) and all(
        (distance(first, third), distance(third, first)) == (distance(second, third), distance(third, second))
        for third in ids
        if third not in (first, second)
    )


def _matrix(groups: Sequence[Sequence[int]], distance: Callable[[int, int], str]) -> list[str]:
    names = [str(NUMASet.from_ids(group)) for group in groups]
    # From the first node of a group to the last of another, so that the diagonal has two different nodes.
    rows = [[distance(group[0], other[-1]) for other in groups] for group in groups]
    first = max(map(len, names))
    widths = [max(len(name), *(len(row[place]) for row in rows)) for place, name in enumerate(names)]
    head = [" " * first, *(name.rjust(width) for name, width in zip(names, widths, strict=True))]
    body = [
        [name.rjust(first), *(cell.rjust(width) for cell, width in zip(row, widths, strict=True))]
        for name, row in zip(names, rows, strict=True)
    ]
    return [" ".join(cells) for cells in (head, *body)]


def _listed(ids: Sequence[int], distance: Callable[[int, int], str], width: int) -> list[str]:
    """A line for each node with the other nodes by distance."""
    lines = []
    for id_ in ids:
        by_distance: dict[str, list[int]] = {}
        for target in ids:
            by_distance.setdefault(distance(id_, target), []).append(target)
        order = sorted(by_distance.items(), key=lambda item: (len(item[0]), item[0]))
        parts = [f"{far} to {NUMASet.from_ids(near)}" for far, near in order]
        lines += wrapped([f"{id_}: {parts[0]}", *parts[1:]], width, joint="; ", indent=4)
    return lines
