"""The options that describe a node's usage, and the usage that results from them."""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli.manifest_options import ManifestOptions
from nodewright.cli.workload_input import nothing_found, print_skipped, read_workloads
from nodewright.core.admission_plugins import with_uid
from nodewright.core.eviction.eviction_thresholds import NodeFilesystems, signal_observations
from nodewright.core.eviction.usage_inputs import (
    SignalCapacities,
    inferred_filesystems,
    matched_usage,
    usage_from_table,
    usage_with_available,
)
from nodewright.engine import Node
from nodewright.errors import Fault, InputError
from nodewright.kubernetes.eviction_thresholds import Signal
from nodewright.kubernetes.scenario import UsageTable
from nodewright.kubernetes.stats_summary import StatsSummary
from nodewright.node.events import PodRecovered
from nodewright.node.eviction_pass import eviction_capacities, eviction_claims
from nodewright.node.node_state import pod_as_stored
from nodewright.node.step import step
from nodewright.profiles.machine.machine_usage import usage_of_this_machine
from nodewright.profiles.usage_files import UsageReading, load_usage
from nodewright.values.quantity import Quantity, QuantityError

_FILESYSTEMS = {
    "one": NodeFilesystems(),
    "images": NodeFilesystems(dedicated_image_fs=True),
    "split": NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True),
}


class UsageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The usage options of a command line."""

    usage: str | None
    after: str | None
    live: bool
    available: Mapping[Signal, int]
    filesystems: str | None


class NodeWithUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its pods, and its usage."""

    node: Node
    usage: StatsSummary
    usage_after_reclaim: StatsSummary | None
    """The usage after the node has reclaimed what it can; None: not given."""
    filesystems: NodeFilesystems
    warnings: tuple[str, ...] = ()
    """Irregularities of the usage."""


