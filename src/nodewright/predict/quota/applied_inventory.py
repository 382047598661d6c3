"""Applies the objects of manifests under the quotas and limit ranges of their namespaces."""

from nodewright.documents.formats.inventory import Inventory, InventoryObject
from nodewright.documents.formats.workloads import release_warnings
from nodewright.documents.output.ci_formats import SourcePosition
from nodewright.engine.admission.api_server.apply import apply
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.model.releases.release import AppliedRules
from nodewright.predict.quota.applied_inventory import AppliedObject, QuotaReport
from nodewright.predict.quota.fixes import pod_headroom, smallest_fixes


def applied_inventory(
    inventory: Inventory, expansion: ExpansionOptions, rules: AppliedRules, *, needs_position: bool
) -> QuotaReport:
    """The objects of the manifests under the quotas and limit ranges of their namespaces, with what still fits and fixes."""
    manifests = [entry.manifest for entry in inventory.objects]
    applied = apply(manifests, expansion)
    return QuotaReport(
        subjects=tuple(_subject(entry, needs_position=needs_position) for entry in inventory.objects),
        applied=applied,
        headroom=pod_headroom(manifests, applied, expansion),
        fixes=smallest_fixes(manifests, applied, expansion),
        rules_of=rules.rules_of,
        warnings=(
            *inventory.warnings,
            *release_warnings(rules, (entry.workload for entry in inventory.objects if entry.workload)),
        ),
    )


def _subject(entry: InventoryObject, *, needs_position: bool) -> AppliedObject:
    """The name and the source of the object; its position only if needed, because that parses the file again."""
    manifest = entry.manifest
    line, column = (entry.location.position() if needs_position else None) or (0, 0)
    return AppliedObject(
        kind=manifest.kind,
        namespace=manifest.namespace,
        name=manifest.name,
        source=entry.location.name,
        position=SourcePosition(file=entry.location.source, line=line, column=column),
        field="parallelism" if manifest.kind in ("Job", "CronJob") else "replicas",
    )
