"""`nodewright node`: node profiles of this machine, of captured files and of the catalogue.

`nodewright node export`: a node as a NodeResourceTopology object or a NodeProfile.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.node import capture
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import YES, print_message, print_text, terminal_columns
from nodewright.documents.output.text_layout import table
from nodewright.documents.profiles.capture.from_cluster import read_configz
from nodewright.documents.profiles.catalogue import CatalogueMachine, catalogue, catalogue_profile
from nodewright.documents.profiles.kubelet_config_files import kubelet_config_from, load_kubelet_config
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml
from nodewright.engine.node.pod_placement import placement_of
from nodewright.model.hardware.machine_faults import irregularities
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.printable import printable_line, printable_lines
from nodewright.predict.audit.evidence_sources import read_agent_profile, read_pod_resources
from nodewright.predict.node import Node
from nodewright.predict.node_report.machine_drawing import CPUOwner, bytes_text, cpu_owners, node_picture
from nodewright.predict.node_report.node_resource_topology import (
    TopologySource,
    node_resource_topology,
    topology_source,
)
from nodewright.predict.node_report.report_parts import placement_tables, policy_notices, remaining_text


@click.command("export")
@partial(cluster_options, takes_node=True)
@options.node_option()
@click.option("--nrt", is_flag=True, help="Print a NodeResourceTopology v1alpha2. Default: a NodeProfile.")
@options.agent_socket_option("Socket of a running agent, to export its node.")
@options.pod_resources_option(
    "With --nrt: socket of a live kubelet; --node is its machine. Default: this machine."
)
@options.kubelet_config_option("With --pod-resources: that kubelet's configuration.", kind=options.FILE)
@options.configz_option("With --pod-resources: that kubelet's configuration, from its /configz.")
@options.node_name_option("Name of the object. Default: the node's.")
@options.output_option("yaml", "json")
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
    """Export a node as a NodeResourceTopology object or a NodeProfile.

    NodeResourceTopology (--nrt) has the capacity and the available resources of each NUMA node, as NFD's topology
    updater publishes them for schedulers. The node is that of --node, a running agent's (--socket) or a live
    kubelet's (--pod-resources).
    """
    if socket and (pod_resources or node):
        raise click.UsageError("--socket excludes --node and --pod-resources")
    if pod_resources and not nrt:
        raise click.UsageError(
            "--pod-resources requires --nrt; for a NodeProfile use `nodewright node capture --pod-resources`"
        )
    if (kubelet_config or configz) and not pod_resources:
        raise click.UsageError("--kubelet-config and --configz require --pod-resources")
    if pod_resources:
        source = _of_kubelet(find_profile(node), pod_resources, _policies(kubelet_config, configz))
        if not source.policy:
            print_message(
                "unknown: the topology manager's policy and scope (specify --kubelet-config or --configz)"
            )
    else:
        profile = read_agent_profile(socket) if socket else find_profile(node)
        if not nrt:
            print_text(_document(profile, output))
            return YES
        source = _of_profile(profile, str(socket or node or "this machine"))
    topology = node_resource_topology(replace(source, name=node_name or source.name))
    print_text(as_json(topology) if output == "json" else as_yaml(topology))
    return YES


def _of_profile(profile: NodeProfile, source: str) -> TopologySource:
    node = Node.from_profile(profile, source=source)
    for warning in node.warnings:
        print_message(f"warning: {warning}")
    return topology_source(node)


def _of_kubelet(machine: NodeProfile, socket: Path, policies: tuple[str, str]) -> TopologySource:
    resources = read_pod_resources(socket)
    return TopologySource(
        name=machine.metadata.name,
        machine=machine.spec.machine_info,
        allocatable=resources.allocatable,
        pods=resources.pods,
        policy=policies[0],
        scope=policies[1],
    )


def _policies(kubelet_config: Path | None, configz: Path | None) -> tuple[str, str]:
    """The topology manager's policy and scope; empty if unknown."""
    if configz:
        config = kubelet_config_from(read_configz(configz), str(configz)).config
    elif kubelet_config:
        config = load_kubelet_config(kubelet_config).config
    else:
        return "", ""
    return config.topology_manager_policy, config.topology_manager_scope


@click.group("node")
def command() -> None:
    """Capture, show, export and list nodes."""


