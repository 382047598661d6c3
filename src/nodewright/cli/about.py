"""The commands about nodewright itself: `schema`, `completion`, `version` and `help`."""

import importlib
import platform
from importlib import resources
from typing import Any, Literal, NamedTuple

import click

from nodewright.cli import options
from nodewright.documents.output.json_yaml import ReportDocument, as_json, as_yaml
from nodewright.documents.output.report_schemas import object_schema, report_schema
from nodewright.documents.output.terminal import YES, print_text
from nodewright.documents.output.text_layout import table
from nodewright.model.releases.release_table import NEWEST, RELEASE_TABLES
from nodewright.version import __version__


class ReportSource(NamedTuple):
    """Where a report is printed and defined."""

    command: str
    """The command without `nodewright` and `-o json`."""
    place: str
    """Module and class."""


REPORTS = {
    "RequestsReport": ReportSource("requests", "nodewright.predict.admit.requests_report:RequestsReport"),
    "AdmissionReport": ReportSource("admit", "nodewright.predict.admit.admission_report:AdmissionReport"),
    "ClusterAdmissionReport": ReportSource(
        "admit --node nodes", "nodewright.predict.admit.cluster_admission:ClusterAdmissionReport"
    ),
    "ResizeReport": ReportSource("admit --resize", "nodewright.predict.admit.resize_report:PodResizeReport"),
    "ExplanationReport": ReportSource(
        "explain", "nodewright.predict.explain.explanation_report:ExplanationReport"
    ),
    "StatusReport": ReportSource(
        "explain --pod", "nodewright.predict.explain.failed_pod_report:StatusReport"
    ),
    "FitReport": ReportSource("fit", "nodewright.predict.fit.node_fit:FitReport"),
    "PreemptionReport": ReportSource(
        "preempt", "nodewright.predict.admit.preemption_report:PreemptionReport"
    ),
    "EvictionReport": ReportSource("evict", "nodewright.predict.evict.evict_report:EvictionReport"),
    "EvictionTimeline": ReportSource(
        "evict --timeline", "nodewright.predict.timeline.timeline_report:EvictionTimelineReport"
    ),
    "LendReport": ReportSource("lend", "nodewright.predict.lend.lend_report:LendReport"),
    "RehearsalReport": ReportSource("rehearse", "nodewright.predict.rehearsal:RehearsalReport"),
    "UpgradeReport": ReportSource("upgrade", "nodewright.predict.upgrade.upgrade_report:UpgradeReport"),
    "LintReport": ReportSource("lint", "nodewright.predict.lint.lint_report:LintReport"),
    "CgroupReport": ReportSource("cgroups", "nodewright.predict.node_report.cgroup_report:CgroupFilesReport"),
    "AuditReport": ReportSource("audit", "nodewright.predict.audit.audit_report:AuditReport"),
    "QuotaReport": ReportSource("quota", "nodewright.predict.quota.quota_report:AppliedQuotasReport"),
    "DrainReport": ReportSource("drain", "nodewright.fleet.report.drain_report:DrainReport"),
    "FleetReport": ReportSource("fleet run", "nodewright.fleet.report.fleet_report:FleetReport"),
    "SweepReport": ReportSource("fleet run --sweep", "nodewright.fleet.report.sweep_report:SweepReport"),
    "FleetCapacityReport": ReportSource(
        "fleet capacity", "nodewright.fleet.report.sweep_report:FleetCapacityReport"
    ),
    "MinimumNodesReport": ReportSource(
        "fleet minimise", "nodewright.fleet.report.sweep_report:MinimumNodesReport"
    ),
    "VerificationReport": ReportSource(
        "verify", "nodewright.testing.conformance.vector_run:VerificationReport"
    ),
    "ReplayReport": ReportSource("replay", "nodewright.predict.replay.replay_report:ReplayReport"),
    "VersionReport": ReportSource("version", "nodewright.cli.about:VersionReport"),
    "NodeProfile": ReportSource("node show", "nodewright.model.kubernetes.node_profile:NodeProfile"),
    "Scenario": ReportSource("replay --journal", "nodewright.model.kubernetes.scenario:Scenario"),
}
"""The reports by `kind`; a report without one, by the name of its class."""


OBJECTS = ("NodeProfile", "Scenario")
"""Kinds that are files as well."""


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of the reports of this kind."""
    module, _, name = REPORTS[kind].place.partition(":")
    report = getattr(importlib.import_module(module), name)
    return object_schema(report) if kind in OBJECTS else report_schema(report, kind)


@click.command("schema")
@click.argument("kind", metavar="[KIND]", type=click.Choice(list(REPORTS)), required=False)
def schema_command(kind: str | None) -> int:
    """Print the JSON Schema (2020-12) of a kind of report, or list the kinds.

    A command with -o json or -o yaml prints a report that satisfies its schema; NodeProfiles and Scenarios are files.
    """
    if kind is None:
        text = table(("KIND", "COMMAND"), [(name, report.command) for name, report in REPORTS.items()])
    else:
        text = as_json(schema_of(kind))
    print_text(text)
    return YES


SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> int:
    """Print a shell completion script for commands, options, formats, machines and files.

    For bash 4.4 and later: `source <(nodewright completion bash)`, for example in ~/.bashrc. For zsh, after compinit,
    the same with zsh. For fish: `nodewright completion fish | source`. As a kubectl plugin it needs no script:
    kubectl calls `kubectl_complete-nodewright`.
    """
    script = resources.files("nodewright.cli").joinpath("scripts", f"nodewright.{shell}")
    print_text(script.read_text("utf-8"))
    return YES


class VersionReport(ReportDocument, frozen=True, kw_only=True):
    """The version and the Kubernetes releases: `nodewright version`."""

    kind: Literal["VersionReport"] = "VersionReport"
    version: str
    kubernetes_releases: tuple[str, ...]
    """Oldest first."""
    default_release: str
    """The release of nodes that name none."""
    python: str


@click.command("version")
@options.output_option("json", "yaml")
def version_command(output: str | None) -> int:
    """Show the version and the Kubernetes releases.

    A node of another release is decided by the rules of the nearest one, with a warning.
    """
    report = VersionReport(
        version=__version__,
        kubernetes_releases=tuple(RELEASE_TABLES),
        default_release=NEWEST.name,
        python=platform.python_version(),
    )
    if output is not None:
        print_text((as_json if output == "json" else as_yaml)(report))
        return YES
    releases = ", ".join(report.kubernetes_releases)
    print_text(
        f"nodewright {report.version}\n"
        f"Kubernetes {releases} (nodes that name none: {report.default_release})\n"
        f"Python {report.python}\n"
    )
    return YES


@click.command("help")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> int:
    """Show the help of a command, or the list of commands."""
    parent = context.parent
    assert parent is not None
    group, of_group = parent.command, parent
    for word in words:
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{of_group.command_path} has no commands", context)
        _, found_command, _ = group.resolve_command(of_group, [word])
        assert found_command is not None
        group, of_group = found_command, click.Context(found_command, info_name=word, parent=of_group)
    print_text(f"{group.get_help(of_group)}\n")
    return YES
