"""What a project decides once about lint: settings, and the findings that it accepts for now.

Settings are in `.nodewright.yaml`, or in `[tool.nodewright]` of pyproject.toml; accepted findings in a baseline file, so that
only new ones are reported.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import msgspec

from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.model.errors import JSON_ERRORS, Fault, InputError
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.rules import RULES_BY_ID

FILE_NAME, PYPROJECT = ".nodewright.yaml", "pyproject.toml"


class LintSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What a project decides once; options and variables of the environment come first."""

    node: tuple[str, ...] | str = ()
    """Nodes on which pods may run; paths are relative to the file."""
    kubelet_config: str | None = None
    release: str | None = None
    namespace: str | None = None
    fail_on: str | None = None
    only: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    per_path_ignores: Mapping[str, tuple[str, ...]] = {}
    """Rules that are ignored in files, by a pattern of paths relative to the file."""
    baseline: str | None = None

    def defaults(self, directory: Path) -> dict[str, Any]:
        """The defaults of options, by parameter; paths relative to the working directory."""
        nodes = (self.node,) if isinstance(self.node, str) else self.node
        values = {
            "nodes": [_path(node, directory) for node in nodes],
            "kubelet_config": self.kubelet_config and _path(self.kubelet_config, directory),
            "release": self.release,
            "namespace": self.namespace,
            "fail_on": self.fail_on,
            "only": list(self.only),
            "disable": list(self.disable),
            "baseline": self.baseline and os.path.relpath(directory / self.baseline),
        }
        return {name: value for name, value in values.items() if value}


class LintSettingsFile(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with the directory of their file."""

    settings: LintSettings = LintSettings()
    directory: Path = Path()

    def is_ignored(self, rule: str, file: str) -> bool:
        """Whether the rule is ignored in the file."""
        name = Path(os.path.relpath(file, self.directory)).as_posix()
        return any(
            rule in rules and (fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern.rstrip('/')}/*"))
            for pattern, rules in self.settings.per_path_ignores.items()
        )


def find_settings_file(directory: Path) -> Path | None:
    """The nearest file with settings, in the directory or one above it; `.nodewright.yaml` comes first."""
    for parent in (directory, *directory.parents):
        own, project = parent / FILE_NAME, parent / PYPROJECT
        if own.is_file():
            return own
        if project.is_file() and b"[tool.nodewright" in project.read_bytes():
            return project
        if (parent / ".git").exists():
            break
    return None


def read_settings(path: Path) -> LintSettingsFile:
    """The settings in a file.

    Errors: InputError for unknown settings, wrong types and unknown rules.
    """
    source = os.path.relpath(path)
    content = read_file(str(path)).content
    if path.suffix == ".toml":
        from tomllib import TOMLDecodeError, loads  # noqa: PLC0415 - start-up time

        try:
            table = loads(content.decode()).get("tool", {}).get("nodewright", {})
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError([Fault(source=source, rule=f"is not TOML: {error}")]) from None
    else:
        documents = parse_documents(content, source)
        table = documents[0].value if documents else {}
    try:
        settings = msgspec.convert(table, LintSettings)
    except msgspec.ValidationError as error:
        raise InputError([Fault(source=source, rule=_rule(error))]) from None
    named = {
        *settings.only,
        *settings.disable,
        *(id_ for ids in settings.per_path_ignores.values() for id_ in ids),
    }
    faults = [
        Fault(
            source=source, value=name, rule="is not a rule; `nodewright lint --explain all` lists the rules"
        )
        for name in sorted(named - set(RULES_BY_ID))
    ]
    if faults:
        raise InputError(faults)
    return LintSettingsFile(settings=settings, directory=path.parent)


def _rule(error: msgspec.ValidationError) -> str:
    names = ", ".join(field.encode_name for field in msgspec.structs.fields(LintSettings))
    text = str(error).replace("Object", "the file").replace("`$.", "`").replace(" - at `$`", "")
    return f"{text}; settings are {names}" if "unknown field" in text else text


def _path(name: str, directory: Path) -> str:
    """A path relative to the working directory; names of the catalogue stay."""
    path = directory / name
    return os.path.relpath(path) if path.exists() else name


class BaselineEntry(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A finding without its line, which other changes of the file move."""

    file: str
    """Relative to the baseline file."""
    object: str
    path: str
    rule: str
    message: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The accepted findings."""

    api_version: Literal["nodewright.dev/v1alpha1"] = "nodewright.dev/v1alpha1"
    kind: Literal["LintBaseline"] = "LintBaseline"
    findings: tuple[BaselineEntry, ...] = ()


def baseline_text(findings: Iterable[LintFinding], directory: Path) -> str:
    """The file that accepts these findings."""
    baseline = Baseline(findings=tuple(sorted(_baseline_entry(finding, directory) for finding in findings)))
    return msgspec.json.format(msgspec.json.encode(baseline), indent=2).decode() + "\n"


def read_baseline(path: Path) -> Baseline:
    """The accepted findings in a file.

    Errors: InputError.
    """
    try:
        return msgspec.json.decode(read_file(str(path)).content, type=Baseline)
    except JSON_ERRORS as error:
        rule = f"is not a baseline: {error}; `nodewright lint --write-baseline FILE` writes one"
        raise InputError([Fault(source=str(path), rule=rule)]) from None


def new_findings(
    findings: Sequence[LintFinding], baseline: Baseline, directory: Path
) -> tuple[tuple[LintFinding, ...], int]:
    """The findings that the baseline does not accept, and the number of its entries that match none."""
    accepted = Counter(baseline.findings)
    remaining = []
    for finding in findings:
        entry = _baseline_entry(finding, directory)
        if accepted[entry] > 0:
            accepted[entry] -= 1
        else:
            remaining.append(finding)
    return tuple(remaining), accepted.total()


def _baseline_entry(finding: LintFinding, directory: Path) -> BaselineEntry:
    return BaselineEntry(
        file=Path(os.path.relpath(finding.position.file, directory)).as_posix(),
        object=finding.subject,
        path=finding.path,
        rule=finding.rule.id,
        message=finding.text,
    )
