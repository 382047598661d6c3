"""A pass of the eviction manager: its result, its actions, and the node afterwards."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_manager import synchronize
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionPass
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.eviction.usage_inputs import SignalCapacities, inferred_filesystems
from nodewright.engine.node.actions import Action, EvictPod, ReclaimNode, RecordReclaim
from nodewright.engine.node.events import UsageObserved
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Pod
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, MEMORY, is_huge_page
from nodewright.model.reasons.reason import Reason
from nodewright.model.values.quantity import Quantity


def evict_under_pressure(state: NodeState, event: UsageObserved) -> EvictionPass:
    """The pass of the eviction manager over the node's active pods."""
    filesystems = event.filesystems
    if filesystems is None:
        filesystems = NodeFilesystems() if event.usage is None else inferred_filesystems(event.usage)
    observation = EvictionObservation(
        usage=event.usage, active_pods=eviction_claims(state), filesystems=filesystems
    )
    return synchronize(
        state.config.eviction, state.eviction, observation, event.now_s, event.usage_after_reclaim
    )


def after_eviction_pass(state: NodeState, eviction_pass: EvictionPass) -> NodeState:
    """The node after the pass, with its conditions and without the evicted pods.

    A pod whose kill fails is added again by `KillFailed`.
    """
    after = replace(state, eviction=eviction_pass.state, conditions=eviction_pass.state.conditions)
    for eviction in eviction_pass.evictions:
        after = after.without_pod(eviction.active_pod.uid)
    return after


def eviction_actions(eviction_pass: EvictionPass) -> tuple[Action, ...]:
    """The actions in order; a pass that ends in a kubelet crash keeps the actions before it."""
    actions: list[Action] = []
    if eviction_pass.target is not None:
        actions.append(RecordReclaim(resource=SIGNAL_RESOURCES[eviction_pass.target.signal]))
    actions += [ReclaimNode(what=reclaim) for reclaim in eviction_pass.reclaimed]
    actions += [
        EvictPod(
            pod_uid=eviction.active_pod.uid, grace_period_s=eviction.grace_period_s, because=eviction.because
        )
        for eviction in eviction_pass.evictions
    ]
    return tuple(actions)


def eviction_reasons(eviction_pass: EvictionPass) -> tuple[Reason, ...]:
    """The reasons of the evictions in order, then the reason that stopped the manager."""
    stopped = () if eviction_pass.stopped is None else (eviction_pass.stopped,)
    return (*(eviction.because for eviction in eviction_pass.evictions), *stopped)


def eviction_claims(state: NodeState) -> tuple[ActivePod, ...]:
    """The active pods as the eviction manager sees them, in order of admission.

    Departs: the kubelet lists them in a random order.
    """
    rules = state.config.requests
    return tuple(ActivePod.of(_with_grace_period(pod), rules) for pod in state.pods.values())


def _with_grace_period(pod: Pod) -> Pod:
    """The pod with the API server's default termination grace period.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec.
    """
    if pod.spec.termination_grace_period_seconds is not None:
        return pod
    return replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=DEFAULT_GRACE_PERIOD_S))


def huge_page_bytes(capacity: Mapping[str, Quantity]) -> int:
    """The memory of a node of this capacity that is in huge pages, in use or not."""
    return sum(amount.value() for name, amount in capacity.items() if is_huge_page(name))


def eviction_capacities(config: NodeConfig) -> SignalCapacities:
    """The node's capacities for the eviction signals, as far as the profile has them.

    Follows: v1.37, pkg/kubelet/server/stats/summary.go, adjustForHugePages (PR 138127): with HugepageAwareEviction huge
        pages are not available, and neither part of the capacity that thresholds in percent refer to.
    """
    facts, resources = config.facts, config.resources
    images = facts.image_fs
    return SignalCapacities(
        memory=max(config.parts.machine.memory_capacity - hidden_huge_pages(config), 0),
        pods_memory=_integer(resources.kubepods, MEMORY),
        nodefs=_integer(resources.capacity, EPHEMERAL_STORAGE),
        imagefs=images.capacity_bytes if images else 0,
        imagefs_inodes=images.inodes if images else 0,
        processes=facts.pid_max,
    )


def hidden_huge_pages(config: NodeConfig) -> int:
    """The memory in huge pages that `memory.available` leaves out: 0 without the gate HugepageAwareEviction."""
    return huge_page_bytes(config.resources.capacity) if config.gates["HugepageAwareEviction"] else 0


def _integer(amounts: Mapping[str, Quantity], name: str) -> int:
    amount = amounts.get(name)
    return 0 if amount is None else amount.value()
