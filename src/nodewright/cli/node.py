"""`nodewright node`: machines as node profiles: this one, one from a dump, one of the catalogue."""

import shutil
import sys
from typing import Any

import click

from nodewright.ask import Node
from nodewright.cli.app import YES
from nodewright.cli.node_capture import capture
from nodewright.cli.node_export import export
from nodewright.cli.options import node as node_option
from nodewright.cli.options import output
from nodewright.model.profile import NodeProfile
from nodewright.node.placement import placement_of
from nodewright.render.admission import remaining_text
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.machine import amount, node_picture
from nodewright.render.marks import Holder, holders
from nodewright.render.placement import placement_texts
from nodewright.render.policies import policies_text
from nodewright.render.profiles import profile_document, profile_yaml
from nodewright.render.tables import table
from nodewright.world.catalogue import Entry, catalogue
from nodewright.world.machine.check import oddities
from nodewright.world.nodes import find_profile, shape_profile


@click.group("node")
def command() -> None:
    """Describe nodes: capture this machine, show one, list those that come with nodewright."""


command.add_command(capture)
command.add_command(export)


@command.command("show")
@node_option
@click.option("--ascii", "ascii_only", is_flag=True, help="Frames of plain ASCII characters.")
@output("yaml", "json")
def show(*, node: str | None, ascii_only: bool, output: str | None) -> int:
    """Draw a node: sockets, NUMA nodes, L3 caches, cores with their CPUs and who has them, memory, distances.

    Below: what its pods hold for themselves of CPUs, memory and devices, and what is left.
    """
    profile = find_profile(node)
    if output:
        click.echo(_document(profile, output), nl=False)
    else:
        _draw(profile, node or "this machine", ascii_only=ascii_only or not _can_print_frames())
    _warn(profile)
    return YES


def _draw(profile: NodeProfile, source: str, *, ascii_only: bool) -> None:
    """The machine, and what pods hold of it; if its kubelet would not start, the machine alone before that is said."""
    held: tuple[Holder, ...] = ()
    try:
        node = Node.of(profile, source=source) if profile.spec.pods else None
        held = holders(node.state, node.pods) if node else ()
    finally:
        click.echo(node_picture(profile, width=_width(), ascii_only=ascii_only, held=held), nl=False)
    if node:
        _show_pods(node)


def _show_pods(node: Node) -> None:
    """What the pods hold, and what is left of the node."""
    placed = [(pod, placement_of(node.state, pod)) for pod in node.pods]
    for text in (
        policies_text(node.config),
        *placement_texts(placed, node.state, wide=False),
        remaining_text(node.state),
    ):
        if text:
            click.echo(f"\n{text}", nl=False)
    for warning in node.warnings:
        click.echo(f"warning: {warning}", err=True)


@command.command("catalogue")
@click.argument("name", required=False)
@output("yaml", "json", "name")
def catalogue_command(name: str | None, output: str | None) -> int:
    """List the machines that come with nodewright, or print one as a NodeProfile."""
    if name is not None:
        click.echo(f"{name}\n" if output == "name" else _document(shape_profile(name), output), nl=False)
        return YES
    entries = catalogue().values()
    if output in ("json", "yaml"):
        listed = [_entry(one) for one in entries]
        click.echo(as_json(listed) if output == "json" else as_yaml(listed), nl=False)
    elif output == "name":
        click.echo("".join(f"{one.name}\n" for one in entries), nl=False)
    else:
        headers = ("NAME", "CPUS", "CORES", "SOCKETS", "NUMA", "L3", "MEMORY", "WHAT IT IS")
        click.echo(table(headers, map(_row, entries)), nl=False)
    return YES


def _document(profile: NodeProfile, output: str | None) -> str:
    return as_json(profile_document(profile)) if output == "json" else profile_yaml(profile)


def _warn(profile: NodeProfile) -> None:
    for fault in oddities(profile.spec.machine_info):
        click.echo(f"warning: {fault}", err=True)


def _width() -> int:
    return max(shutil.get_terminal_size().columns, 40)


def _can_print_frames() -> bool:
    """Whether the output is a terminal whose characters include those of frames."""
    try:
        "┌".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return sys.stdout.isatty()


def _row(entry: Entry) -> tuple[str, ...]:
    facts = _entry(entry)
    numbers = (str(facts[key]) for key in ("cpus", "cores", "sockets", "numaNodes", "l3Groups"))
    return entry.name, *numbers, amount(entry.machine.memory_capacity), entry.what


def _entry(entry: Entry) -> dict[str, Any]:
    machine = entry.machine
    cores = [core for node in machine.topology for core in node.cores]
    shared = {cache.id for node in machine.topology for cache in node.caches}
    return {
        "name": entry.name,
        "cpus": machine.num_cores,
        "cores": len(cores),
        "sockets": machine.num_sockets,
        "numaNodes": len(machine.topology),
        "l3Groups": len(shared | {cache.id for core in cores for cache in core.uncore_caches}),
        "memoryBytes": machine.memory_capacity,
        "what": entry.what,
        "recorded": entry.recorded,
    }
