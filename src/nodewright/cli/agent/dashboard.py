"""`nodewright dashboard`: the agent's dashboard in a browser on this machine."""

import click

from nodewright.cli.agent.agent_connection import with_agent
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.command_line import option
from nodewright.documents.output.terminal import YES


@click.command("dashboard")
@option("--listen [ADDRESS:]PORT", "Address to listen on. Default: any free port of 127.0.0.1.", default="")
@with_agent
def command(agent: AgentClient, *, listen: str) -> int:
    """Serve the dashboard of this machine's agent at a link that is printed, until Ctrl-C.

    It shows the machine and its allocations, memory and pressure with their thresholds, and events; for each pod the
    reasons for its placement, for each refused pod what would let it in. The link works once; the page is read-only.
    """
    from nodewright.cli.browser_pages import serve_dashboard  # noqa: PLC0415 - needs the extra `dashboard`

    serve_dashboard(agent, listen)
    return YES
