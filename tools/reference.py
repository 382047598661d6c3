"""Reference pages from docstrings: `python -m tools.reference` or `make docs`.

`docs/reference/departures.md` is kept, and a test holds it to the source: it lists everything that we do
otherwise than Kubernetes. So are the pages of lint rules and the schemas of reports. The others, a page a module and what follows which source, are made on demand.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from nodewright.cli.app import app
from nodewright.cli.schema import REPORTS, schema_of
from nodewright.lint.lint_report import rule_page, rules_page
from nodewright.lint.rules import RULES_BY_ID
from nodewright.output.json_yaml import as_json
from tools.source import ROOT, Module, Section, Symbol, modules, sections

FOLDER = ROOT / "docs" / "reference"
LINT = FOLDER / "lint"
CLI = FOLDER / "cli"
SCHEMAS = FOLDER / "schemas"
DEPARTURES = FOLDER / "departures.md"

LAYERS = (
    "printable",
    "errors",
    "values",
    "hardware",
    "releases",
    "kubernetes",
    "reasons",
    "core",
    "node",
    "api_server",
    "formats",
    "host",
    "output",
    "profiles",
    "runtimes",
    "device_plugins",
    "pod_resources",
    "engine",
    "agent",
    "node_report",
    "explain",
    "admit",
    "replay",
    "rehearse",
    "timeline",
    "fleet",
    "audit",
    "lint",
    "quota",
    "evict",
    "upgrade",
    "policies",
    "library",
    "api",
    "testing",
    "conformance",
    "agent_main",
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
    """Every section of that name, in the order of the layers."""
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
    yield LINT / "README.md", rules_page(RULES_BY_ID.values())
    for rule in RULES_BY_ID.values():
        yield LINT / f"{rule.id}.md", rule_page(rule)


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command with its context, `nodewright` first and each group before its commands."""
    yield from _commands(app, click.Context(app, info_name="nodewright", **app.context_settings))


def _commands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Context, click.Command]]:
    yield context, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _commands(below, click.Context(below, info_name=name, parent=context))


def cli_pages() -> Iterator[tuple[Path, str]]:
    """A page for each command with its `--help`, and the list of them."""
    lines = ["# Commands", "", "The `--help` of each command. Made from the commands by `make docs`.", ""]
    for context, command in commands():
        name = context.command_path.replace(" ", "-")
        lines.append(f"- [{context.command_path}]({name}.md): {command.get_short_help_str(100)}")
        yield CLI / f"{name}.md", f"# {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    yield CLI / "README.md", "\n".join([*lines, ""])


def schema_pages() -> Iterator[tuple[Path, str]]:
    """The JSON Schema of each report, and the list of them; kept, and held to the source by a test."""
    lines = [
        "# Schemas of the reports",
        "",
        "With `-o json` or `-o yaml` a command prints a report. The schemas (JSON Schema 2020-12) are made from the structs",
        "that the commands fill; `nodewright schema KIND` prints one.",
        "",
        "| Kind | Command |",
        "|---|---|",
    ]
    for kind, report in REPORTS.items():
        lines.append(f"| [{kind}]({kind}.json) | `nodewright {report.command}` |")
        yield SCHEMAS / f"{kind}.json", as_json(schema_of(kind))
    yield SCHEMAS / "README.md", "\n".join([*lines, ""])


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    yield DEPARTURES, departures()
    yield from lint_pages()
    yield from schema_pages()
    yield from cli_pages()
    yield FOLDER / "sources.md", followed()
    for module in modules("src"):
        yield FOLDER / "modules" / f"{module.name}.md", page(module)


def main() -> None:
    """Writes all pages, and removes pages of removed modules."""
    for old in (FOLDER / "modules").glob("*.md"):
        old.unlink()
    made = dict(pages())
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    print(f"{len(made)} pages in {FOLDER.relative_to(ROOT)}")


def _order(module: Module) -> tuple[int, str]:
    layer = module.name.split(".")[1] if "." in module.name else ""
    return (LAYERS.index(layer) if layer in LAYERS else -1), module.name


if __name__ == "__main__":
    main()
