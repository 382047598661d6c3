"""`nodewright node`: node profiles of this machine, of captured files and of the catalogue.

`nodewright node export`: a node as a NodeResourceTopology object or a NodeProfile.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.documents.output.command_line import as_struct, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import YES, print_message, print_text, terminal_columns
from nodewright.documents.output.text_layout import table
from nodewright.documents.profiles.capture.captured_node import CapturedNode, NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import read_configz, read_node, read_topology
from nodewright.documents.profiles.capture.from_state_files import BrokenStateError
from nodewright.documents.profiles.capture.node_pods import StaticPods, read_pods, read_static_pods
from nodewright.documents.profiles.capture.warnings import (
    broken_state_text,
    not_judged_sentence,
)
from nodewright.documents.profiles.catalogue import CatalogueMachine, catalogue, catalogue_profile
from nodewright.documents.profiles.kubelet_config_files import (
    ConfigHost,
    config_document,
    kubelet_config_from,
    load_kubelet_config,
    read_written_config,
)
from nodewright.documents.profiles.kubelet_root import KubeletRoot, RootReadOptions, read_kubelet_root
from nodewright.documents.profiles.machine.captured_machine import (
    CapturedMachine,
    capture_copy,
    capture_lscpu,
    capture_machine_info,
    capture_this_machine,
)
from nodewright.documents.profiles.machine.host_facts import (
    MachineFact,
    MissingFact,
    missing_fact_sentence,
)
from nodewright.documents.profiles.machine_shapes import shape_profile
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.documents.profiles.profile_yaml import profile_document, profile_yaml
from nodewright.engine.node.pod_admission import placement_of
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import contradictions, irregularities
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.secret_fields import without_secret_fields
from nodewright.model.printable import printable_line, printable_lines
from nodewright.model.releases.release_table import release_table
from nodewright.predict.audit.evidence_sources import read_agent_profile, read_pod_resources
from nodewright.predict.node import Node
from nodewright.predict.node_report.machine_drawing import CPUOwner, bytes_text, cpu_owners, node_picture
from nodewright.predict.node_report.node_resource_topology import (
    TopologySource,
    node_resource_topology,
    topology_source,
)
from nodewright.predict.node_report.report_parts import placement_tables, policy_notices, remaining_text

_FOR_EDITORS = (
    "# yaml-language-server: $schema=node-profile.json (nodewright schema NodeProfile > node-profile.json)\n"
)


@click.group("node")
def command() -> None:
    """Capture, show, export and list nodes."""


@command.command("show")
@partial(cluster_options, takes_node=True, is_about_node=True)
@options.node_option()
@option("--ascii", "Draw frames with ASCII characters.", name="ascii_only")
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


# ---------------------------------------------------------------- node export


@command.command("export")
@partial(cluster_options, takes_node=True)
@options.node_option()
@option("--nrt", "Print a NodeResourceTopology v1alpha2. Default: a NodeProfile.")
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
    return topology_source(node.state)


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


# ---------------------------------------------------------------- node capture


class CaptureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line names."""

    sysfs: Path | None
    lscpu: tuple[Path, ...]
    machine_info: Path | None
    catalogue: str | None
    shape: str | None
    memory_bytes: int | None
    kubelet_config: Path | None
    config_dir: Path | None
    kubelet_root: Path | None
    pods: Path | None
    node_name: str
    static_pods: Path | None
    configz: Path | None
    nrt: Path | None
    node_object: Path | None
    pod_resources: Path | None
    with_secrets: bool

    @property
    def names_cluster_source(self) -> bool:
        """Whether a source of a cluster or a kubelet's directory is specified."""
        files = (self.kubelet_root, self.pods, self.configz, self.nrt, self.node_object, self.pod_resources)
        return any(files) or bool(self.catalogue)


