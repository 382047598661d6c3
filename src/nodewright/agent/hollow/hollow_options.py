"""The options of `nodewright hollow`, and the nodes and faults that they describe."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from nodewright.agent.assembly.agent_node import configured_labels, configured_taints
from nodewright.agent.assembly.agent_settings import AgentSettings
from nodewright.documents.output.command_line import as_struct, option
from nodewright.documents.profiles.kubelet_config_files import config_document
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.name_validation import dns1123_subdomain_errors
from nodewright.model.kubernetes.node_profile import NodeProfile, kubelet_labels
from nodewright.model.kubernetes.objects import Taint
from nodewright.model.releases.release_table import RELEASES_WITH_RULES
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import is_number_of_digits, plain_float, saturated_int
from nodewright.predict.node import Node

HOLLOW_LABEL = "nodewright.dev/hollow"
"""A label of every hollow node, by which a process knows those of the one before."""
MAX_NODES = 16_384
_NUMBER = re.compile(r"\{n(?:%([1-9][0-9]{0,5}))?\}")


class HollowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line.

    Units: speed in seconds of the nodes for each second.
    """

    nodes: tuple[str, ...]
    kubeconfig: str | None = None
    context: str | None = None
    name: str = "hollow-{n}"
    config: Path | None = None
    release: str | None = None
    node_labels: tuple[str, ...] = ()
    register_with_taints: tuple[str, ...] = ()
    root_dir: Path | None = None
    seed: str = "0"
    speed: str = "1x"
    faults: tuple[str, ...] = ()
    adopt: bool = False
    beside_real_nodes: bool = False
    remove_on_exit: bool = False
    kubelet_api: bool = False
    publish: tuple[str, ...] = ()
    resource_slices: Path | None = None

    @property
    def speed_factor(self) -> float:
        """How much faster than real time is.

        Errors: InputError.
        """
        text = self.speed.removesuffix("x")
        try:
            factor = plain_float(text)
        except ValueError:
            factor = 0.0
        if not 0.01 <= factor <= 1000:
            rule = "must be a factor such as 10x, from 0.01x to 1000x"
            raise InputError([Fault(source="--speed", value=self.speed, rule=rule)])
        return factor


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to nodes at a moment.

    Units: at_ns in nanoseconds since the start of the process.
    """

    at_ns: int
    nodes: str
    """A pattern of names."""
    kind: str
    argument: str = ""
    """A duration, a node or release, or a resource, as the kind needs it."""
    profile: NodeProfile | None = None
    """The node of a restart as another one."""

    @property
    def down_s(self) -> float:
        """How long the node is down, in seconds."""
        return Duration.parse(self.argument).nanoseconds / 10**9 if self.argument else 0.0


DOWN, REBOOT, RESTART = "down", "reboot", "restart"
PLUGIN_LOST, PLUGIN_FOUND = "plugin-lost", "plugin-found"


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node to register."""

    index: int
    profile: NodeProfile
    """Without pods, with its name and labels."""
    taints: tuple[Taint, ...] = ()
    faults: tuple[PlannedFault, ...] = ()
    """In the order of their moments."""

    @property
    def name(self) -> str:
        """The name of the Node."""
        return self.profile.metadata.name


def planned_nodes(options: HollowOptions) -> tuple[PlannedNode, ...]:
    """The nodes of the options.

    Errors: InputError with the faults of all options.
    """
    faults: list[Fault] = []
    profiles = list(_profiles(options, faults))
    planned_faults = list(_planned_faults(options, faults))
    nodes = []
    for index, profile in enumerate(profiles):
        settings = AgentSettings(
            root_dir=Path(),
            socket=Path(),
            node_labels=tuple(_numbered(text, index) for text in options.node_labels),
            register_with_taints=options.register_with_taints,
        )
        try:
            labels, taints = configured_labels(settings), configured_taints(settings)
        except InputError as error:
            faults += error.faults
            break
        named = _named(profile, _numbered(options.name, index), labels)
        own_faults = (fault for fault in planned_faults if fnmatchcase(named.metadata.name, fault.nodes))
        ordered = tuple(sorted(own_faults, key=lambda fault: fault.at_ns))
        nodes.append(PlannedNode(index=index, profile=named, taints=taints, faults=ordered))
    faults += _name_faults(options, nodes)
    for fault in planned_faults:
        if not any(fnmatchcase(node.name, fault.nodes) for node in nodes):
            faults.append(Fault(source="--fault", value=fault.nodes, rule="is the name of none of the nodes"))
    if faults:
        raise InputError(list({str(fault): fault for fault in faults}.values()))
    return tuple(nodes)


