"""`nodewright dashboard`: the agent's dashboard in a browser on this machine."""

import click

from nodewright.cli.agent.agent_connection import with_agent
from nodewright.cli.browser_pages import listen_address, serve_until_stopped
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.terminal import YES


@click.command("dashboard")
@click.option(
    "--listen",
    default="",
    metavar="[ADDRESS:]PORT",
    help="Address to listen on. Default: any free port of 127.0.0.1.",
)
@with_agent
def command(agent: AgentClient, *, listen: str) -> int:
    """Serve the dashboard of this machine's agent at a link that is printed, until Ctrl-C.

    It shows the machine and its allocations, memory and pressure with their thresholds, and events; for each pod the
    reasons for its placement, for each refused pod what would let it in. The link works once; the page is read-only.
    """
    address = listen_address(listen)
    agent.get("api/v1/nodes")  # An unreachable agent is reported here, not in the browser.
    from nodewright.agent.serving.proxy import AgentProxy  # noqa: PLC0415 - needs the extra `dashboard`

    proxy = AgentProxy(agent.path)
    serve_until_stopped(proxy, address, "dashboard at", proxy.close)
    return YES
