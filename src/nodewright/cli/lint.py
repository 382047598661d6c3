"""`nodewright lint`: finds resource problems in manifests and kubelet configuration."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from nodewright.cli import options
from nodewright.cli.cluster.cluster_options import cluster_options
from nodewright.cli.cluster.cluster_session import current_session
from nodewright.cli.options import ManifestOptions, filename_options
from nodewright.cli.workload_input import (
    manifest_inputs,
    nothing_found,
    print_skipped,
    print_unjudged,
    print_warnings,
    reading_options,
)
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.formats.documents import STDIN, InputFile, read_file
from nodewright.documents.formats.inventory import Inventory, InventoryObject, load_sound_objects
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.output.command_line import option, with_options
from nodewright.documents.output.json_yaml import as_json, as_yaml
from nodewright.documents.output.terminal import (
    ERROR,
    NO,
    YES,
    print_message,
    print_text,
    print_workflow_commands,
)
from nodewright.model.errors import Fault, InputError, fault_lines
from nodewright.model.printable import counted
from nodewright.predict.lint.fixes import FixedFiles, edited_inventory, file_contents, fixed_files
from nodewright.predict.lint.lint_input import (
    LintInput,
    load_lint_input,
    without_ended_pods,
    without_kubelet_configs,
)
from nodewright.predict.lint.lint_model import SEVERITIES_BY_RANK, Severity
from nodewright.predict.lint.lint_report import (
    LintFinding,
    lint_report,
    lint_report_commands,
    lint_report_junit,
    lint_report_sarif,
    lint_report_text,
    rule_page,
    rules_table,
)
from nodewright.predict.lint.lint_run import LintResult, lint_result, position_of, rule_ids
from nodewright.predict.lint.lint_settings import (
    LintSettingsFile,
    baseline_text,
    find_settings_file,
    new_findings,
    read_baseline,
    read_settings,
)
from nodewright.predict.lint.rules import RULES_BY_ID, RuleSelection
from nodewright.version import __version__

NEVER = "never"


def _settings(context: click.Context, _option: click.Parameter, path: Path | None) -> LintSettingsFile:
    """The settings of the project as defaults of the other options."""
    if context.resilient_parsing:
        return LintSettingsFile()
    path = path or find_settings_file(Path.cwd())
    if path is None or str(path) in ("", "."):
        return LintSettingsFile()
    settings = read_settings(path)
    context.default_map = {**settings.settings.defaults(settings.directory), **(context.default_map or {})}
    return settings


def lint_options(command: Callable[..., int]) -> Callable[..., int]:
    """Adds the options that select rules, findings and their presentation."""
    return with_options(command, reversed(_OPTIONS))


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--config FILE",
        "Settings. Default: the nearest .nodewright.yaml, or pyproject.toml with [tool.nodewright], of this "
        "directory and those above it in the repository.",
        name="settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        callback=_settings,
        envvar="NODEWRIGHT_CONFIG",
    ),
    option(
        "--fail-on",
        "Lowest severity for which the exit code is 3.",
        type=click.Choice([*(str(severity) for severity in SEVERITIES_BY_RANK), NEVER]),
        default=str(Severity.ERROR),
        envvar="NODEWRIGHT_FAIL_ON",
    ),
    option("--only RULE,...", "Check only these rules. Repeatable.", multiple=True, envvar="NODEWRIGHT_ONLY"),
    option("--disable RULE,...", "Skip these rules. Repeatable.", multiple=True, envvar="NODEWRIGHT_DISABLE"),
    option(
        "--fix",
        "Apply the edits of findings to the files. Each is tried: its finding is gone and nothing else changes.",
    ),
    option("--diff", "Print what --fix would change; exit code 3 if that is anything."),
    option(
        "--baseline FILE",
        "Report only findings that this file does not have.",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="NODEWRIGHT_BASELINE",
    ),
    options.output_file_option(
        "--write-baseline", "written_baseline", help="Write the findings to a file for --baseline, and exit."
    ),
    option("--summary", "Also count the findings by namespace and severity; for tables only."),
    option("-q, --quiet", "Print findings and errors only: no counts, warnings or notes."),
)


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
@partial(cluster_options, whole={"operands": ("all,quota,limits,priorityclasses,runtimeclasses",)})
@filename_options
@options.node_option(
    "A node on which pods may run: a NodeProfile, or a shape of `node catalogue`. Repeatable.", multiple=True
)
@options.kubelet_config_option("A KubeletConfiguration that replaces the nodes' own; it is checked as well.")
@options.namespace_option
@options.strict_option
@options.release_option
@lint_options
@option(
    "--explain RULE|all",
    "Print the page of a rule, or the list of all rules, and exit.",
    is_eager=True,
    expose_value=False,
    callback=_print_rules,
)
@options.output_option("json", "yaml", "sarif", "junit", "github", alias="--output-format")
def command(**parameters: Any) -> int:
    """Find resource problems in manifests and kubelet configuration.

    Reports what is refused, evicted, ignored or misread. With --node, also refusals by the nodes' kubelets that the
    scheduler does not foresee. Exit code 3 if there are findings at or above --fail-on.
    """
    query = LintQuery(**parameters)
    selection = RuleSelection(_rules(query.only, "--only"), _rules(query.disable, "--disable"))
    manifests = query.manifests
    if (query.fix or query.diff) and {STDIN, *current_session().words} & {*manifests.filenames}:
        raise click.UsageError("--fix and --diff need files, not standard input or objects of a cluster")
    inputs, configs = without_kubelet_configs(manifest_inputs(manifests))
    query = replace(query, configs=tuple(configs))
    inventory, faults = load_sound_objects(inputs, query.namespace, **reading_options(manifests))
    inventory = without_ended_pods(inventory)
    if not query.quiet:
        print_skipped(inventory.skipped)
    if not inventory.objects and not configs:
        raise InputError(faults) if faults else nothing_found("objects", inventory.skipped)
    lint_input = query.lint_input(inventory)
    if query.strict or not query.quiet:
        print_warnings(lint_input.warnings, strict=query.strict)
    for note in () if query.quiet else lint_input.notes:
        print_message(note)
    result = query.accepted(lint_result(lint_input, selection))
    faults = (*faults, *lint_input.faults)
    if faults and not (result.subjects or result.findings):
        raise InputError(faults)
    # A finding may be about the file alone: a comment that ignores nothing.
    if inventory.objects and (not query.quiet if result.subjects else not result.findings):
        judged = {each for _, place in result.subjects for each in _enclosing(place)}
        print_unjudged((entry.manifest.kind, _is_judged(entry, judged)) for entry in inventory.objects)
    if query.written_baseline is not None:
        write_baseline(query.written_baseline, result.findings)
        return YES
    code = _fixed_or_reported(query, inventory, result, selection)
    for line in fault_lines(faults):
        print_message(f"error: {line}")
    return ERROR if faults else code


class LintQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command."""

    manifests: ManifestOptions
    nodes: tuple[str, ...]
    kubelet_config: str | None
    release: str | None
    namespace: str
    strict: bool
    settings: LintSettingsFile
    fail_on: str
    only: tuple[str, ...]
    disable: tuple[str, ...]
    fix: bool
    diff: bool
    baseline: Path | None
    written_baseline: Path | None
    summary: bool
    quiet: bool
    output: str | None
    configs: tuple[InputFile, ...] = ()

    def lint_input(self, inventory: Inventory) -> LintInput:
        """The objects together with the nodes."""
        return load_lint_input(
            inventory, self.nodes, self.kubelet_config, release=self.release, configs=self.configs
        )

    def accepted(self, result: LintResult) -> LintResult:
        """The result without findings that the project ignores or accepts."""
        findings = unaccepted(result.findings, self.settings, self.baseline, quiet=self.quiet)
        return replace(result, findings=findings)


