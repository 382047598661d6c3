"""What fits on nodes as text: a part for each group of equal nodes."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import UnsetType

from nodewright.documents.output.text_layout import table, wrapped_text
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount, resource_sort_key
from nodewright.model.printable import counted, printable_lines
from nodewright.predict.fit.multiples import Multiple, multiple_text
from nodewright.predict.fit.node_fit import FitReport, FittedPod, GroupFit, NodeFit
from nodewright.predict.fit.queued import QueueFit
from nodewright.predict.fit.shapes import NUMAPlacement, Shape
from nodewright.predict.node_report.report_parts import NOTHING, table_without_empty_columns

_WIDTH = 100
_MAX_NAMES = 4
_MAX_EQUAL = 20
"""More nodes with equal answers than these have one row."""
_BOUNDED = "* The search was ended by its budget: there may be a better answer.\n"


def fit_text(report: FitReport) -> str:
    """Each group of equal nodes: what fits now, what is stranded, which pods to move, and what fits when empty."""
    blocks = [block for group in report.groups for block in _group_blocks(group)]
    for name, error in report.unread.items():
        blocks.append(printable_lines(wrapped_text(f"node {name} is not judged: {error}", _WIDTH)))
    if report.queues:
        blocks.append(_queues_table(report.queues))
    text = "\n".join(blocks)
    return f"{text}\n{_BOUNDED}" if "*" in text else text


def _queues_table(queues: Sequence[QueueFit]) -> str:
    rows = []
    for each in queues:
        pod = None if each.pod is None else f"{each.pod.namespace}/{each.pod.name}"
        counts = each.by_quota, each.on_nodes, each.on_one_node, each.never_used
        texts = [str(count) if pod else readable_amount(each.resource, count) for count in counts]
        flavors = ", ".join(each.flavors)
        rows.append((each.queue, flavors, str(each.nodes), pod or each.resource, *texts))
    heads = ("QUEUE", "FLAVOR", "NODES", "OF", "BY QUOTA", "NODES TAKE", "LARGEST NODE", "NEVER USED")
    return table(heads, rows)


def _group_blocks(group: GroupFit) -> Iterator[str]:
    count = f"{counted(len(group.nodes), 'equal node')}: " if len(group.nodes) > 1 else "node "
    yield printable_lines([f"{count}{_first(group.nodes)}: topology manager policy {group.topology_policy}"])
    fits = [(fit.node.node, fit) for fit in group.now]
    if group.now[0].pods:
        yield table(
            ("NODE", "POD", "MORE NOW", "BY AMOUNTS", "EMPTY", "STRANDED"),
            list(_pod_rows(group.now)),
        )
    if len(fits) == 1:
        for pod in group.now[0].pods:
            yield from _pod_blocks(pod)
    yield from _held_blocks(group.now)
    if group.now[0].pods:
        yield _policies_table(group)
        return
    used: dict[tuple[Shape, ...], list[str]] = {}
    for name, fit in fits:
        if any(node.pods for node in fit.numa_nodes):
            used.setdefault(fit.shapes_now, []).append(name)
    for shapes_now, equal in used.items():
        yield _shapes_table(f"{_first(equal)} now", shapes_now, group.resource)
    policies: dict[tuple[Shape, ...] | None, list[str]] = {}
    for policy in group.policies:
        shapes = None if policy.admitted_empty is None else policy.shapes
        own = " (own)" * (policy.policy == group.topology_policy)
        policies.setdefault(shapes, []).append(f"{policy.policy}{own}")
    for shapes, equal in policies.items():
        title = f"empty, {'policy' if len(equal) == 1 else 'policies'} {', '.join(equal)}"
        if shapes is None:
            yield f"{title}: the kubelet does not start\n"
        else:
            yield _shapes_table(title, shapes, group.resource)


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMES]) + ", ..." * (len(names) > _MAX_NAMES)


def _pod_rows(fits: Sequence[NodeFit]) -> Iterator[Sequence[str]]:
    """A row for each node and pod, or for many nodes with equal answers."""
    nodes: dict[Sequence[str], list[str]] = {}
    for fit in fits:
        for pod in fit.pods:
            nodes.setdefault(_pod_cells(pod), []).append(fit.node.node)
    for fit in fits:
        for cells in map(_pod_cells, fit.pods):
            equal = nodes[cells]
            if len(equal) <= _MAX_EQUAL:
                yield fit.node.node, *cells
            elif equal[0] == fit.node.node:
                yield f"{_first(equal)} ({len(equal)} nodes)", *cells


def _pod_cells(pod: FittedPod) -> tuple[str, ...]:
    empty = NOTHING if pod.copies_empty is None else str(pod.copies_empty)
    counts = (str(pod.copies_now), str(pod.copies_by_amounts), empty)
    return _name(pod), *counts, _amounts(pod.stranded) or NOTHING


def _pod_blocks(pod: FittedPod) -> Iterator[str]:
    """Why no further copy is admitted if something is stranded, and the multiples."""
    reasons = [f"the scheduler does not choose the node: {obstacle.why}" for obstacle in pod.scheduler]
    reasons += pod.why if pod.stranded else ()
    if reasons:
        yield printable_lines(
            [f"{_name(pod)}:", *(line for text in reasons for line in wrapped_text(text, _WIDTH, "  - "))]
        )
    rows = [
        (
            each.resource or "all together",
            readable_amount(each.resource, each.requested or 0) if each.resource else "1x",
            *(_multiple(multiple, each.resource) for multiple in (each.now, each.empty)),
        )
        for each in pod.largest
    ]
    yield table((f"LARGEST {_name(pod)}", "REQUESTED", "NOW", "EMPTY"), rows)


def _multiple(multiple: Multiple | None, resource: str | UnsetType) -> str:
    """The amount of the resource, or the factor of all together with the amounts."""
    if multiple is None:
        return "none"
    text = multiple_text(multiple)
    factor = f"{multiple.factor / multiple.parts:.3f}".rstrip("0").rstrip(".")
    return _marked(text.partition(" ")[0] if resource else f"{factor}x: {text}", multiple)


def _marked(text: str, found: Multiple | Shape | None) -> str:
    return text if found is None or found.is_proved else f"{text}*"


def _held_blocks(fits: Sequence[NodeFit]) -> Iterator[str]:
    """The NUMA nodes that pods hold open, and which pods to move."""
    held = [
        (fit.node.node, str(node.numa_node), _free(node.free), _names(node.pods))
        for fit in fits
        for node in fit.numa_nodes
        if node.is_held_open and len(fit.numa_nodes) > 1
    ]
    if held:
        yield table(("NODE", "NUMA", "FREE", "HELD OPEN BY"), held)
    moves = [
        (fit.node.node, *row)
        for fit in fits
        if any(node.pods for node in fit.numa_nodes)
        for row in _move_rows(fit)
    ]
    if moves:
        headers = ("NODE", "FOR", "FEWEST PODS TO MOVE", "COME BACK")
        yield table_without_empty_columns(headers, moves, optional=("COME BACK",))


def _move_rows(fit: NodeFit) -> Iterator[tuple[str, str, str]]:
    for move in fit.to_move:
        kind = move.frees.rpartition(" ")[0]
        purpose = move.frees if kind == "room for" else f"a whole {kind} ({move.frees})"
        pods = _names(move.pods) or "none, it is free"
        yield purpose, pods + "*" * (not move.is_smallest), _names(move.cannot_move) or NOTHING


def _shapes_table(title: str, shapes: Sequence[Shape], resource: str) -> str:
    """A row for the numbers of devices with equal largest shapes, a column for each placement."""
    placements = [each for each in NUMAPlacement if any(shape.placement is each for shape in shapes)]
    cells = {
        (shape.devices, shape.placement): _marked(
            f"{_range(shape)} CPUs, {readable_amount(MEMORY, shape.memory)}", shape
        )
        for shape in shapes
    }
    counts: dict[tuple[str, ...], list[int]] = {}
    for count in sorted({shape.devices for shape in shapes}):
        counts.setdefault(tuple(cells.get((count, each), NOTHING) for each in placements), []).append(count)
    headers = (resource or "DEVICES", *(each.upper() for each in placements))
    rows = [(", ".join(map(str, numbers)), *row) for row, numbers in counts.items()]
    return f"{title}\n{table(headers, rows)}" if rows else f"{title}: no pod is admitted\n"


def _range(shape: Shape) -> str:
    is_small = shape.fewest_cpus <= 2 or shape.fewest_cpus == shape.cpus
    return str(shape.cpus) if is_small else f"{shape.fewest_cpus}-{shape.cpus}"


def _policies_table(group: GroupFit) -> str:
    rows = [
        (
            fit.policy + " (own)" * (fit.policy == group.topology_policy),
            NOTHING if fit.admitted_now is None else str(fit.admitted_now),
            "does not start" if fit.admitted_empty is None else str(fit.admitted_empty),
            "most" if fit.policy == group.best_policy else NOTHING,
        )
        for fit in group.policies
    ]
    of_first = f" ({group.nodes[0]})" * (len(group.nodes) > 1)
    return table(("POLICY", f"ADMITS NOW{of_first}", "EMPTY", "ADMITS"), rows)


def _name(pod: FittedPod) -> str:
    return f"{pod.pod.namespace}/{pod.pod.name}"


def _names(pods: Sequence[Pod]) -> str:
    return ", ".join(pod.full_name for pod in pods)


def _free(amounts: Mapping[str, int]) -> str:
    return _amounts({name: amount * (1000 if name == CPU else 1) for name, amount in amounts.items()})


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(
        f"{readable_amount(name, amounts[name])} {'CPUs' if name == CPU else name}"
        for name in sorted(amounts, key=resource_sort_key)
    )
