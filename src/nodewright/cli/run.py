"""`nodewright run`: ask an agent for pods."""

from typing import Any

import click

from nodewright.api.client import Client, RefusedError
from nodewright.cli import options
from nodewright.cli.app import ERROR, NO, YES
from nodewright.cli.inputs import tell, workloads
from nodewright.cli.talking import decoded, listed, pod_route, talking
from nodewright.core.lifecycle.resizing import PENDING
from nodewright.model.objects import Pod
from nodewright.render.profiles import object_document
from nodewright.world.errors import Fault, InputError
from nodewright.world.manifests import Workload
from nodewright.world.statuses import REJECTED

_CONFLICT = 409


@click.command("run")
@options.filenames
@options.namespace
@talking
def command(agent: Client, *, filenames: tuple[str, ...], namespace: str) -> int:
    """Ask the agent of this machine for the pods of manifests.

    They are ordinary pods and last until `nodewright delete`, agents that are started anew included. One that is there
    already with other resources, and nothing else, is resized in place. Exit code 0 if the node takes all of them, 3
    if it refuses one or cannot resize it now: `get pods` shows the reason, `describe pod` what would help.
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
        if error.code == _CONFLICT:
            return _resized(agent, pod, document, error)
        click.echo(f"Error from agent {error}", err=True)
        return ERROR
    (answer,) = decoded([found])
    if answer.status.phase == "Failed":
        message = answer.status.message.removeprefix(REJECTED)
        click.echo(f"pod/{meta.name} refused: {answer.status.reason}: {message}")
        return NO
    click.echo(f"pod/{meta.name} created")
    return YES


def _resized(agent: Client, pod: Pod, document: dict[str, Any], taken: RefusedError) -> int:
    """A pod that is there is given other resources, if it is they that are others."""
    meta = pod.metadata
    try:
        found = agent.put(*pod_route(meta.namespace, meta.name), "resize", body=document)
    except RefusedError as error:
        # Where it is not that, the name is taken, and nothing more is to be said.
        click.echo(f"Error from agent {taken if error.code == _CONFLICT else error}", err=True)
        return ERROR
    (answer,) = decoded([found])
    for one in answer.status.conditions:
        if one.type == PENDING:
            click.echo(f"pod/{meta.name} not resized: {one.reason}: {one.message}")
            return NO
    click.echo(f"pod/{meta.name} resized")
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
