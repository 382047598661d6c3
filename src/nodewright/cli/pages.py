"""What commands share that show a page in a browser."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nodewright.cli.agent_stop import stop_asked

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from nodewright.api.local import Address

_MISSING = """pages in a browser take starlette and uvicorn, which are not here:
  pip install 'nodewright[agent]'"""


def address(text: str) -> "Address":
    """Where to listen.

    Errors: click.ClickException without the packages that it takes, click.UsageError for what is no address.
    """
    try:
        from nodewright.api.local import Address  # noqa: PLC0415 - an extra, wanted here alone
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("nodewright"):
            raise
        raise click.ClickException(_MISSING) from None
    try:
        return Address.parse(text) if text else Address()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def show_until_stopped(
    inside: "ASGIApp", where: "Address", about: str, leave: Callable[[], None] = lambda: None
) -> None:
    """Show the application until Ctrl-C; ``about`` says what there is to see.

    Errors: WorldError where somebody else listens there.
    """
    asyncio.run(_shown(inside, where, about, leave))


async def _shown(inside: "ASGIApp", where: "Address", about: str, leave: Callable[[], None]) -> None:
    from nodewright.api.local import shown  # noqa: PLC0415 - an extra, wanted here alone

    stopped = stop_asked()
    async with shown(inside, where, leave) as (gate, host):
        click.echo(f"{about}: {gate.link(host)}", err=True)
        if not where.is_loopback:
            click.echo(
                "warning: others reach this address; what they send and see is not encrypted", err=True
            )
        click.echo("Ctrl-C ends it", err=True)
        gate.on_entered = lambda: click.echo(f"for another browser: {gate.link(host)}", err=True)
        await stopped.wait()
