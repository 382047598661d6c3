"""What the agent says and may not word itself: the sentences of statuses are made on the floor above."""

from typing import Protocol

from nodewright.core.eviction import Eviction
from nodewright.core.lifecycle import Override
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.reasons import Reason
from nodewright.model.thresholds import Threshold
from nodewright.node.resizing import Resize


class Words(Protocol):
    """The sentences."""

    def refused(self, because: tuple[Reason, ...]) -> Override:
        """What a pod that is turned away says."""

    def evicted(self, eviction: Eviction) -> Override:
        """What a pod that is evicted says."""

    def resize_summary(self, pod: Pod, error: str) -> str:
        """What a pod is to have, as the kubelet's events tell it."""

    def resize_put_off(self, resize: Resize) -> tuple[str, str]:
        """Reason and message of the condition of a resize that is not done."""

    def reclaiming(self, target: Threshold) -> tuple[str, str]:
        """Reason and message of the event that something is to be taken back for a threshold."""

    def conditions(
        self, before: tuple[NodeCondition, ...], after: tuple[NodeCondition, ...], node: str
    ) -> tuple[tuple[str, str], ...]:
        """Reasons and messages of the events that the node's conditions have changed."""
