"""What a node is at one moment: its configuration and the pods that it has taken."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction import EvictionState
from nodewright.core.predicates import NOBODY, Others
from nodewright.model.objects import Pod
from nodewright.model.pressure import NodeCondition
from nodewright.model.reasons import Reason
from nodewright.node.config import NodeConfig
from nodewright.node.providers import Active, Holdings

T = TypeVar("T")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A resize that is not done yet."""

    desired: Pod
    since: int | None = None
    """Its place among those put off, by when that was first; None: it has not been tried."""


class NodeState(msgspec.Struct, frozen=True):
    """The state that events change: active pods in the order of their admission, and their sums."""

    config: NodeConfig
    held: Holdings
    """What pods hold of CPUs, memory and devices; of pods that are gone until it is collected."""
    pods: Mapping[str, Pod] = {}
    """The active pods by uid, in the order of their admission."""
    containers: Active = {}
    """The containers of the active pods, init containers first, by the pod's uid."""
    totals: Others = NOBODY
    """What the active pods take together."""
    open_pods: frozenset[str] = frozenset()
    """The uids of those whose admission could not be judged and is only assumed."""
    settled: bool = False
    """Whether nothing is held for containers that are not active: then there is nothing to collect."""
    conditions: tuple[NodeCondition, ...] = ()
    """What runs short, as the eviction manager saw it last."""
    eviction: EvictionState = EvictionState()
    """What the eviction manager remembers."""
    down_for: tuple[Reason, ...] = ()
    """Why the kubelet has ended and does not start again; empty: it runs."""
    waiting: Mapping[str, Pod] = {}
    """By uid the pods that were assigned to the node while its kubelet was down."""
    resizing: Mapping[str, Waiting] = {}
    """Resizes that are not done yet by the pod's uid, in the order in which they are tried."""

    def with_pod(self, pod: Pod, *, assumed: bool = False) -> "NodeState":
        """The state with one more active pod, the last of them."""
        pod = as_counted(pod, self.config)
        return replace(
            self,
            pods={**self.pods, pod.uid: pod},
            containers=self.active_with(pod),
            totals=self.totals.plus(pod),
            open_pods=self.open_pods | {pod.uid} if assumed else self.open_pods,
        )

    def with_resized(self, pod: Pod) -> "NodeState":
        """The state with a pod of it as it is now, at its place."""
        pod = as_counted(pod, self.config)
        before = self.pods[pod.uid]
        return replace(self, pods={**self.pods, pod.uid: pod}, totals=self.totals.minus(before).plus(pod))

    def active_with(self, pod: Pod) -> Active:
        """The containers of the active pods and of this one."""
        return {**self.containers, pod.uid: container_names(pod)}

    def unsettled(self, pod: Pod) -> Active | None:
        """The containers that may hold something when this pod comes; None: no others do."""
        return None if self.settled else self.active_with(pod)

    def collected(self) -> "NodeState":
        """The state once the managers have taken back what no active pod holds."""
        if self.settled:
            return self
        return replace(self, held=self.config.managers.collected(self.held, self.containers), settled=True)

    def turned_away(self, uid: str) -> "NodeState":
        """The state after a pod was refused: what it was given is collected before the next one is looked at."""
        return replace(self, held=self.held.without_hints(uid), settled=False)

    def started(self, uid: str) -> "NodeState":
        """The state once the containers of a pod have been started: memory of init containers that ended is free."""
        pod = self.pods.get(uid)
        if pod is None:
            return self
        held = self.held
        for provider in self.config.managers.providers:
            held = provider.started(held, pod)
        return replace(self, held=held)

    def without_pod(self, uid: str) -> "NodeState":
        """The state without a pod; the same if it is not there."""
        if uid in self.waiting:
            return replace(self, waiting=_without(self.waiting, uid))
        if uid not in self.pods:
            return self
        return replace(
            self,
            held=self.held.without_hints(uid),
            pods=_without(self.pods, uid),
            containers=_without(self.containers, uid),
            totals=self.totals.minus(self.pods[uid]),
            open_pods=self.open_pods - {uid},
            settled=False,
            resizing=_without(self.resizing, uid) if uid in self.resizing else self.resizing,
        )


def _without(by_uid: Mapping[str, T], uid: str) -> dict[str, T]:
    left = dict(by_uid)
    del left[uid]
    return left


def container_names(pod: Pod) -> tuple[str, ...]:
    """The names of the pod's containers, init containers first."""
    return tuple(one.name for one in (*pod.spec.init_containers, *pod.spec.containers))


def as_counted(pod: Pod, config: NodeConfig) -> Pod:
    """The pod as this kubelet counts it: without pod-level resources where their gate is off."""
    if pod.spec.resources is None or config.gates["PodLevelResources"]:
        return pod
    return replace(pod, spec=replace(pod.spec, resources=None))
