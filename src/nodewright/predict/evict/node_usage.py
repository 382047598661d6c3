"""The usage of a node for evictions: what a summary, a table or single amounts state, and irregularities of it."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.usage_files import UsageReading
from nodewright.engine.core.eviction.eviction_thresholds import (
    NodeFilesystems,
    signal_observations,
    watched_thresholds,
)
from nodewright.engine.core.eviction.usage_inputs import (
    SignalCapacities,
    inferred_filesystems,
    matched_usage,
    usage_from_table,
    usage_with_available,
)
from nodewright.engine.node.eviction_pass import eviction_capacities, eviction_claims, huge_page_bytes
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.resource_names import MEMORY, amount_text
from nodewright.model.kubernetes.scenario import UsageTable
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.printable import counted
from nodewright.model.values.quantity import Quantity
from nodewright.predict.node import Node

FILESYSTEMS = {
    "one": NodeFilesystems(),
    "images": NodeFilesystems(dedicated_image_fs=True),
    "split": NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True),
}
"""How file systems are divided, by the name of the option."""


class NodeWithUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A node with its pods, and its usage."""

    node: Node
    usage: StatsSummary
    usage_after_reclaim: StatsSummary | None
    """The usage after the node has reclaimed what it can; None: not given."""
    filesystems: NodeFilesystems
    warnings: tuple[str, ...] = ()
    """Irregularities of the usage."""


def usage_of_node(
    node: Node,
    reading: UsageReading,
    *,
    available: Mapping[Signal, int] | None = None,
    after: UsageReading | None = None,
    filesystems: str | None = None,
) -> NodeWithUsage:
    """The node with this usage.

    ``available`` overrides amounts of the reading, in bytes, inodes or processes; ``after`` is the usage after the
    node has reclaimed what it can; ``filesystems`` is a key of FILESYSTEMS.

    Errors: InputError for amounts that exceed their capacity, or whose capacity is unknown.
    """
    available = available or {}
    usage, warnings = _as_usage(node, reading, available)
    disks = _filesystems(node, usage, filesystems)
    stated = {*available, *(map(Signal, reading.available) if isinstance(reading, UsageTable) else ())}
    return NodeWithUsage(
        node=node,
        usage=usage,
        usage_after_reclaim=None if after is None else _as_usage(node, after, {})[0],
        filesystems=disks,
        warnings=(
            *warnings,
            *_without_threshold(node, stated, disks),
            *_irregularities(node, usage),
            *(() if isinstance(reading, UsageTable) else _huge_pages(node, usage)),
        ),
    )


def table_usage(table: UsageTable, state: NodeState, path: str = "spec") -> StatsSummary:
    """The stats summary of a node that the table at this path describes.

    Errors: InputError for amounts that exceed their capacity, or whose capacity is unknown.
    """
    capacities = _capacities(state, table)
    available = {Signal(name): amount for name, amount in table.available.items()}
    _check_available(StatsSummary(), available, capacities, f"{path}.available")
    return usage_from_table(table, capacities, eviction_claims(state))


def _as_usage(
    node: Node, reading: UsageReading, available: Mapping[Signal, int]
) -> tuple[StatsSummary, tuple[str, ...]]:
    capacities = _capacities(node.state, reading)
    if isinstance(reading, UsageTable):
        reading = table_usage(reading, node.state)
    _check_available(reading, available, capacities, "available")
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
        count, remedy = counted(len(match.unknown_pods), "pod"), "-f FILE names the node's pods"
        if len(match.unknown_pods) == len(match.usage.pods):
            rule = f"none of its pods is on the node {node.name}: {names}{ellipsis}; {remedy}"
            raise InputError([Fault(source="--usage", rule=rule)])
        warnings.append(f"{count} of the usage not on the node, ignored: {names}{ellipsis}; {remedy}")
    return match.usage, tuple(warnings)


def _capacities(state: NodeState, reading: UsageReading) -> SignalCapacities:
    """The node's capacities, with those that the reading states in their place."""
    written = reading.capacity if isinstance(reading, UsageTable) else {}
    overrides = {Signal(name): amount.value() for name, amount in written.items()}
    return replace(eviction_capacities(state.config), overrides=overrides)


