"""What a node is at one moment: its configuration and the pods that it has taken."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from nodewright.core.predicates import NOBODY, Others
from nodewright.model.objects import Pod
from nodewright.node.config import NodeConfig
from nodewright.node.providers import Holdings


class NodeState(msgspec.Struct, frozen=True):
    """The state that events change: active pods in the order of their admission, and their sums."""

    config: NodeConfig
    held: Holdings
    """What pods hold of CPUs, memory and devices; of pods that are gone until it is collected."""
    pods: Mapping[str, Pod] = {}
    """The active pods by uid, in the order of their admission."""
    totals: Others = NOBODY
    """What the active pods take together."""
    open_pods: frozenset[str] = frozenset()
    """The uids of those whose admission could not be judged and is only assumed."""

    def with_pod(self, pod: Pod, *, assumed: bool = False) -> "NodeState":
        """The state with one more active pod, the last of them."""
        pod = as_counted(pod, self.config)
        return replace(
            self,
            pods={**self.pods, pod.uid: pod},
            totals=self.totals.plus(pod),
            open_pods=self.open_pods | {pod.uid} if assumed else self.open_pods,
        )

    def active(self) -> dict[str, tuple[str, ...]]:
        """The containers of every active pod, init containers first, by the pod's uid."""
        return {uid: container_names(pod) for uid, pod in self.pods.items()}

    def collected(self) -> "NodeState":
        """The state once the managers have taken back what no active pod holds."""
        held, active = self.held, self.active()
        for provider in self.config.managers.providers:
            held = provider.collected(held, active)
        return replace(self, held=held)

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
        if uid not in self.pods:
            return self
        return replace(
            self,
            pods={other: pod for other, pod in self.pods.items() if other != uid},
            totals=self.totals.minus(self.pods[uid]),
            open_pods=self.open_pods - {uid},
        )


def container_names(pod: Pod) -> tuple[str, ...]:
    """The names of the pod's containers, init containers first."""
    return tuple(one.name for one in (*pod.spec.init_containers, *pod.spec.containers))


def as_counted(pod: Pod, config: NodeConfig) -> Pod:
    """The pod as this kubelet counts it: without pod-level resources where their gate is off."""
    if pod.spec.resources is None or config.gates["PodLevelResources"]:
        return pod
    return replace(pod, spec=replace(pod.spec, resources=None))
