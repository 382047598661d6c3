"""The texts of pod statuses and events, in the kubelet's words."""

import json
from typing import Any, Protocol

from nodewright.agent.rules.pod_status import StatusOverride
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.core.eviction.eviction_state import Eviction
from nodewright.engine.node.resize.resize_attempts import ResizeAttempt, resize_condition
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, NodeCondition, Threshold
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.eviction import THRESHOLD_MET_REASON, threshold_met_message
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.texts import kubelet_text


class KubeletStatusText:
    """The kubelet's texts."""

    def rejected_status(self, because: tuple[Reason, ...]) -> StatusOverride:
        """The status of a rejected pod: its first reason."""
        text = kubelet_text(because[0])
        return StatusOverride(phase="Failed", reason=text.reason, message=text.message)

    def evicted_status(self, eviction: Eviction) -> StatusOverride:
        """The status of an evicted pod.

        Follows: v1.36, kubelet/eviction/eviction_manager.go, evictPod.
        """
        text = kubelet_text(eviction.because)
        disruption_target = text.message if eviction.is_disruption else None
        return StatusOverride(
            phase="Failed", reason=text.reason, message=text.message, disruption_target=disruption_target
        )

    def resize_summary(self, pod: Pod, error: str) -> str:
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

    def pending_resize_condition(self, resize: ResizeAttempt) -> tuple[str, str]:
        """Reason and message of the condition of a pending resize."""
        text = resize_condition(resize)
        return text.reason, text.message

    def reclaim_event(self, target: Threshold) -> tuple[str, str]:
        """Reason and message of the event that a resource is being reclaimed.

        Follows: v1.36, kubelet/eviction/eviction_manager.go, synchronize.
        """
        return THRESHOLD_MET_REASON, threshold_met_message(SIGNAL_RESOURCES[target.signal])

    def condition_events(
        self, before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...], node: str
    ) -> tuple[tuple[str, str], ...]:
        """Reasons and messages of the events for changed node conditions.

        Follows: v1.36, kubelet/nodestatus/setters.go; kubelet/kubelet_node_status.go, recordNodeStatusEvent.

        >>> KubeletStatusText().condition_events((), (NodeCondition.PID_PRESSURE,), "node1")
        (('NodeHasInsufficientPID', 'Node node1 status is now: NodeHasInsufficientPID'),)
        """
        changed = [condition for condition in NodeCondition if (condition in before) != (condition in after)]
        reasons = [_NODE_REASONS[condition][condition in after] for condition in changed]
        return tuple((reason, f"Node {node} status is now: {reason}") for reason in reasons)


_NODE_REASONS = {
    NodeCondition.DISK_PRESSURE: ("NodeHasNoDiskPressure", "NodeHasDiskPressure"),
    NodeCondition.MEMORY_PRESSURE: ("NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
    NodeCondition.PID_PRESSURE: ("NodeHasSufficientPID", "NodeHasInsufficientPID"),
}
"""The reasons while the condition is false, and while it is true."""


class StatusText(Protocol):
    """The texts of pod statuses and events."""

    def rejected_status(self, because: tuple[Reason, ...]) -> StatusOverride:
        """The status of a rejected pod."""

    def evicted_status(self, eviction: Eviction) -> StatusOverride:
        """The status of an evicted pod."""

    def resize_summary(self, pod: Pod, error: str) -> str:
        """The pod's resources as JSON, as in the kubelet's events."""

    def pending_resize_condition(self, resize: ResizeAttempt) -> tuple[str, str]:
        """Reason and message of the condition of a pending resize."""

    def reclaim_event(self, target: Threshold) -> tuple[str, str]:
        """Reason and message of the event that a resource is being reclaimed."""

    def condition_events(
        self, before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...], node: str
    ) -> tuple[tuple[str, str], ...]:
        """Reasons and messages of the events for changed node conditions."""
