"""The features as functions: what the commands lint, quota, evict, rehearse and fleet report with `-o json`.

A manifest source is a path, YAML or JSON as text, a mapping, or an object of a Kubernetes client.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

from msgspec.structs import replace

from nodewright.documents.formats.api_objects import OtherObjects
from nodewright.documents.formats.documents import InputFile, read_file
from nodewright.documents.formats.inventory import Inventory, loaded_inventory, without_duplicates
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.python_objects import ManifestSource, files_and_objects
from nodewright.documents.profiles.machine_shapes import parse_shape_rules
from nodewright.documents.profiles.usage_files import usage_from_file
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.engine.node.previews import node_eviction_forecast
from nodewright.fleet.fleet_summary import fleet_summary
from nodewright.fleet.load.assembled_nodes import NodeDefaults
from nodewright.fleet.load.fleet_input import FleetFiles, load_fleet
from nodewright.fleet.report.fleet_report import FleetReport, fleet_assumptions, fleet_report
from nodewright.fleet.runner import DEFAULT_OPTIONS, Options, run
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import NEWEST, Release, applied_rules
from nodewright.predict.evict.evict_report import EvictionReport, eviction_report
from nodewright.predict.evict.node_usage import usage_of_node
from nodewright.predict.lint.lint_input import load_lint_input
from nodewright.predict.lint.lint_report import LintReport, lint_report
from nodewright.predict.lint.lint_run import lint_result
from nodewright.predict.lint.rules import RuleSelection
from nodewright.predict.node import Node
from nodewright.predict.python_sources import add_sources, profile_of
from nodewright.predict.quota.applied_inventory import applied_inventory
from nodewright.predict.quota.quota_report import AppliedQuotasReport, quota_report
from nodewright.predict.rehearsal import (
    RehearsalReport,
    RestartQuery,
    rehearsal_report,
    rehearsed_restart,
)


def lint(
    *sources: ManifestSource,
    nodes: Sequence[str] = (),
    only: Iterable[str] = (),
    disable: Iterable[str] = (),
    namespace: str = "default",
) -> LintReport:
    """Problems in manifests and kubelet configurations, as `nodewright lint -o json` reports them.

    Errors: InputError with all faults of the manifests.

    >>> [(finding.rule, finding.line) for finding in lint("examples/lint/shop.yaml", only=["NW102"]).findings]
    [('NW102', 16)]
    """
    lint_input = load_lint_input(_inventory(sources, namespace), nodes)
    result = lint_result(lint_input, RuleSelection(frozenset(only), frozenset(disable)))
    return lint_report(result.findings, objects=len(result.subjects), rules=result.rules)


def quota(
    *sources: ManifestSource,
    namespace: str = "default",
    release: str = NEWEST.name,
    nodes: int = 1,
    surge: bool = False,
    from_status: bool = False,
) -> AppliedQuotasReport:
    """What quotas and limit ranges charge and refuse when the manifests are applied in order, and what still fits.

    ``nodes`` run the pods of each DaemonSet; ``surge`` counts the pods of a rolling update; ``from_status`` starts from
    `status.used` of the quotas.

    Errors: InputError with all faults of the manifests; ReleaseError if ``release`` is not a release.

    >>> report = quota("examples/quota/shop")
    >>> report.fits, len(report.objects)
    (False, 4)
    """
    rules = applied_rules(Release.parse(release))
    options = ExpansionOptions(
        nodes=nodes, surge=surge, from_status=from_status, gates=default_gates(rules.table)
    )
    inventory = without_duplicates(_inventory(sources, namespace))
    return quota_report(applied_inventory(inventory, options, rules, needs_position=False))


def evict(
    node: Node,
    usage: ManifestSource,
    *,
    available: Mapping[str, int] | None = None,
    signal: str | None = None,
) -> EvictionReport:
    """Which pods of the node the kubelet evicts at this usage, in what order and why.

    ``usage`` is the kubelet's /stats/summary, a NodeUsage or a table (.csv); ``available`` overrides amounts by signal, in
    bytes, inodes or processes; ``signal`` is ranked whether its threshold is met or not.

    Errors: InputError with all faults of the usage.

    >>> node = Node.open("examples/eviction/node.yaml")
    >>> [eviction.pod.name for eviction in evict(node, "examples/eviction/summary.json").evictions]
    ['web']
    """
    reading = usage_from_file(_usage_file(usage))
    amounts = {Signal(name): amount for name, amount in (available or {}).items()}
    observed = usage_of_node(node, reading, available=amounts)
    forecast = node_eviction_forecast(
        observed.node.state,
        observed.usage,
        observed.filesystems,
        signal=None if signal is None else Signal(signal),
        after=observed.usage_after_reclaim,
    )
    return eviction_report(forecast, warnings=(*node.warnings, *observed.warnings))


def rehearse(
    profile: "ManifestSource | NodeProfile",
    *,
    kubelet_config: str | PathLike[str] | None = None,
    kubelet_root: str | PathLike[str] | None = None,
    pods: str | PathLike[str] | None = None,
) -> RehearsalReport:
    """Whether a kubelet restart succeeds and which pods it rejects; nothing is written.

    ``kubelet_config`` is the KubeletConfiguration to start with, ``kubelet_root`` the kubelet's directory or a copy of it,
    ``pods`` the output of `kubectl get pods -A -o json`.

    Errors: InputError for files that cannot be read.

    >>> report = rehearse("examples/rehearsal/worker-3.yaml", kubelet_config="examples/rehearsal/fewer-pods.yaml")
    >>> report.outcome.starts, [pod.pod.name for pod in report.outcome.pods if pod.after is None]
    (True, ['web-6d5c8f7b9-l4x8q'])
    """
    query = RestartQuery(
        profile=profile_of(profile),
        source="profile",
        config=None if kubelet_config is None else Path(kubelet_config),
        root=None if kubelet_root is None else Path(kubelet_root),
        pods=None if pods is None else Path(pods),
    )
    return rehearsal_report(rehearsed_restart(query))


def simulate(
    nodes: Sequence[str | PathLike[str]],
    pods: Sequence[str | PathLike[str]],
    *,
    shapes: Sequence[str] = (),
    namespace: str = "default",
    options: Options = DEFAULT_OPTIONS,
) -> FleetReport:
    """A fleet over time: where each pod went, what is used, and which pods no node can hold.

    ``nodes`` and ``pods`` are files and directories of manifests or tables; ``shapes`` are rules as of `--shapes`.

    Errors: InputError with all faults of the files.

    >>> report = simulate(["examples/fleet/nodes.yaml"], ["examples/fleet/pods.yaml"])
    >>> report.statistics.placements
    29
    """
    files = FleetFiles(
        nodes=tuple(map(str, nodes)),
        pods=tuple(map(str, pods)),
        namespace=namespace,
        node_defaults=NodeDefaults(rules=parse_shape_rules(tuple(shapes))),
    )
    fleet = load_fleet(files)
    result = run(fleet.nodes, fleet.pods(), replace(options, budgets=fleet.budgets))
    return fleet_report(fleet_summary(result), result, fleet_assumptions(fleet), warnings=fleet.warnings)


def _inventory(sources: tuple[ManifestSource, ...], namespace: str) -> Inventory:
    loading = ManifestLoader(namespace, other_objects=OtherObjects())
    add_sources(loading, sources)
    return loaded_inventory(loading)


def _usage_file(usage: ManifestSource) -> InputFile:
    [source] = files_and_objects((usage,))
    if isinstance(source, str):
        return read_file(source)
    name, value = source
    return InputFile(name, value if isinstance(value, bytes) else json.dumps(value).encode())
