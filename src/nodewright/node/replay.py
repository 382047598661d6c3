"""The node under another configuration: its managers begin anew, its pods are placed once more."""

from collections.abc import Iterable
from dataclasses import dataclass

from nodewright.core.config import settled
from nodewright.model.objects import Pod
from nodewright.model.verdict import Refused
from nodewright.node.config import NodeParts
from nodewright.node.events import PodFound
from nodewright.node.start import start
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step


@dataclass(frozen=True, slots=True)
class Replayed:
    """The node with its pods placed in the order of their admission, and those that it would not take."""

    state: NodeState
    misplaced: frozenset[str]
    """Uids. These pods run, too, as any that is found on a node; but a kubelet would turn them away."""


def is_sound(parts: NodeParts) -> bool:
    """Whether the kubelet takes the configuration, as far as its values go."""
    return not settled(parts.kubelet, machine=parts.machine).faults


def replayed(parts: NodeParts, pods: Iterable[Pod]) -> Replayed | None:
    """The node of these parts with these pods, found one after the other; None: its kubelet does not start."""
    started = start(parts)
    if isinstance(started, Refused):
        return None
    state, misplaced = started.value, set()
    for pod in pods:
        found = step(state, PodFound(pod))
        if found.decision is Decision.REFUSED:
            misplaced.add(pod.uid)
        state = found.state
    return Replayed(state, frozenset(misplaced))
