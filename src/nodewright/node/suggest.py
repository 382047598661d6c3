"""What would let a refused pod in? All kinds of change that could, in the order in which people would consider them."""

from collections.abc import Iterator, Sequence

from nodewright.model.cpu_reasons import CPUReason
from nodewright.model.device_reasons import DeviceReason
from nodewright.model.memory_reasons import MemoryReason
from nodewright.model.objects import Pod
from nodewright.model.reasons import HostPortsTaken, InsufficientResource, NoVictimsSuffice, Reason
from nodewright.model.resource_names import PODS
from nodewright.model.topology_reasons import TopologyReason
from nodewright.node.counterfactual import BUDGET, Counterfactuals, Smallest, counterfactuals
from nodewright.node.kinds import other_kinds, request_kinds
from nodewright.node.node_kinds import leaving_pods, manager_kinds, other_node_kinds
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step


def suggestions(state: NodeState, pod: Pod, taken: Step, *, budget: int = BUDGET) -> Counterfactuals:
    """The smallest changes that would let in a pod that was refused; none for any other.

    ``pod`` is as written, without the API server's defaults; ``taken`` is what the node said to it.
    """
    if taken.decision is not Decision.REFUSED:
        return Counterfactuals()
    return counterfactuals(state, pod, _kinds(state, pod, taken.because), budget=budget)


def _kinds(state: NodeState, pod: Pod, because: Sequence[Reason]) -> Iterator[tuple[str, Smallest]]:
    yield from other_kinds(pod, because)
    # What speaks against a pod whatever it asks for, no other request can talk round; nor can pods that leave.
    if all(_is_about_room(reason) for reason in _refusals(because)):
        yield from request_kinds(state, pod)
    if all(_is_about_room(reason) or _is_about_others(reason) for reason in _refusals(because)):
        yield from leaving_pods(state, pod)
    if isinstance(because[0], _MANAGERS):
        yield from manager_kinds(state)
    yield from other_node_kinds(state, because)


_MANAGERS = CPUReason | DeviceReason | MemoryReason | TopologyReason


def _refusals(because: Sequence[Reason]) -> Sequence[Reason]:
    """The refusal of a manager, or all that the predicates found, without evidence for what was granted."""
    if isinstance(because[0], _MANAGERS):
        return because[:1]
    return [reason for reason in because if not isinstance(reason, _MANAGERS)]


def _is_about_room(reason: Reason) -> bool:
    if isinstance(reason, InsufficientResource):
        return reason.resource != PODS
    return isinstance(reason, _MANAGERS | NoVictimsSuffice)


def _is_about_others(reason: Reason) -> bool:
    return isinstance(reason, InsufficientResource | HostPortsTaken)