def _profiles(options: HollowOptions, faults: list[Fault]) -> Iterator[NodeProfile]:
    """The profile of each node in turn."""
    left = MAX_NODES
    for part in (part for text in options.nodes for part in text.split(",")):
        count_text, separator, reference = part.strip().partition("*")
        count = saturated_int(count_text) if is_number_of_digits(count_text) else 0
        if not (separator and reference and 0 < count <= left):
            rule = f"must be COUNT*NODE, with at most {MAX_NODES} nodes: 500*epyc-7742-2s-nps4,500*node.yaml"
            faults.append(Fault(source="--nodes", value=part, rule=rule))
            continue
        try:
            profile = _configured(find_profile(reference.removeprefix("@")), options)
        except InputError as error:
            faults += error.faults
            continue
        left -= count
        yield from [profile] * count


def _configured(profile: NodeProfile, options: HollowOptions) -> NodeProfile:
    """The node without pods, of the release and with the configuration of the options.

    Errors: InputError for a node that cannot be, and for a configuration with which no kubelet starts.
    """
    spec = replace(profile.spec, pods=(), allocations=None, conditions=(), taints=(), gone_devices={})
    if options.config is not None:
        spec = replace(spec, kubelet_configuration=config_document(options.config))
    release = options.release or spec.kubernetes_version
    if options.release and release not in RELEASES_WITH_RULES:
        rule = f"must be one of {', '.join(RELEASES_WITH_RULES)}"
        raise InputError([Fault(source="--release", value=release, rule=rule)])
    profile = replace(profile, spec=replace(spec, kubernetes_version=release))
    # A kubelet that does not start with it is an error now, not once there are Nodes.
    Node.from_profile(profile, source=str(options.config or profile.metadata.name or "--nodes"))
    return profile


