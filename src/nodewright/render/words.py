"""The sentences of pods' statuses for those below who may not word anything themselves."""

from nodewright.core.eviction import Eviction
from nodewright.core.lifecycle import Override
from nodewright.model.reasons import Reason
from nodewright.render.messages import message


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
