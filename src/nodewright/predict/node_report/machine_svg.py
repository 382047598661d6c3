"""A machine as an SVG drawing: sockets, NUMA nodes, L3 groups, cores and threads, coloured by owner."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import msgspec

from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.model.hardware import Core, NUMANode
from nodewright.model.printable import counted
from nodewright.model.values.idset import NUMASet
from nodewright.predict.node_report.machine_drawing import bytes_text

CELL, GAP, PAD, TITLE = 22, 4, 8, 18
PAGE = 1080
"""The width of the drawing."""
CHARACTER = 6.4
"""Approximate width of a character."""
COLOURS = 10
"""Number of colours; with more pods, colours repeat."""


class SVGDrawing(msgspec.Struct, frozen=True):
    """A part of the drawing with its size.

    Units: width and height in pixels.
    """

    width: float
    height: float
    body: str


class ColouredPod(msgspec.Struct, frozen=True):
    """An owner of CPUs or devices, and the CSS class of its colour."""

    name: str
    style: str


def coloured_pods(state: NodeState) -> dict[str, str]:
    """The CSS class of each pod with exclusive allocations, by pod name in order of admission."""
    allocations = state.held
    holder_uids = {
        *allocations.cpu.assignments,
        *allocations.cpu.pods,
        *allocations.memory.assignments,
        *allocations.devices.pod_devices,
    }
    names = [pod.full_name for uid, pod in state.pods.items() if uid in holder_uids]
    return {name: f"p{index % COLOURS}" for index, name in enumerate(names)}


def machine_svg(state: NodeState) -> str:
    """The node's machine with the owners of CPUs and devices, as an SVG element; colours come from the page's styles."""
    nodes = sorted(state.config.parts.machine.topology, key=lambda node: node.node_id)
    canvas = _SVGCanvas(_owners(state), _devices(state), _memory(state))
    sockets: dict[int, list[SVGDrawing]] = {}
    for node in nodes:
        socket = node.cores[0].socket_id if node.cores else -1
        sockets.setdefault(socket, []).append(_numa(node, canvas))
    boxes = [
        _boxed(
            f"socket {socket}" if socket >= 0 else "NUMA nodes without CPUs",
            _flow(socket_nodes, PAGE - 2 * PAD),
            "socket",
        )
        for socket, socket_nodes in sorted(sockets.items(), key=lambda item: (item[0] < 0, item[0]))
    ]
    page = _flow(boxes, PAGE)
    label = f"{counted(len(nodes), 'NUMA node')} with {counted(state.config.parts.machine.num_cores, 'CPU')}, coloured by owner"
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {page.width:g} {page.height:g}" '
        f'width="{page.width:g}" height="{page.height:g}" xmlns="http://www.w3.org/2000/svg">{page.body}</svg>'
    )


class _SVGCanvas(msgspec.Struct, frozen=True):
    owners: Mapping[int, ColouredPod]
    devices: Mapping[int, Sequence[tuple[str, ColouredPod]]]
    memory: Mapping[int, str]


# ---------------------------------------------------------------- owners


def _owners(state: NodeState) -> dict[int, ColouredPod]:
    """The owner of each CPU."""
    free, styles = unallocated_resources(state), coloured_pods(state)
    everything = (
        id_ for node in state.config.parts.machine.topology for core in node.cores for id_ in core.thread_ids
    )
    owners = dict.fromkeys(everything, ColouredPod("shared pool", "shared"))
    for cpu in free.reserved_cpus:
        owners[cpu] = ColouredPod("reserved for the system", "reserved")
    for holder in state.held.cpu.holders():
        pod = state.pods.get(holder.pod)
        if pod is not None:
            name = f"{pod.full_name} ({holder.container})" if holder.container else pod.full_name
            owners.update(dict.fromkeys(holder.cpus, ColouredPod(name, styles[pod.full_name])))
    return owners


def _devices(state: NodeState) -> dict[int, list[tuple[str, ColouredPod]]]:
    """The devices of each NUMA node with their holders; a device of several nodes is drawn on the first."""
    styles = coloured_pods(state)
    holders: dict[tuple[str, str], ColouredPod] = {}
    for uid, containers in state.held.devices.pod_devices.items():
        pod = state.pods.get(uid)
        for container, resources in containers.items() if pod is not None else ():
            assert pod is not None
            for resource, devices in resources.items():
                owner = ColouredPod(f"{pod.full_name} ({container})", styles[pod.full_name])
                holders.update({(resource, device): owner for device in devices})
    devices_by_numa: dict[int, list[tuple[str, ColouredPod]]] = {}
    for resource, listed in sorted(state.config.facts.devices.items()):
        for device in listed:
            place = min(device.numa_nodes or (0,))
            free = ColouredPod(
                f"{resource}, free" if device.healthy else f"{resource}, not healthy", "shared"
            )
            devices_by_numa.setdefault(place, []).append(
                (device.id, holders.get((resource, device.id), free))
            )
    return devices_by_numa


def _memory(state: NodeState) -> dict[int, str]:
    """The free memory of each NUMA node under the static memory manager policy."""
    texts = {}
    for numa_memory in unallocated_resources(state).memory:
        group = numa_memory.group - NUMASet.of(numa_memory.numa)
        together = f", used together with {group}" if group else ""
        texts[numa_memory.numa] = f"{bytes_text(numa_memory.free.get('memory', 0))} free{together}"
    return texts


# ---------------------------------------------------------------- boxes


def _numa(node: NUMANode, canvas: _SVGCanvas) -> SVGDrawing:
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
    return _boxed(f"NUMA {node.node_id}: {bytes_text(node.memory)}{free}", _stack(rows), "numa")


def _group(cache: int | None, cores: Sequence[Core], canvas: _SVGCanvas, *, alone: bool) -> SVGDrawing:
    across = 8 if len(cores) > 8 else 4
    drawn = [_core(core, canvas) for core in cores]
    rows = [_flow(drawn[start : start + across], PAGE) for start in range(0, len(drawn), across)]
    if cache is None or alone:
        return _stack(rows)
    return _boxed(f"L3 {cache}", _stack(rows), "cache")


def _core(core: Core, canvas: _SVGCanvas) -> SVGDrawing:
    threads = [_cell(str(cpu), canvas.owners[cpu], CELL, f"CPU {cpu}") for cpu in sorted(core.thread_ids)]
    inside = _flow(threads, PAGE, gap=1)
    frame = f'<rect class="core" width="{inside.width + 4:g}" height="{inside.height + 4:g}" rx="3"/>'
    return SVGDrawing(inside.width + 4, inside.height + 4, frame + _at(inside, 2, 2))


def _cell(text: str, holder: ColouredPod, width: float, name: str = "") -> SVGDrawing:
    title = escape(f"{name or text}: {holder.name}")
    body = (
        f'<g class="cell {holder.style}"><title>{title}</title><rect width="{width:g}" height="{CELL}" rx="2"/>'
        f'<text x="{width / 2:g}" y="{CELL / 2 + 3.5:g}">{escape(text)}</text></g>'
    )
    return SVGDrawing(width, CELL, body)


def _boxed(title: str, inside: SVGDrawing, style: str) -> SVGDrawing:
    width = max(inside.width, len(title) * CHARACTER) + 2 * PAD
    height = inside.height + TITLE + 2 * PAD
    body = (
        f'<rect class="{style}" width="{width:g}" height="{height:g}" rx="5"/>'
        f'<text class="title" x="{PAD}" y="{TITLE - 2}">{escape(title)}</text>{_at(inside, PAD, TITLE + PAD - 2)}'
    )
    return SVGDrawing(width, height, body)


def _flow(drawings: Iterable[SVGDrawing], width: float, gap: float = GAP) -> SVGDrawing:
    """The drawings side by side, in rows of at most this width."""
    x = y = row = widest = 0.0
    body = ""
    for drawing in drawings:
        if x and x + drawing.width > width:
            x, y, row = 0.0, y + row + gap, 0.0
        body += _at(drawing, x, y)
        x, row = x + drawing.width + gap, max(row, drawing.height)
        widest = max(widest, x - gap)
    return SVGDrawing(widest, y + row, body)


def _stack(drawings: Sequence[SVGDrawing]) -> SVGDrawing:
    """The drawings below each other."""
    y, body = 0.0, ""
    for drawing in drawings:
        body += _at(drawing, 0, y)
        y += drawing.height + GAP
    return SVGDrawing(max((drawing.width for drawing in drawings), default=0), max(y - GAP, 0), body)


def _at(drawing: SVGDrawing, x: float, y: float) -> str:
    return f'<g transform="translate({x:g} {y:g})">{drawing.body}</g>'