def _named(profile: NodeProfile, name: str, labels: dict[str, str]) -> NodeProfile:
    own = {**profile.spec.labels, **labels, HOLLOW_LABEL: "true"}
    architecture = own.get("kubernetes.io/arch", "amd64")
    beta = {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": architecture}
    return replace(
        profile,
        metadata=replace(profile.metadata, name=name),
        spec=replace(profile.spec, labels={**own, **kubelet_labels(name, architecture), **beta}),
    )


def _numbered(text: str, index: int) -> str:
    """The text with the number of a node: all of it, or its rest.

    >>> _numbered("rack-{n%4}-{n}", 6)
    'rack-2-6'
    """
    return _NUMBER.sub(lambda match: str(index % int(match[1]) if match[1] else index), text)


def _name_faults(options: HollowOptions, nodes: list[PlannedNode]) -> Iterator[Fault]:
    for rule in dict.fromkeys(rule for node in nodes for rule in dns1123_subdomain_errors(node.name)):
        yield Fault(source="--name", value=options.name, rule=rule)
    if len({node.name for node in nodes}) < len(nodes):
        rule = "must name each node otherwise: {n} is its number"
        yield Fault(source="--name", value=options.name, rule=rule)


def _planned_faults(options: HollowOptions, faults: list[Fault]) -> Iterator[PlannedFault]:
    for text in options.faults:
        try:
            yield _planned_fault(text, options)
        except (ValueError, DurationError) as error:
            faults.append(Fault(source="--fault", value=text, rule=str(error)))
        except InputError as error:
            faults += error.faults


def _planned_fault(text: str, options: HollowOptions) -> PlannedFault:
    """The fault of a text such as `10m:hollow-1*:down=2m`.

    Errors: ValueError; DurationError; InputError for the node of a restart.
    """
    at, _, rest = text.partition(":")
    nodes, _, effect = rest.partition(":")
    kind, _, argument = effect.partition("=")
    if not nodes or kind not in (DOWN, REBOOT, RESTART, PLUGIN_LOST, PLUGIN_FOUND):
        kinds = "down=DURATION, reboot, restart=NODE|RELEASE, plugin-lost=RESOURCE or plugin-found=RESOURCE"
        raise ValueError(f"must be MOMENT:NODES:FAULT, where the fault is {kinds}")
    if kind not in (REBOOT, RESTART) and not argument:
        raise ValueError(f"{kind} needs a value: {kind}=...")
    profile = None
    if kind == RESTART and argument and argument not in RELEASES_WITH_RULES:
        profile = _configured(find_profile(argument.removeprefix("@")), options)
    fault = PlannedFault(
        at_ns=Duration.parse(at).nanoseconds, nodes=nodes, kind=kind, argument=argument, profile=profile
    )
    if fault.at_ns < 0 or (kind in (DOWN, REBOOT) and fault.down_s < 0):
        raise ValueError("a time must not be negative")
    return fault


_OPTIONS = (
    option(
        "--nodes COUNT*NODE,...",
        "How many nodes of which machine: a name of `node catalogue`, or a NodeProfile. Repeatable.",
        multiple=True,
        required=True,
    ),
    option("--kubeconfig FILE", "Default: as kubectl; in a pod its service account."),
    option("--context NAME", "A context of the kubeconfig."),
    option(
        "--name TEMPLATE",
        "Names of the nodes; {n} is the number of a node, {n%4} its rest. Also in --node-labels.",
        default="hollow-{n}",
    ),
    option(
        "--config FILE",
        "A KubeletConfiguration for all nodes. Default: that of each NodeProfile.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    option("--release R", "The Kubernetes release of the kubelets. Default: that of each NodeProfile."),
    option("--node-labels KEY=VALUE,...", "Labels of the nodes. Repeatable.", multiple=True),
    option("--register-with-taints KEY=VALUE:EFFECT,...", "Taints of new nodes. Repeatable.", multiple=True),
    option(
        "--root-dir DIR",
        "Keeps each node's state and journal in DIR/NODE: for `nodewright replay`, and for the next start.",
        type=click.Path(file_okay=False, path_type=Path),
    ),
    option("--seed TEXT", "Draws the same values from ranges of annotations again.", default="0"),
    option("--speed FACTOR", "How fast time passes on the nodes, e.g. 10x.", default="1x"),
    option(
        "--fault MOMENT:NODES:FAULT",
        "At a moment after the start: down=DURATION, reboot, restart=NODE|RELEASE, plugin-lost=RESOURCE or "
        "plugin-found=RESOURCE, for nodes whose names match. Repeatable.",
        name="faults",
        multiple=True,
    ),
    option("--adopt", "Take over nodes of these names that are not hollow."),
    option("--beside-real-nodes", "Run on a cluster that has other nodes."),
    option(
        "--kubelet-api",
        "Serve logs and exec of the pods, on one port for all nodes: address, port, TLS and authentication as "
        "--config has them.",
    ),
    option(
        "--publish",
        "Write the NodeResourceTopology of each node when its allocations change.",
        multiple=True,
        type=click.Choice(("topology",)),
    ),
    option(
        "--resource-slices FILE",
        "The ResourceSlices of one node: each node gets the same devices, and its drivers prepare claims for them.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    option("--remove-on-exit", "Delete the nodes at the end. Default: they stay, as after a crash."),
)
hollow_options = as_struct(HollowOptions, "options", reversed(_OPTIONS))
