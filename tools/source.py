"""The project's source as data: its modules, the definitions in them, the sections of their docstrings."""

import ast
import inspect
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "nodewright"

SECTIONS = ("Units", "Errors", "Follows", "Departs")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_SECTION = re.compile(rf"({'|'.join(SECTIONS)}): +(\S.*)")


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a docstring: what it is called, and its text in one line."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Symbol:
    """A class or function: its name within the module, and its definition."""

    name: str
    node: Definition

    @property
    def docstring(self) -> str:
        """What it says of itself; empty: nothing."""
        return ast.get_docstring(self.node) or ""

    @property
    def is_public(self) -> bool:
        """Whether others may use it."""
        return not any(part.startswith("_") for part in self.name.split("."))

    @property
    def own_lines(self) -> int:
        """Lines from `def` to the end, without the docstring."""
        assert self.node.end_lineno is not None
        lines = self.node.end_lineno - self.node.lineno + 1
        first = self.node.body[0]
        if ast.get_docstring(self.node) is None:
            return lines
        assert first.end_lineno is not None
        return lines - (first.end_lineno - first.lineno + 1)


@dataclass(frozen=True)
class Module:
    """A file of the project."""

    path: Path

    @property
    def place(self) -> str:
        """The path from the root of the project."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The name that it is imported by."""
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        """What stands in the file."""
        return self.path.read_text("utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The file, parsed."""
        return ast.parse(self.text, self.place)

    @property
    def docstring(self) -> str:
        """What the module says of itself."""
        return ast.get_docstring(self.tree) or ""

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The classes and functions, nested ones after those around them."""
        return tuple(_symbols(self.tree, ""))

    def statements(self) -> Iterator[ast.AST]:
        """Every statement and what holds statements; expressions, of which there are many more, are left out."""
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop()
            yield node
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                waiting += getattr(node, part, ())

    def imported(self) -> set[str]:
        """The names of modules (and of things in them) that it imports, wherever that stands."""
        texts: set[str] = set()
        for node in self.statements():
            if isinstance(node, ast.Import):
                texts.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.place}: relative import"
                assert node.module is not None
                texts.add(node.module)
                texts.update(f"{node.module}.{alias.name}" for alias in node.names)
        return texts


def modules(*folders: str) -> tuple[Module, ...]:
    """The Python files below folders of the project that people wrote, sorted by path."""
    result = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    paths = (path for path in result if not path.stem.endswith("_pb2"))
    return tuple(_module(path) for path in sorted(paths))


@cache
def _module(path: Path) -> Module:
    return Module(path)  # parsed once, however often it is looked at


def sections(docstring: str) -> tuple[Section, ...]:
    r"""The sections of a docstring; lines that continue one are indented.

    >>> sections("Yes.\n\nUnits: bytes,\n    rounded up.\nDeparts: never.")
    (Section(name='Units', text='bytes, rounded up.'), Section(name='Departs', text='never.'))
    """
    sections: list[Section] = []
    continues = False
    for line in inspect.cleandoc(docstring).splitlines():
        if start := _SECTION.fullmatch(line):
            sections.append(Section(start[1], start[2].strip()))
            continues = True
        elif continues and line.startswith(" "):
            sections[-1] = Section(sections[-1].name, f"{sections[-1].text} {line.strip()}")
        else:
            continues = False
    return tuple(sections)


def _symbols(parent: ast.AST, prefix: str) -> Iterator[Symbol]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Definition):
            yield Symbol(f"{prefix}{node.name}", node)
            yield from _symbols(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _symbols(node, prefix)


def commit() -> str:
    """The short name of the commit that is looked at."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
