"""`nodewright top`: the current usage of pods or the node."""

import click

from nodewright.cli.agent.agent_connection import POD_RESOURCE_NAMES, scope_options, with_agent
from nodewright.cli.options import output_option
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.kubectl_tables import node_usage_table, pod_usage_table
from nodewright.documents.output.terminal import YES, print_message, print_text


@click.command("top")
@click.argument("what", metavar="pods|node")
@scope_options
@click.option("--containers", is_flag=True, help="Print a line per container (pods only).")
@output_option("json", "yaml")
@with_agent
def command(agent: AgentClient, *, what: str, scope: str | None, containers: bool, output: str | None) -> int:
    """Show the current usage of pods or the node.

    CPU is measured over a short interval, in thousandths of a CPU; memory is the working set.
    """
    if what not in (*POD_RESOURCE_NAMES, "node", "nodes", "no"):
        raise click.UsageError(f"{what!r} is not one of pods, node")
    usage = agent.get("nodewright/v1/usage")
    pods = [pod for pod in usage["pods"] if scope is None or pod["namespace"] == scope]
    if output is not None:
        document = {"pods": pods} if what in POD_RESOURCE_NAMES else {"node": usage["node"]}
        print_text((as_json if output == "json" else as_yaml)(document))
    elif what not in POD_RESOURCE_NAMES:
        print_text(node_usage_table(usage["node"]))
    elif not pods:
        print_message("No resources found.")
    else:
        print_text(pod_usage_table(pods, with_namespace=scope is None, by_container=containers))
    return YES