def _available_amounts(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> Mapping[Signal, int]:
    amounts: dict[Signal, int] = {}
    for text in texts:
        name, _, quantity = text.partition("=")
        try:
            amount = Quantity.parse(quantity)
        except QuantityError as error:
            raise click.BadParameter(f"{text}: {error}", context, option) from None
        if name not in set(Signal):
            signals = ", ".join(Signal)
            raise click.BadParameter(f"{name!r} is not a signal; signals are {signals}", context, option)
        if amount.sign() < 0:
            raise click.BadParameter(f"{text}: must not be negative", context, option)
        amounts[Signal(name)] = amount.value()
    return amounts


_OPTIONS = (
    click.option(
        "--usage",
        metavar="FILE|-",
        help="Usage of the node: the kubelet's /stats/summary, a NodeUsage, or a table of pods (.csv).",
    ),
    click.option(
        "--after",
        metavar="FILE",
        help="Usage after the node has removed dead containers and unused images. Default: unchanged.",
    ),
    click.option(
        "--live",
        is_flag=True,
        help="Read the current usage of this machine: /proc, its file systems, and the cgroups of pods.",
    ),
    click.option(
        "--available",
        multiple=True,
        metavar="SIGNAL=AMOUNT",
        callback=_available_amounts,
        help="Available amount that overrides the usage read, e.g. memory.available=80Mi. Repeatable.",
    ),
    click.option(
        "--filesystems",
        type=click.Choice(list(_FILESYSTEMS)),
        help="File systems: one for all; one for images and writable layers; one for images only. "
        "Default: inferred from their sizes.",
    ),
)


def usage_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options that describe usage; the command receives them as `usage`."""

    @wraps(command)
    def with_usage(**parameters: Any) -> int:
        usage = UsageOptions(**{name: parameters.pop(name) for name in UsageOptions.__struct_fields__})
        return command(usage=usage, **parameters)

    with_options: Callable[..., int] = with_usage
    for option in reversed(_OPTIONS):
        with_options = option(with_options)
    return with_options


def node_with_usage(node: Node, options: UsageOptions, manifests: ManifestOptions) -> NodeWithUsage:
    """The node with the usage that the options describe, and with the pods of the manifests in addition.

    Errors: InputError with all faults of the files; click.UsageError if no usage is given.
    """
    if options.live and options.usage is not None:
        raise click.UsageError("--usage and --live exclude each other")
    if not options.usage and not options.available and not options.live:
        raise click.UsageError("specify the usage with --usage, --live or --available")
    max_bytes = manifests.max_bytes
    reading: UsageReading = usage_of_this_machine() if options.live else StatsSummary()
    if options.usage is not None:
        reading = load_usage(options.usage, max_bytes=max_bytes)
    name = reading.node.node_name if isinstance(reading, StatsSummary) else ""
    node, pod_warnings = _with_pods(node, manifests, name or node.name)
    usage, usage_warnings = _as_usage(node, reading, options.available)
    usage_after_reclaim = None
    if options.after is not None:
        usage_after_reclaim, _ = _as_usage(node, load_usage(options.after, max_bytes=max_bytes), {})
    return NodeWithUsage(
        node=node,
        usage=usage,
        usage_after_reclaim=usage_after_reclaim,
        filesystems=_filesystems(node, usage, options.filesystems),
        warnings=(*pod_warnings, *usage_warnings, *_irregularities(node, usage)),
    )


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
    warnings = loaded.warnings
    if elsewhere_count:
        warnings = (*warnings, f"{_pod_count(elsewhere_count)} of the manifests on other nodes than {name}")
    return replace(node, state=state), warnings


def _as_usage(
    node: Node, reading: UsageReading, available: Mapping[Signal, int]
) -> tuple[StatsSummary, tuple[str, ...]]:
    capacities = eviction_capacities(node.config)
    if isinstance(reading, UsageTable):
        _check_capacities(reading, capacities)
        reading = usage_from_table(reading, capacities, eviction_claims(node.state))
    match = matched_usage(usage_with_available(reading, available, capacities), node.state.pods.values())
    warnings = [
        f"{reference.namespace}/{reference.name} has a different uid in the usage, {reference.uid}: "
        "matched by name"
        for reference in match.matched_by_name
        if reference.uid
    ]
    if match.unknown_pods:
        names = ", ".join(
            f"{pod.namespace}/{pod.name}" if pod.name else pod.uid for pod in match.unknown_pods[:3]
        )
        ellipsis = ", ..." if len(match.unknown_pods) > 3 else ""
        warnings.append(
            f"{_pod_count(len(match.unknown_pods))} of the usage not on the node, ignored: {names}{ellipsis}"
        )
    return match.usage, tuple(warnings)


def _check_capacities(table: UsageTable, capacities: SignalCapacities) -> None:
    """Checks that each available amount has a capacity and does not exceed it.

    Errors: InputError.
    """
    faults = []
    for name, available in table.available.items():
        written = table.capacity.get(name)
        capacity = capacities.of(Signal(name)) if written is None else written.value()
        path = f"spec.available[{name}]"
        if not capacity and written is None:
            rule = f"the capacity is not in the node's profile: specify spec.capacity[{name}]"
            faults.append(Fault(path=path, value=str(available), rule=rule))
        elif available.value() > capacity:
            faults.append(Fault(path=path, value=str(available), rule=f"exceeds the capacity, {capacity}"))
    if faults:
        raise InputError(faults)


def _filesystems(node: Node, usage: StatsSummary, choice: str | None) -> NodeFilesystems:
    if choice is not None:
        return _FILESYSTEMS[choice]
    inferred = inferred_filesystems(usage)
    if inferred == NodeFilesystems() and node.config.facts.image_fs is not None:
        return _FILESYSTEMS["images"]
    return inferred


def _irregularities(node: Node, usage: StatsSummary) -> Iterator[str]:
    """Warnings about likely mistakes: pods without stats, signals with an impossible capacity."""
    uids_with_stats = {stats.pod_ref.uid for stats in usage.pods}
    without_stats = [pod for uid, pod in node.state.pods.items() if uid not in uids_with_stats]
    if without_stats and usage.pods:
        names = ", ".join(pod.full_name for pod in without_stats[:3])
        names += ", ..." if len(without_stats) > 3 else ""
        yield f"{_pod_count(len(without_stats))} without stats, ranked first as the kubelet does: {names}"
    for signal, observation in signal_observations(usage).items():
        if observation.capacity.value() == 0:
            yield f"{signal} has a capacity of 0: thresholds in percent are never met"
        elif observation.available.compare(observation.capacity) > 0:
            yield f"{signal} has more available than its capacity: {observation.available} of {observation.capacity}"


def _pod_count(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
