"""A machine as a drawing (SVG): sockets, NUMA nodes, L3 groups, cores, threads, coloured by who has them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from nodewright.model.machine import Core, NUMANode
from nodewright.node.placement import left_of
from nodewright.node.state import NodeState
from nodewright.render.machine import amount
from nodewright.values.idset import NUMASet

CELL, GAP, PAD, TITLE = 22, 4, 8, 18
PAGE = 1080
"""The width within which NUMA nodes are laid out."""
CHARACTER = 6.4
"""How wide a character of the small print is, more or less."""
COLOURS = 10
"""Pods beyond that many share colours; their names tell them apart."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Something drawn, with its size.

    Units: width and height in pixels.
    """

    width: float
    height: float
    body: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has CPUs, and the class by which they are coloured."""

    name: str
    style: str


def holders(state: NodeState) -> dict[str, str]:
    """The pods that hold something for themselves, by name in the order of their admission, with their style."""
    held = state.held
    having = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.held}
    names = [pod.full_name for uid, pod in state.pods.items() if uid in having]
    return {name: f"p{at % COLOURS}" for at, name in enumerate(names)}


def machine_svg(state: NodeState) -> str:
    """The node's machine and who has its CPUs and devices, as an SVG element that needs nothing else but styles."""
    nodes = sorted(state.config.parts.machine.topology, key=lambda node: node.node_id)
    canvas = _Canvas(_owners(state), _devices(state), _memory(state))
    sockets: dict[int, list[Drawing]] = {}
    for node in nodes:
        socket = node.cores[0].socket_id if node.cores else -1
        sockets.setdefault(socket, []).append(_numa(node, canvas))
    boxes = [
        _boxed(
            f"socket {socket}" if socket >= 0 else "NUMA nodes without CPUs",
            _flow(own, PAGE - 2 * PAD),
            "socket",
        )
        for socket, own in sorted(sockets.items(), key=lambda one: (one[0] < 0, one[0]))
    ]
    whole = _flow(boxes, PAGE)
    label = (
        f"{len(nodes)} NUMA nodes with {state.config.parts.machine.num_cores} CPUs, coloured by who has them"
    )
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {whole.width:g} {whole.height:g}" '
        f'width="{whole.width:g}" height="{whole.height:g}" xmlns="http://www.w3.org/2000/svg">{whole.body}</svg>'
    )


@dataclass(frozen=True, slots=True)
class _Canvas:
    owners: Mapping[int, Holder]
    devices: Mapping[int, Sequence[tuple[str, Holder]]]
    memory: Mapping[int, str]


# ---------------------------------------------------------------- who has what


def _owners(state: NodeState) -> dict[int, Holder]:
    """Who has each CPU."""
    left, styles = left_of(state), holders(state)
    everything = (
        one for node in state.config.parts.machine.topology for core in node.cores for one in core.thread_ids
    )
    found = dict.fromkeys(everything, Holder("shared by all without CPUs of their own", "shared"))
    for cpu in left.reserved_cpus:
        found[cpu] = Holder("reserved for the system", "reserved")
    for one in state.held.cpu.holders():
        pod = state.pods.get(one.pod)
        if pod is not None:
            name = f"{pod.full_name} ({one.container})" if one.container else pod.full_name
            found.update(dict.fromkeys(one.cpus, Holder(name, styles[pod.full_name])))
    return found


def _devices(state: NodeState) -> dict[int, list[tuple[str, Holder]]]:
    """The devices of each NUMA node with their holders; those of several nodes are drawn on the first."""
    styles = holders(state)
    held: dict[tuple[str, str], Holder] = {}
    for uid, containers in state.held.devices.held.items():
        pod = state.pods.get(uid)
        for container, resources in containers.items() if pod is not None else ():
            assert pod is not None
            for resource, devices in resources.items():
                owner = Holder(f"{pod.full_name} ({container})", styles[pod.full_name])
                held.update({(resource, device): owner for device in devices})
    found: dict[int, list[tuple[str, Holder]]] = {}
    for resource, listed in sorted(state.config.facts.devices.items()):
        for device in listed:
            place = min(device.numa_nodes or (0,))
            free = Holder(f"{resource}, free" if device.healthy else f"{resource}, not healthy", "shared")
            found.setdefault(place, []).append((device.id, held.get((resource, device.id), free)))
    return found