command.add_command(capture)
command.add_command(export)


@command.command("show")
@partial(cluster_options, takes_node=True, is_about_node=True)
@options.node_option()
@click.option("--ascii", "ascii_only", is_flag=True, help="Draw frames with ASCII characters.")
@options.output_option("yaml", "json")
def show(*, node: str | None, ascii_only: bool, output: str | None) -> int:
    """Draw a node: sockets, NUMA nodes, L3 caches, cores, CPUs and the pods that hold them, memory, distances.

    Below: the exclusive CPUs, memory and devices of its pods, and what is left.
    """
    profile = find_profile(node)
    if output:
        print_text(_document(profile, output))
    else:
        _draw(profile, node or "this machine", ascii_only=ascii_only or not _can_print_frames())
    _warn(profile)
    return YES


def _draw(profile: NodeProfile, source: str, *, ascii_only: bool) -> None:
    """Draws the machine and the CPUs that pods hold; without pods if its kubelet does not start, before the error."""
    owners: tuple[CPUOwner, ...] = ()
    try:
        node = Node.from_profile(profile, source=source) if profile.spec.pods else None
        owners = cpu_owners(node.state, node.pods) if node else ()
    finally:
        print_text(node_picture(profile, width=_width(), ascii_only=ascii_only, owners=owners))
    if node:
        _print_pods(node)


def _print_pods(node: Node) -> None:
    """Prints what the pods hold, and what is left of the node."""
    placements = [(pod, placement_of(node.state, pod)) for pod in node.pods]
    for text in (
        policy_notices(node.config),
        *placement_tables(placements, node.state, wide=False),
        remaining_text(node.state),
    ):
        if text:
            print_text(f"\n{text}")
    for warning in node.warnings:
        print_message(f"warning: {warning}")


@command.command("catalogue")
@click.argument("name", required=False)
@options.output_option("yaml", "json", "name")
def catalogue_command(name: str | None, output: str | None) -> int:
    """List the machines of nodewright's catalogue, or print one as a NodeProfile.

    The output formats but the table name the sources of the figures, and those that have none.
    """
    if name is not None:
        print_text(printable_line(name) if output == "name" else _document(catalogue_profile(name), output))
        return YES
    entries = catalogue().values()
    if output in ("json", "yaml"):
        documents = [_entry_document(entry) for entry in entries]
        print_text(as_json(documents) if output == "json" else as_yaml(documents))
    elif output == "name":
        print_text(printable_lines(entry.name for entry in entries))
    else:
        headers = ("NAME", "CPUS", "CORES", "SOCKETS", "NUMA", "L3", "MEMORY", "DESCRIPTION")
        print_text(table(headers, map(_row, entries)))
    return YES


def _document(profile: NodeProfile, output: str | None) -> str:
    return (as_json if output == "json" else profile_yaml)(profile_document(profile))


def _warn(profile: NodeProfile) -> None:
    for fault in irregularities(profile.spec.machine_info):
        print_message(f"warning: {fault}")


def _width() -> int:
    return max(terminal_columns(), 40)


def _can_print_frames() -> bool:
    """Whether the output is a terminal that can print box-drawing characters."""
    try:
        "┌".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return sys.stdout.isatty()


def _row(entry: CatalogueMachine) -> tuple[str, ...]:
    document = _entry_document(entry)
    numbers = (str(document[key]) for key in ("cpus", "cores", "sockets", "numaNodes", "l3Groups"))
    return entry.name, *numbers, bytes_text(entry.machine.memory_capacity), entry.description


def _entry_document(entry: CatalogueMachine) -> dict[str, Any]:
    machine = entry.machine
    cores = [core for node in machine.topology for core in node.cores]
    node_caches = {cache.id for node in machine.topology for cache in node.caches}
    return {
        "name": entry.name,
        "cpus": machine.num_cores,
        "cores": len(cores),
        "sockets": machine.num_sockets,
        "numaNodes": len(machine.topology),
        "l3Groups": len(node_caches | {cache.id for core in cores for cache in core.uncore_caches}),
        "memoryBytes": machine.memory_capacity,
        "devices": {resource: len(devices) for resource, devices in entry.devices.items()},
        "what": entry.description,
        "recorded": entry.is_recorded,
        "sources": list(entry.sources),
        "assumed": entry.assumed,
    }
