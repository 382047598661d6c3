"""`nodewright kubelet`: the agent with the kubelet's command line; also a link named `kubelet`."""

import os
from pathlib import Path

import click

from nodewright.agent.assembly.kubelet_flags import flag_uses, kubelet_settings, parse_kubelet_flags
from nodewright.cli.agent import start_agent
from nodewright.cluster.client.agent_client import DEFAULT_SOCKET, SOCKET_VARIABLE
from nodewright.documents.output.terminal import YES, print_line, print_message
from nodewright.model.releases.release_table import NEWEST


@click.command("kubelet", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option("--list-flags", is_flag=True, help="List what the agent does with each flag of the kubelet.")
@click.argument("arguments", metavar="[KUBELET FLAGS]", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...], *, list_flags: bool) -> int:
    """Run pods on this machine with the kubelet's command line: its flags and its KubeletConfiguration as they are.

    Flags override the configuration. Flags that make no difference here are listed once and ignored; flags that would
    change how pods run, and that the agent does not know, are errors. A link named `kubelet` does the same.
    """
    if list_flags:
        width = max(map(len, flag_uses()))
        for name, use in flag_uses().items():
            print_line(f"--{name:<{width}}  {use}")
        return YES
    command_line = parse_kubelet_flags(arguments)
    if command_line.is_version_query:
        print_line(f"Kubernetes v{NEWEST.name}.0")
        return YES
    for line in command_line.ignored:
        print_message(line)
    return start_agent(
        kubelet_settings(command_line, Path(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET))
    )
