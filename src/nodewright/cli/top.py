"""`nodewright top`: what pods and the machine use."""

import click

from nodewright.api.client import Client
from nodewright.cli.app import YES
from nodewright.cli.options import output as formats
from nodewright.cli.talking import PODS, scoped, talking
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.listing import node_usage_table, pod_usage_table


@click.command("top")
@click.argument("what", metavar="pods|node")
@scoped
@click.option("--containers", is_flag=True, help="A line for each container (pods only).")
@formats("json", "yaml")
@talking
def command(agent: Client, *, what: str, scope: str | None, containers: bool, output: str | None) -> int:
    """Say what pods or the machine use, measured over a moment: CPU in thousandths, memory that cannot be
    given back at once.
    """
    if what not in (*PODS, "node", "nodes", "no"):
        raise click.UsageError(f"{what!r} is none of pods, node")
    used = agent.get("nodewright/v1/usage")
    pods = [one for one in used["pods"] if scope is None or one["namespace"] == scope]
    if output is not None:
        shown = {"pods": pods} if what in PODS else {"node": used["node"]}
        click.echo((as_json if output == "json" else as_yaml)(shown), nl=False)
    elif what not in PODS:
        click.echo(node_usage_table(used["node"]), nl=False)
    elif not pods:
        click.echo("No resources found.", err=True)
    else:
        click.echo(pod_usage_table(pods, with_namespace=scope is None, by_container=containers), nl=False)
    return YES
