"""What a node is at one moment: its configuration and the pods that it has taken."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import replace as changed

from nodewright.core.predicates import NOBODY, Others
from nodewright.model.objects import Pod
from nodewright.node.config import NodeConfig


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state that events change: active pods in the order of their admission, and their sums."""

    config: NodeConfig
    pods: Mapping[str, Pod] = field(default_factory=dict)
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


def as_counted(pod: Pod, config: NodeConfig) -> Pod:
    """The pod as this kubelet counts it: without pod-level resources where their gate is off."""
    if pod.spec.resources is None or config.gates["PodLevelResources"]:
        return pod
    return changed(pod, spec=changed(pod.spec, resources=None))
