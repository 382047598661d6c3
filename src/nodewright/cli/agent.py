"""`nodewright agent`: run pods on this machine."""

import asyncio
import os

import click

from nodewright.cli.agent_dry import dry_run
from nodewright.cli.agent_settings import Settings, opened, settings
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
    node = opened(told)
    warn(node.warnings, strict=False)
    if told.dry_run is not None:
        return asyncio.run(dry_run(told, node))
    if os.geteuid() != 0:
        click.echo(_ROOT_NEEDED, err=True)
        return ERROR
    click.echo("error: only --dry-run so far", err=True)
    return ERROR
