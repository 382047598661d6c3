"""The facts that decide which pods are rejected or evicted under node pressure, and the kubelet's events about it."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.kubernetes.resource_names import (
    EPHEMERAL_STORAGE,
    distinguishable_amounts,
    readable_amount,
)
from nodewright.model.reasons.fact import Fact, KubeletText
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import Quantity

EVICTED_REASON = "Evicted"
"""The reason in the status of a pod that is evicted, or rejected under pressure, and of the event about it."""
THRESHOLD_MET_REASON = "EvictionThresholdMet"
"""The reason of the event about a node that reclaims a resource."""


class EvictionFact(Fact, frozen=True):
    """A fact of the eviction manager.

    Follows: v1.36, eviction/helpers.go, evictionMessage; eviction/eviction_manager.go, localStorageEviction.
    """

    @abstractmethod
    def kubelet_message(self) -> str:
        """The message in the pod's status; of what stops the eviction manager, the error."""

    def kubelet(self) -> KubeletText:
        """The status of the pod."""
        return KubeletText(EVICTED_REASON, self.kubelet_message())


# ---------------------------------------------------------------- rejected under pressure


class NodeUnderPressure(EvictionFact, frozen=True, kw_only=True):
    """The node has conditions under which the kubelet rejects such a pod."""

    conditions: tuple[NodeCondition, ...]
    best_effort_only: bool
    """Whether a pod that requests or limits cpu or memory, or tolerates the taint, is admitted."""

    def kubelet_message(self) -> str:
        return f"The node had condition: [{' '.join(self.conditions)}]. "

    def sentence(self) -> str:
        names = " and ".join(self.conditions)
        if self.best_effort_only:
            (condition,) = self.conditions
            return (
                f"the node has {names}: best-effort pods are rejected "
                f"unless they tolerate {condition.taint.key}"
            )
        return f"the node has {names}: only critical pods are admitted"


# ---------------------------------------------------------------- evicted


class OverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A container, or a pod as a whole, with its usage and its request."""

    name: str
    usage: Quantity
    request: Quantity


class NodeRanShort(EvictionFact, frozen=True, kw_only=True):
    """A threshold was met, and this pod was the first in the ranking that may be evicted."""

    resource: str
    """`memory`, `ephemeral-storage`, `inodes` or `pids`."""
    signal: Signal
    threshold: Quantity
    """The threshold as an amount."""
    available: Quantity
    configured: str = ""
    """The threshold as the configuration has it, e.g. `15%`."""
    has_stats: bool
    """Whether the usage of the pod is known."""
    pod: OverRequest | None = None
    """The pod as a whole if it requests memory at the pod level, whether it uses more or not."""
    containers: tuple[OverRequest, ...] = ()
    """The containers that use more than they request."""

    def kubelet_message(self) -> str:
        return "".join(self._kubelet_message_parts())

    def _kubelet_message_parts(self) -> Iterator[str]:
        yield f"The node was low on resource: {self.resource}. "
        yield f"Threshold quantity: {self.threshold}, available: {self.available}. "
        for kind, consumer in self._consumers():
            yield (
                f"{kind} {consumer.name} was using {consumer.usage}, request is {consumer.request}, "
                f"has larger consumption of {self.resource}. "
            )

    def annotations(self) -> dict[str, str]:
        """The annotations of the event about the eviction; none if the usage of the pod is unknown.

        Follows: v1.36, eviction/helpers.go, evictionMessage.
        """
        if not self.has_stats:
            return {}
        annotations = {}
        if self.pod is not None:
            annotations["offending_pod"] = self.pod.name
            annotations["offending_pod_usage"] = str(self.pod.usage)
        annotations["offending_containers"] = ",".join(container.name for container in self.containers)
        annotations["offending_containers_usage"] = ",".join(
            str(container.usage) for container in self.containers
        )
        annotations["starved_resource"] = self.resource
        return annotations

    def sentence(self) -> str:
        left, needed = distinguishable_amounts(self.resource, self.available.value(), self.threshold.value())
        if self.configured.endswith("%"):
            left = readable_amount(self.resource, self.available.value())
            needed = f"{self.configured} ({readable_amount(self.resource, self.threshold.value())})"
        shortage = f"{self.signal} is {left}, below {needed}"
        if not self.has_stats:
            return f"{shortage}; the pod's usage is unknown, so it ranks first"
        usages = [self._usage(consumer) for _, consumer in self._consumers()]
        return f"{shortage}; {', '.join(usages)}" if usages else shortage

    def _consumers(self) -> Iterator[tuple[str, OverRequest]]:
        if self.pod is not None:
            yield "Pod", self.pod
        for container in self.containers:
            yield "Container", container

    def _usage(self, consumer: OverRequest) -> str:
        usage, request = distinguishable_amounts(
            self.resource, consumer.usage.value(), consumer.request.value()
        )
        return f"{consumer.name} uses {usage} and requests {request if consumer.request.sign() else 'none'}"


class EmptyDirOverLimit(EvictionFact, frozen=True, kw_only=True):
    """An emptyDir holds more than its `sizeLimit`.

    Units: used_bytes in bytes.
    """

    volume: str
    used_bytes: int
    limit: Quantity

    def kubelet_message(self) -> str:
        return f"Usage of EmptyDir volume {quoted(self.volume)} exceeds the limit {quoted(str(self.limit))}. "

    def sentence(self) -> str:
        used, limit = _storage(self.used_bytes, self.limit)
        return f"emptyDir {self.volume} holds {used}, more than its limit of {limit}"


class PodStorageOverLimit(EvictionFact, frozen=True, kw_only=True):
    """The pod uses more ephemeral storage than the sum of its containers' limits.

    Units: used_bytes in bytes.
    """

    used_bytes: int
    limit: Quantity

    def kubelet_message(self) -> str:
        return f"Pod ephemeral local storage usage exceeds the total limit of containers {self.limit}. "

    def sentence(self) -> str:
        used, limit = _storage(self.used_bytes, self.limit)
        return (
            f"the pod uses {used} of ephemeral storage, more than the {limit} that the limits of its "
            "containers add up to"
        )


class ContainerStorageOverLimit(EvictionFact, frozen=True, kw_only=True):
    """A container uses more ephemeral storage than its limit.

    Units: used_bytes in bytes.
    """

    container: str
    used_bytes: int
    limit: Quantity

    def kubelet_message(self) -> str:
        return f"Container {self.container} exceeded its local ephemeral storage limit {quoted(str(self.limit))}. "

    def sentence(self) -> str:
        used, limit = _storage(self.used_bytes, self.limit)
        return f"container {self.container} uses {used} of ephemeral storage, more than its limit of {limit}"


LimitExceeded: TypeAlias = EmptyDirOverLimit | PodStorageOverLimit | ContainerStorageOverLimit
"""Why a pod is evicted independently of the node's available resources."""


# ---------------------------------------------------------------- what stops the eviction manager


class VolumeUseMissing(EvictionFact, frozen=True, kw_only=True):
    """A volume has no observed usage, which crashes the kubelet when it checks size limits.

    Departs: a kubelet that crashes reports nothing; the message is ours.
    """

    pod: str
    """As namespace/name."""
    volume: str

    def kubelet_message(self) -> str:
        return f"the kubelet crashes: no usedBytes for volume {self.volume} of pod {self.pod}"

    def sentence(self) -> str:
        return f"the kubelet crashes: volume {self.volume} of {self.pod} has no usedBytes in its stats"


class SplitFilesystemsUnsupported(EvictionFact, frozen=True, kw_only=True):
    """Containers and images are on separate file systems, and the gate KubeletSeparateDiskGC is off."""

    def kubelet_message(self) -> str:
        return "KubeletSeparateDiskGC is turned off but we still have a split filesystem"

    def sentence(self) -> str:
        return (
            "images and containers are on separate file systems, and the feature gate "
            "KubeletSeparateDiskGC is off: the kubelet evicts no pod under pressure"
        )


EvictionReason: TypeAlias = (
    NodeUnderPressure | NodeRanShort | LimitExceeded | VolumeUseMissing | SplitFilesystemsUnsupported
)


def threshold_met_message(resource: str) -> str:
    """The message of the event about the node, before anything is reclaimed.

    Follows: v1.36, eviction/eviction_manager.go, synchronize.

    >>> threshold_met_message("memory")
    'Attempting to reclaim memory'
    """
    return f"Attempting to reclaim {resource}"


def _storage(used_bytes: int, limit: Quantity) -> list[str]:
    return distinguishable_amounts(EPHEMERAL_STORAGE, used_bytes, limit.value())
