"""`nodewright node export`: a node as an object of the cluster that others read."""

from pathlib import Path

import click
from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.cli.app import YES
from nodewright.cli.live_nodes import agent_profile, told_resources
from nodewright.cli.options import node as node_option
from nodewright.cli.options import output
from nodewright.model.profile import NodeProfile
from nodewright.node.pod_resources import allocatable_resources, pod_resources
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.profiles import profile_document, profile_yaml
from nodewright.render.topology_object import TopologySource, topology_document
from nodewright.world.captured.cluster import read_configz
from nodewright.world.kubelet_config import kubelet_config_from, load_kubelet_config
from nodewright.world.nodes import find_profile

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SOCKET = click.Path(path_type=Path)


@click.command("export")
@node_option
@click.option("--nrt", is_flag=True, help="As NodeResourceTopology v1alpha2. Default: as NodeProfile.")
@click.option("--socket", type=_SOCKET, metavar="PATH", help="The node of a running agent that listens here.")
@click.option(
    "--pod-resources",
    type=_SOCKET,
    metavar="SOCKET",
    help="With --nrt: what a live kubelet's socket says; --node is its machine. Default: this machine.",
)
@click.option(
    "--kubelet-config", type=_FILE, metavar="FILE", help="With --pod-resources: that kubelet's configuration."
)
@click.option("--configz", type=_FILE, metavar="FILE", help="The same, as its /configz answers.")
@click.option("--node-name", default="", metavar="NAME", help="The object's name. Default: the node's.")
@output("yaml", "json")
def export(  # noqa: PLR0913 - one argument an option
    *,
    node: str | None,
    nrt: bool,
    socket: Path | None,
    pod_resources: Path | None,
    kubelet_config: Path | None,
    configz: Path | None,
    node_name: str,
    output: str | None,
) -> int:
    """Print a node for others to read: what each of its NUMA nodes has and has left (--nrt), as NFD's topology
    updater publishes it for schedulers; or a running agent's node as a NodeProfile.

    The node is that of --node, a running agent's (--socket) or a live kubelet's (--pod-resources).
    """
    if socket and (pod_resources or node):
        raise click.UsageError("--socket excludes --node and --pod-resources: an agent says it all")
    if pod_resources and not nrt:
        raise click.UsageError(
            "--pod-resources is for --nrt; `nodewright node capture --pod-resources` makes a NodeProfile of it"
        )
    if (kubelet_config or configz) and not pod_resources:
        raise click.UsageError("--kubelet-config and --configz are for --pod-resources")
    if pod_resources:
        source = _of_kubelet(find_profile(node), pod_resources, _policies(kubelet_config, configz))
        if not source.policy:
            click.echo(
                "not told: the topology manager's policy and scope (--kubelet-config, --configz)", err=True
            )
    else:
        profile = agent_profile(socket) if socket else find_profile(node)
        if not nrt:
            click.echo(_profile_text(profile, output), nl=False)
            return YES
        source = _of_profile(profile, str(socket or node or "this machine"))
    found = topology_document(replace(source, name=node_name or source.name))
    click.echo(as_json(found) if output == "json" else as_yaml(found), nl=False)
    return YES


def _of_profile(profile: NodeProfile, source: str) -> TopologySource:
    node = Node.of(profile, source=source)
    for warning in node.warnings:
        click.echo(f"warning: {warning}", err=True)
    kubelet, state = node.config.parts.kubelet, node.state
    return TopologySource(
        name=node.name,
        machine=node.config.parts.machine,
        allocatable=allocatable_resources(state),
        pods=tuple(pod_resources(state, pod) for pod in state.pods.values()),
        policy=kubelet.topology_manager_policy,
        scope=kubelet.topology_manager_scope,
    )


def _of_kubelet(machine: NodeProfile, socket: Path, policies: tuple[str, str]) -> TopologySource:
    told = told_resources(socket)
    return TopologySource(
        name=machine.metadata.name,
        machine=machine.spec.machine_info,
        allocatable=told.allocatable,
        pods=told.pods,
        policy=policies[0],
        scope=policies[1],
    )


def _policies(kubelet_config: Path | None, configz: Path | None) -> tuple[str, str]:
    """The topology manager's policy and scope; empty where nobody says them."""
    if configz:
        config = kubelet_config_from(read_configz(configz), str(configz)).config
    elif kubelet_config:
        config = load_kubelet_config(kubelet_config).config
    else:
        return "", ""
    return config.topology_manager_policy, config.topology_manager_scope


def _profile_text(profile: NodeProfile, output: str | None) -> str:
    return as_json(profile_document(profile)) if output == "json" else profile_yaml(profile)
