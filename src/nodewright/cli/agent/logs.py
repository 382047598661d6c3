"""`nodewright logs`: the logs of a pod's containers."""

import sys

import click

from nodewright.cli import options
from nodewright.cli.agent.agent_connection import (
    POD_RESOURCE_NAMES,
    pod_name,
    pod_route,
    with_agent,
)
from nodewright.cluster.client.agent_answers import decode_pods
from nodewright.cluster.client.agent_client import AgentClient
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.terminal import YES, print_message
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.duration import Duration, DurationError

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


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
@options.namespace_option
@option("-c, --container TEXT", "Container name. Default: the first container.")
@option("-f, --follow", "Print new lines until the container ends.")
@option("-p, --previous", "Logs of the container's previous instance.")
@option(
    "--tail LINES",
    "Print only the last lines; -1: all.",
    type=IntegerRange(-1, 2**31 - 1),
    default=-1,
    show_default=False,
)
@option("--timestamps", "Print the time of each line.")
@option("--since DURATION", "Print only lines newer than this, e.g. 5m.", callback=_seconds)
@with_agent
def command(
    agent: AgentClient, *, words: tuple[str, ...], namespace: str, container: str | None, **choices: object
) -> int:
    """Print the logs of a container, without the log's times and stream names."""
    pod_words = list(words)
    if len(pod_words) == 2 and container is None and pod_words[0] not in POD_RESOURCE_NAMES:
        container = pod_words.pop()
    name, tail = pod_name(pod_words), choices["tail"]
    container = container or _default_container(decode_pods([agent.get(*pod_route(namespace, name))])[0])
    lines = agent.stream_lines(
        *pod_route(namespace, name),
        "log",
        container=container,
        follow=choices["follow"],
        previous=choices["previous"],
        timestamps=choices["timestamps"],
        sinceSeconds=choices["since"],
        tailLines=tail if isinstance(tail, int) and tail >= 0 else None,
    )
    out = sys.stdout.buffer
    for line in lines:
        out.write(line)
        out.flush()
    return YES


def _default_container(pod: Pod) -> str:
    """The container whose logs are printed by default; names it on stderr if the pod has several.

    Follows: v1.36, kubectl/pkg/polymorphichelpers/logsforobject.go, logsForObjectWithClient.
    """
    containers = [container.name for container in pod.spec.containers]
    init_containers = [container.name for container in pod.spec.init_containers]
    annotation = pod.metadata.annotations.get(_DEFAULT_CONTAINER, "")
    if not containers:
        raise InputError([Fault(path="spec.containers", rule="", error="Required value")])
    name = annotation if annotation in (*containers, *init_containers) else containers[0]
    if len(containers) + len(init_containers) > 1:
        candidates = ", ".join((*containers, *(f"{init} (init)" for init in init_containers)))
        print_message(f'Defaulted container "{name}" out of: {candidates}')
    return name
