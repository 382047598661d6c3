"""`nodewright schema`: the JSON Schemas of the reports, of NodeProfiles and of Scenarios."""

import importlib
from typing import Any, NamedTuple

import click

from nodewright.documents.output.exit_codes import YES
from nodewright.documents.output.terminal import print_text
from nodewright.documents.output.text_layout import table


class ReportSource(NamedTuple):
    """Where a report is printed and defined."""

    command: str
    """The command without `nodewright` and `-o json`."""
    place: str
    """Module and class below `nodewright`."""


REPORTS = {
    "RequestsReport": ReportSource("requests", "admit.requests_report:RequestsReport"),
    "AdmissionReport": ReportSource("admit", "admit.admission_report:AdmissionReport"),
    "ClusterAdmissionReport": ReportSource(
        "admit --node nodes", "admit.cluster_admission_report:ClusterAdmissionReport"
    ),
    "ResizeReport": ReportSource("admit --resize", "admit.resize_report:PodResizeReport"),
    "ExplanationReport": ReportSource("explain", "explain.explanation_report:ExplanationReport"),
    "StatusReport": ReportSource("explain --pod", "explain.failed_pod_report:StatusReport"),
    "PreemptionReport": ReportSource("preempt", "admit.preemption_report:PreemptionReport"),
    "EvictionReport": ReportSource("evict", "evict.evict_report:EvictionReport"),
    "EvictionTimeline": ReportSource("evict --timeline", "timeline.timeline_report:EvictionTimelineReport"),
    "RehearsalReport": ReportSource("rehearse", "rehearse.rehearsal_report:RehearsalReport"),
    "UpgradeReport": ReportSource("upgrade", "upgrade.upgrade_report:UpgradeReport"),
    "LintReport": ReportSource("lint", "lint.lint_report:LintReport"),
    "CgroupReport": ReportSource("cgroups", "node_report.cgroup_report:CgroupFilesReport"),
    "AuditReport": ReportSource("audit", "audit.audit_report:AuditReport"),
    "QuotaReport": ReportSource("quota", "quota.quota_report:AppliedQuotasReport"),
    "FleetReport": ReportSource("fleet run", "fleet.report.fleet_report:FleetReport"),
    "SweepReport": ReportSource("fleet run --sweep", "fleet.report.sweep_report:SweepReport"),
    "FleetCapacityReport": ReportSource("fleet capacity", "fleet.report.sweep_report:FleetCapacityReport"),
    "MinimumNodesReport": ReportSource("fleet minimise", "fleet.report.sweep_report:MinimumNodesReport"),
    "VerificationReport": ReportSource("verify", "conformance.vector_run:VerificationReport"),
    "ReplayReport": ReportSource("replay", "replay.replay_report:ReplayReport"),
    "VersionReport": ReportSource("version", "cli.version:VersionReport"),
    "NodeProfile": ReportSource("node show", "kubernetes.node_profile:NodeProfile"),
    "Scenario": ReportSource("replay --journal", "kubernetes.scenario:Scenario"),
}
"""The reports by `kind`; a report without one, by the name of its class."""


OBJECTS = ("NodeProfile", "Scenario")
"""Kinds that are files as well."""


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of the reports of this kind."""
    from nodewright.documents.output.report_schemas import object_schema, report_schema  # noqa: PLC0415 - for schemas only

    module, _, name = REPORTS[kind].place.partition(":")
    report = getattr(importlib.import_module(f"nodewright.{module}"), name)
    return object_schema(report) if kind in OBJECTS else report_schema(report, kind)


@click.command("schema")
@click.argument("kind", type=click.Choice(list(REPORTS)), required=False)
def command(kind: str | None) -> int:
    """Print the JSON Schema (2020-12) of a kind of report, or list the kinds.

    A command with -o json or -o yaml prints a report that satisfies its schema; NodeProfiles and Scenarios are files.
    """
    if kind is None:
        text = table(("KIND", "COMMAND"), [(name, report.command) for name, report in REPORTS.items()])
    else:
        from nodewright.documents.output.json_yaml import as_json  # noqa: PLC0415 - needed only for a schema

        text = as_json(schema_of(kind))
    print_text(text)
    return YES
