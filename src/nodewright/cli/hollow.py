"""`nodewright hollow`: many simulated Nodes of a cluster whose kubelets decide."""

import asyncio
import sys

import click

from nodewright.agent.hollow.hollow_options import HollowOptions, hollow_options
from nodewright.model.errors import Fault, InputError


@click.command("hollow")
@hollow_options
def command(options: HollowOptions) -> int:
    """Register simulated nodes in a cluster, whose kubelets decide as real ones do and run no container.

    Pods are admitted or rejected with CPUs, NUMA nodes and devices, preempted, evicted, resized and restarted.
    Annotations such as `nodewright.dev/runs: 30s` define what their containers do. Schedulers, autoscalers and
    controllers can be tested on a thousand nodes on a laptop.
    """
    if sys.platform == "win32":
        raise InputError([Fault(rule="hollow nodes do not run on Windows")])
    from nodewright.agent.hollow.run_hollow import run_hollow  # noqa: PLC0415 - needs the extras

    return asyncio.run(run_hollow(options))