def _memory(state: NodeState) -> dict[int, str]:
    """What is free of the memory of each NUMA node, where the memory manager keeps books."""
    found = {}
    for one in left_of(state).memory:
        group = one.group - NUMASet.of(one.numa)
        together = f", used together with {group}" if group else ""
        found[one.numa] = f"{amount(one.free.get('memory', 0))} free{together}"
    return found


# ---------------------------------------------------------------- boxes


def _numa(node: NUMANode, canvas: _Canvas) -> Drawing:
    groups: dict[int | None, list[Core]] = {}
    for core in sorted(node.cores, key=lambda core: min(core.thread_ids, default=0)):
        cache = core.uncore_caches[0].id if core.uncore_caches else None
        groups.setdefault(cache, []).append(core)
    parts = [_group(cache, cores, canvas, alone=len(groups) == 1) for cache, cores in groups.items()]
    devices = [
        _cell(name, holder, len(name) * CHARACTER + 10)
        for name, holder in canvas.devices.get(node.node_id, ())
    ]
    rows = [_flow(parts, PAGE / 2)] if parts else []
    rows += [_flow(devices, PAGE / 2)] if devices else []
    free = f", {canvas.memory[node.node_id]}" if node.node_id in canvas.memory else ""
    return _boxed(f"NUMA {node.node_id}: {amount(node.memory)}{free}", _stack(rows), "numa")


def _group(cache: int | None, cores: Sequence[Core], canvas: _Canvas, *, alone: bool) -> Drawing:
    across = 8 if len(cores) > 8 else 4
    drawn = [_core(core, canvas) for core in cores]
    rows = [_flow(drawn[start : start + across], PAGE) for start in range(0, len(drawn), across)]
    if cache is None or alone:
        return _stack(rows)
    return _boxed(f"L3 {cache}", _stack(rows), "cache")


def _core(core: Core, canvas: _Canvas) -> Drawing:
    threads = [_cell(str(cpu), canvas.owners[cpu], CELL, f"CPU {cpu}") for cpu in sorted(core.thread_ids)]
    inside = _flow(threads, PAGE, gap=1)
    frame = f'<rect class="core" width="{inside.width + 4:g}" height="{inside.height + 4:g}" rx="3"/>'
    return Drawing(inside.width + 4, inside.height + 4, frame + _at(inside, 2, 2))


def _cell(text: str, holder: Holder, width: float, name: str = "") -> Drawing:
    title = escape(f"{name or text}: {holder.name}")
    body = (
        f'<g class="cell {holder.style}"><title>{title}</title><rect width="{width:g}" height="{CELL}" rx="2"/>'
        f'<text x="{width / 2:g}" y="{CELL / 2 + 3.5:g}">{escape(text)}</text></g>'
    )
    return Drawing(width, CELL, body)


def _boxed(title: str, inside: Drawing, style: str) -> Drawing:
    width = max(inside.width, len(title) * CHARACTER) + 2 * PAD
    height = inside.height + TITLE + 2 * PAD
    body = (
        f'<rect class="{style}" width="{width:g}" height="{height:g}" rx="5"/>'
        f'<text class="title" x="{PAD}" y="{TITLE - 2}">{escape(title)}</text>{_at(inside, PAD, TITLE + PAD - 2)}'
    )
    return Drawing(width, height, body)


def _flow(drawings: Iterable[Drawing], width: float, gap: float = GAP) -> Drawing:
    """The drawings side by side, in rows of at most this width."""
    x = y = row = widest = 0.0
    body = ""
    for one in drawings:
        if x and x + one.width > width:
            x, y, row = 0.0, y + row + gap, 0.0
        body += _at(one, x, y)
        x, row = x + one.width + gap, max(row, one.height)
        widest = max(widest, x - gap)
    return Drawing(widest, y + row, body)


def _stack(drawings: Sequence[Drawing]) -> Drawing:
    """The drawings below each other."""
    y, body = 0.0, ""
    for one in drawings:
        body += _at(one, 0, y)
        y += one.height + GAP
    return Drawing(max((one.width for one in drawings), default=0), max(y - GAP, 0), body)


def _at(drawing: Drawing, x: float, y: float) -> str:
    return f'<g transform="translate({x:g} {y:g})">{drawing.body}</g>'
