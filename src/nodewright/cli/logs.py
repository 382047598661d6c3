"""`nodewright logs`: what the containers of a pod have said."""

import sys

import click

from nodewright.api.client import Client
from nodewright.cli import options
from nodewright.cli.app import YES
from nodewright.cli.talking import PODS, pod_name, pod_route, talking
from nodewright.values.duration import Duration, DurationError


def _seconds(context: click.Context, option: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        span = Duration.parse(text)
    except DurationError as error:
        raise click.BadParameter(str(error), context, option) from None
    return -(-span.nanoseconds // 10**9)


@click.command("logs")
@click.argument("words", metavar="[pod/]NAME [CONTAINER]", nargs=-1, required=True)
@options.namespace
@click.option("-c", "--container", help="Which container; there has to be one where a pod has several.")
@click.option("-f", "--follow", is_flag=True, help="Go on while the container runs.")
@click.option("-p", "--previous", is_flag=True, help="Of the run before the last restart.")
@click.option("--tail", type=int, default=-1, metavar="LINES", help="The last lines only; -1: all.")
@click.option("--timestamps", is_flag=True, help="With the time of each line.")
@click.option("--since", callback=_seconds, metavar="DURATION", help="Only what is not older, e.g. 5m.")
@talking
def command(
    agent: Client, *, words: tuple[str, ...], namespace: str, container: str | None, **how: object
) -> int:
    """Print what a container has written, without the times and streams that its log has."""
    pod = list(words)
    if len(pod) == 2 and container is None and pod[0] not in PODS:
        container = pod.pop()
    tail = how["tail"]
    said = agent.lines(
        *pod_route(namespace, pod_name(pod)),
        "log",
        container=container,
        follow=how["follow"],
        previous=how["previous"],
        timestamps=how["timestamps"],
        sinceSeconds=how["since"],
        tailLines=tail if isinstance(tail, int) and tail >= 0 else None,
    )
    out = sys.stdout.buffer
    for line in said:
        out.write(line)
        out.flush()
    return YES
