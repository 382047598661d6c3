"""Reference pages from docstrings and commands, and the completion table: `python -m tools reference` or `make docs`.

`docs/reference/departures.md` is kept, and a test holds it to the source: it lists everything that we do
otherwise than Kubernetes. So are the pages of NodeProfile, of the catalogue's machines and of lint rules, and the schemas of
reports. The others, a page a module and what follows which source, are made on demand.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import click
import msgspec

from nodewright.cli.about import REPORTS, schema_of
from nodewright.cli.app import COMMANDS, app
from nodewright.cli.complete import TABLE
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.profiles.catalogue import CatalogueMachine, catalogue
from nodewright.documents.profiles.kubelet_forms import FORMS
from nodewright.engine.core.cpu.cpu_policy import CPUPicker
from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy
from nodewright.engine.core.topology.custom import TopologyPolicy
from nodewright.model import hardware
from nodewright.model.kubernetes import eviction_thresholds, node_profile, objects
from nodewright.predict.lint.lint_report import rule_page, rules_page
from nodewright.predict.lint.rules import RULES_BY_ID
from nodewright.predict.policy_registry import PolicyRegistry
from tools.source import PACKAGE, ROOT, Module, Section, Symbol, modules, sections

FOLDER = ROOT / "docs" / "reference"
LINT = FOLDER / "lint"
CLI = FOLDER / "cli"
SCHEMAS = FOLDER / "schemas"
EXAMPLE_SCHEMAS = ROOT / "examples" / "schemas"
"""Those of files that people write: the first line of each example names one, for editors."""
DEPARTURES = FOLDER / "departures.md"
PROFILE = FOLDER / "node-profile.md"
MACHINES = FOLDER / "machines.md"
FORM_PAGE = FOLDER / "kubelet-forms.md"

# The parts of a NodeProfile, each with its own table.
PROFILE_PARTS: tuple[type[msgspec.Struct], ...] = (
    node_profile.NodeProfile,
    node_profile.NodeProfileSpec,
    node_profile.Device,
    node_profile.ContainerAllocation,
    node_profile.MemoryBlock,
    objects.Taint,
    node_profile.ImageFS,
    node_profile.PolicyNames,
    node_profile.UnknownNodePart,
    hardware.MachineInfo,
    hardware.NUMANode,
    hardware.Core,
    hardware.UncoreCache,
    hardware.HugePages,
)

LAYERS = (
    "version",
    "model",
    "engine",
    "documents",
    "cluster",
    "predict",
    "fleet",
    "features",
    "policies",
    "scheduling",
    "agent",
    "testing",
    "cli",
)


@dataclass(frozen=True, slots=True)
class LocatedSection:
    """A section of a docstring and where it stands: a module, or a symbol in it."""

    module: Module
    symbol: Symbol | None
    section: Section

    @property
    def place(self) -> str:
        """The full name, as it is imported."""
        return f"{self.module.name}.{self.symbol.name}" if self.symbol else self.module.name


def sections_named(name: str) -> list[LocatedSection]:
    """Every section of that name, in the order of the layers."""
    result = []
    for module in sorted(modules("src"), key=_order):
        result += [
            LocatedSection(module, None, each) for each in sections(module.docstring) if each.name == name
        ]
        for symbol in module.symbols:
            result += [
                LocatedSection(module, symbol, each)
                for each in sections(symbol.docstring)
                if each.name == name
            ]
    return result


def departures() -> str:
    """The page that lists what we do otherwise than Kubernetes."""
    lines = [
        "# Departures",
        "",
        "What nodewright does otherwise than the code that it follows, and why. Made from the `Departs:`",
        "sections of docstrings by `make docs`.",
    ]
    module = ""
    for each in sections_named("Departs"):
        if each.module.name != module:
            module = each.module.name
            lines += ["", f"## {module}", ""]
        name = each.symbol.name if each.symbol else "the module"
        lines.append(f"- `{name}`: {each.section.text}")
    return "\n".join([*lines, ""])


def followed() -> str:
    """The page that lists, by source, what follows it."""
    by_source: dict[str, list[LocatedSection]] = defaultdict(list)
    for each in sections_named("Follows"):
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


def profile_page() -> str:
    """The page of NodeProfile, field by field."""
    lines = [
        "# NodeProfile",
        "",
        "One document with everything that a kubelet's decisions depend on: the node of `--node`. `nodewright node capture`",
        "writes it for a machine, `nodewright node catalogue NAME` for one of the [catalogue](machines.md). Every field but",
        "`apiVersion` and `kind` may be left out. Made from the structs by `make docs`.",
    ]
    for part in PROFILE_PARTS:
        texts = _field_texts(part)
        text = _paragraph(part.__doc__ or "")
        for field in msgspec.structs.fields(part):
            text = text.replace(field.name, field.encode_name)
        lines += ["", f"## {part.__name__}", "", text, ""]
        lines += ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
        for field in msgspec.structs.fields(part):
            meaning = texts.get(field.name, "")
            lines.append(
                f"| `{field.encode_name}` | {_type_text(field.type)} | {_default_text(field)} | {meaning} |"
            )
    return "\n".join([*lines, ""])


def _field_texts(part: type) -> dict[str, str]:
    """The text below each field of a struct."""
    module = Module(PACKAGE.parent / (part.__module__.replace(".", "/") + ".py"))
    body = next(symbol.node.body for symbol in module.symbols if symbol.name == part.__name__)
    texts = {}
    for field, text in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
        ):
            assert isinstance(text.value, ast.Constant)
            texts[field.target.id] = _paragraph(str(text.value.value))
    return texts


def _paragraph(text: str) -> str:
    return " ".join(text.split())


def _type_text(kind: object) -> str:
    """A type as a reader of YAML knows it; parts are links to their table."""
    names = {str: "string", int: "integer", bool: "boolean", objects.ResourceList: "map of quantities"}
    if isinstance(kind, type) and kind in PROFILE_PARTS:
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if kind in (objects.Pod, objects.ObjectMeta):
        return f"{getattr(kind, '__name__', '')} of Kubernetes"
    if kind is eviction_thresholds.NodeCondition:
        return " or ".join(f"`{condition}`" for condition in eviction_thresholds.NodeCondition)
    arguments = [each for each in get_args(kind) if each not in (type(None), Ellipsis)]
    if get_origin(kind) is tuple:
        return f"list of {_type_text(arguments[0])}"
    if get_origin(kind) is dict:
        return f"map of {_type_text(arguments[1])}" if arguments[1] is not Any else "object"
    if arguments:
        return " or ".join(_type_text(each) for each in arguments)
    return next(
        (text for known, text in names.items() if kind == known), getattr(kind, "__name__", str(kind))
    )


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    return (
        f"`{str(value).lower() if value is True else value}`"
        if isinstance(value, str | int) and value
        else "-"
    )


def machines_page() -> str:
    """The page of the catalogue: each real machine with the sources of its figures."""
    lines = [
        "# Machines of the catalogue",
        "",
        "The names that `--node`, `--shape` and `--shapes` take, with the sources of the figures, and those that have none.",
        "Names of instance types are the values of the label `node.kubernetes.io/instance-type`, so for a fleet",
        "`--shapes label:node.kubernetes.io/instance-type` finds them. Memory is nominal; a real node reports a little less.",
        "Made from `profiles/data/machines.toml` by `make docs`.",
    ]
    for machine in catalogue().values():
        if not machine.is_recorded:
            lines += ["", f"## {machine.name}", "", f"{machine.description}.", "", *_machine_lines(machine)]
    return "\n".join([*lines, ""])


def forms_page() -> str:
    """The page of the forms in which distributions write the kubelet's configuration."""
    lines = [
        "# Forms of kubelet configurations",
        "",
        "`--kubelet-config`, `rehearse --config` and `lint -f` read the kubelet's configuration as distributions write it, and",
        "name what of it they do not judge. *Adds* is what the distribution sets below what is written,",
        "as of one version of it: compare with `/configz` of a node of yours.",
        "",
        "| Form | Read | Adds | Not judged |",
        "|---|---|---|---|",
    ]
    for form in FORMS:
        read = ", ".join(f"`{path or 'the document'}`" for path in (*form.fields, *form.flags, *form.texts))
        added = ", ".join(f"`{name}: {json.dumps(value)}`" for name, value in form.adds.items())
        lines.append(f"| {form.name} | {read} | {added} | {form.not_judged} |")
    return "\n".join([*lines, ""])


