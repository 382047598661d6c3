"""`nodewright lint`: what files show that will hurt later."""

from collections.abc import Sequence
from functools import partial
from importlib.metadata import version

import click

from nodewright.cli import options
from nodewright.cli.app import ERROR, NO, YES
from nodewright.cli.inputs import warn
from nodewright.cli.linting import question
from nodewright.cli.telling import Outcome, outcome, spot_of
from nodewright.lint.findings import SEVERITIES, Severity
from nodewright.lint.ignores import rules_named
from nodewright.lint.rules import BY_ID, Selection
from nodewright.render.documents import as_json, as_yaml
from nodewright.render.lint.manual import rule_page, rules_table
from nodewright.render.lint.report import Told, report_document, report_junit, report_sarif, report_text
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import STDIN, named_files
from nodewright.world.inventory import Inventory, load_inventory

NEVER = "never"


def _explain(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    if name == "all":
        click.echo(rules_table(BY_ID.values()), nl=False)
    else:
        _known([name], "--explain")
        click.echo(rule_page(BY_ID[name]), nl=False)
    context.exit(YES)


@click.command("lint")
@options.filenames
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="FILE|NAME",
    help="A node that pods may come to: a NodeProfile, or a shape of `node catalogue`. Repeatable.",
)
@click.option(
    "--kubelet-config",
    "kubelet_config",
    metavar="FILE",
    help="A KubeletConfiguration that takes the place of the nodes' own; it is looked at, too.",
)
@options.namespace
@options.strict
@click.option(
    "--fail-on",
    type=click.Choice([*(str(one) for one in SEVERITIES), NEVER]),
    default=str(Severity.ERROR),
    show_default=True,
    help="The least severity that makes the exit code 3.",
)
@click.option("--only", multiple=True, metavar="RULE,...", help="Look for these rules alone. Repeatable.")
@click.option("--disable", multiple=True, metavar="RULE,...", help="Do not look for these rules. Repeatable.")
@click.option(
    "--explain",
    metavar="RULE|all",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Print the page of a rule, or a list of all, and do nothing else.",
)
@options.output("json", "yaml", "sarif", "junit")
def command(  # noqa: PLR0913 - one argument an option
    filenames: tuple[str, ...],
    nodes: tuple[str, ...],
    kubelet_config: str | None,
    namespace: str,
    *,
    strict: bool,
    fail_on: str,
    only: tuple[str, ...],
    disable: tuple[str, ...],
    output: str | None,
) -> int:
    """Say what in manifests and kubelet configurations will hurt: what is refused, evicted, ignored, misread.

    With --node, also what every kubelet would do to the pods: refusals that the scheduler does not foresee. Exit code
    3 if there are findings at or above --fail-on.
    """
    selection = Selection(_rules(only, "--only"), _rules(disable, "--disable"))
    asked = options.Manifests.asked()
    inventory, faults = _readable(filenames, namespace, asked)
    looked_at = question(inventory, nodes, kubelet_config)
    warn(looked_at.warnings, strict=strict)
    found = outcome(looked_at, selection)
    failing = _failing(found, fail_on)
    click.echo(_text(found, output, failing), nl=False)
    faults = (*faults, *looked_at.faults)
    for fault in faults:
        click.echo(f"error: {fault}", err=True)
    if faults:
        return ERROR
    return NO if failing else YES


def _readable(
    filenames: Sequence[str], namespace: str, asked: options.Manifests
) -> tuple[Inventory, tuple[Fault, ...]]:
    """What the files hold; where some have faults, what the others hold, and the faults.

    Files that a directory holds beside manifests are passed over.
    Errors: InputError if no file is without.
    """
    load = partial(load_inventory, namespace=namespace, max_bytes=asked.max_bytes)
    try:
        return load(filenames, recursive=asked.recursive), ()
    except InputError:
        if STDIN in filenames:
            raise
    sound: list[str] = []
    faults: list[Fault] = []
    others = 0
    for name in named_files(filenames, recursive=asked.recursive):
        try:
            load([name])
        except InputError as error:
            if name not in filenames and all(map(_is_no_object, error.faults)):
                others += 1
            else:
                faults.extend(error.faults)
        else:
            sound.append(name)
    if not sound:
        raise InputError(faults)
    if others:
        click.echo(f"skipped: {others} files without Kubernetes objects", err=True)
    return load(sound), tuple(faults)


def _is_no_object(fault: Fault) -> bool:
    return not fault.value and (fault.path in ("apiVersion", "kind") or not fault.path)


def _text(found: Outcome, output: str | None, failing: tuple[Told, ...]) -> str:
    objects = len(found.subjects)
    if output == "sarif":
        return as_json(report_sarif(found.told, found.rules, version("nodewright")))
    if output == "junit":
        return report_junit(failing, [(name, spot_of(place)) for name, place in found.subjects])
    if output in ("json", "yaml"):
        document = report_document(found.told, objects=objects, rules=found.rules)
        return (as_json if output == "json" else as_yaml)(document)
    return report_text(found.told, objects=objects)


def _failing(found: Outcome, fail_on: str) -> tuple[Told, ...]:
    if fail_on == NEVER:
        return ()
    grave = SEVERITIES[: SEVERITIES.index(Severity(fail_on)) + 1]
    return tuple(one for one in found.told if one.rule.severity in grave)


def _rules(texts: Sequence[str], option: str) -> frozenset[str]:
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    _known(names, option)
    return rules_named(names)


def _known(names: Sequence[str], option: str) -> None:
    faults = [
        Fault(source=option, value=name, rule="is no rule; `--explain all` lists them")
        for name in names
        if name not in BY_ID
    ]
    if faults:
        raise InputError(faults)