def _fixed_or_reported(
    query: LintQuery, inventory: Inventory, result: LintResult, selection: RuleSelection
) -> int:
    """Prints the changes or the findings, after fixing what is asked for."""
    if query.fix or query.diff:

        def relint(contents: Mapping[str, bytes]) -> LintResult:
            relinted = lint_result(query.lint_input(edited_inventory(inventory, contents)), selection)
            return replace(query, quiet=True).accepted(relinted)

        fixes = fixed_files(file_contents(inventory), result, relint)
        if query.diff and query.output is None:
            print_text(fixes.diff())
            return NO if fixes.after else YES
        if not query.diff:
            write_fixes(fixes)
        result = fixes.result
        if not query.quiet and not query.diff:
            print_message(f"fixed {len(fixes.fixed)} of {counted(fixes.found_count, 'finding')}")
    failing = _failing(result, query.fail_on)
    if query.output == "github":
        print_workflow_commands(lint_report_commands(result.findings))
    else:
        print_text(_text(query, result, failing))
    return NO if failing else YES


def _text(query: LintQuery, result: LintResult, failing: tuple[LintFinding, ...]) -> str:
    object_count, output = len(result.subjects), query.output
    if output == "sarif":
        return as_json(lint_report_sarif(result.findings, result.rules, __version__))
    if output == "junit":
        return lint_report_junit(
            failing, [(name, position_of(location)) for name, location in result.subjects]
        )
    if output in ("json", "yaml"):
        report = lint_report(result.findings, objects=object_count, rules=result.rules)
        return (as_json if output == "json" else as_yaml)(report)
    return lint_report_text(result.findings, objects=object_count, quiet=query.quiet, summary=query.summary)


