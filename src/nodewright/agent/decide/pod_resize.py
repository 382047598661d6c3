"""In-place resizes of running pods: recognized, decided on by the node, carried out, reported."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.decide.termination import ADMITTED_STAGES, preempt_pod
from nodewright.agent.rules.pod_actions import ContainerToKill, KillReason, PodActions
from nodewright.agent.rules.pod_status import PodResizeStatus
from nodewright.agent.state.agent_state import PodRecord, PodSource
from nodewright.agent.state.effects import SyncPod
from nodewright.agent.state.observations import PodEffectCompleted
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.core.resize import container_restarts, merged_resize
from nodewright.engine.node.actions import KillPod
from nodewright.engine.node.events import PodResized
from nodewright.engine.node.resize import ResizeAttempt, ResizeOutcome, api_server_rejection, resize_condition
from nodewright.model.kubernetes.objects import Pod, PodStatus

RESIZE_ERROR = "ResizeError"
"""Reason of a failed resource update."""
_RESIZABLE_SOURCES = (PodSource.WORKLOAD, PodSource.API)
"""Static pods are replaced when their resources change, as the kubelet replaces them."""


def with_known_uids(iteration: Iteration, source: PodSource, pods: Iterable[Pod]) -> Iterator[Pod]:
    """The pods of a source; a pod that differs from a known one in resources only keeps the known uid.

    Departs: manifests have no identity of their own; a manifest with other changes is a new pod.
    """
    if source is PodSource.CLUSTER:
        yield from pods
        return
    known = {
        record.pod.full_name: record
        for record in iteration.pods.values()
        if record.source is source and record.is_in_source and record.stage in ADMITTED_STAGES
    }
    for pod in pods:
        record = known.get(pod.full_name)
        if record is None or pod.uid == record.pod.uid:
            yield pod
            continue
        with_known_uid = replace(pod, metadata=replace(pod.metadata, uid=record.pod.uid))
        is_same = pod.uid == record.manifest_uid
        if not is_same and with_known_uid != record.pod and is_resize(iteration, record, with_known_uid):
            is_same = True
            iteration.put_record(replace(record, manifest_uid=pod.uid))
        yield with_known_uid if is_same else pod


def is_resize(iteration: Iteration, record: PodRecord, written: Pod) -> bool:
    """Whether only resources differ, and an API server would accept the change."""
    return (
        record.source in _RESIZABLE_SOURCES
        and written.uid in iteration.node.pods
        and written.metadata == record.pod.metadata
        and differs_only_in_resources(written, record.pod)
        and api_server_rejection(iteration.node, written) is None
    )


def differs_only_in_resources(written: Pod, current: Pod) -> bool:
    """Whether nothing but resources differs."""
    pairs = zip(written.spec.containers, current.spec.containers, strict=False)
    return merged_resize(written, current).spec == written.spec and all(
        container.resize_policy == other.resize_policy for container, other in pairs
    )


def update_pod(iteration: Iteration, record: PodRecord, written: Pod) -> None:
    """Updates a known pod, perhaps with other resources."""
    if record.source is PodSource.CLUSTER:
        _update_cluster_pod(iteration, record, without_api_fields(written))
        return
    desired = record.resizing.desired
    if written == record.pod:
        if desired is not None:
            _request_resize(iteration, record, written)
    elif not is_resize(iteration, record, written):
        iteration.put_record(replace(record, pod=written))
    elif desired is None or desired.spec != written.spec:
        _request_resize(iteration, record, written)


def _update_cluster_pod(iteration: Iteration, record: PodRecord, written: Pod) -> None:
    """Updates a pod of the API server, which has validated the change: its allocated resources stay until a resize."""
    allocated = merged_resize(record.pod, written)
    if allocated != record.pod:
        record = iteration.put_record(_with_pod(record, allocated))
    desired = record.resizing.desired or record.pod
    if merged_resize(written, desired).spec != desired.spec:
        _request_resize(iteration, record, written)


def _with_pod(record: PodRecord, pod: Pod) -> PodRecord:
    """The record of a pod with another spec: a container with another image or other resources does not back off.

    Follows: v1.36, pkg/kubelet/kuberuntime/helpers.go, GetBackoffKey.
    """
    before = {container.name: container for container in record.pod.spec.all_containers}
    unchanged = {
        container.name
        for container in pod.spec.all_containers
        if container.name in before
        and (container.image, container.resources)
        == (before[container.name].image, before[container.name].resources)
    }
    kept = {name: back_off for name, back_off in record.back_offs.items() if name in unchanged}
    return replace(record, pod=pod, back_offs=kept)


_NO_CLAIMS = PodStatus()


def without_api_fields(pod: Pod) -> Pod:
    """The pod of an API server without what changes with every write: its version, and its status but for its claims.

    These are decided before the pod is bound, and the kubelet reads them there.
    """
    status = PodStatus(
        resource_claim_statuses=pod.status.resource_claim_statuses,
        extended_resource_claim_status=pod.status.extended_resource_claim_status,
        node_allocatable_resource_claim_statuses=pod.status.node_allocatable_resource_claim_statuses,
    )
    # Most pods have no claims: they share one object.
    status = _NO_CLAIMS if status == _NO_CLAIMS else status
    return replace(pod, metadata=replace(pod.metadata, resource_version=""), status=status)


def retry_pending_resizes(iteration: Iteration) -> None:
    """Retries resizes that were pending when the previous agent ended.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions.
    """
    for uid, record in tuple(iteration.pods.items()):
        is_pending = record.resizing.desired is not None and record.stage in ADMITTED_STAGES
        if is_pending and record.resizing.desired is not None and uid not in iteration.node.pending_resizes:
            iteration.step(PodResized(record.resizing.desired))


def _request_resize(iteration: Iteration, record: PodRecord, written: Pod) -> None:
    desired = merged_resize(written, record.pod)
    iteration.put_record(replace(record, resizing=replace(record.resizing, desired=desired)))
    iteration.step(PodResized(desired))


# ---------------------------------------------------------------- decisions of the node


def apply_resize_decisions(iteration: Iteration) -> None:
    """Applies the node's resize decisions of this iteration, preempted pods included."""
    for node_step in iteration.node_steps:
        if not node_step.step.resizes:
            continue
        for action in node_step.step.actions:
            if isinstance(action, KillPod):
                preempt_pod(iteration, action)
        for resize in node_step.step.resizes:
            _apply_attempt(iteration, resize)


