"""A machine as a text drawing: sockets, NUMA nodes, L3 groups, cores with their CPUs, memory, distances."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from string import ascii_lowercase, ascii_uppercase

import msgspec
from msgspec.structs import replace

from nodewright.documents.output.text_layout import (
    ASCII,
    FRAME,
    GAP,
    UNICODE,
    Glyphs,
    boxed,
    columns_per_row,
    side_by_side,
    wrapped,
)
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import placement_of, unallocated_resources
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.printable import counted, printable_lines
from nodewright.model.values.idset import CPUSet, NUMASet

CELLS_UP_TO_CPUS = 64
"""Machines up to this size show each core; larger ones list equal cores together."""
SHORT_CELL = 9
BOXES_UP_TO_NUMA = 4
"""Sockets with more NUMA nodes list them without frames."""
LIST_WIDTH = 40
"""Preferred width of a list of CPUs, which decides whether frames fit side by side."""
SOCKET_WIDTH = 76
WIDE = 120


class CPUOwner(msgspec.Struct, frozen=True):
    """An owner of exclusive CPUs with its letter."""

    mark: str
    name: str
    cpus: CPUSet


RESERVED = "*"
MAX_MATRIX_SIZE = 16
GROUPED_TITLE = "distances (equivalent nodes share a row; 10 to itself)"


class MachineCanvas(msgspec.Struct, frozen=True):
    """The width and style of the drawing, and facts about the whole machine."""

    width: int
    glyphs: Glyphs
    cells: bool
    cache_nodes: Mapping[int, NUMASet]
    """The NUMA nodes of each uncore cache, by cache id as in the kubelet."""
    marks: Mapping[int, str]
    """The owners' letters by CPU."""


class Paragraph(msgspec.Struct, frozen=True):
    """Text that wraps between its parts: a list with commas, or cells in rows of `per_row`."""

    head: str
    parts: tuple[str, ...] = ()
    per_row: int = 0

    @property
    def preferred_width(self) -> int:
        """The preferred width."""
        if self.per_row:
            return sum(len(part) + 1 for part in self.parts[: self.per_row]) - 1
        return len(self.head) + min(len(",".join(self.parts)), LIST_WIDTH)

    def lines(self, width: int) -> list[str]:
        """The text in lines of at most this width."""
        if self.per_row:
            return wrapped(self.parts, min(width, self.preferred_width), joint=" ")
        first, *rest = self.parts or ("",)
        return wrapped([self.head + first, *rest], width, joint=",", indent=len(self.head))


def node_picture(
    profile: NodeProfile, *, width: int = 80, ascii_only: bool = False, owners: Sequence[CPUOwner] = ()
) -> str:
    """The node's machine, drawn for ``width`` columns, with letters at exclusive CPUs."""
    head = [profile.metadata.name] if profile.metadata.name else []
    glyphs = ASCII if ascii_only else UNICODE
    lines = [*head, *_summary(profile), "", *machine_lines(profile.spec.machine_info, width, glyphs, owners)]
    return printable_lines(line.rstrip() for line in lines)


def machine_lines(
    machine: MachineInfo, width: int, glyphs: Glyphs, owners: Sequence[CPUOwner] = ()
) -> list[str]:
    """Sockets and NUMA nodes in frames, NUMA nodes without CPUs, the legend, then the distances."""
    nodes = sorted(machine.topology, key=lambda node: node.node_id)
    cells = machine.num_cores <= CELLS_UP_TO_CPUS
    canvas = MachineCanvas(width, glyphs, cells, _cache_nodes(nodes), marks_by_cpu(owners))
    with_cpus = [node for node in nodes if node.cores]
    lines = _drawn(with_cpus, canvas) if with_cpus else ["no CPUs"]
    if empty := [node for node in nodes if not node.cores]:
        listed = [line for entry in _without_cpus(empty) for line in entry.lines(width - 2)]
        lines += ["", "NUMA nodes without CPUs", *(f"  {line}" for line in listed)]
    if owners:
        lines += ["", *legend_lines(owners, width)]
    if len(nodes) > 1 and any(node.distances for node in nodes):
        lines += ["", *distance_lines(nodes, width)]
    return lines


