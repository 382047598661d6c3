"""A machine as a picture: sockets, NUMA nodes, L3 groups, cores with their CPUs, memory, distances."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from nodewright.model.machine import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.profile import NodeProfile
from nodewright.render.boxes import ASCII, FRAME, GAP, UNICODE, Glyphs, beside, columns, framed, wrapped
from nodewright.render.distances import distance_lines
from nodewright.render.marks import Holder, legend, marks_by_cpu
from nodewright.values.idset import CPUSet, NUMASet

CELLS_UP_TO_CPUS = 64
"""Machines up to this size show each core by itself; larger ones fold cores that are alike."""
SHORT_CELL = 9
BOXES_UP_TO_NUMA = 4
"""A socket with more NUMA nodes lists them without frames."""
LIST_WIDTH = 40
"""What a list of CPUs gets before frames go below each other."""
SOCKET_WIDTH = 76
WIDE = 120


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where it is drawn, and what is known of the whole machine."""

    width: int
    glyphs: Glyphs
    cells: bool
    cache_nodes: Mapping[int, NUMASet]
    """The NUMA nodes with cores of each uncore cache; by id alone, as the kubelet tells caches apart."""
    marks: Mapping[int, str]
    """Letters of those who have CPUs alone, by CPU."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text that wraps between its parts: a list with commas, or cells in rows of `per_row`."""

    head: str
    parts: tuple[str, ...] = ()
    per_row: int = 0

    @property
    def wanted(self) -> int:
        """The width at which it reads well."""
        if self.per_row:
            return sum(len(part) + 1 for part in self.parts[: self.per_row]) - 1
        return len(self.head) + min(len(",".join(self.parts)), LIST_WIDTH)

    def lines(self, width: int) -> list[str]:
        """The text in lines of at most this width."""
        if self.per_row:
            return wrapped(self.parts, min(width, self.wanted), joint=" ")
        first, *others = self.parts or ("",)
        return wrapped([self.head + first, *others], width, joint=",", indent=len(self.head))