def _apply_attempt(iteration: Iteration, attempt: ResizeAttempt) -> None:
    record = iteration.pods.get(attempt.pod.uid)
    if record is None or record.stage not in ADMITTED_STAGES:
        return
    if attempt.outcome is ResizeOutcome.DONE:
        _start_resize(iteration, record, attempt)
        return
    text = resize_condition(attempt)
    reason, message = text.reason, text.message
    before = record.resizing
    after = replace(before, reason=reason, message=message)
    if attempt.outcome is ResizeOutcome.FORBIDDEN:
        # Reached only where the API server's own checks are bypassed.
        after = replace(before, desired=None, reason="", message="")
    if (reason, message) != (before.reason, before.message):
        summary = _resize_summary(before.desired or attempt.pod, message)
        iteration.record_event(
            record.pod.uid, f"Resize{reason}", f"Pod resize {reason}: {summary}", warning=True
        )
    iteration.put_record(replace(record, resizing=after))


def _start_resize(iteration: Iteration, record: PodRecord, attempt: ResizeAttempt) -> None:
    """The node's state has the new resources; the containers follow."""
    before, desired = record.resizing, record.resizing.desired or attempt.pod
    if not attempt.changes:
        iteration.put_record(replace(record, resizing=replace(before, desired=None, reason="", message="")))
        return
    pod = merged_resize(desired, record.pod)
    restarts = dict.fromkeys(
        (*before.restarts, *(restart.container for restart in container_restarts(pod, record.pod)))
    )
    summary = _resize_summary(pod, "")
    iteration.record_event(pod.uid, "ResizeStarted", f"Pod resize started: {summary}")
    resizing = PodResizeStatus(is_in_progress=True, restarts=tuple(restarts))
    iteration.put_record(replace(_with_pod(record, pod), resizing=resizing, retry_at_ns=None))


# ---------------------------------------------------------------- results of the runtime


def with_restarts(plan: PodActions, record: PodRecord) -> PodActions:
    """The plan plus the restarts of containers that a resize needs."""
    if plan.kill_pod or plan.sandbox_attempt is not None:
        return plan
    ending = {kill.container.name for kill in plan.containers_to_kill}
    kills = [
        ContainerToKill(container=newest, reason=KillReason.CHANGED)
        for name in record.resizing.restarts
        if name not in ending and (newest := record.running_container(name)) is not None
    ]
    starts = (kill.container.name for kill in kills if kill.container.name not in plan.containers_to_start)
    return replace(
        plan,
        containers_to_kill=(*plan.containers_to_kill, *kills),
        containers_to_start=(*plan.containers_to_start, *starts),
    )


def with_resize_result(
    iteration: Iteration, record: PodRecord, observation: PodEffectCompleted, effect: SyncPod
) -> PodRecord:
    """The record after a sync that carried out a resize."""
    if not effect.is_resize:
        return record
    failed = {
        failure.container: failure.message
        for failure in observation.failures
        if failure.reason == RESIZE_ERROR
    }
    updated = {
        update.container_id: update.files for update in effect.updates if update.container_id not in failed
    }
    record = replace(record, applied_resources={**record.applied_resources, **updated})
    resizing = record.resizing
    if failed:
        error = next(iter(failed.values()))
        if error != resizing.error:
            summary = _resize_summary(record.pod, error)
            iteration.record_event(
                observation.uid, RESIZE_ERROR, f"Pod resize error: {summary}", warning=True
            )
        return replace(record, resizing=replace(resizing, error=error))
    was_interrupted = observation.is_cancelled or any(
        not failure.container for failure in observation.failures
    )
    if was_interrupted or record.pod.spec != effect.pod.spec:
        return record
    summary = _resize_summary(record.pod, "")
    iteration.record_event(observation.uid, "ResizeCompleted", f"Pod resize completed: {summary}")
    return replace(record, resizing=replace(resizing, is_in_progress=False, restarts=(), error=""))


def _resize_summary(pod: Pod, error: str) -> str:
    """The pod's resources as JSON.

    Follows: v1.36, pkg/kubelet/events/resize.go, makeResourceSummaryFromSpec.
    """
    summary: dict[str, Any] = {}
    for name, containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        if containers:
            summary[name] = [
                {"name": container.name, "resources": plain_value(object_document(container.resources))}
                for container in containers
            ]
    summary["generation"] = pod.metadata.generation
    if error:
        summary["error"] = error
    return json.dumps(summary, separators=(",", ":"))