_OPTIONS = (
    option("--sysfs DIR", "A copy of /sys (DIR/sys) and /proc (DIR/proc).", type=options.DIRECTORY),
    option(
        "--lscpu FILE",
        "Output of `lscpu -e -J` or `lscpu -J`; repeat the option for both.",
        type=options.FILE,
        multiple=True,
    ),
    option(
        "--machine-info FILE",
        "cAdvisor's MachineInfo: /api/v1.3/machine, or a kubelet's /spec/.",
        type=options.FILE,
    ),
    option("--catalogue NAME", "A machine of `nodewright node catalogue`."),
    options.shape_option,
    options.memory_option,
    options.kubelet_config_option("The node's KubeletConfiguration (--config).", kind=options.FILE),
    option("--config-dir DIR", "Its drop-in directory (--config-dir).", type=options.DIRECTORY),
    options.kubelet_root_option(
        "The kubelet's directory, e.g. /var/lib/kubelet, for the actual allocations of pods."
    ),
    options.pod_list_option(),
    options.node_name_option(),
    option(
        "--static-pods DIR",
        "Manifests of static pods. Default: staticPodPath of the configuration.",
        type=click.Path(exists=True, path_type=Path),
    ),
    options.configz_option("Output of `kubectl get --raw /api/v1/nodes/NAME/proxy/configz`."),
    option("--nrt FILE", "The node's NodeResourceTopology object.", type=options.FILE),
    option("--node-object FILE", "Output of `kubectl get node NAME -o json`.", type=options.FILE),
    options.pod_resources_option(
        "Socket of a live kubelet or agent (.../pod-resources/kubelet.sock), for the actual allocations of pods."
    ),
    options.with_secrets_option,
)


@command.command("capture")
@partial(cluster_options, takes_node=True)
@as_struct(CaptureOptions, "requested", reversed(_OPTIONS))
@options.output_option("yaml", "json")
def capture(requested: CaptureOptions, *, node: str | None, output: str | None) -> int:
    """Capture a node as a NodeProfile: this machine, a node of a cluster, a shape, or what the files describe.

    With --kubelet-root or --pod-resources, `spec.allocations` has the actual allocations of pods. Without a shell on
    the node, use --configz, --pods, --nrt and --node-object. Unknown facts are listed on stderr and in
    `spec.notJudged`. Nothing is written. Only a live kubelet's directory needs privileges to read. Values of variables,
    commands, probes and annotations of pods are left out, because they may hold secrets and decide nothing.
    """
    machines = (
        requested.sysfs,
        requested.lscpu,
        requested.machine_info,
        requested.catalogue,
        requested.shape,
    )
    if sum(map(bool, machines)) > 1:
        raise click.UsageError("--sysfs, --lscpu, --machine-info, --catalogue and --shape exclude each other")
    if requested.memory_bytes is not None and not requested.shape:
        raise click.UsageError("--memory requires --shape")
    if requested.configz and (requested.kubelet_config or requested.config_dir):
        raise click.UsageError("--configz excludes --kubelet-config and --config-dir")
    if requested.pod_resources and requested.kubelet_root:
        raise click.UsageError("--pod-resources excludes --kubelet-root; `nodewright audit` compares them")
    if node is not None:
        _check_alone(requested, node)
        notes, profile = [*current_session().nodes[node].notes], find_profile(node)
    elif requested.names_cluster_source:
        notes, profile = _of_cluster(requested)
    else:
        notes, profile = _of_machine(requested)
    document = profile_document(profile)
    if not requested.with_secrets:
        document = without_secret_fields(document)
    print_text(as_json(document) if output == "json" else f"{_FOR_EDITORS}{profile_yaml(document)}")
    for line in notes:
        print_message(line)
    machine = profile.spec.machine_info
    for fault in (*contradictions(machine), *irregularities(machine)):
        print_message(f"warning: {fault}")
    return YES


def _check_alone(requested: CaptureOptions, node: str) -> None:
    """Checks that a node of a cluster has no other sources.

    Errors: click.UsageError.
    """
    for name in CaptureOptions.__struct_fields__:
        if name != "with_secrets" and getattr(requested, name):
            raise click.UsageError(f"--{name.replace('_', '-')} and {node} exclude each other")


def _of_machine(requested: CaptureOptions) -> tuple[list[str], NodeProfile]:
    """A machine without pods, with its kubelet's configuration if specified; and notes."""
    written = read_written_config(requested.kubelet_config) if requested.kubelet_config else None
    captured = _machine(requested, written.document if written else None)
    notes = [missing_fact_sentence(missing) for missing in captured.missing]
    notes += [f"warning: {text}" for text in (written.warnings if written else ())]
    notes += [
        f'warning: {requested.kubelet_config}: unknown field "{path}"'
        for path in (written.unknown_fields if written else ())
    ]
    return notes, captured.profile