def node_picture(
    profile: NodeProfile, *, width: int = 80, ascii_only: bool = False, held: Sequence[Holder] = ()
) -> str:
    """The node's machine, drawn for that many columns, with letters at CPUs that somebody has alone."""
    head = [profile.metadata.name] if profile.metadata.name else []
    glyphs = ASCII if ascii_only else UNICODE
    lines = [*head, *_summary(profile), "", *machine_lines(profile.spec.machine_info, width, glyphs, held)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def machine_lines(machine: MachineInfo, width: int, glyphs: Glyphs, held: Sequence[Holder] = ()) -> list[str]:
    """Sockets and NUMA nodes in frames, NUMA nodes without CPUs, who has which CPUs, then the distances."""
    nodes = sorted(machine.topology, key=lambda node: node.node_id)
    cells = machine.num_cores <= CELLS_UP_TO_CPUS
    canvas = Canvas(width, glyphs, cells, _cache_nodes(nodes), marks_by_cpu(held))
    with_cpus = [node for node in nodes if node.cores]
    lines = _drawn(with_cpus, canvas) if with_cpus else ["no CPU is listed"]
    if empty := [node for node in nodes if not node.cores]:
        listed = [line for entry in _without_cpus(empty) for line in entry.lines(width - 2)]
        lines += ["", "NUMA nodes without CPUs", *(f"  {line}" for line in listed)]
    if held:
        lines += ["", *legend(held, width)]
    if len(nodes) > 1 and any(node.distances for node in nodes):
        lines += ["", *distance_lines(nodes, width)]
    return lines


def amount(count: int) -> str:
    """Bytes as people say them.

    >>> amount(64 << 30), amount(3 << 29), amount(0)
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
        _several(machine.num_cores, "CPU"),
        _threads(cores),
        _several(machine.num_sockets, "socket"),
        _several(len(machine.topology), "NUMA node"),
    )
    facts = (
        f"{amount(machine.memory_capacity)} of memory",
        _reserved(machine.hugepages) or "no huge pages",
        f"{amount(profile.spec.swap_bytes)} of swap" if profile.spec.swap_bytes else "no swap",
        f"cgroup v{profile.spec.cgroup_version}",
    )
    return [", ".join(filter(None, parts)), ", ".join(facts)]


def _threads(cores: Sequence[Core]) -> str:
    """`8 cores with 2 threads`, or each kind of core on a hybrid machine."""
    kinds = sorted({len(core.thread_ids) for core in cores}, reverse=True)
    counted = [(sum(len(core.thread_ids) == kind for core in cores), kind) for kind in kinds]
    return " and ".join(
        f"{_several(count, 'core')} with {_several(kind, 'thread')}" for count, kind in counted
    )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _reserved(pages: Iterable[HugePages]) -> str:
    return ", ".join(
        f"{one.num_pages} huge pages of {amount(one.page_size * 1024)}" for one in pages if one.num_pages
    )


# ---------------------------------------------------------------- frames


def _drawn(nodes: Sequence[NUMANode], canvas: Canvas) -> list[str]:
    if any(len(_sockets_of(node)) > 1 for node in nodes):
        return _framed_nodes({_numa_title(node): _by_socket(node, canvas) for node in nodes}, canvas)
    sockets: dict[int, list[NUMANode]] = {}
    for node in nodes:
        sockets.setdefault(node.cores[0].socket_id, []).append(node)
    if all(len(own) == 1 for own in sockets.values()):
        leaves = {
            f"socket {socket}, {_numa_title(own[0])}": _contents(own[0], canvas)
            for socket, own in sorted(sockets.items())
        }
        return _framed_nodes(leaves, canvas)
    across = columns(len(sockets), SOCKET_WIDTH, canvas.width)
    room = (canvas.width - (across - 1) * GAP) // across - FRAME
    inside = {
        socket: _socket_lines(own, replace(canvas, width=room)) for socket, own in sorted(sockets.items())
    }
    inner = max(len(line) for lines in inside.values() for line in lines)
    drawn = [framed(f"socket {socket}", lines, inner, canvas.glyphs) for socket, lines in inside.items()]
    return _in_rows(drawn, across)


def _socket_lines(nodes: Sequence[NUMANode], canvas: Canvas) -> list[str]:
    if len(nodes) <= BOXES_UP_TO_NUMA:
        contents = {_numa_title(node): _contents(node, canvas) for node in nodes}
        return _framed_nodes(contents, canvas)
    return [line for node in nodes for line in _unframed(node, canvas)]


def _unframed(node: NUMANode, canvas: Canvas) -> list[str]:
    """A NUMA node in as few lines as the width allows; long lists of CPUs below its title."""
    paragraphs = _contents(node, canvas)
    body = [line for paragraph in paragraphs for line in paragraph.lines(canvas.width - 2)]
    if len(body) == len(paragraphs):
        return wrapped([_numa_title(node), *body], canvas.width, joint=", ", indent=2)
    return [_numa_title(node), *(f"  {line}" for line in body)]


def _framed_nodes(contents: Mapping[str, Sequence[Paragraph]], canvas: Canvas) -> list[str]:
    """A frame for each title, all of one width, in rows of equal length."""
    wanted = max(
        (paragraph.wanted for paragraphs in contents.values() for paragraph in paragraphs), default=0
    )
    wanted = max([wanted, *(len(title) + 1 for title in contents)])
    across = columns(len(contents), wanted + FRAME, canvas.width)
    inner = min(wanted, (canvas.width - (across - 1) * GAP) // across - FRAME)
    bodies = [[line for one in paragraphs for line in one.lines(inner)] for paragraphs in contents.values()]
    height = max(map(len, bodies), default=0)
    frames = [
        framed(title, [*body, *[""] * (height - len(body))], inner, canvas.glyphs)
        for title, body in zip(contents, bodies, strict=True)
    ]
    return _in_rows(frames, across)


def _in_rows(blocks: Sequence[Sequence[str]], across: int) -> list[str]:
    rows = (blocks[start : start + across] for start in range(0, len(blocks), across))
    return [line for row in rows for line in beside(row)]


# ---------------------------------------------------------------- what is in a NUMA node


def _numa_title(node: NUMANode) -> str:
    return f"NUMA {node.node_id}, {amount(node.memory)}"


def _sockets_of(node: NUMANode) -> set[int]:
    return {core.socket_id for core in node.cores}


def _by_socket(node: NUMANode, canvas: Canvas) -> list[Paragraph]:
    """A node that spans sockets: its own facts, then the cores of each socket."""
    paragraphs = _own_facts(node)
    for socket in sorted(_sockets_of(node)):
        own = [core for core in node.cores if core.socket_id == socket]
        paragraphs += [Paragraph(f"socket {socket}"), *_groups(node, own, canvas)]
    return paragraphs


def _contents(node: NUMANode, canvas: Canvas) -> list[Paragraph]:
    return [*_own_facts(node), *_groups(node, node.cores, canvas)]


def _own_facts(node: NUMANode) -> list[Paragraph]:
    pages = _reserved(node.hugepages)
    caches = [Paragraph(_cache_name(cache)) for cache in node.caches]
    return [*([Paragraph(pages)] if pages else []), *caches]


def _groups(node: NUMANode, cores: Sequence[Core], canvas: Canvas) -> list[Paragraph]:
    """The cores by their uncore cache, groups and cores in the order of their lowest CPU."""
    groups: dict[UncoreCache | None, list[Core]] = {}
    for core in sorted(cores, key=lambda core: min(core.thread_ids)):
        cache = core.uncore_caches[0] if core.uncore_caches else None
        groups.setdefault(cache, []).append(core)
    if not canvas.cells and (alike := _alike_groups(groups, canvas)):
        return alike
    paragraphs = []
    for cache, own in groups.items():
        if cache is not None:
            others = canvas.cache_nodes[cache.id] - NUMASet.of(node.node_id)
            name = _cache_name(cache) + (f", shared with NUMA {others}" if others else "")
            paragraphs.append(Paragraph(name))
        paragraphs += (
            [_cells([_cpus([core]) for core in own], canvas)] if canvas.cells else _folded(own, canvas)
        )
    return paragraphs


def _alike_groups(groups: Mapping[UncoreCache | None, Sequence[Core]], canvas: Canvas) -> list[Paragraph]:
    """Many caches of one size, each with as many cores, as cells under one heading; else nothing."""
    caches = [cache for cache in groups if cache is not None]
    kinds = {tuple(sorted(len(core.thread_ids) for core in own)) for own in groups.values()}
    sizes = {(cache.level, cache.size) for cache in caches}
    if len(caches) != len(groups) or len(groups) < 2 or len(kinds) > 1 or len(sizes) > 1:
        return []
    ids = CPUSet.from_ids(cache.id for cache in caches)
    first = caches[0]
    size = f" ({amount(first.size)})" if first.size else ""
    heading = f"L{first.level} {ids}{size}, each {_threads(next(iter(groups.values())))}"
    return [Paragraph(heading), _cells([_cpus(own) for own in groups.values()], canvas)]


def _cpus(cores: Iterable[Core]) -> CPUSet:
    return CPUSet.from_ids(thread for core in cores for thread in core.thread_ids)


def _cells(cells: Sequence[CPUSet], canvas: Canvas) -> Paragraph:
    """The CPUs in brackets, all of one width, with the letters of those who have some of them."""
    texts, marks = [str(cpus) for cpus in cells], [_marks(cpus, canvas) for cpus in cells]
    width, marked = max(map(len, texts)), max(map(len, marks))
    per_row = 8 if width < SHORT_CELL else 4 if canvas.width >= WIDE else 2
    room = marked + 1 if marked else 0
    drawn = (
        f"[{text.rjust(width)}{f' {mark}'.ljust(room)[:room]}]"
        for text, mark in zip(texts, marks, strict=True)
    )
    return Paragraph("", tuple(drawn), per_row)


def _marks(cpus: CPUSet, canvas: Canvas) -> str:
    """The letters of all that have any of the CPUs, each once, those of the lowest CPUs first."""
    return "".join(dict.fromkeys(mark for cpu in cpus if (mark := canvas.marks.get(cpu))))


def _folded(cores: Sequence[Core], canvas: Canvas) -> list[Paragraph]:
    """Cores with the same number of threads as one entry, then one for each who has some of their CPUs."""
    entries = []
    for kind in sorted({len(core.thread_ids) for core in cores}, reverse=True):
        alike = [core for core in cores if len(core.thread_ids) == kind]
        head = f"{_several(len(alike), 'core')} x {kind}: "
        entries.append(Paragraph(head, tuple(str(_cpus(alike)).split(","))))
    by_mark: dict[str, list[int]] = {}
    for cpu in _cpus(cores):
        if mark := canvas.marks.get(cpu):
            by_mark.setdefault(mark, []).append(cpu)
    held = ((mark, str(CPUSet.from_ids(cpus))) for mark, cpus in by_mark.items())
    return [*entries, *(Paragraph(f"{mark} ", tuple(cpus.split(","))) for mark, cpus in held)]


def _cache_name(cache: UncoreCache) -> str:
    size = f" ({amount(cache.size)})" if cache.size else ""
    return f"L{cache.level} {cache.id}{size}"


def _cache_nodes(nodes: Iterable[NUMANode]) -> dict[int, NUMASet]:
    found: dict[int, NUMASet] = {}
    for node in nodes:
        for core in node.cores:
            for cache in core.uncore_caches[:1]:
                found[cache.id] = found.get(cache.id, NUMASet()) | NUMASet.of(node.node_id)
    return found


def _without_cpus(nodes: Sequence[NUMANode]) -> list[Paragraph]:
    """The nodes by what they have, most memory first."""
    alike: dict[tuple[int, str], list[int]] = {}
    for node in nodes:
        alike.setdefault((node.memory, _reserved(node.hugepages)), []).append(node.node_id)
    entries = []
    for (memory, pages), ids in sorted(alike.items(), reverse=True):
        each = " each" if len(ids) > 1 and memory else ""
        has = (amount(memory) if memory else "no memory") + each + (f", {pages}" if pages else "")
        entries.append(Paragraph(f"{has}: NUMA ", tuple(str(NUMASet.from_ids(ids)).split(","))))
    return entries
