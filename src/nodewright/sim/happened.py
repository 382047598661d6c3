"""What came of an event of a script."""

from dataclasses import dataclass

from nodewright.core.eviction import Pass
from nodewright.core.preemption import Victims
from nodewright.model.objects import Pod
from nodewright.model.reasons import Reason
from nodewright.model.scenario import ScenarioEvent
from nodewright.node.actions import Action
from nodewright.node.placement import Placement, placement_of
from nodewright.node.resizing import Resize
from nodewright.node.state import NodeState
from nodewright.node.step import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """What came of one event."""

    number: int
    """Of the event, from 0."""
    event: ScenarioEvent
    pod: Pod | None
    """The pod in question; None: there is no such pod."""
    was_there: bool
    """Whether the node had the pod before. If one that it has arrives again, nothing happens."""
    decision: Decision | None = None
    """On a pod that arrived."""
    because: tuple[Reason, ...] = ()
    """Why; the first refusal is the one that the kubelet reports."""
    victims: Victims | None = None
    relief: Pass | None = None
    """What the eviction manager did, where it went over the node."""
    resizes: tuple[Resize, ...] = ()
    """What became of the resizes that were tried."""
    lost: tuple[tuple[Pod, tuple[Reason, ...]], ...] = ()
    """On a restart, the pods that the new kubelet turned away, and why."""
    actions: tuple[Action, ...] = ()
    decided: NodeState
    """The node when the decision had fallen, before any container started."""
    after: NodeState

    @property
    def placement(self) -> Placement | None:
        """What the pod was given for itself; None: it did not arrive, or is not taken."""
        if self.decision is None or self.pod is None or self.pod.uid not in self.decided.pods:
            return None
        return placement_of(self.decided, self.pod)
