"""Reference pages from docstrings: `python -m tools.reference` or `make docs`.

`docs/reference/departures.md` is kept, and a test holds it to the source: it lists everything that we do
otherwise than Kubernetes. So are the pages of lint rules. The others, a page a module and what follows which source, are made on demand.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodewright.lint.rules import BY_ID
from nodewright.render.lint.manual import rule_page, rules_page
from tools.source import ROOT, Module, Section, Symbol, modules, sections

FOLDER = ROOT / "docs" / "reference"
LINT = FOLDER / "lint"
DEPARTURES = FOLDER / "departures.md"

FLOORS = (
    "values",
    "model",
    "core",
    "node",
    "namespace",
    "world",
    "checkpoints",
    "agent",
    "sim",
    "lint",
    "audit",
    "render",
    "ask",
    "policies",
    "fleet",
    "api",
    "testing",
    "cli",
)


@dataclass(frozen=True, slots=True)
class Said:
    """A section of a docstring and where it stands: a module, or a symbol in it."""

    module: Module
    symbol: Symbol | None
    section: Section

    @property
    def place(self) -> str:
        """The full name, as it is imported."""
        return f"{self.module.name}.{self.symbol.name}" if self.symbol else self.module.name


def said(name: str) -> list[Said]:
    """Every section of that name, in the order of the floors."""
    found = []
    for module in sorted(modules("src"), key=_order):
        found += [Said(module, None, each) for each in sections(module.docstring) if each.name == name]
        for symbol in module.symbols:
            found += [Said(module, symbol, each) for each in sections(symbol.docstring) if each.name == name]
    return found


def departures() -> str:
    """The page that lists what we do otherwise than Kubernetes."""
    lines = [
        "# Departures",
        "",
        "What nodewright does otherwise than the code that it follows, and why. Made from the `Departs:`",
        "sections of docstrings by `make docs`.",
    ]
    module = ""
    for each in said("Departs"):
        if each.module.name != module:
            module = each.module.name
            lines += ["", f"## {module}", ""]
        name = each.symbol.name if each.symbol else "the module"
        lines.append(f"- `{name}`: {each.section.text}")
    return "\n".join([*lines, ""])


def followed() -> str:
    """The page that lists, by source, what follows it."""
    by_source: dict[str, list[Said]] = defaultdict(list)
    for each in said("Follows"):
        by_source[", ".join(each.section.text.split(", ")[:2])].append(each)
    lines = [
        "# Sources",
        "",
        "What follows which file of Kubernetes. Made from the `Follows:` sections of docstrings.",
        "",
    ]
    for source, followers in sorted(by_source.items()):
        lines += [f"- {source}", *(f"    - `{each.place}`: {each.section.text}" for each in followers)]
    return "\n".join([*lines, ""])


def page(module: Module) -> str:
    """The page of a module: what it and its public symbols say of themselves."""
    lines = [f"# {module.name}", "", module.docstring, ""]
    for symbol in module.symbols:
        if symbol.is_public and symbol.docstring:
            lines += [f"## {symbol.name}", "", "```text", symbol.docstring, "```", ""]
    return "\n".join(lines)


def lint_pages() -> Iterator[tuple[Path, str]]:
    """The pages of lint rules, and the list of them; kept, and held to the source by a test."""
    yield LINT / "README.md", rules_page(BY_ID.values())
    for rule in BY_ID.values():
        yield LINT / f"{rule.id}.md", rule_page(rule)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    yield DEPARTURES, departures()
    yield from lint_pages()
    yield FOLDER / "sources.md", followed()
    for module in modules("src"):
        yield FOLDER / "modules" / f"{module.name}.md", page(module)


def main() -> None:
    """Write all pages; those of modules that are gone go, too."""
    for old in (FOLDER / "modules").glob("*.md"):
        old.unlink()
    made = dict(pages())
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{len(made)} pages in {FOLDER.relative_to(ROOT)}")


def _order(module: Module) -> tuple[int, str]:
    floor = module.name.split(".")[1] if "." in module.name else ""
    return (FLOORS.index(floor) if floor in FLOORS else -1), module.name


if __name__ == "__main__":
    main()
