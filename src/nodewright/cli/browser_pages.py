"""Serving a page in a browser until Ctrl-C."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from nodewright.cluster.tasks.supervision import stop_event
from nodewright.documents.output.terminal import print_log_line, print_message

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from nodewright.cluster.serving.browser_auth import PageAddress


def listen_address(text: str) -> "PageAddress":
    """The address to listen on.

    Errors: click.UsageError for a malformed address.
    """
    from nodewright.cluster.serving.browser_auth import PageAddress  # noqa: PLC0415 - needs the extra `dashboard`

    try:
        return PageAddress.parse(text) if text else PageAddress()
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def serve_until_stopped(
    app: "ASGIApp", address: "PageAddress", label: str, on_exit: Callable[[], None] = lambda: None
) -> None:
    """Serves the application until Ctrl-C; ``label`` precedes the printed link.

    Errors: HostError if the address is in use.
    """
    asyncio.run(_serve(app, address, label, on_exit))


async def _serve(app: "ASGIApp", address: "PageAddress", label: str, on_exit: Callable[[], None]) -> None:
    from nodewright.cluster.serving.browser_auth import serve_local_pages  # noqa: PLC0415 - needs the extra `dashboard`
    from nodewright.cluster.serving.http_server import log_to_stderr  # noqa: PLC0415 - as above

    # From here on nothing may wait for the reader of stderr.
    log_to_stderr()
    stopped = stop_event()
    async with serve_local_pages(app, address, on_exit) as (browser_auth, host):
        print_message(f"{label}: {browser_auth.login_url(host)}")
        if not address.is_loopback:
            print_log_line(
                "warning: this address is reachable from other machines, and traffic is not encrypted"
            )
        print_log_line("press Ctrl-C to stop")
        browser_auth.on_login = lambda: print_log_line(f"for another browser: {browser_auth.login_url(host)}")
        await stopped.wait()