def bytes_text(count: int) -> str:
    """Bytes in a readable unit.

    >>> bytes_text(64 << 30), bytes_text(3 << 29), bytes_text(0)
    ('64 GiB', '1.5 GiB', '0 B')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f}".removesuffix(".0") + f" {unit}"
    return f"{count} B"


def _summary(profile: NodeProfile) -> list[str]:
    machine = profile.spec.machine_info
    cores = [core for node in machine.topology for core in node.cores]
    parts = (
        counted(machine.num_cores, "CPU"),
        _threads(cores),
        counted(machine.num_sockets, "socket"),
        counted(len(machine.topology), "NUMA node"),
    )
    facts = (
        f"{bytes_text(machine.memory_capacity)} of memory",
        _reserved(machine.hugepages) or "no huge pages",
        f"{bytes_text(profile.spec.swap_bytes)} of swap" if profile.spec.swap_bytes else "no swap",
        f"cgroup v{profile.spec.cgroup_version}",
    )
    return [", ".join(filter(None, parts)), ", ".join(facts)]


def _threads(cores: Sequence[Core]) -> str:
    """`8 cores with 2 threads`, or each kind of core on a hybrid machine."""
    kinds = sorted({len(core.thread_ids) for core in cores}, reverse=True)
    sizes = [(sum(len(core.thread_ids) == kind for core in cores), kind) for kind in kinds]
    return " and ".join(f"{counted(count, 'core')} with {counted(kind, 'thread')}" for count, kind in sizes)


def _reserved(pages: Iterable[HugePages]) -> str:
    return ", ".join(
        f"{page.num_pages} huge pages of {bytes_text(page.page_size * 1024)}"
        for page in pages
        if page.num_pages
    )


# ---------------------------------------------------------------- frames


def _drawn(nodes: Sequence[NUMANode], canvas: MachineCanvas) -> list[str]:
    if any(len(_sockets_of(node)) > 1 for node in nodes):
        return _framed_nodes({_numa_title(node): _by_socket(node, canvas) for node in nodes}, canvas)
    sockets: dict[int, list[NUMANode]] = {}
    for node in nodes:
        sockets.setdefault(node.cores[0].socket_id, []).append(node)
    if all(len(socket_nodes) == 1 for socket_nodes in sockets.values()):
        leaves = {
            f"socket {socket}, {_numa_title(socket_nodes[0])}": _contents(socket_nodes[0], canvas)
            for socket, socket_nodes in sorted(sockets.items())
        }
        return _framed_nodes(leaves, canvas)
    across = columns_per_row(len(sockets), SOCKET_WIDTH, canvas.width)
    inner_width = (canvas.width - (across - 1) * GAP) // across - FRAME
    inside = {
        socket: _socket_lines(socket_nodes, replace(canvas, width=inner_width))
        for socket, socket_nodes in sorted(sockets.items())
    }
    inner = max(len(line) for lines in inside.values() for line in lines)
    drawn = [boxed(f"socket {socket}", lines, inner, canvas.glyphs) for socket, lines in inside.items()]
    return _in_rows(drawn, across)


def _socket_lines(nodes: Sequence[NUMANode], canvas: MachineCanvas) -> list[str]:
    if len(nodes) <= BOXES_UP_TO_NUMA:
        contents = {_numa_title(node): _contents(node, canvas) for node in nodes}
        return _framed_nodes(contents, canvas)
    return [line for node in nodes for line in _unframed(node, canvas)]


def _unframed(node: NUMANode, canvas: MachineCanvas) -> list[str]:
    """A NUMA node in as few lines as the width allows; long lists of CPUs follow below its title."""
    paragraphs = _contents(node, canvas)
    body = [line for paragraph in paragraphs for line in paragraph.lines(canvas.width - 2)]
    if len(body) == len(paragraphs):
        return wrapped([_numa_title(node), *body], canvas.width, joint=", ", indent=2)
    return [_numa_title(node), *(f"  {line}" for line in body)]


def _framed_nodes(contents: Mapping[str, Sequence[Paragraph]], canvas: MachineCanvas) -> list[str]:
    """A frame for each title, all of one width, in rows of equal length."""
    preferred_width = max(
        (paragraph.preferred_width for paragraphs in contents.values() for paragraph in paragraphs), default=0
    )
    preferred_width = max([preferred_width, *(len(title) + 1 for title in contents)])
    across = columns_per_row(len(contents), preferred_width + FRAME, canvas.width)
    inner = min(preferred_width, (canvas.width - (across - 1) * GAP) // across - FRAME)
    bodies = [
        [line for paragraph in paragraphs for line in paragraph.lines(inner)]
        for paragraphs in contents.values()
    ]
    height = max(map(len, bodies), default=0)
    frames = [
        boxed(title, [*body, *[""] * (height - len(body))], inner, canvas.glyphs)
        for title, body in zip(contents, bodies, strict=True)
    ]
    return _in_rows(frames, across)


def _in_rows(blocks: Sequence[Sequence[str]], across: int) -> list[str]:
    rows = (blocks[start : start + across] for start in range(0, len(blocks), across))
    return [line for row in rows for line in side_by_side(row)]


# ---------------------------------------------------------------- contents of a NUMA node


def _numa_title(node: NUMANode) -> str:
    return f"NUMA {node.node_id}, {bytes_text(node.memory)}"


def _sockets_of(node: NUMANode) -> set[int]:
    return {core.socket_id for core in node.cores}


def _by_socket(node: NUMANode, canvas: MachineCanvas) -> list[Paragraph]:
    """A NUMA node that spans sockets: its memory and caches, then the cores of each socket."""
    paragraphs = _node_facts(node)
    for socket in sorted(_sockets_of(node)):
        socket_cores = [core for core in node.cores if core.socket_id == socket]
        paragraphs += [Paragraph(f"socket {socket}"), *_groups(node, socket_cores, canvas)]
    return paragraphs


def _contents(node: NUMANode, canvas: MachineCanvas) -> list[Paragraph]:
    return [*_node_facts(node), *_groups(node, node.cores, canvas)]


def _node_facts(node: NUMANode) -> list[Paragraph]:
    pages = _reserved(node.hugepages)
    caches = [Paragraph(_cache_name(cache)) for cache in node.caches]
    return [*([Paragraph(pages)] if pages else []), *caches]


def _groups(node: NUMANode, cores: Sequence[Core], canvas: MachineCanvas) -> list[Paragraph]:
    """The cores by their uncore cache, groups and cores in the order of their lowest CPU."""
    groups: dict[UncoreCache | None, list[Core]] = {}
    for core in sorted(cores, key=lambda core: min(core.thread_ids)):
        cache = core.uncore_caches[0] if core.uncore_caches else None
        groups.setdefault(cache, []).append(core)
    if not canvas.cells and (alike := _equal_groups(groups, canvas)):
        return alike
    paragraphs = []
    for cache, cache_cores in groups.items():
        if cache is not None:
            other_nodes = canvas.cache_nodes[cache.id] - NUMASet.of(node.node_id)
            name = _cache_name(cache) + (f", shared with NUMA {other_nodes}" if other_nodes else "")
            paragraphs.append(Paragraph(name))
        paragraphs += (
            [_cells([_cpus([core]) for core in cache_cores], canvas)]
            if canvas.cells
            else _folded(cache_cores, canvas)
        )
    return paragraphs


def _equal_groups(
    groups: Mapping[UncoreCache | None, Sequence[Core]], canvas: MachineCanvas
) -> list[Paragraph]:
    """Caches of equal size with equal cores, as cells under one heading; empty if they differ."""
    caches = [cache for cache in groups if cache is not None]
    kinds = {tuple(sorted(len(core.thread_ids) for core in own)) for own in groups.values()}
    sizes = {(cache.level, cache.size) for cache in caches}
    if len(caches) != len(groups) or len(groups) < 2 or len(kinds) > 1 or len(sizes) > 1:
        return []
    ids = CPUSet.from_ids(cache.id for cache in caches)
    first = caches[0]
    size = f" ({bytes_text(first.size)})" if first.size else ""
    heading = f"L{first.level} {ids}{size}, each {_threads(next(iter(groups.values())))}"
    return [Paragraph(heading), _cells([_cpus(own) for own in groups.values()], canvas)]


def _cpus(cores: Iterable[Core]) -> CPUSet:
    return CPUSet.from_ids(thread for core in cores for thread in core.thread_ids)


def _cells(cells: Sequence[CPUSet], canvas: MachineCanvas) -> Paragraph:
    """The CPUs in brackets of equal width, with their owners' letters."""
    texts, marks = [str(cpus) for cpus in cells], [_marks(cpus, canvas) for cpus in cells]
    width, marked = max(map(len, texts)), max(map(len, marks))
    per_row = 8 if width < SHORT_CELL else 4 if canvas.width >= WIDE else 2
    mark_width = marked + 1 if marked else 0
    drawn = (
        f"[{text.rjust(width)}{f' {mark}'.ljust(mark_width)[:mark_width]}]"
        for text, mark in zip(texts, marks, strict=True)
    )
    return Paragraph("", tuple(drawn), per_row)


