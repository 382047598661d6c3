"""Which fleet is meant: the options that all commands about fleets share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from nodewright.cli.inputs import warn
from nodewright.cli.options import max_bytes, max_document_size, namespace, strict
from nodewright.values.duration import Duration, DurationError
from nodewright.world.fleet.load import FleetInput, Wish, load_fleet
from nodewright.world.fleet.nodes import USUAL_CONFIGURATION, Furniture
from nodewright.world.fleet.shapes import parse_rules
from nodewright.world.kubelet_config import config_document


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetQuestion:
    """Which files hold the fleet, and how they are to be read, as the command line says."""

    nodes: tuple[str, ...]
    pods: tuple[str, ...]
    shapes: tuple[str, ...]
    gpu_annotation: str
    kubelet_config: str | None
    namespace: str
    strict: bool
    filenames: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()

    def load(self) -> FleetInput:
        """The fleet, with what is odd about it said on stderr.

        Errors: click.UsageError where no nodes are named; InputError with all that is wrong with the files.
        """
        if not self.nodes and not self.filenames:
            raise click.UsageError("which nodes? (--nodes FILE, or -f FILE that has nodes and pods)")
        configuration = USUAL_CONFIGURATION
        if self.kubelet_config is not None:
            configuration = config_document(self.kubelet_config)
        found = load_fleet(
            Wish(
                nodes=self.nodes,
                pods=self.pods,
                both=self.filenames,
                namespace=self.namespace,
                furniture=Furniture(rules=parse_rules(self.shapes), configuration=configuration),
                gpu_annotation=self.gpu_annotation,
                usage=self.usage,
                max_bytes=max_bytes(),
            )
        )
        warn(found.warnings, strict=self.strict)
        if found.objects.loading.skipped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in found.objects.loading.skipped.items())
            click.echo(f"skipped: {kinds}", err=True)
        return found


def fleet_question(command: Callable[..., int]) -> Callable[..., int]:
    """The options that say which fleet is meant; the command gets them as one `FleetQuestion`."""
    return _both(_usage(fleet_question_of_nodes(command)))


def fleet_question_of_nodes(command: Callable[..., int]) -> Callable[..., int]:
    """The same for commands whose -f is something else."""

    @wraps(command)
    def asking(**given: Any) -> int:
        names = FleetQuestion.__dataclass_fields__
        named = {name: given.pop(name) for name in names if name in given}
        return command(FleetQuestion(**named), **given)

    with_options: Callable[..., int] = asking
    for option in (strict, max_document_size, namespace, _kubelet_config, _gpu, _shapes, _pods, _nodes):
        with_options = option(with_options)
    return with_options


def seconds_of(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """A span as `90s` or `1h30m`, in seconds.

    Errors: click.BadParameter for what is none, or less than nothing.
    """
    if text is None:
        return None
    try:
        span = Duration.parse(text).nanoseconds
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    if span < 0:
        raise click.BadParameter("time does not run backwards", context, option)
    return span / 10**9


_nodes = click.option(
    "--nodes",
    multiple=True,
    metavar="FILE|DIR",
    help="Nodes: manifests, CSV, or the table of a GPU trace; plain or .gz. Repeatable.",
)
_pods = click.option(
    "--pods",
    multiple=True,
    metavar="FILE|DIR",
    help="Pods and what makes pods: manifests, CSV, or the table of a GPU trace; plain or .gz. Repeatable.",
)
_both = click.option(
    "-f",
    "--filename",
    "filenames",
    multiple=True,
    metavar="FILE|DIR|-",
    help="Nodes and pods in one: what `kubectl get nodes,pods -A -o json` prints. Repeatable.",
)
_usage = click.option(
    "--usage",
    multiple=True,
    metavar="FILE",
    help="What pods use over time, as CSV: name, namespace, at (seconds since its start), memory. Repeatable.",
)
_shapes = click.option(
    "--shapes",
    multiple=True,
    metavar="RULE",
    help=(
        "The machines behind nodes: NAME of `node catalogue` or SOCKETSxNUMAxCORESxTHREADS; for some nodes CPUS=NAME, "
        "label:KEY (its value is the name), label:KEY=VALUE:NAME. The first that fits counts. Repeatable."
    ),
)
_gpu = click.option(
    "--gpu-annotation",
    default="",
    metavar="KEY",
    help="Pods say how many devices of the resource KEY they want in an annotation of that name.",
)
_kubelet_config = click.option(
    "--kubelet-config",
    metavar="FILE",
    help="The KubeletConfiguration of all nodes. Default: static CPU manager, topology policy best-effort.",
)
