"""`nodewright node capture`: a node as a NodeProfile: this one, one from its files, one as its cluster tells of it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nodewright.cli.app import YES
from nodewright.cli.live_nodes import told_resources
from nodewright.cli.options import output
from nodewright.model.profile import NodeProfile
from nodewright.render.captured import broken_state, not_known_sentence, remark_sentence
from nodewright.render.documents import as_json
from nodewright.render.lacks import lack_sentence
from nodewright.render.profiles import profile_document, profile_yaml
from nodewright.world.captured.capture import CapturedNode, Sources, captured_node
from nodewright.world.captured.cluster import read_configz, read_node, read_topology
from nodewright.world.captured.holdings import BrokenStateError
from nodewright.world.captured.pods import read_pods
from nodewright.world.captured.static import StaticPods, read_static_pods
from nodewright.world.errors import Fault, InputError
from nodewright.world.kubelet_root import KubeletRoot, RootReading, read_kubelet_root
from nodewright.world.machine.capture import (
    Captured,
    capture_copy,
    capture_here,
    capture_lscpu,
    capture_machine_info,
)
from nodewright.world.machine.check import oddities
from nodewright.world.machine.configuration import read_configuration
from nodewright.world.machine.lacks import Fact
from nodewright.world.nodes import shape_profile

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line names."""

    sysfs: Path | None
    lscpu: tuple[Path, ...]
    machine_info: Path | None
    catalogue: str | None
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

    @property
    def is_of_cluster(self) -> bool:
        """Whether anything of a cluster or a kubelet's directory is named."""
        files = (self.kubelet_root, self.pods, self.configz, self.nrt, self.node_object, self.pod_resources)
        return any(files) or bool(self.catalogue)


_OPTIONS = (
    click.option(
        "--sysfs", type=_DIRECTORY, metavar="DIR", help="A copy of /sys (DIR/sys) and /proc (DIR/proc)."
    ),
    click.option(
        "--lscpu",
        type=_FILE,
        metavar="FILE",
        multiple=True,
        help="What `lscpu -e -J` printed, or `lscpu -J`, or both (twice).",
    ),
    click.option(
        "--machine-info",
        type=_FILE,
        metavar="FILE",
        help="cAdvisor's MachineInfo: /api/v1.3/machine, or a kubelet's /spec/.",
    ),
    click.option("--catalogue", metavar="NAME", help="A machine of `nodewright node catalogue`."),
    click.option(
        "--kubelet-config", type=_FILE, metavar="FILE", help="The node's KubeletConfiguration (--config)."
    ),
    click.option("--config-dir", type=_DIRECTORY, metavar="DIR", help="Its drop-ins (--config-dir)."),
    click.option(
        "--kubelet-root",
        type=_DIRECTORY,
        metavar="DIR",
        help="The kubelet's directory, e.g. /var/lib/kubelet: what pods really hold.",
    ),
    click.option(
        "--pods", type=_FILE, metavar="FILE", help="`kubectl get pods -A -o json`, or the kubelet's /pods."
    ),
    click.option("--node-name", default="", metavar="NAME", help="Which node's pods are meant."),
    click.option(
        "--static-pods",
        type=click.Path(exists=True, path_type=Path),
        metavar="DIR",
        help="Manifests of static pods, where they are not where the configuration says.",
    ),
    click.option(
        "--configz",
        type=_FILE,
        metavar="FILE",
        help="`kubectl get --raw /api/v1/nodes/NAME/proxy/configz`.",
    ),
    click.option("--nrt", type=_FILE, metavar="FILE", help="The node's NodeResourceTopology object."),
    click.option("--node-object", type=_FILE, metavar="FILE", help="`kubectl get node NAME -o json`."),
    click.option(
        "--pod-resources",
        type=click.Path(path_type=Path),
        metavar="SOCKET",
        help="The socket of a live kubelet or agent (.../pod-resources/kubelet.sock): what pods really hold.",
    ),
)


def _given(command: Callable[..., int]) -> Callable[..., int]:
    """The options that name where a node is told of; the command gets them as one `Given`."""

    @wraps(command)
    def capturing(**options: Any) -> int:
        given = Given(**{field.name: options.pop(field.name) for field in fields(Given)})
        return command(given, **options)

    for option in reversed(_OPTIONS):
        capturing = option(capturing)
    return capturing


