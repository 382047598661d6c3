"""What a new Kubernetes release changes of the files that docstrings follow: `python -m tools release-diff OLD NEW`.

OLD and NEW are directories of Kubernetes' source, or of a part of it. For each file that a `Follows:` names and that differs
it prints the symbols that changed, and which of our functions follow them.
"""

import argparse
import ast
import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.source import ROOT

SOURCES = ROOT / "src" / "nodewright"
_FOLLOWS = re.compile(r"Follows:(.*?)(?=\n\s*\n|\n\s*(?:Departs|Errors|Units|>>>)|\Z)", re.DOTALL)
_FILE = re.compile(r"[\w./-]*(?:\{[^}]*\}[\w./-]*)?\.go\b")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_DECLARATION = re.compile(r"^(?:func (?:\([^)]*\) )?|type |var |const )(\w+)", re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Followed(NamedTuple):
    """What a docstring follows."""

    file: str
    """The end of a path in Kubernetes' tree."""
    symbols: frozenset[str]
    ours: str
    """`module.py: function`."""


class Change(NamedTuple):
    """A file that differs."""

    file: str
    symbols: frozenset[str]
    """Those whose declarations differ."""
    lines: tuple[int, int]
    """Added and removed."""


def main() -> None:
    """Prints what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--missing", action="store_true", help="list the files that NEW does not have")
    options = parser.parse_args()
    entries = [entry for path in sorted(SOURCES.rglob("*.py")) for entry in followed_in(path)]
    for line in report(entries, options.old, options.new, with_missing=options.missing):
        print(line)


def followed_in(path: Path) -> Iterator[Followed]:
    """The files and symbols that the docstrings of a module follow."""
    module = path.relative_to(SOURCES).as_posix() if path.is_relative_to(SOURCES) else path.name
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        text = (ast.get_docstring(node) or "") if isinstance(node, _DOCUMENTED) else ""
        for section in _FOLLOWS.findall(text):
            name = getattr(node, "name", "")
            yield from _followed(section, f"{module}: {name}" if name else module)


def _followed(section: str, ours: str) -> Iterator[Followed]:
    for part in re.split(r";(?![^{]*\})", section):
        match = _FILE.search(part)
        if match is not None:
            symbols = {word.rpartition(".")[2] for word in _WORD.findall(part[match.end() :])}
            for file in _expanded(match[0]):
                yield Followed(file, frozenset(symbols), ours)


def _expanded(file: str) -> Iterator[str]:
    """The names that `a/{b,c}.go` stands for."""
    before, brace, rest = file.partition("{")
    if not brace:
        yield file
        return
    names, _, after = rest.partition("}")
    yield from (f"{before}{name.strip()}{after}" for name in names.split(","))


def report(entries: list[Followed], old: Path, new: Path, *, with_missing: bool = False) -> Iterator[str]:
    """The lines about every file that differs, and how many were compared."""
    followers: Mapping[str, list[Followed]] = defaultdict(list)
    for entry in entries:
        followers[entry.file].append(entry)
    paths = {root: [*root.rglob("*.go")] for root in (old, new)}
    compared = missing = 0
    for file in sorted(followers):
        sources = [path for path in paths[old] if path.as_posix().endswith(f"/{file}")]
        if len(sources) != 1:
            continue
        relative = sources[0].relative_to(old).as_posix()
        target = next(
            (path for path in paths[new] if _is_same(path.relative_to(new).as_posix(), relative)), None
        )
        compared += target is not None
        missing += target is None
        if target is None:
            if with_missing:
                yield f"missing {relative}"
            continue
        change = change_of(relative, sources[0].read_text("utf-8"), target.read_text("utf-8"))
        if change is None:
            continue
        yield f"changed {relative} (+{change.lines[0]} -{change.lines[1]})"
        for entry in sorted(followers[file]):
            named = sorted(entry.symbols & change.symbols)
            yield f"  {entry.ours} follows {', '.join(named) if named else 'other parts of it'}"
    yield f"{compared} files compared, {missing} not in the new tree"


def _is_same(path: str, relative: str) -> bool:
    """Whether a path of a part of the tree is that of the whole."""
    return path == relative or relative.endswith(f"/{path}")


def change_of(file: str, old: str, new: str) -> Change | None:
    """What differs between two versions of a file; None: nothing."""
    if old == new:
        return None
    before, after = _declarations(old), _declarations(new)
    symbols = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    signs = [line[0] for line in lines if not line.startswith(("+++", "---", "@@"))]
    return Change(file, frozenset(symbols), (signs.count("+"), signs.count("-")))


def _declarations(text: str) -> dict[str, str]:
    """The text of each top-level declaration by its name."""
    starts = [*_DECLARATION.finditer(text)]
    ends = [*(match.start() for match in starts[1:]), len(text)]
    return {match[1]: text[match.start() : end] for match, end in zip(starts, ends, strict=True)}
