"""The options of `nodewright lint` that a project sets in a file, and the files that lint writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from nodewright.cli import options
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.formats.documents import read_file
from nodewright.documents.output.terminal import print_message
from nodewright.model.errors import Fault, InputError
from nodewright.predict.lint.fixes import FixedFiles
from nodewright.predict.lint.lint_model import SEVERITIES_BY_RANK, Severity
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_settings import (
    LintSettingsFile,
    baseline_text,
    find_settings_file,
    new_findings,
    read_baseline,
    read_settings,
)

NEVER = "never"
Command = TypeVar("Command", bound=Callable[..., Any])


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


def lint_options(command: Command) -> Command:
    """Adds the options that select rules, findings and their presentation."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--config",
        "settings",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        callback=_settings,
        envvar="NODEWRIGHT_CONFIG",
        metavar="FILE",
        help="Settings. Default: the nearest .nodewright.yaml, or pyproject.toml with [tool.nodewright], of this "
        "directory and those above it in the repository.",
    ),
    click.option(
        "--fail-on",
        type=click.Choice([*(str(severity) for severity in SEVERITIES_BY_RANK), NEVER]),
        default=str(Severity.ERROR),
        show_default=True,
        envvar="NODEWRIGHT_FAIL_ON",
        help="Lowest severity for which the exit code is 3.",
    ),
    click.option(
        "--only",
        multiple=True,
        metavar="RULE,...",
        envvar="NODEWRIGHT_ONLY",
        help="Check only these rules. Repeatable.",
    ),
    click.option(
        "--disable",
        multiple=True,
        metavar="RULE,...",
        envvar="NODEWRIGHT_DISABLE",
        help="Skip these rules. Repeatable.",
    ),
    click.option(
        "--fix",
        is_flag=True,
        help="Apply the edits of findings to the files. Each is tried: its finding is gone and nothing else changes.",
    ),
    click.option(
        "--diff", is_flag=True, help="Print what --fix would change; exit code 3 if that is anything."
    ),
    click.option(
        "--baseline",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="NODEWRIGHT_BASELINE",
        metavar="FILE",
        help="Report only findings that this file does not have.",
    ),
    options.output_file_option(
        "--write-baseline", "written_baseline", help="Write the findings to a file for --baseline, and exit."
    ),
    click.option(
        "--summary", is_flag=True, help="Also count the findings by namespace and severity; for tables only."
    ),
    click.option(
        "-q", "--quiet", is_flag=True, help="Print findings and errors only: no counts, warnings or notes."
    ),
)


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
        print_message(f"baseline: {len(findings) - len(remaining)} findings accepted")
        if stale_count:
            print_message(f"baseline: {stale_count} entries match no finding: write it again")
    return remaining


def write_baseline(path: Path, findings: tuple[LintFinding, ...]) -> None:
    """Writes the file that accepts the findings.

    Errors: HostError.
    """
    write_atomically(path, baseline_text(findings, path.parent).encode(), mode=0o644)
    print_message(f"{path}: {len(findings)} findings accepted")


def write_fixes(fixes: FixedFiles) -> None:
    """Replaces the files, each as a whole, with the mode that it has.

    Errors: InputError for a file that has changed since it was read; HostError.
    """
    for source, content in fixes.after.items():
        path = Path(source).resolve()  # a symbolic link stays one
        if read_file(str(path)).content != fixes.before[source]:
            raise InputError([Fault(source=source, rule="has changed since it was read; run lint again")])
        write_atomically(path, content, mode=path.stat().st_mode & 0o7777)