@click.command("capture")
@_given
@output("yaml", "json")
def capture(given: Given, *, output: str | None) -> int:
    """Print a node as a NodeProfile: this machine, or the one that the files describe.

    With --kubelet-root or --pod-resources, `spec.allocations` has what pods really hold. Without a shell on the node, --configz,
    --pods, --nrt and --node-object tell of it. What is not known is said on stderr and in `spec.notJudged`.
    Nothing is written. Needs no privileges but for a live kubelet's directory.
    """
    machines = (given.sysfs, given.lscpu, given.machine_info, given.catalogue)
    if sum(map(bool, machines)) > 1:
        raise click.UsageError("--sysfs, --lscpu, --machine-info and --catalogue exclude one another")
    if given.configz and (given.kubelet_config or given.config_dir):
        raise click.UsageError("--configz excludes --kubelet-config and --config-dir")
    if given.pod_resources and given.kubelet_root:
        raise click.UsageError("--pod-resources excludes --kubelet-root; `nodewright audit` compares them")
    if given.is_of_cluster:
        said, profile = _of_cluster(given)
    else:
        said, profile = _of_machine(given)
    click.echo(as_json(profile_document(profile)) if output == "json" else profile_yaml(profile), nl=False)
    for line in said:
        click.echo(line, err=True)
    for fault in oddities(profile.spec.machine_info):
        click.echo(f"warning: {fault}", err=True)
    return YES


def _of_machine(given: Given) -> tuple[list[str], NodeProfile]:
    """A machine alone, with its kubelet's configuration where one is named."""
    written = read_configuration(given.kubelet_config) if given.kubelet_config else None
    captured = _machine(given, written.document if written else None)
    said = [lack_sentence(lack) for lack in captured.lacks]
    said += [
        f'warning: {given.kubelet_config}: unknown field "{path}"'
        for path in (written.unknown if written else ())
    ]
    return said, captured.profile


def _machine(given: Given, configuration: dict[str, Any] | None) -> Captured:
    if given.sysfs:
        return capture_copy(given.sysfs, configuration)
    if given.lscpu:
        return capture_lscpu(given.lscpu, configuration)
    if given.machine_info:
        return capture_machine_info(given.machine_info, configuration)
    return capture_here(configuration)


def _of_cluster(given: Given) -> tuple[list[str], NodeProfile]:
    """A node with its kubelet's state or its cluster's objects."""
    node = read_node(given.node_object) if given.node_object else None
    name = given.node_name or (node.name if node else "")
    topology = read_topology(given.nrt, name) if given.nrt else None
    name = name or (topology.name if topology else "")
    pods = read_pods(given.pods, name) if given.pods else None
    configuration = _configuration(given)
    root = None
    if given.kubelet_root:
        running = pods.running if pods else {}
        reading = RootReading(
            config=given.kubelet_config,
            config_dir=given.config_dir,
            running=running,
            configuration=read_configz(given.configz) if given.configz else None,
        )
        root = read_kubelet_root(given.kubelet_root, reading)
    base = _base(given)
    host = name or (base.profile.metadata.name if base else "")
    sources = Sources(
        base=base.profile if base else None,
        root=root,
        configuration=configuration,
        pods=pods,
        static=_static(given, root, host),
        node=node,
        topology=topology,
        told=told_resources(given.pod_resources) if given.pod_resources else None,
    )
    found = _captured(sources)
    lacks = (lack_sentence(lack) for lack in (base.lacks if base else ()) if _still(lack.fact))
    return [*lacks, *_said(found)], found.profile


def _configuration(given: Given) -> dict[str, Any] | None:
    """The configuration from elsewhere than the kubelet's directory."""
    if given.configz:
        return read_configz(given.configz)
    if given.kubelet_config and not given.kubelet_root:
        return read_configuration(given.kubelet_config).document
    return None


def _base(given: Given) -> Captured | None:
    """The machine: one that is named or described; where a kubelet's directory is, this one."""
    if given.catalogue:
        return Captured(profile=shape_profile(given.catalogue))
    if (
        given.sysfs
        or given.lscpu
        or given.machine_info
        or ((given.kubelet_root or given.pod_resources) and not given.nrt)
    ):
        return _machine(given, None)
    return None


def _static(given: Given, root: KubeletRoot | None, host: str) -> StaticPods | None:
    """The static pods: of a directory that is named, or of this machine's own kubelet."""
    path = given.static_pods
    is_here = not (given.sysfs or given.lscpu or given.machine_info or given.catalogue or given.nrt)
    if path is None and root and is_here and root.loaded.config.static_pod_path:
        configured = Path(root.loaded.config.static_pod_path)
        path = configured if configured.exists() else None
    return read_static_pods(path, host) if path and root else None


def _still(fact: Fact) -> bool:
    """Whether the machine's lack is one of the node."""
    return fact is not Fact.KUBELET_CONFIGURATION


def _captured(sources: Sources) -> CapturedNode:
    try:
        return captured_node(sources)
    except BrokenStateError as error:
        raise InputError([Fault(rule=line) for line in broken_state(error.reasons)]) from None


def _said(found: CapturedNode) -> Iterable[str]:
    yield from map(remark_sentence, found.remarks)
    yield from map(not_known_sentence, found.profile.spec.not_judged)
