"""`nodewright help`: the help of a command, as `--help` prints it."""

import click

from nodewright.documents.output.terminal import YES, print_text


@click.command("help")
@click.argument("words", metavar="[COMMAND...]", nargs=-1)
@click.pass_context
def command(context: click.Context, words: tuple[str, ...]) -> int:
    """Show the help of a command, or the list of commands."""
    parent = context.parent
    assert parent is not None
    group, of_group = parent.command, parent
    for word in words:
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{of_group.command_path} has no commands", context)
        _, found_command, _ = group.resolve_command(of_group, [word])
        assert found_command is not None
        group, of_group = found_command, click.Context(found_command, info_name=word, parent=of_group)
    print_text(f"{group.get_help(of_group)}\n")
    return YES
