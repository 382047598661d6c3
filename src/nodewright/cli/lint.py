"""`nodewright lint`: finds resource problems in manifests and kubelet configuration."""

from collections.abc import Sequence
from importlib.metadata import version

import click

from nodewright.cli import options
from nodewright.cli.workload_input import nothing_found, print_skipped, print_warnings
from nodewright.errors import Fault, InputError, fault_lines
from nodewright.formats.partial_inventory import load_sound_objects
from nodewright.lint.lint_input import load_lint_input
from nodewright.lint.lint_model import SEVERITIES_BY_RANK, Severity
from nodewright.lint.lint_report import (
    LintFinding,
    lint_report,
    lint_report_junit,
    lint_report_sarif,
    lint_report_text,
    rule_page,
    rules_table,
)
from nodewright.lint.lint_run import LintResult, lint_result, position_of, rule_ids
from nodewright.lint.rules import RULES_BY_ID, RuleSelection
from nodewright.output.exit_codes import ERROR, NO, YES
from nodewright.output.json_yaml import as_json, as_yaml
from nodewright.output.terminal import print_message, print_text

NEVER = "never"


def _print_rules(context: click.Context, _option: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    if name == "all":
        print_text(rules_table(RULES_BY_ID.values()))
    else:
        _check_known([name], "--explain")
        print_text(rule_page(RULES_BY_ID[name]))
    context.exit(YES)


@click.command("lint")
@options.filename_options
@options.node_option(
    "A node on which pods may run: a NodeProfile, or a shape of `node catalogue`. Repeatable.", multiple=True
)
@options.kubelet_config_option("A KubeletConfiguration that replaces the nodes' own; it is checked as well.")
@options.namespace_option
@options.strict_option
@click.option(
    "--fail-on",
    type=click.Choice([*(str(severity) for severity in SEVERITIES_BY_RANK), NEVER]),
    default=str(Severity.ERROR),
    show_default=True,
    help="Lowest severity for which the exit code is 3.",
)
@click.option("--only", multiple=True, metavar="RULE,...", help="Check only these rules. Repeatable.")
@click.option("--disable", multiple=True, metavar="RULE,...", help="Skip these rules. Repeatable.")
@click.option(
    "--explain",
    metavar="RULE|all",
    is_eager=True,
    expose_value=False,
    callback=_print_rules,
    help="Print the page of a rule, or the list of all rules, and exit.",
)
@options.output_option("json", "yaml", "sarif", "junit")
def command(  # noqa: PLR0913 - one argument an option
    *,
    manifests: options.ManifestOptions,
    nodes: tuple[str, ...],
    kubelet_config: str | None,
    namespace: str,
    strict: bool,
    fail_on: str,
    only: tuple[str, ...],
    disable: tuple[str, ...],
    output: str | None,
) -> int:
    """Find resource problems in manifests and kubelet configuration.

    Reports what is refused, evicted, ignored or misread. With --node, also refusals by the nodes' kubelets that the
    scheduler does not foresee. Exit code 3 if there are findings at or above --fail-on.
    """
    selection = RuleSelection(_rules(only, "--only"), _rules(disable, "--disable"))
    inventory, faults = load_sound_objects(
        manifests.filenames, namespace, recursive=manifests.recursive, max_bytes=manifests.max_bytes
    )
    print_skipped(inventory.skipped)
    if not inventory.objects:
        raise InputError(faults) if faults else nothing_found("objects", inventory.skipped)
    lint_input = load_lint_input(inventory, nodes, kubelet_config)
    print_warnings(lint_input.warnings, strict=strict)
    result = lint_result(lint_input, selection)
    failing = _failing(result, fail_on)
    print_text(_text(result, output, failing))
    faults = (*faults, *lint_input.faults)
    for line in fault_lines(faults):
        print_message(f"error: {line}")
    if faults:
        return ERROR
    return NO if failing else YES


def _text(result: LintResult, output: str | None, failing: tuple[LintFinding, ...]) -> str:
    object_count = len(result.subjects)
    if output == "sarif":
        return as_json(lint_report_sarif(result.findings, result.rules, version("nodewright")))
    if output == "junit":
        return lint_report_junit(
            failing, [(name, position_of(location)) for name, location in result.subjects]
        )
    if output in ("json", "yaml"):
        report = lint_report(result.findings, objects=object_count, rules=result.rules)
        return (as_json if output == "json" else as_yaml)(report)
    return lint_report_text(result.findings, objects=object_count)


def _failing(result: LintResult, fail_on: str) -> tuple[LintFinding, ...]:
    if fail_on == NEVER:
        return ()
    severities = SEVERITIES_BY_RANK[: SEVERITIES_BY_RANK.index(Severity(fail_on)) + 1]
    return tuple(finding for finding in result.findings if finding.rule.severity in severities)


def _rules(texts: Sequence[str], option: str) -> frozenset[str]:
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    _check_known(names, option)
    return rule_ids(names)


def _check_known(names: Sequence[str], option: str) -> None:
    faults = [
        Fault(source=option, value=name, rule="is not a rule; `--explain all` lists the rules")
        for name in names
        if name not in RULES_BY_ID
    ]
    if faults:
        raise InputError(faults)
