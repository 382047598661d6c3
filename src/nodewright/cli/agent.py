"""`nodewright agent`: run pods on this machine."""

import asyncio
import os

import click

from nodewright.cli.agent_node import agent_node
from nodewright.cli.agent_run import run_agent
from nodewright.cli.agent_settings import Settings, settings
from nodewright.cli.app import ERROR
from nodewright.cli.inputs import warn

_ROOT_NEEDED = """error: running pods takes root: cgroups are made, CPUs and memory are given to groups, and processes
are run as other users. Without it everything else works: --dry-run shows every action for the pods
that there are, --dry-run=serve answers `nodewright run`, `get` and `describe` as if it ran them."""


@click.command("agent")
@settings
def command(told: Settings) -> int:
    """Run pods on this machine: pinned, bounded, evicted under pressure; without a cluster.

    Decisions are the kubelet's. Pods come from a directory and a URL (static pods), from --workload-dir, and from
    `nodewright run`. They outlive the agent: one that is started anew on the same --root-dir goes on with them.
    """
    if told.node is not None and told.dry_run is None:
        raise click.UsageError("--node is for --dry-run: pods run on this machine alone")
    here = agent_node(told)
    warn(here.node.warnings, strict=False)
    if told.dry_run is not None:
        from nodewright.cli.agent_dry import dry_run  # noqa: PLC0415 - an agent does without it

        return asyncio.run(dry_run(told, here.node))
    if os.geteuid() != 0:
        click.echo(_ROOT_NEEDED, err=True)
        return ERROR
    return asyncio.run(run_agent(told, here))