def _failing(result: LintResult, fail_on: str) -> tuple[LintFinding, ...]:
    if fail_on == NEVER:
        return ()
    severities = SEVERITIES_BY_RANK[: SEVERITIES_BY_RANK.index(Severity(fail_on)) + 1]
    return tuple(finding for finding in result.findings if finding.rule.severity in severities)


def _is_judged(entry: InventoryObject, judged: Collection[tuple[str, int, str]]) -> bool:
    """Whether the object is judged, as what has a judged pod template is, or what others are judged by."""
    return next(_enclosing(entry.location)) in judged or (
        bool(judged) and entry.manifest.kind == "ResourceSlice"
    )


def _enclosing(place: ObjectLocation) -> Iterator[tuple[str, int, str]]:
    """The places of an object and of all that is around it in its document."""
    prefix = place.prefix
    while prefix:
        yield place.source, place.document, prefix
        prefix = prefix.rpartition(".")[0]
    yield place.source, place.document, ""


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


def unaccepted(
    findings: tuple[LintFinding, ...], settings: LintSettingsFile, baseline: Path | None, *, quiet: bool
) -> tuple[LintFinding, ...]:
    """The findings that neither the settings ignore nor the baseline accepts.

    Errors: InputError for a file that is no baseline.
    """
    findings = tuple(
        finding for finding in findings if not settings.is_ignored(finding.rule.id, finding.position.file)
    )
    if baseline is None:
        return findings
    remaining, stale_count = new_findings(findings, read_baseline(baseline), baseline.parent)
    if not quiet:
        print_message(f"baseline: {counted(len(findings) - len(remaining), 'finding')} accepted")
        if stale_count:
            print_message(f"baseline: matched by no finding: {counted(stale_count, 'entry')}; write it again")
    return remaining


def write_baseline(path: Path, findings: tuple[LintFinding, ...]) -> None:
    """Writes the file that accepts the findings.

    Errors: HostError.
    """
    write_atomically(path, baseline_text(findings, path.parent).encode(), mode=0o644)
    print_message(f"{path}: {counted(len(findings), 'finding')} accepted")


def write_fixes(fixes: FixedFiles) -> None:
    """Replaces the files, each as a whole, with the mode that it has.

    Errors: InputError for a file that has changed since it was read; HostError.
    """
    for source, content in fixes.after.items():
        path = Path(source).resolve()  # a symbolic link stays one
        if read_file(str(path)).content != fixes.before[source]:
            raise InputError([Fault(source=source, rule="has changed since it was read; run lint again")])
        write_atomically(path, content, mode=path.stat().st_mode & 0o7777)
