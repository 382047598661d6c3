"""The sentences of pods' statuses for those below who may not word anything themselves."""

import json
from typing import Any

from nodewright.core.eviction import Eviction
from nodewright.core.lifecycle import Override
from nodewright.model.objects import Pod
from nodewright.model.pressure import RESOURCES, NodeCondition
from nodewright.model.reasons import Reason
from nodewright.model.thresholds import Threshold
from nodewright.node.resizing import Resize
from nodewright.render.documents import plain
from nodewright.render.messages import message
from nodewright.render.profiles import object_document
from nodewright.render.resize import resize_condition


class KubeletWords:
    """As the kubelet words them."""

    def refused(self, because: tuple[Reason, ...]) -> Override:
        """What a pod that is turned away says: the first reason is told."""
        told = message(because[0])
        return Override(phase="Failed", reason=told.reason, message=told.message)

    def evicted(self, eviction: Eviction) -> Override:
        """What a pod that is evicted says.

        Follows: v1.36, kubelet/eviction/eviction_manager.go, evictPod.
        """
        told = message(eviction.because)
        disrupted = told.message if eviction.is_disruption else None
        return Override(phase="Failed", reason=told.reason, message=told.message, disruption_target=disrupted)

    def resize_summary(self, pod: Pod, error: str) -> str:
        """What a pod is to have, as JSON.

        Follows: v1.36, pkg/kubelet/events/resize.go, makeResourceSummaryFromSpec.
        Departs: pods have no generation.
        """
        found: dict[str, Any] = {}
        for name, containers in (
            ("initContainers", pod.spec.init_containers),
            ("containers", pod.spec.containers),
        ):
            if containers:
                found[name] = [
                    {"name": one.name, "resources": plain(object_document(one.resources))}
                    for one in containers
                ]
        found["generation"] = 0
        if error:
            found["error"] = error
        return json.dumps(found, separators=(",", ":"))

    def resize_put_off(self, resize: Resize) -> tuple[str, str]:
        """Reason and message of the condition of a resize that is not done."""
        told = resize_condition(resize)
        return told.reason, told.message

    def reclaiming(self, target: Threshold) -> tuple[str, str]:
        """That the node begins to take something back.

        Follows: v1.36, kubelet/eviction/eviction_manager.go, synchronize.
        """
        return "EvictionThresholdMet", f"Attempting to reclaim {RESOURCES[target.signal]}"

    def conditions(
        self, before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...], node: str
    ) -> tuple[tuple[str, str], ...]:
        """What the node says of itself where that has changed.

        Follows: v1.36, kubelet/nodestatus/setters.go; kubelet/kubelet_node_status.go, recordNodeStatusEvent.

        >>> KubeletWords().conditions((), (NodeCondition.PID_PRESSURE,), "node1")
        (('NodeHasInsufficientPID', 'Node node1 status is now: NodeHasInsufficientPID'),)
        """
        changed = [one for one in NodeCondition if (one in before) != (one in after)]
        reasons = [_NODE_REASONS[one][one in after] for one in changed]
        return tuple((reason, f"Node {node} status is now: {reason}") for reason in reasons)


_NODE_REASONS = {
    NodeCondition.DISK_PRESSURE: ("NodeHasNoDiskPressure", "NodeHasDiskPressure"),
    NodeCondition.MEMORY_PRESSURE: ("NodeHasSufficientMemory", "NodeHasInsufficientMemory"),
    NodeCondition.PID_PRESSURE: ("NodeHasSufficientPID", "NodeHasInsufficientPID"),
}
"""While the node is well, and while it is not."""
