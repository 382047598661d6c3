"""The table of words that `nodewright.cli.complete` reads, made from the commands: `make shots` writes it."""

import json
import re
from pathlib import Path
from typing import Any

import click

from nodewright.cli.app import SUMMARIES, app
from nodewright.cli.complete import TABLE
from nodewright.core.cpu.own import CPUPicker
from nodewright.core.eviction import EvictionPolicy
from nodewright.core.topology import TopologyPolicy
from nodewright.world.catalogue import catalogue
from nodewright.world.policies import Registry

# Options whose values are names of something that nodewright has.
NAMES = {"--topology-policy": TopologyPolicy, "--cpu-picker": CPUPicker, "--policy": EvictionPolicy}


def main() -> None:
    """Write the table."""
    Path(TABLE).write_text(text(), "utf-8")


def text() -> str:
    """The table as it stands in its file."""
    machines = {name: entry.what for name, entry in catalogue().items()}
    table = {"machines": machines, **_command(click.Context(app, **app.context_settings), "")}
    return json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def _command(context: click.Context, about: str) -> dict[str, Any]:
    command, entry = context.command, dict[str, Any](about=about)
    if isinstance(command, click.Group):
        below = {name: command.get_command(context, name) for name in command.list_commands(context)}
        entry["commands"] = {
            name: _command(
                click.Context(one, parent=context),
                SUMMARIES.get(name, "") if command is app else one.get_short_help_str(80),
            )
            for name, one in below.items()
            if one is not None
        }
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    entry["options"] = [_option(one) for one in options if not one.hidden]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    if arguments:
        entry["arguments"] = [
            {**_values(one), **({"again": True} if one.nargs < 0 else {})} for one in arguments
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
            words |= {one.name: one.about.rstrip(".") for one in Registry().known if isinstance(one, kind)}
    parts = (parameter.metavar or parameter.name or "").removesuffix("...").split("|")
    for part in parts:
        if part.startswith(("FILE", "OUT.")):
            paths = "file"
        elif part == "DIR":
            paths = paths or "dir"
        elif part.islower() and len(parts) > 1:
            words[part] = ""
    has_machines = parts in (["FILE", "NAME"], ["name"])
    found = {"words": words, "paths": paths, "from": "machines" if has_machines else ""}
    return {key: value for key, value in found.items() if value}


def _first_sentence(help_text: str) -> str:
    return re.split(r"[.;] (?=[A-Z-])|; ", help_text, maxsplit=1)[0].rstrip(".")


if __name__ == "__main__":
    main()
