"""`nodewright delete`: delete pods of an agent."""

import time

import click

from nodewright.cli import options
from nodewright.cli.agent.agent_connection import decode_pods, pod_names, pod_route, with_agent
from nodewright.cluster.client.agent_client import AgentClient, AgentStatusError
from nodewright.documents.output.terminal import ERROR, YES, print_line, print_message

_POLL_INTERVAL_S = 0.05


@click.command("delete")
@click.argument("words", metavar="pod NAME...", nargs=-1, required=True)
@options.namespace_option
@click.option(
    "--grace-period",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    help="Seconds from SIGTERM to SIGKILL. Default: the pod's terminationGracePeriodSeconds.",
)
@click.option(
    "--now", "now", is_flag=True, help="Same as --grace-period=1: SIGTERM, then SIGKILL after one second."
)
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="Wait until the pods have been removed."
)
@with_agent
def command(
    agent: AgentClient,
    *,
    words: tuple[str, ...],
    namespace: str,
    grace_period: int | None,
    now: bool,
    wait: bool,
) -> int:
    """Delete pods that `nodewright run` created.

    To delete pods of directories and URLs, remove them there.
    """
    if now:
        if grace_period is not None:
            raise click.UsageError("--now and --grace-period exclude each other")
        grace_period = 1
    code, deleted = YES, list[tuple[str, str]]()
    for name in pod_names(words):
        try:
            response = agent.delete(*pod_route(namespace, name), gracePeriodSeconds=grace_period)
        except AgentStatusError as error:
            print_message(f"Error from agent {error}")
            code = ERROR
            continue
        print_line(f'pod "{name}" deleted from {namespace} namespace')
        deleted += [(name, pod.uid) for pod in decode_pods([response])]
    for name, uid in deleted if wait else ():
        _wait_until_removed(agent, namespace, name, uid)
    return code


def _wait_until_removed(agent: AgentClient, namespace: str, name: str, uid: str) -> None:
    while True:
        try:
            pod = agent.get(*pod_route(namespace, name))
        except AgentStatusError as error:
            if error.reason == "NotFound":
                return
            raise
        if pod["metadata"]["uid"] != uid:
            return
        time.sleep(_POLL_INTERVAL_S)