def _marks(cpus: CPUSet, canvas: MachineCanvas) -> str:
    """The letters of the CPUs' owners, each once, by their lowest CPU."""
    return "".join(dict.fromkeys(mark for cpu in cpus if (mark := canvas.marks.get(cpu))))


def _folded(cores: Sequence[Core], canvas: MachineCanvas) -> list[Paragraph]:
    """An entry for the cores with the same number of threads, then one for each owner of their CPUs."""
    entries = []
    for kind in sorted({len(core.thread_ids) for core in cores}, reverse=True):
        alike = [core for core in cores if len(core.thread_ids) == kind]
        head = f"{counted(len(alike), 'core')} x {kind}: "
        entries.append(Paragraph(head, tuple(str(_cpus(alike)).split(","))))
    by_mark: dict[str, list[int]] = {}
    for cpu in _cpus(cores):
        if mark := canvas.marks.get(cpu):
            by_mark.setdefault(mark, []).append(cpu)
    owned = ((mark, str(CPUSet.from_ids(cpus))) for mark, cpus in by_mark.items())
    return [*entries, *(Paragraph(f"{mark} ", tuple(cpus.split(","))) for mark, cpus in owned)]


def _cache_name(cache: UncoreCache) -> str:
    size = f" ({bytes_text(cache.size)})" if cache.size else ""
    return f"L{cache.level} {cache.id}{size}"


