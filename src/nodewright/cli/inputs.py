"""What commands do with their input before they ask."""

from collections.abc import Iterable, Mapping, Sequence

import click

from nodewright.cli.options import Manifests
from nodewright.world.manifests import Loaded, load_workloads


def workloads(filenames: Sequence[str], namespace: str) -> Loaded:
    """The workloads that the command line asks about.

    Errors: InputError with all faults of all files.
    """
    asked = Manifests.asked()
    return load_workloads(filenames, namespace, recursive=asked.recursive, max_bytes=asked.max_bytes)


def tell(warnings: Iterable[str], skipped: Mapping[str, int]) -> None:
    """Say on stderr what is odd about the input and what was passed over."""
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        click.echo(f"skipped: {kinds}", err=True)
