"""Settings of lint in `.nodewright.yaml`, or in `[tool.nodewright]` of pyproject.toml."""

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.model.errors import Fault, InputError
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
