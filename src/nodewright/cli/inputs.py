"""What commands do with their input before they ask."""

from collections.abc import Sequence

import click

from nodewright.cli.options import Manifests
from nodewright.world.errors import Fault, InputError
from nodewright.world.inventory import Inventory, load_inventory
from nodewright.world.manifests import Loaded, load_workloads


def workloads(filenames: Sequence[str], namespace: str) -> Loaded:
    """The workloads that the command line asks about.

    Errors: InputError with all faults of all files.
    """
    asked = Manifests.asked()
    return load_workloads(filenames, namespace, recursive=asked.recursive, max_bytes=asked.max_bytes)


def inventory(filenames: Sequence[str], namespace: str) -> Inventory:
    """All the objects that the command line asks about.

    Errors: InputError with all faults of all files.
    """
    asked = Manifests.asked()
    return load_inventory(filenames, namespace, recursive=asked.recursive, max_bytes=asked.max_bytes)


def tell(loaded: Loaded, warnings: Sequence[str], *, strict: bool = False) -> None:
    """Say on stderr what is odd about the input, what was passed over, and if there are no pods at all.

    Errors: InputError with the warnings, if people are strict.
    """
    warn(warnings, strict=strict)
    if loaded.skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in loaded.skipped.items())
        click.echo(f"skipped: {kinds}", err=True)
    if not loaded.workloads:
        click.echo("no pods found", err=True)


def warn(warnings: Sequence[str], *, strict: bool) -> None:
    """Say on stderr what is odd about the input.

    Errors: InputError with the warnings, if people are strict.
    """
    if strict and warnings:
        raise InputError([Fault(rule=warning) for warning in warnings])
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
