"""The options that specify a fleet, shared by the fleet commands."""

from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from nodewright.cli.options import (
    ManifestOptions,
    kubelet_config_option,
    kustomize_option,
    max_document_size_option,
    namespace_option,
    recursive_option,
    size_in_bytes,
    split_names,
    strict_option,
)
from nodewright.cli.workload_input import ProgressLine, manifest_inputs, print_skipped, print_warnings
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.output.command_line import IntegerRange, as_struct, option
from nodewright.documents.profiles.kubelet_config_files import read_written_config
from nodewright.documents.profiles.machine_shapes import parse_shape_rules
from nodewright.fleet.load.assembled_nodes import DEFAULT_CONFIGURATION, MAX_MACHINE_CPUS, NodeDefaults
from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.load.pod_controllers import MAX_REPLICAS
from nodewright.fleet.simulation.fleet_simulation import ScheduledDrain
from nodewright.model.errors import Fault
from nodewright.model.values.duration import Duration, DurationError

NO_POD = Fault(rule="nothing here is judged: no pod runs, waits or arrives")


class FleetQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a fleet, and how to read them.

    Units: max_bytes in bytes of YAML per file, max_unpacked_bytes in bytes of a gzipped file.
    """

    shapes: tuple[str, ...]
    gpu_annotation: str
    kubelet_config: str | None
    namespace: str
    strict: bool
    max_bytes: int
    max_unpacked_bytes: int
    max_replicas: int
    max_machine_cpus: int
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    filenames: tuple[str, ...] = ()
    kustomizations: tuple[str, ...] = ()
    recursive: bool = False
    usage: tuple[str, ...] = ()

    def load(self) -> FleetInput:
        """The fleet; prints warnings on stderr.

        Errors: click.UsageError without nodes; InputError with all faults of the files.
        """
        if not self.nodes and not self.filenames and not self.kustomizations:
            takes_nodes = "nodes" in click.get_current_context().params
            first, last = ("nodes with --nodes FILE, or ", "") if takes_nodes else ("", ", or --context")
            raise click.UsageError(f"specify {first}nodes and pods with -f FILE{last}")
        configuration = DEFAULT_CONFIGURATION
        if self.kubelet_config is not None:
            configuration = read_written_config(Path(self.kubelet_config)).document
        built = manifest_inputs(ManifestOptions(filenames=(), kustomizations=self.kustomizations))
        files = FleetFiles(
            nodes=self.nodes,
            pods=self.pods,
            both=self.filenames,
            built=tuple(file for file in built if isinstance(file, InputFile)),
            recursive=self.recursive,
            namespace=self.namespace,
            node_defaults=NodeDefaults(
                rules=parse_shape_rules(self.shapes),
                configuration=configuration,
                max_machine_cpus=self.max_machine_cpus,
            ),
            gpu_annotation=self.gpu_annotation,
            usage=self.usage,
            max_bytes=self.max_bytes,
            max_unpacked_bytes=self.max_unpacked_bytes,
            max_replicas=self.max_replicas,
        )
        with ProgressLine() as progress:
            fleet = load_fleet(files, progress.show)
        print_warnings(fleet.warnings, strict=self.strict)
        print_skipped(fleet.objects.manifests.skipped)
        return fleet


def fleet_query_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options that specify a fleet; the command receives them as one `FleetQuery`."""
    with_options = _usage_option(fleet_node_query_options(command))
    return _filenames_option(recursive_option(kustomize_option(with_options)))


def fleet_node_query_options(command: Callable[..., int]) -> Callable[..., int]:
    """The same without -f and --usage, for commands whose -f has a different meaning."""
    return as_struct(FleetQuery, "query", (*_READING_OPTIONS, _pods_option, _nodes_option))(command)


def drain_query_options(command: Callable[..., int]) -> Callable[..., int]:
    """Those of `fleet_query_options` without --nodes, --pods and --usage: drains name nodes with --nodes."""
    options = (*_READING_OPTIONS, kustomize_option, recursive_option, _filenames_option)
    return as_struct(FleetQuery, "query", options)(command)


def parse_seconds(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A duration such as `90s` or `1h30m`, in seconds.

    Errors: click.BadParameter for a malformed or negative duration.
    """
    if text is None:
        return None
    try:
        nanoseconds = Duration.parse(text).nanoseconds
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if nanoseconds < 0:
        raise click.BadParameter("must not be negative", context, option)
    return nanoseconds / 10**9


def parse_drains(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[ScheduledDrain, ...]:
    """Nodes with the times of their drains, such as `worker-1=90s`.

    Errors: click.BadParameter for a malformed entry.
    """
    drains = []
    for text in texts:
        name, _, span = text.rpartition("=")
        if not name:
            raise click.BadParameter(f"{text!r}: expected a node and a time, as NAME=SPAN", context, option)
        drains.append(ScheduledDrain(name.removeprefix("node/"), parse_seconds(context, option, span) or 0.0))
    return tuple(drains)


_nodes_option = option(
    "--nodes FILE|DIR",
    "Nodes: manifests, CSV, or the table of a GPU trace; plain or .gz. Repeatable.",
    multiple=True,
)
_pods_option = option(
    "--pods FILE|DIR",
    "Pods and workload objects: manifests, CSV, or the table of a GPU trace; plain or .gz. Repeatable.",
    multiple=True,
)
_filenames_option = option(
    "-f, --filename FILE|DIR|-",
    "Nodes and pods in one file: the output of `kubectl get nodes,pods -A -o json`. Repeatable.",
    name="filenames",
    multiple=True,
    callback=split_names,
)
_usage_option = option(
    "--usage FILE",
    "Memory usage of pods over time, as CSV: name, namespace, at (seconds since the pod's start), memory. Repeatable.",
    multiple=True,
)
_max_unpacked_size_option = option(
    "--max-unpacked-size SIZE",
    "Maximum size of a .gz file when it is unpacked.",
    name="max_unpacked_bytes",
    default="8Mi",
    callback=size_in_bytes,
)
_max_replicas_option = option(
    "--max-replicas N",
    "Maximum number of pods that the controllers of all manifests create.",
    type=IntegerRange(0, 2**31 - 1),
    default=MAX_REPLICAS,
)
_max_machine_cpus_option = option(
    "--max-machine-cpus N",
    "Maximum number of CPUs of the different machines of the nodes.",
    type=IntegerRange(1, 2**31 - 1),
    default=MAX_MACHINE_CPUS,
)
_shapes_option = option(
    "--shapes RULE",
    "Machine shapes of nodes: NAME of `node catalogue` or SOCKETSxNUMAxCORESxTHREADS; for some nodes CPUS=NAME, "
    "label:KEY (its value is the name), label:KEY=VALUE:NAME. The first match applies. Repeatable.",
    multiple=True,
)
_gpu_annotation_option = option(
    "--gpu-annotation KEY",
    "Annotation that holds the number of devices of the resource KEY that a pod requests.",
    default="",
)
_READING_OPTIONS = (
    strict_option,
    max_document_size_option,
    _max_unpacked_size_option,
    _max_replicas_option,
    _max_machine_cpus_option,
    namespace_option,
    kubelet_config_option(
        "The KubeletConfiguration of all nodes. Default: static CPU manager, topology policy best-effort."
    ),
    _gpu_annotation_option,
    _shapes_option,
)
