"""`nodewright run`: ask an agent for pods."""

import click

from nodewright.api.client import Client, RefusedError
from nodewright.cli import options
from nodewright.cli.app import ERROR, NO, YES
from nodewright.cli.inputs import tell, workloads
from nodewright.cli.talking import decoded, listed, talking
from nodewright.model.objects import Pod
from nodewright.render.profiles import object_document
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Workload
from nodewright.world.statuses import REJECTED


@click.command("run")
@options.filenames
@options.namespace
@talking
def command(agent: Client, *, filenames: tuple[str, ...], namespace: str) -> int:
    """Ask the agent of this machine for the pods of manifests.

    They are ordinary pods and last until `nodewright delete`, agents that are started anew included. Exit code 0 if
    the node takes all of them, 3 if it refuses one: `get pods` shows the reason, `describe pod` what would help.
    """
    loaded = workloads(filenames, namespace)
    tell(loaded, loaded.warnings)
    _only_pods(loaded.workloads)
    codes = [_asked(agent, one.pod) for one in loaded.workloads]
    return ERROR if ERROR in codes or not codes else NO if NO in codes else YES


def _asked(agent: Client, pod: Pod) -> int:
    meta = pod.metadata
    document = {"apiVersion": "v1", "kind": "Pod", **object_document(pod)}
    document.pop("status", None)
    try:
        found = agent.post(*listed(meta.namespace, "pods"), body=document)
    except RefusedError as error:
        click.echo(f"Error from agent {error}", err=True)
        return ERROR
    (answer,) = decoded([found])
    if answer.status.phase == "Failed":
        message = answer.status.message.removeprefix(REJECTED)
        click.echo(f"pod/{meta.name} refused: {answer.status.reason}: {message}")
        return NO
    click.echo(f"pod/{meta.name} created")
    return YES


def _only_pods(found: tuple[Workload, ...]) -> None:
    """Errors: InputError for what has replicas."""
    faults = [
        Fault(
            source=one.source,
            path="kind",
            value=one.kind,
            rule="an agent runs Pods: it has no controllers that would make them",
        )
        for one in found
        if one.kind != "Pod"
    ]
    if faults:
        raise InputError(faults)
