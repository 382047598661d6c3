"""The state of a node: its configuration, its pods and their allocations."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_state import EvictionState
from nodewright.engine.core.predicates.predicate_check import NO_USAGE, NodeUsage
from nodewright.engine.core.requests.effective_resources import (
    pod_level_requests_set,
    pod_limits,
    pod_requests,
)
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.engine.node.managers.hint_providers import ActiveContainers, Holdings
from nodewright.engine.node.node_config import KubeletDefects, NodeConfig
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import Pod, ResourceRequirements
from nodewright.model.reasons.reason import Reason

if TYPE_CHECKING:
    from nodewright.engine.core.lending.loans import Loans

T = TypeVar("T")


class QueuedResize(msgspec.Struct, frozen=True, kw_only=True):
    """A pending resize."""

    desired: Pod
    deferred_since: int | None = None
    """Its position among the deferred resizes, by the time of the first deferral; None: not attempted yet."""


class NodeState(msgspec.Struct, frozen=True):
    """The state that events change: active pods in order of admission, their allocations and their sums."""

    config: NodeConfig
    held: Holdings
    """Allocated CPUs, memory and devices; those of removed pods remain until they are released."""
    pods: Mapping[str, Pod] = {}
    """The active pods by uid, in order of admission."""
    containers: ActiveContainers = {}
    """The containers of the active pods, init containers first, by the pod's uid."""
    usage: NodeUsage = NO_USAGE
    """The sums of the active pods' requests."""
    undecided_pods: frozenset[str] = frozenset()
    """The uids of pods whose admission was undecided and is only assumed."""
    is_collected: bool = False
    """Whether only active containers have allocations, so that there is nothing to release."""
    conditions: tuple[NodeCondition, ...] = ()
    """The node conditions that the eviction manager observed last."""
    eviction: EvictionState = EvictionState()
    """The eviction manager's state."""
    kubelet_down_for: tuple[Reason, ...] = ()
    """Why the kubelet has exited and does not restart; empty: it runs."""
    pending_pods: Mapping[str, Pod] = {}
    """The pods, by uid, that were assigned to the node while its kubelet was down."""
    pending_resizes: Mapping[str, QueuedResize] = {}
    """Pending resizes by the pod's uid, in retry order."""
    loans: "Loans | None" = None
    """What BestEffort pods may use; None: nothing was lent yet, and they are not limited."""

    def with_pod(self, pod: Pod, *, assumed: bool = False) -> "NodeState":
        """The state with one more active pod, the last in order."""
        pod = without_ungated_resources(pod, self.config)
        return replace(
            self,
            pods={**self.pods, pod.metadata.uid: pod},
            containers=self.active_with(pod),
            usage=self.usage.plus(pod),
            undecided_pods=self.undecided_pods | {pod.metadata.uid} if assumed else self.undecided_pods,
        )

    def with_pods(self, pods: Iterable[Pod]) -> "NodeState":
        """The state with more active pods, the last in order, which hold their allocations already."""
        added = {pod.metadata.uid: without_ungated_resources(pod, self.config) for pod in pods}
        return replace(
            self,
            pods={**self.pods, **added},
            containers={**self.containers, **{uid: container_names(pod) for uid, pod in added.items()}},
            usage=self.usage.plus(*added.values()),
        )

    def with_resized(self, pod: Pod) -> "NodeState":
        """The state with the resized pod in place of the old one."""
        return self._with_replaced(without_ungated_resources(pod, self.config))

    def _with_replaced(self, pod: Pod) -> "NodeState":
        before = self.pods[pod.metadata.uid]
        return replace(
            self, pods={**self.pods, pod.metadata.uid: pod}, usage=self.usage.minus(before).plus(pod)
        )

    def active_with(self, pod: Pod) -> ActiveContainers:
        """The containers of the active pods and of this pod."""
        return {**self.containers, pod.metadata.uid: container_names(pod)}

    def containers_to_collect(self, pod: Pod) -> ActiveContainers | None:
        """The containers that may keep allocations when this pod is added; None: there is nothing to release."""
        return None if self.is_collected else self.active_with(pod)

    def without_stale(self) -> "NodeState":
        """The state after the managers have released the allocations of inactive pods."""
        if self.is_collected:
            return self
        return replace(
            self, held=self.config.managers.without_stale(self.held, self.containers), is_collected=True
        )

    def rejected(self, uid: str) -> "NodeState":
        """The state after a refusal: the pod's allocations are released before the next admission."""
        return replace(self, held=self.held.without_hints((uid,)), is_collected=False)

    def started(self, uid: str) -> "NodeState":
        """The state after the start of a pod's containers, when the kubelet has reported the pod's status.

        The memory of finished init containers is free.
        """
        pod = self.pods.get(uid)
        if pod is None:
            return self
        reported = with_reported_resources(pod, self.config)
        if reported is not pod:
            return self._with_replaced(reported).started(uid)
        held = self.held
        for provider in self.config.managers.providers:
            held = provider.started(held, pod)
        return self if held is self.held else replace(self, held=held)

    def without_pod(self, uid: str) -> "NodeState":
        """The state without a pod; unchanged if the pod is not on the node."""
        if uid in self.pending_pods:
            return replace(self, pending_pods=_without(self.pending_pods, (uid,)))
        return self.without_active((uid,)) if uid in self.pods else self

    def without_active(self, uids: Collection[str]) -> "NodeState":
        """The state without these pods, each an active one: as `without_pod` for one after the other."""
        return replace(
            self,
            held=self.held.without_hints(uids),
            pods=_without(self.pods, uids),
            containers=_without(self.containers, uids),
            usage=self.usage.minus(*[self.pods[uid] for uid in uids]),
            undecided_pods=self.undecided_pods.difference(uids),
            is_collected=False,
            pending_resizes=_without(self.pending_resizes, uids),
        )


def _without(by_uid: Mapping[str, T], uids: Iterable[str]) -> dict[str, T]:
    remaining = dict(by_uid)
    for uid in uids:
        remaining.pop(uid, None)
    return remaining


def container_names(pod: Pod) -> tuple[str, ...]:
    """The names of the pod's containers, init containers first."""
    return tuple([container.name for container in (*pod.spec.init_containers, *pod.spec.containers)])


def without_ungated_resources(pod: Pod, config: NodeConfig) -> Pod:
    """The pod as this kubelet counts it: without pod-level resources where their gate is off."""
    if pod.spec.resources is None or config.gates["PodLevelResources"]:
        return pod
    return replace(pod, spec=replace(pod.spec, resources=None))


def with_reported_resources(pod: Pod, config: NodeConfig) -> Pod:
    """The pod with the pod-level resources that the kubelet reports in its status, where they change what it uses.

    The reported allocation includes the overhead, which is then added to it again: a known defect. Static pods are
    counted as in their files, without a status.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, generateAPIPodStatus, getEffectiveAllocatedResources;
        component-helpers/resource/helpers.go, PodRequests.
    Departs: requests of a running pod are those of its spec, where the kubelet reads them from the pod's cgroup.
    """
    if not pod.spec.overhead or pod.status.resources is not None or not pod_level_requests_set(pod):
        return pod
    if is_static(pod) or config.parts.defects is KubeletDefects.AVOID:
        return pod
    if not config.gates["InPlacePodLevelResourcesVerticalScaling"] or not config.gates["PodLevelResources"]:
        return pod
    resources = ResourceRequirements(requests=pod_requests(pod), limits=pod_limits(pod))
    status = replace(pod.status, resources=resources, allocated_resources=resources.requests)
    return replace(pod, status=status)
