"""`nodewright quota`: applies manifests under the quotas and limit ranges of their namespaces."""

from collections.abc import Iterator
from functools import partial

import click
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cli.options import ManifestOptions, filename_options
from nodewright.cli.workload_input import (
    manifest_inputs,
    nothing_found,
    option_rules,
    print_skipped,
    print_unjudged,
    print_warnings,
    reading_options,
)
from nodewright.documents.formats.api_objects import API_KINDS
from nodewright.documents.formats.inventory import (
    Inventory,
    InventoryObject,
    load_inventory,
    without_duplicates,
)
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import NO, YES, print_text, print_workflow_commands
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import NEWEST
from nodewright.predict.quota.applied_inventory import (
    AppliedInventory,
    applied_inventory,
    quota_text,
    refused_object_names,
    what_if_text,
)
from nodewright.predict.quota.manifest_overrides import inventory_with_overrides, parsed_override
from nodewright.predict.quota.quota_report import quota_commands, quota_junit, quota_report, quota_sarif
from nodewright.version import __version__


@click.command("quota")
@partial(cluster_options, whole={"operands": ("quota,limits",)})
@filename_options
@options.namespace_option
@options.strict_option
@options.release_option
@option(
    "--nodes",
    "Number of nodes that run the pods of each DaemonSet.",
    type=IntegerRange(0, 100_000),
    default=1,
)
@option("--surge", "Count the surge pods of a simultaneous rolling update of all workloads.")
@option("--from-status", "Start from `status.used` of the quotas; the manifests are charged in addition.")
@option(
    "--what-if FILE|DIR",
    "Compare with changed or additional objects. Repeatable.",
    name="what_if",
    multiple=True,
)
@option(
    "--set KIND/NAME:PATH=VALUE",
    "Compare with a field changed, e.g. deployment/web:containers.app.requests.cpu=100m. Repeatable.",
    name="sets",
    multiple=True,
)
@options.output_option("json", "yaml", "junit", "sarif", "github", "name")
def command(  # noqa: PLR0913 - one argument an option
    *,
    manifests: ManifestOptions,
    namespace: str,
    strict: bool,
    release: str | None,
    nodes: int,
    surge: bool,
    from_status: bool,
    what_if: tuple[str, ...],
    sets: tuple[str, ...],
    output: str | None,
) -> int:
    """Show what quotas and limit ranges charge and refuse, what still fits, and changes that make everything fit.

    With -n, -A or a context and without manifests: the quotas of the cluster, with what is in use now.

    The manifests are applied in order, as the API server admits them: limit ranges set defaults first, controllers
    create all their pods. Quotas and limit ranges apply from the start, wherever they are in the files. Exit code 0
    if everything fits (with --what-if and --set: after the changes), else 3.
    """
    inventory = without_duplicates(_read_inventory(manifests, namespace))
    print_skipped(inventory.skipped)
    if not inventory.objects:
        raise nothing_found("objects", inventory.skipped)
    print_unjudged(_judged_by_kind(inventory))
    from_status = from_status or current_session().lists_whole
    rules = option_rules(release or NEWEST.name)
    expansion = ExpansionOptions(
        nodes=nodes,
        surge=surge,
        from_status=from_status,
        gates=default_gates(rules.table),
    )
    needs_position = output in ("junit", "sarif", "github")
    report = applied_inventory(inventory, expansion, rules, needs_position=needs_position)
    changed_report = None
    if what_if or sets:
        changed = _changed_inventory(inventory, manifests, namespace, what_if, sets)
        changed_report = applied_inventory(changed, expansion, rules, needs_position=needs_position)
    print_warnings(report.warnings, strict=strict)
    if output == "github":
        print_workflow_commands(quota_commands(changed_report or report))
    else:
        print_text(_text(report, changed_report, output))
    return YES if (changed_report or report).fits else NO


def _changed_inventory(
    inventory: Inventory,
    manifests: ManifestOptions,
    namespace: str,
    what_if: tuple[str, ...],
    sets: tuple[str, ...],
) -> Inventory:
    """The objects with the changed and additional ones."""
    additions: tuple[InventoryObject, ...] = ()
    if what_if:
        changed_files = replace(manifests, filenames=what_if, kustomizations=())
        additions = _read_inventory(changed_files, namespace).objects
    return inventory_with_overrides(inventory, additions, [parsed_override(text) for text in sets])


def _judged_by_kind(inventory: Inventory) -> Iterator[tuple[str, bool]]:
    """The kind of each object, and whether the API server's admission or a quota is asked about it.

    A quota may count any kind. Without one, nothing is asked about a pod that ended, nor about a namespace.
    """
    has_quota = any(entry.manifest.kind == "ResourceQuota" for entry in inventory.objects)
    for entry in inventory.objects:
        kind = entry.value.get("apiVersion"), entry.value.get("kind")
        is_asked = kind in API_KINDS and kind != ("v1", "Namespace")
        if entry.workload is not None:
            is_asked = not (entry.manifest.kind == "Pod" and entry.workload.pod.is_terminal)
        yield entry.manifest.kind, has_quota or is_asked


def _text(report: AppliedInventory, changed: AppliedInventory | None, output: str | None) -> str:
    last = changed or report
    if output == "junit":
        return quota_junit(last)
    if output == "sarif":
        return as_json(quota_sarif(last, __version__))
    if output == "name":
        return refused_object_names(last)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(quota_report(report, changed))
    return quota_text(report) if changed is None else what_if_text(report, changed)


def _read_inventory(manifests: ManifestOptions, namespace: str) -> Inventory:
    """All objects of the manifests.

    Errors: InputError with all faults of all files.
    """
    return load_inventory(manifest_inputs(manifests), namespace, **reading_options(manifests))