def _machine(requested: CaptureOptions, configuration: dict[str, Any] | None) -> CapturedMachine:
    if requested.shape:
        profile = shape_profile(requested.shape, requested.memory_bytes)
        spec = replace(profile.spec, kubelet_configuration=configuration or {})
        missing = () if configuration else (MissingFact(fact=MachineFact.KUBELET_CONFIGURATION),)
        return CapturedMachine(profile=replace(profile, spec=spec), missing=missing)
    if requested.sysfs:
        return capture_copy(requested.sysfs, configuration)
    if requested.lscpu:
        return capture_lscpu(requested.lscpu, configuration)
    if requested.machine_info:
        return capture_machine_info(requested.machine_info, configuration)
    if sys.platform != "linux":
        rule = "not Linux: describe a machine with --sysfs, --lscpu, --machine-info or --catalogue"
        raise InputError([Fault(rule=rule)])
    return capture_this_machine(configuration)


def _of_cluster(requested: CaptureOptions) -> tuple[list[str], NodeProfile]:
    """A node with its kubelet's state or its cluster's objects; and notes."""
    node = read_node(requested.node_object) if requested.node_object else None
    name = requested.node_name or (node.name if node else "")
    topology = read_topology(requested.nrt, name) if requested.nrt else None
    name = name or (topology.name if topology else "")
    pods = read_pods(requested.pods, name) if requested.pods else None
    configuration = _configuration(requested)
    root = None
    if requested.kubelet_root:
        read_options = RootReadOptions(
            config=requested.kubelet_config,
            config_dir=requested.config_dir,
            container_names=pods.container_names if pods else {},
            configuration=read_configz(requested.configz) if requested.configz else None,
            host=ConfigHost(release=release_table(node.version)) if node else None,
        )
        root = read_kubelet_root(requested.kubelet_root, read_options)
    base = _base(requested)
    host = name or (base.profile.metadata.name if base else "")
    sources = NodeSources(
        base=base.profile if base else None,
        kubelet_root=root,
        configuration=configuration,
        pods=pods,
        static_pods=_static_pods(requested, root, host),
        node=node,
        topology=topology,
        pod_resources=read_pod_resources(requested.pod_resources) if requested.pod_resources else None,
    )
    captured = _captured(sources)
    # The configuration that the machine's capture misses comes from the other sources.
    missing = [
        missing_fact_sentence(missing)
        for missing in (base.missing if base else ())
        if missing.fact is not MachineFact.KUBELET_CONFIGURATION
    ]
    warnings = (warning.sentence() for warning in captured.warnings)
    not_judged = map(not_judged_sentence, captured.profile.spec.not_judged)
    return [*missing, *warnings, *not_judged], captured.profile


def _configuration(requested: CaptureOptions) -> dict[str, Any] | None:
    """The configuration, if specified outside the kubelet's directory."""
    if requested.configz:
        return read_configz(requested.configz)
    if requested.config_dir and not requested.kubelet_root:
        config_file, config_dir = requested.kubelet_config, requested.config_dir
        load_kubelet_config(config_file, config_dir=config_dir)
        document = config_document(config_file, config_dir=config_dir)
        return {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    if requested.kubelet_config and not requested.kubelet_root:
        return read_written_config(requested.kubelet_config).document
    return None


def _base(requested: CaptureOptions) -> CapturedMachine | None:
    """The machine: the one specified; this one if only a kubelet's directory or socket is specified."""
    if requested.catalogue:
        return CapturedMachine(profile=catalogue_profile(requested.catalogue))
    if (
        requested.sysfs
        or requested.shape
        or requested.lscpu
        or requested.machine_info
        or ((requested.kubelet_root or requested.pod_resources) and not requested.nrt)
    ):
        return _machine(requested, None)
    return None


def _static_pods(requested: CaptureOptions, root: KubeletRoot | None, host: str) -> StaticPods | None:
    """The static pods: of the directory specified, or of this machine's kubelet."""
    path = requested.static_pods
    is_this_machine = not (
        requested.sysfs
        or requested.lscpu
        or requested.machine_info
        or requested.catalogue
        or requested.shape
        or requested.nrt
    )
    if path is None and root and is_this_machine and root.loaded.config.static_pod_path:
        configured = Path(root.loaded.config.static_pod_path)
        path = configured if configured.exists() else None
    return read_static_pods(path, host) if path and root else None


def _captured(sources: NodeSources) -> CapturedNode:
    try:
        return captured_node(sources)
    except BrokenStateError as error:
        raise InputError([Fault(rule=line) for line in broken_state_text(error.reasons)]) from None
