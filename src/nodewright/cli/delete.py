"""`nodewright delete`: end pods that an agent was asked for."""

import time

import click

from nodewright.api.client import Client, RefusedError
from nodewright.cli import options
from nodewright.cli.app import ERROR, YES
from nodewright.cli.talking import decoded, pod_names, pod_route, talking

_LOOK_S = 0.05


@click.command("delete")
@click.argument("words", metavar="pod NAME...", nargs=-1, required=True)
@options.namespace
@click.option(
    "--grace-period",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="How long its containers have from SIGTERM to SIGKILL. Default: as the pod says.",
)
@click.option(
    "--now", "at_once", is_flag=True, help="As --grace-period=1: SIGTERM, and SIGKILL soon afterwards."
)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Come back when they are gone, or at once."
)
@talking
def command(
    agent: Client,
    *,
    words: tuple[str, ...],
    namespace: str,
    grace_period: int | None,
    at_once: bool,
    wait: bool,
) -> int:
    """End pods that `nodewright run` asked for. Pods of directories and URLs end when these have them no more."""
    if at_once:
        if grace_period is not None:
            raise click.UsageError("--now and --grace-period exclude one another")
        grace_period = 1
    code, leaving = YES, list[tuple[str, str]]()
    for name in pod_names(words):
        try:
            found = agent.delete(*pod_route(namespace, name), gracePeriodSeconds=grace_period)
        except RefusedError as error:
            click.echo(f"Error from agent {error}", err=True)
            code = ERROR
            continue
        click.echo(f'pod "{name}" deleted from {namespace} namespace')
        leaving += [(name, pod.uid) for pod in decoded([found])]
    for name, uid in leaving if wait else ():
        _until_gone(agent, namespace, name, uid)
    return code


def _until_gone(agent: Client, namespace: str, name: str, uid: str) -> None:
    while True:
        try:
            found = agent.get(*pod_route(namespace, name))
        except RefusedError as error:
            if error.reason == "NotFound":
                return
            raise
        if found["metadata"]["uid"] != uid:
            return
        time.sleep(_LOOK_S)