def _cache_nodes(nodes: Iterable[NUMANode]) -> dict[int, NUMASet]:
    cache_nodes: dict[int, NUMASet] = {}
    for node in nodes:
        for core in node.cores:
            for cache in core.uncore_caches[:1]:
                cache_nodes[cache.id] = cache_nodes.get(cache.id, NUMASet()) | NUMASet.of(node.node_id)
    return cache_nodes


def _without_cpus(nodes: Sequence[NUMANode]) -> list[Paragraph]:
    """The nodes grouped by memory and huge pages, most memory first."""
    alike: dict[tuple[int, str], list[int]] = {}
    for node in nodes:
        alike.setdefault((node.memory, _reserved(node.hugepages)), []).append(node.node_id)
    entries = []
    for (memory, pages), ids in sorted(alike.items(), reverse=True):
        suffix = " each" if len(ids) > 1 and memory else ""
        heading = (bytes_text(memory) if memory else "no memory") + suffix + (f", {pages}" if pages else "")
        entries.append(Paragraph(f"{heading}: NUMA ", tuple(str(NUMASet.from_ids(ids)).split(","))))
    return entries


def cpu_owners(state: NodeState, pods: Iterable[Pod]) -> tuple[CPUOwner, ...]:
    """The owners of exclusive CPUs: the reserved CPUs first, then pods and containers by their lowest CPU.

    Init containers and the containers that reuse their CPUs have a letter each.
    """
    reserved = unallocated_resources(state).reserved_cpus
    holders = sorted(
        (holder for pod in pods for holder in _pod_holders(state, pod)),
        key=lambda holder: (min(holder[1]), holder[0].lower(), holder),
    )
    owners = [CPUOwner(mark, name, cpus) for mark, (name, cpus) in zip(_letters(), holders, strict=False)]
    return (*([CPUOwner(RESERVED, "reserved", reserved)] if reserved else []), *owners)


def marks_by_cpu(owners: Sequence[CPUOwner]) -> Mapping[int, str]:
    """The letters of each exclusive CPU."""
    marks: dict[int, str] = {}
    for owner in owners:
        for cpu in owner.cpus:
            marks[cpu] = marks.get(cpu, "") + owner.mark
    return marks


def legend_lines(owners: Sequence[CPUOwner], width: int) -> list[str]:
    """A line for each letter with its owner and CPUs."""
    mark_width = max((len(owner.mark) for owner in owners), default=0)
    lines = []
    for owner in owners:
        head = f"{owner.mark.ljust(mark_width)} {owner.name}: "
        first, *rest = str(owner.cpus).split(",")
        lines += wrapped([head + first, *rest], width, joint=",", indent=mark_width + 1)
    return lines


def _pod_holders(state: NodeState, pod: Pod) -> Iterator[tuple[str, CPUSet]]:
    placement = placement_of(state, pod)
    if placement.cpus:
        yield f"{pod.full_name}, the whole pod", placement.cpus
    for container in placement.containers:
        if container.cpus:
            yield f"{pod.full_name}, {container.name}", container.cpus


def _letters() -> Iterator[str]:
    """a, b, ... z, A, ... Z, aa, ab, ..."""
    for length in count(1):
        for letters in product(ascii_lowercase + ascii_uppercase, repeat=length):
            yield "".join(letters)


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