def _machine_lines(machine: CatalogueMachine) -> Iterator[str]:
    for resource, devices in machine.devices.items():
        numa_nodes = [str(device.numa_nodes[0]) for device in devices if device.numa_nodes]
        places = f"on NUMA nodes {', '.join(numa_nodes)}" if numa_nodes else "without topology"
        yield f"- {len(devices)} `{resource}`, {places}"
    for source in machine.sources:
        what, _, place = source.partition(": ")
        address, _, rest = place.partition(" ")
        yield f"- {what}: <{address}>{' ' * bool(rest)}{rest}"
    if machine.assumed:
        yield f"- without a source: {machine.assumed}"


def lint_pages() -> Iterator[tuple[Path, str]]:
    """The pages of lint rules, and the list of them; kept, and held to the source by a test."""
    yield LINT / "README.md", rules_page(RULES_BY_ID.values())
    for rule in RULES_BY_ID.values():
        yield LINT / f"{rule.id}.md", rule_page(rule)


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Every command with its context, `nodewright` first and each group before its commands."""
    context = click.Context(app, info_name="nodewright", obj=("--help-all",), **app.context_settings)
    yield from _commands(app, context)


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
    for kind in ("NodeProfile", "Scenario"):
        yield EXAMPLE_SCHEMAS / f"{kind}.json", as_json(schema_of(kind))


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with its text."""
    yield DEPARTURES, departures()
    yield PROFILE, profile_page()
    yield MACHINES, machines_page()
    yield FORM_PAGE, forms_page()
    yield from lint_pages()
    yield from schema_pages()
    yield from cli_pages()
    yield FOLDER / "sources.md", followed()
    for module in modules("src"):
        yield FOLDER / "modules" / f"{module.name}.md", page(module)


