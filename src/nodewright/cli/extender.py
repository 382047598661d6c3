"""`nodewright extender`: let schedulers ask each node before they bind a pod."""

import asyncio
import sys

import click

from nodewright.model.errors import Fault, InputError
from nodewright.scheduling.extender.extender_options import ExtenderOptions, extender_options


@click.command("extender")
@extender_options
def command(options: ExtenderOptions) -> int:
    """Let kube-scheduler ask each node before it binds a pod, so that no kubelet rejects it.

    It speaks the scheduler's HTTP extender protocol: filter, prioritize, preempt and bind. Each verdict is that of the
    kubelet of the node, computed on the state that `nodewright export` serves there, after all pods that are on their
    way to it. Nodes without a fresh export are predicted from the API server and never refused, unless --strict.
    Autoscalers ask POST /v1/admit; /openapi/v3 describes it.
    """
    if sys.platform == "win32":
        raise InputError([Fault(rule="the extender does not run on Windows")])
    from nodewright.scheduling.extender.run_extender import run_extender  # noqa: PLC0415 - needs the extras

    return asyncio.run(run_extender(options))
