"""Every command of the command line."""

from collections.abc import Iterator

import click

from nodewright.cli.app import COMMANDS, load_command


def all_commands() -> Iterator[tuple[str, click.Command]]:
    """The commands and groups, with their names, e.g. `fleet run`."""
    for name in COMMANDS:
        yield from _with_members(name, load_command(name))


def _with_members(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child in command.list_commands(click.Context(command)):
            member = command.get_command(click.Context(command), child)
            assert member is not None
            yield from _with_members(f"{name} {child}", member)
