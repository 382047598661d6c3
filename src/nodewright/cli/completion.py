"""`nodewright completion`: scripts that teach a shell nodewright's words."""

from importlib import resources

import click

from nodewright.cli.app import YES

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a script after which the shell completes commands, options, formats, machines and files.

    For bash 4.4 and later: `source <(nodewright completion bash)`, in ~/.bashrc for good. For zsh, after compinit, the
    same with zsh. For fish: `nodewright completion fish | source`. As a plugin of kubectl it needs no script of its own:
    kubectl asks `kubectl_complete-nodewright`.
    """
    script = resources.files("nodewright.cli").joinpath("scripts", f"nodewright.{shell}")
    click.echo(script.read_text("utf-8"), nl=False)
    return YES
