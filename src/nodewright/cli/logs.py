"""`nodewright logs`: what the containers of a pod have said."""

import sys

import click

from nodewright.api.client import Client
from nodewright.cli import options
from nodewright.cli.app import YES
from nodewright.cli.talking import PODS, decoded, pod_name, pod_route, talking
from nodewright.model.objects import Pod
from nodewright.values.duration import Duration, DurationError

_MARK = "kubectl.kubernetes.io/default-container"


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
@click.option("-c", "--container", help="Which container. Default: the first.")
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
    name, tail = pod_name(pod), how["tail"]
    container = container or _default(decoded([agent.get(*pod_route(namespace, name))])[0])
    said = agent.lines(
        *pod_route(namespace, name),
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


def _default(pod: Pod) -> str:
    """The container that is meant where none is named; of several it is said.

    Follows: v1.36, kubectl/pkg/polymorphichelpers/logsforobject.go, logsForObjectWithClient.
    """
    mains = [one.name for one in pod.spec.containers]
    inits = [one.name for one in pod.spec.init_containers]
    marked = pod.metadata.annotations.get(_MARK, "")
    name = marked if marked in (*mains, *inits) else mains[0]
    if len(mains) + len(inits) > 1:
        all_of_them = ", ".join((*mains, *(f"{one} (init)" for one in inits)))
        click.echo(f'Defaulted container "{name}" out of: {all_of_them}', err=True)
    return name
