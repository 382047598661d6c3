"""The state of an agent after a restart: the saved pods, readmitted on the saved state files as a kubelet does."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.termination import COUNTED_STAGES, preempted_status
from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage, StatusText
from nodewright.engine.node.actions import KillPod
from nodewright.engine.node.managers.device_updates import without_listed_devices
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.engine.node.restart.kubelet_startup import StoredState, start_kubelet, with_all_pods_known
from nodewright.engine.node.step import Decision, ReadmittedPod, readmit_pods
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.reasons.verdict import Granted, Refused, Verdict


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """What the previous agent has left."""

    stored: StoredState
    """The resource managers' state files."""
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[PodSource, Pod], ...] = ()
    has_rebooted: bool = False
    """Whether the machine has been rebooted since, so that no container runs."""


class RestoredState(msgspec.Struct, frozen=True):
    """The state that the agent starts with, and events to publish."""

    state: AgentState
    events: tuple[RecordEvent, ...] = ()


def restored_state(parts: NodeParts, saved: SavedState, status_text: StatusText) -> Verdict[RestoredState]:
    """The state of an agent that starts on what another one left; refused: a kubelet would not start either.

    Every counted pod goes through admission again and keeps what it holds. A pod that is rejected, because machine or
    configuration have changed, is terminated. A static pod that has ended or was rejected is forgotten: its source
    still lists it, and it is added as a new pod.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; pkg/kubelet/cm/devicemanager/manager.go, readCheckpoint.
    Departs: pods keep their devices after a reboot, too, and their containers wait for the device plugins; a kubelet
        rejects such pods, unless a plugin registers before they are admitted.
    """
    pods = {
        uid: _after_reboot(record) if saved.has_rebooted else record
        for uid, record in saved.pods.items()
        if not _is_forgotten(record)
    }
    counted = [record.pod for record in pods.values() if _counts(record)]
    # Pods keep their devices: no plugin has to register first.
    holders = [(pod.uid, name) for pod in counted for name in container_names(pod)]
    started = start_kubelet(parts, saved.stored, holders)
    if started.state is None:
        return Refused(tuple(ending.because for ending in started.failures))
    node, results = readmit_pods(without_listed_devices(started.state), counted, {pod.uid for pod in counted})
    node = with_all_pods_known(node)
    for uid, record in pods.items():
        # Memory of init containers that have ended stays free.
        node = node.started(uid) if record.has_started else node
    run = _Restoration(node, pods, status_text)
    for readmitted in results:
        run.apply_admission(readmitted)
    if saved.has_rebooted and pods:
        run.events.append(
            RecordEvent(
                uid="",
                is_warning=False,
                reason="Rebooted",
                message="the machine was rebooted: all pods start again",
            )
        )
    state = AgentState(node=node.without_stale(), pods=run.pods, deferred=saved.deferred)
    return Granted(RestoredState(state, tuple(run.events)))


def _counts(record: PodRecord) -> bool:
    """Whether the pod counts for the node's resources."""
    return record.stage in COUNTED_STAGES and not record.is_preempted and not record.cgroup


def _is_forgotten(record: PodRecord) -> bool:
    """Whether a kubelet would have forgotten the pod: it does not store the end of static pods."""
    has_ended = record.stage in (PodStage.TERMINATED, PodStage.REJECTED)
    return has_ended and record.source.is_static_pod_source and record.is_in_source


def _after_reboot(record: PodRecord) -> PodRecord:
    """The record after a reboot: no back-off or failure from before counts."""
    return replace(record, back_offs={}, container_waiting={}, pending_post_start_hooks={})


class _Restoration:
    """The records while they are readmitted."""

    def __init__(self, node: NodeState, pods: Mapping[str, PodRecord], status_text: StatusText) -> None:
        self.status_text = status_text
        self.events: list[RecordEvent] = []
        self.pods = {uid: replace(record, memory=node.held.memory) for uid, record in pods.items()}

    def apply_admission(self, readmitted: ReadmittedPod) -> None:
        """Applies the result of a pod's readmission."""
        record, step = self.pods[readmitted.pod.uid], readmitted.step
        victims = set()
        for action in step.actions:
            if isinstance(action, KillPod):
                victims.add(action.pod_uid)
                self._preempt(action)
        if record.stage is PodStage.TERMINATING:
            return
        if step.decision is Decision.REFUSED:
            override = self.status_text.rejected_status(step.because)
            self._terminate(record, override)
        else:
            waits_for = record.waits_for | victims
            stage = (
                PodStage.WAITING if waits_for and record.stage is not PodStage.ALLOCATING else record.stage
            )
            self.pods[readmitted.pod.uid] = replace(record, stage=stage, waits_for=waits_for)

    def _preempt(self, action: KillPod) -> None:
        record = replace(self.pods[action.pod_uid], grace_period_s=action.grace_period_s, is_preempted=True)
        self._terminate(record, preempted_status(action))

    def _terminate(self, record: PodRecord, override: StatusOverride) -> None:
        self.events.append(
            RecordEvent(uid=record.pod.uid, is_warning=True, reason=override.reason, message=override.message)
        )
        self.pods[record.pod.uid] = replace(
            record,
            stage=PodStage.TERMINATING,
            status_override=record.status_override or override,
            waits_for=frozenset(),
        )
