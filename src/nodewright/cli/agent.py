"""`nodewright agent`: run pods on this machine."""

import asyncio
import os
import sys

import click

from nodewright.agent.assembly.agent_settings import AgentSettings, agent_options
from nodewright.cli.workload_input import print_warnings
from nodewright.documents.output.terminal import ERROR, print_message
from nodewright.model.errors import Fault, InputError

_ROOT_NEEDED = """error: running pods needs root: the agent creates cgroups and runs processes as other users.
Run it as root, or use --dry-run, which prints every action for the present pods, or --dry-run=serve,
which serves `nodewright run`, `get` and `describe` with a simulated runtime."""


@click.command("agent")
@agent_options
def command(settings: AgentSettings) -> int:
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
    from nodewright.agent.assembly.agent_node import agent_node  # noqa: PLC0415 - needs the extra `agent`
    from nodewright.agent.assembly.run_agent import run_agent  # noqa: PLC0415 - as above

    agent = agent_node(settings)
    print_warnings(agent.node.warnings, strict=False)
    if settings.dry_run is not None:
        from nodewright.agent.assembly.dry_run import dry_run  # noqa: PLC0415 - not needed to run pods

        return asyncio.run(dry_run(settings, agent.node))
    if os.geteuid() != 0:
        print_message(_ROOT_NEEDED)
        return ERROR
    return asyncio.run(run_agent(settings, agent))
