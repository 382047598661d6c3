"""What a node does when its eviction manager goes over it: the pass, its actions, and the node afterwards."""

from collections.abc import Mapping

from msgspec.structs import replace

from nodewright.core.eviction import (
    Capacities,
    Claim,
    Filesystems,
    Observation,
    Pass,
    filesystems_of,
    synchronize,
)
from nodewright.model.objects import USUAL_GRACE_PERIOD_S, Pod
from nodewright.model.pressure import RESOURCES
from nodewright.model.reasons import Reason
from nodewright.model.resource_names import EPHEMERAL_STORAGE, MEMORY
from nodewright.node.actions import Action, AnnounceReclaim, EvictPod, ReclaimNode
from nodewright.node.config import NodeConfig
from nodewright.node.events import UsageObserved
from nodewright.node.state import NodeState
from nodewright.values.quantity import Quantity


def gone_over(state: NodeState, event: UsageObserved) -> Pass:
    """The pass of the eviction manager over the node's active pods."""
    filesystems = event.filesystems
    if filesystems is None:
        filesystems = Filesystems() if event.usage is None else filesystems_of(event.usage)
    observation = Observation(usage=event.usage, claims=claims_of(state), filesystems=filesystems)
    return synchronize(state.config.eviction, state.eviction, observation, event.now_s, event.after)


def relieved(state: NodeState, done: Pass) -> NodeState:
    """The node after the pass: its conditions, and without the pods that were ended.

    A pod that would not go comes back with `KillFailed`.
    """
    after = replace(state, eviction=done.state, conditions=done.state.conditions)
    for eviction in done.evictions:
        after = after.without_pod(eviction.claim.uid)
    return after


def relief_actions(done: Pass) -> tuple[Action, ...]:
    """What is done, in this order; a pass that stops for a crash of the kubelet ends those that came before."""
    actions: list[Action] = []
    if done.target is not None:
        actions.append(AnnounceReclaim(resource=RESOURCES[done.target.signal]))
    actions += [ReclaimNode(what=what) for what in done.reclaimed]
    actions += [
        EvictPod(pod_uid=one.claim.uid, grace_period_s=one.grace_period_s, because=one.because)
        for one in done.evictions
    ]
    return tuple(actions)


def reasons_of(done: Pass) -> tuple[Reason, ...]:
    """Why pods go, in their order; then what stopped the manager."""
    stopped = () if done.stopped is None else (done.stopped,)
    return (*(one.because for one in done.evictions), *stopped)


def claims_of(state: NodeState) -> tuple[Claim, ...]:
    """The active pods as eviction sees them, in the order of their admission.

    Departs: the kubelet lists them in a random order.
    """
    pod_level = state.config.gates["PodLevelResources"]
    return tuple(Claim.of(_served(pod), pod_level_resources=pod_level) for pod in state.pods.values())


def _served(pod: Pod) -> Pod:
    """The pod with the time to end that the API server gives one that says nothing.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_PodSpec.
    """
    if pod.spec.termination_grace_period_seconds is not None:
        return pod
    return replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=USUAL_GRACE_PERIOD_S))


def capacities_of(config: NodeConfig) -> Capacities:
    """How much the node has of what eviction watches, as far as its description says."""
    facts, resources = config.facts, config.resources
    images = facts.image_fs
    return Capacities(
        memory=config.parts.machine.memory_capacity,
        pods_memory=_whole(resources.kubepods, MEMORY),
        nodefs=_whole(resources.capacity, EPHEMERAL_STORAGE),
        imagefs=images.capacity_bytes if images else 0,
        imagefs_inodes=images.inodes if images else 0,
        processes=facts.pid_max,
    )


def _whole(amounts: Mapping[str, Quantity], name: str) -> int:
    found = amounts.get(name)
    return 0 if found is None else found.value()