def write_reference() -> None:
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


# Options whose values are names of something that nodewright has.
NAMES = {"--topology-policy": TopologyPolicy, "--cpu-picker": CPUPicker, "--policy": EvictionPolicy}


def write_completion_table() -> None:
    """Write the table."""
    Path(TABLE).write_text(completion_table(), "utf-8")


def completion_table() -> str:
    """The table as it stands in its file."""
    machines = {name: entry.description for name, entry in catalogue().items()}
    entries: dict[str, dict[str, Any]] = {}
    for context, command in commands():
        entries[context.command_path] = entry = _command(context, command)
        if context.parent:
            entries[context.parent.command_path].setdefault("commands", {})[context.info_name] = entry
    table = {"machines": machines, **next(iter(entries.values()))}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _command(context: click.Context, command: click.Command) -> dict[str, Any]:
    about = command.get_short_help_str(80)
    if context.parent is None:
        about = ""
    elif context.parent.command is app:
        about = COMMANDS[context.info_name or ""].summary
    entry: dict[str, Any] = {"about": about}
    if isinstance(command, click.Group):
        entry["commands"] = {}
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    entry["options"] = [_option(option) for option in options if not option.hidden]
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    if arguments:
        entry["arguments"] = [
            {**_values(argument), **({"again": True} if argument.nargs < 0 else {})} for argument in arguments
        ]
    return entry


def _option(option: click.Option) -> dict[str, Any]:
    names = [*option.opts, *option.secondary_opts]
    entry: dict[str, Any] = {"names": names, "about": _first_sentence(option.help or "")}
    if not option.is_flag:
        entry["values"] = _values(option)
    if option.multiple:
        entry["again"] = True
    return entry


def _values(parameter: click.Parameter) -> dict[str, Any]:
    """What the parameter takes, by its type and by what its usage calls it: FILE|NAME, DIR|live."""
    if isinstance(parameter.type, click.Choice):
        return {"words": dict.fromkeys(parameter.type.choices, "")}
    words: dict[str, str] = {}
    paths = ""
    for option, kind in NAMES.items():
        if option in parameter.opts:
            words |= {
                policy.name: policy.description.rstrip(".")
                for policy in PolicyRegistry().policies
                if isinstance(policy, kind)
            }
    parts = (parameter.metavar or parameter.name or "").removesuffix("...").strip("[]").split("|")
    for part in parts:
        if part.startswith(("FILE", "OUT.")):
            paths = "file"
        elif part == "DIR":
            paths = paths or "dir"
        elif part.islower() and len(parts) > 1:
            words[part] = ""
    has_machines = parts in (["FILE", "NAME"], ["name"])
    document = {"words": words, "paths": paths, "from": "machines" if has_machines else ""}
    return {key: value for key, value in document.items() if value}


def _first_sentence(help_text: str) -> str:
    return re.split(r"[.;] (?=[A-Z-])|; ", help_text, maxsplit=1)[0].rstrip(".")
