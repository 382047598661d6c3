"""`nodewright dashboard`: the agent's page in a browser on this machine."""

import click

from nodewright.api.client import Client
from nodewright.cli.app import YES
from nodewright.cli.pages import address, show_until_stopped
from nodewright.cli.talking import talking


@click.command("dashboard")
@click.option(
    "--listen",
    default="",
    metavar="[ADDRESS:]PORT",
    help="Where the browser finds it. Default: any free port of 127.0.0.1.",
)
@talking
def command(agent: Client, *, listen: str) -> int:
    """Show what the agent of this machine does, live, in a browser: by a link that is printed, until Ctrl-C.

    The machine and who has what of it, memory and pressure with their thresholds, events; for each pod why it is where
    it is, for each that was refused what would let it in. The link opens once; nothing can be changed by it.
    """
    where = address(listen)
    agent.get("api/v1/nodes")  # Whether somebody is there is said here, not in the browser.
    from nodewright.api.relay import Relay  # noqa: PLC0415 - an extra, wanted here alone

    relay = Relay(agent.path)
    show_until_stopped(relay, where, "the dashboard is at", relay.close)
    return YES
