"""What commands do with their input before they ask."""

from collections.abc import Iterable, Mapping

import click


def tell(warnings: Iterable[str], skipped: Mapping[str, int]) -> None:
    """Say on stderr what is odd about the input and what was passed over."""
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in skipped.items())
        click.echo(f"skipped: {kinds}", err=True)
