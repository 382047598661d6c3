"""`nodewright requests`: the effective requests and limits of pods, their sources, and the resulting QoS."""

import sys
from collections.abc import Sequence

import click

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.options import ManifestOptions, filename_options
from nodewright.cli.workload_input import option_rules, print_input_notes, read_workloads
from nodewright.documents.formats.workloads import release_warnings
from nodewright.documents.output.command_line import option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import YES, print_text, terminal_columns
from nodewright.engine.core.requests.resource_breakdown import AlikeBreakdowns
from nodewright.model.errors import Fault, InputError
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.quantity import QuantityError, whole_amount
from nodewright.predict.admit.requests_report import (
    RequestsEntry,
    RequestsReport,
    requests_item,
    requests_names,
    requests_table,
    requests_text,
    requests_wide,
)

MAX_WIDTH = 100
"""Longer lines are hard to read."""
_ASSUMED_BYTES = 16 << 30
_ASSUMED_OF = "an assumed memory of 16Gi"
_NAME_MEMORY = "this machine is not Linux; oom_score_adj needs --node or --memory-capacity"
"""Where this machine is no node: its memory decides oom_score_adj, and nothing else here."""


@click.command("requests")
@cluster_options
@filename_options
@option(
    "--memory-capacity AMOUNT",
    "Node memory for the calculation of oom_score_adj, e.g. 64Gi. Default: that of the node.",
)
@options.node_option()
@options.release_option
@options.strict_option
@options.namespace_option
@option("--explain", "Show where each amount, the QoS class and the scores come from.")
@options.output_option("json", "yaml", "wide", "name")
def command(  # noqa: PLR0913 - one argument an option
    *,
    manifests: ManifestOptions,
    memory_capacity: str | None,
    node: str | None,
    release: str | None,
    strict: bool,
    namespace: str,
    explain: bool,
    output: str | None,
) -> int:
    """Show the effective requests and limits, defaults, QoS class and oom_score_adj of each pod.

    With --explain, each value with the container, init container, sidecar, overhead or pod-level field that determines it.
    Of a workload object (Deployment, DaemonSet, Job, ...) the pod template is evaluated.
    """
    loaded = read_workloads(manifests, namespace)
    memory_bytes, memory_of, version = _memory(memory_capacity, node)
    needs_memory = explain or output not in (None, "name")
    rules = option_rules(release or version)
    gates = default_gates(rules.table)
    breakdowns = AlikeBreakdowns(memory_bytes, gates)
    entries = [
        RequestsEntry(workload=workload, pod_requests=breakdowns.breakdown(workload.pod))
        for workload in loaded.workloads
    ]
    assumed = (f"{memory_of}: {_NAME_MEMORY}",) if needs_memory and memory_of == _ASSUMED_OF else ()
    warnings = (*loaded.warnings, *release_warnings(rules, loaded.workloads), *assumed)
    print_input_notes(loaded, warnings, strict=strict)
    if output in ("json", "yaml"):
        report = RequestsReport(
            rules_of=rules.rules_of,
            memory_capacity=memory_bytes,
            memory_capacity_of=memory_of,
            items=tuple(map(requests_item, entries)),
            skipped=loaded.skipped,
            warnings=warnings,
        )
        text = (as_json if output == "json" else as_yaml)(report)
    else:
        text = _text(entries, memory_of, output, explain=explain) if entries else ""
    print_text(text)
    return YES


def _text(entries: Sequence[RequestsEntry], memory_of: str, output: str | None, *, explain: bool) -> str:
    if output == "wide":
        return requests_wide(entries)
    if output == "name":
        return requests_names(entries)
    if not explain:
        return requests_table(entries)
    columns = terminal_columns()
    return requests_text(entries, memory_of, width=min(columns, MAX_WIDTH))


def _memory(amount: str | None, node: str | None) -> tuple[int, str, str]:
    """The node's memory, its description, and the node's release; the newest one without a node.

    Units:  bytes.
    Errors: InputError for less than one byte.
    """
    version, capacity = NEWEST.name, 0
    if amount is None and node is None and sys.platform != "linux":
        return _ASSUMED_BYTES, _ASSUMED_OF, version
    if amount is None or node is not None:
        from nodewright.documents.profiles.node_profiles import find_profile  # noqa: PLC0415 - start-up time

        spec = find_profile(node).spec
        version, capacity = spec.kubernetes_version, spec.machine_info.memory_capacity
    if amount is not None:
        memory_bytes, memory_of = _parsed(amount), "the memory of --memory-capacity"
    else:
        memory_of = "the memory of this machine" if node is None else f"the memory of node {node}"
        memory_bytes = capacity
    if memory_bytes < 1:
        fault = Fault(source="memory of the node", value=memory_bytes, rule="must be greater than zero")
        raise InputError([fault])
    return memory_bytes, memory_of, version


def _parsed(amount: str) -> int:
    try:
        return whole_amount(amount)
    except QuantityError as error:
        raise InputError([Fault(source="--memory-capacity", value=amount, rule=str(error))]) from error
