"""The table of words that `nodewright.cli.complete` reads, made from the commands: `make shots` writes it."""

import json
import re
from pathlib import Path
from typing import Any

import click

from nodewright.cli.app import COMMANDS, app
from nodewright.cli.complete import TABLE
from nodewright.documents.profiles.catalogue import catalogue
from nodewright.engine.core.cpu.custom_picker import CPUPicker
from nodewright.engine.core.eviction.eviction_policy import EvictionPolicy
from nodewright.engine.core.topology.custom import TopologyPolicy
from nodewright.predict.policy_registry import PolicyRegistry
from tools.reference import commands

# Options whose values are names of something that nodewright has.
NAMES = {"--topology-policy": TopologyPolicy, "--cpu-picker": CPUPicker, "--policy": EvictionPolicy}


def main() -> None:
    """Write the table."""
    Path(TABLE).write_text(text(), "utf-8")


def text() -> str:
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


if __name__ == "__main__":
    main()