def _check_available(
    usage: StatsSummary, available: Mapping[Signal, Quantity | int], capacities: SignalCapacities, path: str
) -> None:
    """Checks that each available amount has a capacity, which is the usage's or the node's, and does not exceed it.

    Errors: InputError.
    """
    faults = []
    observed = signal_observations(usage_with_available(usage, dict.fromkeys(available, 0), capacities))
    for signal, amount in available.items():
        capacity = observed[signal].capacity.value()
        if not capacity and signal not in capacities.overrides:
            rule = (
                f"the capacity is not in the node's profile: specify spec.capacity[{signal}] of a NodeUsage"
            )
        elif (amount if isinstance(amount, int) else amount.value()) > capacity:
            rule = f"exceeds the capacity, {capacity}"
        else:
            continue
        faults.append(Fault(path=f"{path}[{signal}]", value=str(amount), rule=rule))
    if faults:
        raise InputError(faults)


def _without_threshold(node: Node, stated: Iterable[Signal], filesystems: NodeFilesystems) -> Iterator[str]:
    """Warnings about amounts that no threshold of the node observes."""
    watched = watched_thresholds(node.config.eviction.thresholds, filesystems).thresholds
    for signal in sorted({*stated} - {threshold.signal for threshold in watched}):
        yield f"no threshold of the node is on {signal}: the amount that is available evicts no pod"


def _filesystems(node: Node, usage: StatsSummary, choice: str | None) -> NodeFilesystems:
    if choice is not None:
        return FILESYSTEMS[choice]
    inferred = inferred_filesystems(usage)
    if inferred == NodeFilesystems() and node.config.facts.image_fs is not None:
        return FILESYSTEMS["images"]
    return inferred


_SKEW = 0.02
"""Part of the node's memory by which what is available and used may differ from the capacity."""


def _huge_pages(node: Node, usage: StatsSummary) -> Iterator[str]:
    """How `memory.available` of a kubelet's summary is taken on a node with huge pages, and what another kubelet counts."""
    memory, config = usage.node.memory, node.config
    pages = huge_page_bytes(config.resources.capacity)
    if not pages or memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return
    available, gate = memory.available_bytes, "HugepageAwareEviction"
    is_corrected = config.gates[gate]
    other = available + pages if is_corrected else max(available - pages, 0)
    texts = [amount_text(MEMORY, amount) for amount in (available, pages, other)]
    if is_corrected:
        yield (
            f"memory.available {texts[0]} is taken as without {texts[1]} of huge pages, as a kubelet with {gate} reports "
            f"it; in a summary of a kubelet before 1.37 the same would be {texts[2]}"
        )
    else:
        yield (
            f"memory.available {texts[0]} is taken as with {texts[1]} of huge pages, as a kubelet without {gate} reports "
            f"it; a kubelet of 1.37 would evict by {texts[2]}"
        )
    capacity = config.parts.machine.memory_capacity
    seen = available + memory.working_set_bytes + (0 if is_corrected else pages)
    if available and abs(seen - capacity) <= min(_SKEW * capacity, pages / 2):
        yield (
            f"memory.available and the working set together are {amount_text(MEMORY, available + memory.working_set_bytes)}, of "
            f"a node with {amount_text(MEMORY, capacity)}: the summary seems to be of a kubelet "
            f"{'without' if is_corrected else 'with'} {gate}; name its release by `--release`"
        )


def _irregularities(node: Node, usage: StatsSummary) -> Iterator[str]:
    """Warnings about likely mistakes: pods without stats, signals with an impossible capacity."""
    uids_with_stats = {stats.pod_ref.uid for stats in usage.pods}
    without_stats = [pod for uid, pod in node.state.pods.items() if uid not in uids_with_stats]
    if without_stats and usage.pods:
        names = ", ".join(pod.full_name for pod in without_stats[:3])
        names += ", ..." if len(without_stats) > 3 else ""
        yield f"{counted(len(without_stats), 'pod')} without stats, ranked first as the kubelet does: {names}"
    for signal, observation in signal_observations(usage).items():
        if observation.capacity.value() == 0:
            yield f"{signal} has a capacity of 0: thresholds in percent are never met"
        elif observation.available.compare(observation.capacity) > 0:
            yield f"{signal} has more available than its capacity: {observation.available} of {observation.capacity}"
