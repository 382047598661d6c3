"""The options that describe a node's usage, and the usage that results from them."""

from collections.abc import Mapping

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli.options import ManifestOptions, NothingJudgedError
from nodewright.cli.workload_input import nothing_found, print_skipped, read_workloads
from nodewright.documents.output.command_line import as_struct, option
from nodewright.documents.profiles.usage_files import UsageReading, load_usage
from nodewright.engine.admission.admission_plugins import pod_as_stored, with_uid
from nodewright.engine.node.events import PodRecovered
from nodewright.engine.node.step import step
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.printable import counted
from nodewright.model.values.quantity import QuantityError, whole_amount
from nodewright.predict.evict.node_usage import FILESYSTEMS, NodeWithUsage, usage_of_node
from nodewright.predict.node import Node


class UsageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The usage options of a command line."""

    usage: str | None
    after: str | None
    live: bool
    available: Mapping[Signal, int]
    filesystems: str | None


def _available_amounts(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> Mapping[Signal, int]:
    amounts: dict[Signal, int] = {}
    for text in texts:
        name, _, quantity = text.partition("=")
        try:
            amount = whole_amount(quantity)
        except QuantityError as error:
            raise click.BadParameter(f"{text}: {error}", context, option) from None
        if name not in set(Signal):
            signals = ", ".join(Signal)
            raise click.BadParameter(f"{name!r} is not a signal; signals are {signals}", context, option)
        if amount < 0:
            raise click.BadParameter(f"{text}: must not be negative", context, option)
        amounts[Signal(name)] = amount
    return amounts


_OPTIONS = (
    option(
        "--usage FILE|-",
        "Usage of the node: the kubelet's /stats/summary, a NodeUsage, or a table of pods (.csv).",
    ),
    option(
        "--after FILE",
        "Usage after the node has removed dead containers and unused images. Default: unchanged.",
    ),
    option(
        "--live", "Read the current usage of this machine: /proc, its file systems, and the cgroups of pods."
    ),
    option(
        "--available SIGNAL=AMOUNT",
        "Available amount that overrides the usage read, e.g. memory.available=80Mi. Repeatable.",
        multiple=True,
        callback=_available_amounts,
    ),
    option(
        "--filesystems",
        "File systems: one for all; one for images and writable layers; one for images only. "
        "Default: inferred from their sizes.",
        type=click.Choice(list(FILESYSTEMS)),
    ),
)


usage_options = as_struct(UsageOptions, "usage", reversed(_OPTIONS))
"""Adds the options that describe usage; the command receives them as `usage`."""


def node_with_usage(node: Node, options: UsageOptions, manifests: ManifestOptions) -> NodeWithUsage:
    """The node with the usage that the options describe, and with the pods of the manifests in addition.

    Errors: InputError with all faults of the files; click.UsageError if no usage is given.
    """
    if options.live and options.usage is not None:
        raise click.UsageError("--usage and --live exclude each other")
    if not options.usage and not options.available and not options.live:
        raise click.UsageError("specify the usage with --usage, --live or --available")
    max_bytes = manifests.max_bytes
    reading: UsageReading = StatsSummary()
    if options.live:
        from nodewright.documents.profiles.machine.machine_usage import usage_of_this_machine  # noqa: PLC0415 - start-up time

        reading = usage_of_this_machine()
    if options.usage is not None:
        reading = load_usage(options.usage, max_bytes=max_bytes)
    name = reading.node.node_name if isinstance(reading, StatsSummary) else ""
    node, pod_warnings = _with_pods(node, manifests, name or node.name)
    after = None if options.after is None else load_usage(options.after, max_bytes=max_bytes)
    observed = usage_of_node(
        node, reading, available=options.available, after=after, filesystems=options.filesystems
    )
    return replace(observed, warnings=(*pod_warnings, *observed.warnings))


def _with_pods(node: Node, manifests: ManifestOptions, name: str) -> tuple[Node, tuple[str, ...]]:
    """The node with the pods of the manifests that run on it, and warnings."""
    if not manifests.are_named:
        return node, ()
    loaded = read_workloads(manifests, "default")
    print_skipped(loaded.skipped)
    if not loaded.workloads:
        raise nothing_found("pods", loaded.skipped)
    state, elsewhere_count = node.state, 0
    for workload in loaded.workloads:
        if workload.refusal is not None:
            continue
        pod = pod_as_stored(with_uid(workload.pod), state.config.gates)
        if pod.is_terminal or pod.uid in state.pods:
            continue
        if pod.spec.node_name not in ("", name):
            elsewhere_count += 1
            continue
        # Eviction does not depend on which CPUs a pod holds.
        state = step(state, PodRecovered(pod, is_allocated=True)).state
    if not state.pods:
        rule = f"nothing here is judged: no pod of the manifests runs on {name}"
        raise NothingJudgedError([Fault(rule=rule)])
    warnings = loaded.warnings
    if elsewhere_count:
        warnings = (
            *warnings,
            f"{counted(elsewhere_count, 'pod')} of the manifests on other nodes than {name}",
        )
    return replace(node, state=state), warnings
