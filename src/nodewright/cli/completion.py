"""`nodewright completion`: shell completion scripts."""

from importlib import resources

import click

from nodewright.documents.output.terminal import YES, print_text

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a shell completion script for commands, options, formats, machines and files.

    For bash 4.4 and later: `source <(nodewright completion bash)`, for example in ~/.bashrc. For zsh, after compinit,
    the same with zsh. For fish: `nodewright completion fish | source`. As a kubectl plugin it needs no script:
    kubectl calls `kubectl_complete-nodewright`.
    """
    script = resources.files("nodewright.cli").joinpath("scripts", f"nodewright.{shell}")
    print_text(script.read_text("utf-8"))
    return YES
