"""`nodewright run` and `nodewright delete`: create, resize and delete pods of an agent."""

import time
from typing import Any

import click

from nodewright.agent.rules.pod_status import RESIZE_PENDING
from nodewright.cli import options
from nodewright.cli.agent.agent_connection import (
    list_route,
    pod_names,
    pod_route,
    with_agent,
)
from nodewright.cli.options import ManifestOptions, filename_options
from nodewright.cli.workload_input import print_input_notes, read_workloads
from nodewright.cluster.client.agent_answers import decode_pods
from nodewright.cluster.client.agent_client import AgentClient, AgentStatusError
from nodewright.documents.formats.workloads import Workload
from nodewright.documents.output.command_line import IntegerRange, option
from nodewright.documents.output.terminal import ERROR, NO, YES, print_line, print_message
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.status_evidence import REJECTION_PREFIX

_CONFLICT = 409


@click.command("run")
@filename_options
@options.namespace_option
@with_agent
def run_command(agent: AgentClient, *, manifests: ManifestOptions, namespace: str) -> int:
    """Create the pods of manifests on the agent of this machine.

    They are ordinary pods and run until `nodewright delete`, across restarts of the agent. An existing pod of which
    only the resources differ is resized in place. Exit code 0 if the node admits all pods, 3 if it refuses one or
    cannot resize it now: `get pods` shows the reason, `describe pod` what would help.
    """
    loaded = read_workloads(manifests, namespace)
    print_input_notes(loaded, loaded.warnings)
    _check_kinds(loaded.workloads)
    codes = [_create(agent, workload) for workload in loaded.workloads]
    return ERROR if ERROR in codes or not codes else NO if NO in codes else YES


def _create(agent: AgentClient, workload: Workload) -> int:
    pod, meta = workload.pod, workload.pod.metadata
    if workload.refusal is not None:
        print_line(f"pod/{meta.name} refused: {workload.refusal.status}: {workload.refusal.error}")
        return NO
    document = {"apiVersion": "v1", "kind": "Pod", **object_document(pod)}
    document.pop("status", None)
    try:
        response = agent.post(*list_route(meta.namespace, "pods"), body=document)
    except AgentStatusError as error:
        if error.code == _CONFLICT:
            return _resize(agent, pod, document, error)
        print_message(f"Error from agent {error}")
        return ERROR
    (created,) = decode_pods([response])
    if created.status.phase == "Failed":
        message = created.status.message.removeprefix(REJECTION_PREFIX)
        print_line(f"pod/{meta.name} refused: {created.status.reason}: {message}")
        return NO
    print_line(f"pod/{meta.name} created")
    return YES


def _resize(agent: AgentClient, pod: Pod, document: dict[str, Any], conflict: AgentStatusError) -> int:
    """Resizes an existing pod of which only the resources differ."""
    meta = pod.metadata
    try:
        response = agent.put(*pod_route(meta.namespace, meta.name), "resize", body=document)
    except AgentStatusError as error:
        # A second conflict: more than the resources differs, so the name is in use by another pod.
        print_message(f"Error from agent {conflict if error.code == _CONFLICT else error}")
        return ERROR
    (resized,) = decode_pods([response])
    for condition in resized.status.conditions:
        if condition.type == RESIZE_PENDING:
            print_line(f"pod/{meta.name} not resized: {condition.reason}: {condition.message}")
            return NO
    print_line(f"pod/{meta.name} resized")
    return YES


def _check_kinds(workloads: tuple[Workload, ...]) -> None:
    """Errors: InputError for workload objects, which need a controller."""
    faults = [
        Fault(
            source=workload.source,
            path="kind",
            value=workload.kind,
            rule="must be Pod: an agent has no controllers that create pods",
        )
        for workload in workloads
        if workload.kind != "Pod"
    ]
    if faults:
        raise InputError(faults)


_POLL_INTERVAL_S = 0.05


@click.command("delete")
@click.argument("words", metavar="pod NAME...", nargs=-1, required=True)
@options.namespace_option
@option(
    "--grace-period SECONDS",
    "Seconds from SIGTERM to SIGKILL. Default: the pod's terminationGracePeriodSeconds.",
    type=IntegerRange(0, 2**31 - 1),
)
@option("--now", "Same as --grace-period=1: SIGTERM, then SIGKILL after one second.", name="now")
@option("--wait/--no-wait", "Wait until the pods have been removed.", default=True)
@with_agent
def delete_command(
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
            (pod,) = decode_pods([agent.get(*pod_route(namespace, name))])
        except AgentStatusError as error:
            if error.reason == "NotFound":
                return
            raise
        if pod.uid != uid:
            return
        time.sleep(_POLL_INTERVAL_S)
