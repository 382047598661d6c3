"""`nodewright schema`: the JSON Schemas of the reports, of NodeProfiles and of Scenarios."""

import importlib
from typing import Any, NamedTuple

import click

from nodewright.documents.output.terminal import YES, print_text
from nodewright.documents.output.text_layout import table


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
    "PreemptionReport": ReportSource(
        "preempt", "nodewright.predict.admit.preemption_report:PreemptionReport"
    ),
    "EvictionReport": ReportSource("evict", "nodewright.predict.evict.evict_report:EvictionReport"),
    "EvictionTimeline": ReportSource(
        "evict --timeline", "nodewright.predict.timeline.timeline_report:EvictionTimelineReport"
    ),
    "RehearsalReport": ReportSource("rehearse", "nodewright.predict.rehearsal:RehearsalReport"),
    "UpgradeReport": ReportSource("upgrade", "nodewright.predict.upgrade.upgrade_report:UpgradeReport"),
    "LintReport": ReportSource("lint", "nodewright.predict.lint.lint_report:LintReport"),
    "CgroupReport": ReportSource("cgroups", "nodewright.predict.node_report.cgroup_report:CgroupFilesReport"),
    "AuditReport": ReportSource("audit", "nodewright.predict.audit.audit_report:AuditReport"),
    "QuotaReport": ReportSource("quota", "nodewright.predict.quota.quota_report:AppliedQuotasReport"),
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
    from nodewright.documents.output.report_schemas import object_schema, report_schema  # noqa: PLC0415 - for schemas only

    module, _, name = REPORTS[kind].place.partition(":")
    report = getattr(importlib.import_module(module), name)
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
