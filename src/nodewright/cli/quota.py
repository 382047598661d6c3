"""`nodewright quota`: what becomes of manifests under the quotas and limit ranges of their namespaces."""

from importlib.metadata import version

import click

from nodewright.cli import options
from nodewright.cli.app import NO, YES
from nodewright.cli.inputs import inventory, warn
from nodewright.namespace.apply import apply
from nodewright.namespace.mend import mending, rooms
from nodewright.namespace.plans import Setting
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.findings import Spot
from nodewright.render.quota import QuotaReport, Subject, quota_names, quota_text
from nodewright.render.quota_ci import quota_junit, quota_sarif
from nodewright.render.quota_document import quota_document
from nodewright.render.quota_what_if import what_if_text
from nodewright.world.inventory import Entry, Inventory, applied_once
from nodewright.world.whatif import change_of, changed


@click.command("quota")
@options.filenames
@options.namespace
@options.strict
@click.option(
    "--nodes",
    type=click.IntRange(0, 100_000),
    default=1,
    show_default=True,
    help="How many nodes run the pods of each DaemonSet.",
)
@click.option("--surge", is_flag=True, help="At the height of a rolling update of everything at once.")
@click.option(
    "--from-status",
    is_flag=True,
    help="What `status.used` of the quotas says is in use already; the manifests come on top.",
)
@click.option(
    "--what-if",
    "others",
    multiple=True,
    metavar="FILE|DIR",
    help="Compare with other versions of some objects, or with more of them. Repeatable.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KIND/NAME:PATH=VALUE",
    help="Compare with a field changed, e.g. deployment/web:containers.app.requests.cpu=100m. Repeatable.",
)
@options.output("json", "yaml", "junit", "sarif", "name")
def command(  # noqa: PLR0913 - one argument an option
    filenames: tuple[str, ...],
    namespace: str,
    *,
    strict: bool,
    nodes: int,
    surge: bool,
    from_status: bool,
    others: tuple[str, ...],
    sets: tuple[str, ...],
    output: str | None,
) -> int:
    """Say what manifests are charged to the quotas of their namespaces, what is refused first and why, what still
    fits and what would make everything fit.

    The manifests are applied in order, as the API server would admit them: limit ranges fill in first, controllers
    make all their pods. Quotas and limit ranges are there before, wherever they stand. Exit code 0 if everything fits
    (with --what-if and --set: if it would), else 3.
    """
    found = applied_once(inventory(filenames, namespace))
    setting = Setting(nodes=nodes, surge=surge, from_status=from_status)
    is_placed = output in ("junit", "sarif")
    report = _report(found, setting, is_placed=is_placed)
    if others or sets:
        more: tuple[Entry, ...] = inventory(others, namespace).entries if others else ()
        other = _report(
            changed(found, more, [change_of(text) for text in sets]), setting, is_placed=is_placed
        )
    else:
        other = None
    warn(report.warnings, strict=strict)
    if not report.subjects:
        click.echo("no objects found", err=True)
    click.echo(_text(report, other, output), nl=False)
    return YES if (other or report).fits else NO


def _text(report: QuotaReport, other: QuotaReport | None, output: str | None) -> str:
    last = other or report
    if output == "junit":
        return quota_junit(last)
    if output == "sarif":
        return as_json(quota_sarif(last, version("nodewright")))
    if output == "name":
        return quota_names(last)
    if output in ("json", "yaml"):
        return (as_json if output == "json" else as_yaml)(quota_document(report, other))
    return quota_text(report) if other is None else what_if_text(report, other)


def _report(found: Inventory, setting: Setting, *, is_placed: bool) -> QuotaReport:
    manifests = [entry.manifest for entry in found.entries]
    applied = apply(manifests, setting)
    return QuotaReport(
        subjects=tuple(_subject(entry, is_placed=is_placed) for entry in found.entries),
        applied=applied,
        rooms=rooms(manifests, applied, setting),
        mending=mending(manifests, applied, setting),
        warnings=found.warnings,
    )


def _subject(entry: Entry, *, is_placed: bool) -> Subject:
    """The object as people know it; to find its line takes as long as to read the file."""
    one = entry.manifest
    line, column = (entry.place.spot() if is_placed else None) or (0, 0)
    return Subject(
        kind=one.kind,
        namespace=one.namespace,
        name=one.name,
        source=entry.place.name,
        spot=Spot(file=entry.place.source, line=line, column=column),
        field="parallelism" if one.kind in ("Job", "CronJob") else "replicas",
    )
