"""`nodewright agent` and `nodewright kubelet`: run pods on this machine. A link named `kubelet` is the latter."""

import asyncio
import os
import sys
from pathlib import Path

import click

from nodewright.agent.assembly.agent_settings import AgentSettings, agent_options
from nodewright.agent.assembly.kubelet_flags import flag_uses, kubelet_settings, parse_kubelet_flags
from nodewright.cli.workload_input import print_warnings
from nodewright.cluster.client.agent_client import DEFAULT_SOCKET, SOCKET_VARIABLE
from nodewright.documents.output.command_line import option
from nodewright.documents.output.terminal import ERROR, YES, print_line, print_message
from nodewright.model.errors import Fault, InputError
from nodewright.model.releases.release_table import NEWEST

_ROOT_NEEDED = """error: running pods needs root: the agent creates cgroups and runs processes as other users.
Run it as root, or use --dry-run, which prints every action for the present pods, or --dry-run=serve,
which serves `nodewright run`, `get` and `describe` with a simulated runtime."""


@click.command("agent")
@agent_options
def agent_command(settings: AgentSettings) -> int:
    """Run pods on this machine with the kubelet's resource management, with or without a cluster.

    Pod sources are a directory and a URL (static pods), --workload-dir, `nodewright run` and, with --kubeconfig, the
    API server of a cluster. Pods keep running when the agent stops; an agent started on the same --root-dir adopts them.
    """
    if settings.node is not None and settings.dry_run is None:
        raise click.UsageError("--node requires --dry-run: pods run on this machine only")
    return start_agent(settings)


def start_agent(settings: AgentSettings) -> int:
    """Runs the agent until it is asked to stop; its exit code."""
    if sys.platform == "win32" or (sys.platform != "linux" and settings.dry_run is None):
        raise InputError([Fault(rule="not Linux: the agent runs pods on Linux only")])
    from nodewright.agent.assembly.agent_node import agent_node  # noqa: PLC0415 - start-up time of `--list-flags`

    agent = agent_node(settings)
    print_warnings(agent.node.warnings, strict=False)
    if settings.dry_run is not None:
        from nodewright.agent.assembly.dry_run import dry_run  # noqa: PLC0415 - not needed to run pods

        return asyncio.run(dry_run(settings, agent.node))
    if os.geteuid() != 0:
        print_message(_ROOT_NEEDED)
        return ERROR
    from nodewright.agent.assembly.run_agent import run_agent  # noqa: PLC0415 - needs the extra `agent`

    return asyncio.run(run_agent(settings, agent))


@click.command("kubelet", context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@option("--list-flags", "List what the agent does with each flag of the kubelet.")
@click.argument("arguments", metavar="[KUBELET FLAGS]", nargs=-1, type=click.UNPROCESSED)
def kubelet_command(arguments: tuple[str, ...], *, list_flags: bool) -> int:
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
