"""The topology manager's admission of a pod: hints, merge and allocation, by container or for the whole pod."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.engine.core.topology.manager_config import NONE_POLICY, POD_SCOPE, TopologyManager
from nodewright.engine.node.managers.hint_providers import (
    NO_HINT,
    ActiveContainers,
    CPUProvider,
    HintProvider,
    Holdings,
    MemoryProvider,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.topology_hints import Hint, Offer

if TYPE_CHECKING:
    from nodewright.engine.core.topology.custom import TopologyPolicy


class ResourceManagers(msgspec.Struct, frozen=True):
    """The topology manager and its hint providers, in order."""

    topology: TopologyManager
    providers: tuple[HintProvider, ...]
    pod_level: bool = False
    """Whether the feature gate PodLevelResourceManagers is on."""
    custom_policy: "TopologyPolicy | None" = None
    """The custom policy that merges hints; None: the kubelet's topology manager does."""

    @property
    def policy(self) -> str:
        """The name of the policy that merges hints."""
        return self.topology.policy if self.custom_policy is None else self.custom_policy.name

    @property
    def static_cpu_policy(self) -> StaticCPUPolicy | None:
        """The policy of a static CPU manager; None: its policy is none."""
        policies = (provider.policy for provider in self.providers if isinstance(provider, CPUProvider))
        return next((policy for policy in policies if isinstance(policy, StaticCPUPolicy)), None)

    @property
    def static_memory_policy(self) -> StaticMemoryPolicy | None:
        """The policy of a static memory manager; None: its policy is none."""
        policies = (provider.policy for provider in self.providers if isinstance(provider, MemoryProvider))
        return next((policy for policy in policies if isinstance(policy, StaticMemoryPolicy)), None)

    def for_pod(self, pod: Pod) -> "Verdict[ResourceManagers]":
        """The managers with the topology manager that applies to this pod, or the refusal of the custom policy.

        Errors: CustomPolicyError if the custom policy fails.
        """
        if self.custom_policy is None:
            return Granted(self)
        from nodewright.engine.core.topology.custom import topology_manager_for  # noqa: PLC0415 - start-up time

        chosen = topology_manager_for(self.topology, self.custom_policy, pod)
        if isinstance(chosen, Refused):
            return chosen
        merging = self.custom_policy if self.custom_policy.merge_hints is not None else None
        return Granted(replace(self, topology=chosen.value, custom_policy=merging))

    def merged_hint(self, pod: Pod, container: str, offers: tuple[Offer, ...]) -> Verdict[Hint]:
        """The merged hint of the offers for a container or the whole pod; call it on the result of `for_pod`.

        Errors: CustomPolicyError if the custom policy fails.
        """
        pod_level = self.pod_level and pod_level_resources_set(pod)
        if self.custom_policy is None:
            return _merge_of_kubelet()(self.topology, offers, container=container, pod_level=pod_level)
        from nodewright.engine.core.topology.custom import MergeRequest, custom_affinity  # noqa: PLC0415 - start-up time

        request = MergeRequest(pod=pod, container=container, offers=offers, manager=self.topology)
        return custom_affinity(self.custom_policy, request, pod_level=pod_level)

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        """The holdings without those of containers that are not active."""
        for provider in self.providers:
            held = provider.without_stale(held, active)
        return held


@cache
def _merge_of_kubelet() -> "Callable[..., Verdict[Hint]]":
    from nodewright.engine.core.topology.hint_merge import numa_affinity  # noqa: PLC0415 - start-up time

    return numa_affinity


class AlignmentResult(msgspec.Struct, frozen=True):
    """The outcome for a pod and the holdings after it; a refused pod keeps its allocations until they are released."""

    held: Holdings
    rejected_for: tuple[Reason, ...] = ()
    because: tuple[Reason, ...] = ()
    """The evidence for the granted allocations, in order."""


def align_pod(
    managers: ResourceManagers, held: Holdings, pod: Pod, active: ActiveContainers | None
) -> AlignmentResult:
    """Aligns and allocates the pod's exclusive resources, or returns the refusal.

    ``active`` are the containers of all active pods, this one included; allocations of all others are released
    first. None: no allocation is released.

    Follows: v1.36, topologymanager/{scope,scope_container,scope_pod}.go, Admit.
    """
    if active is not None:
        held = managers.without_stale(held, active)
    if managers.custom_policy is not None:
        pod_managers = managers.for_pod(pod)
        if isinstance(pod_managers, Refused):
            return AlignmentResult(held, pod_managers.because)
        managers = pod_managers.value
    alignment = _Alignment(managers, pod, held)
    if managers.policy == NONE_POLICY:
        refused = alignment.allocate_each(None)
    elif managers.topology.scope == POD_SCOPE:
        refused = alignment.align_pod()
    else:
        refused = alignment.align_each()
    return AlignmentResult(alignment.held, refused, tuple(alignment.because))


class _Alignment:
    """The alignment of one pod; `held` and `because` change as managers allocate."""

    def __init__(self, managers: ResourceManagers, pod: Pod, held: Holdings) -> None:
        self.managers = managers
        self.pod, self.uid = pod, pod.metadata.uid
        self.held, self.hints = held, dict(held.hints.get(self.uid, {}))
        self.because: list[Reason] = []
        self.offers: list[Offer] = []
        """The managers' offers for a container without a demand."""
        self.demands: list[tuple[int, HintProvider, Any]] = []
        """The managers that are asked, each by its place among all, and the pod's demand."""
        for place, provider in enumerate(managers.providers):
            demand = provider.demand(held, pod)
            self.offers.append(provider.no_demand)
            if demand is not None:
                self.demands.append((place, provider, demand))
        self.containers = (*pod.spec.init_containers, *pod.spec.containers)
        self.pod_level = managers.pod_level and pod_level_resources_set(pod)

    def align_each(self) -> tuple[Reason, ...]:
        """Container scope: aligns and allocates each container before the next."""
        for container in self.containers:
            hint = self._merge(container)
            if isinstance(hint, Refused):
                return hint.because
            self._hold_hint(container.name, hint.value)
            refused = self._allocate(container, hint.value)
            if refused:
                return refused
        return ()

    def align_pod(self) -> tuple[Reason, ...]:
        """Pod scope: one hint for all containers; pod-level resources are also allocated at once."""
        hint = self._merge(None)
        if isinstance(hint, Refused):
            return hint.because
        if not self.pod_level:
            return self.allocate_each(hint.value)
        for container in self.containers:
            self._hold_hint(container.name, hint.value)
        return self._allocate(None, hint.value)

    def allocate_each(self, hint: Hint | None) -> tuple[Reason, ...]:
        """Allocates for each container, all by the same hint if there is one."""
        for container in self.containers:
            if hint is not None:
                self._hold_hint(container.name, hint)
            refused = self._allocate(container, hint or NO_HINT)
            if refused:
                return refused
        return ()

    def _hold_hint(self, container: str, hint: Hint) -> None:
        """Adds a hint to those of the pod: one mapping, because copies for each container are quadratic."""
        self.hints[container] = hint
        if self.held.hints.get(self.uid) is not self.hints:
            self.held = replace(self.held, hints={**self.held.hints, self.uid: self.hints})

    def _merge(self, container: Container | None) -> Verdict[Hint]:
        offers = self.offers.copy()
        for place, provider, demand in self.demands:
            hints = provider.hints(self.held, demand, container)
            if isinstance(hints, Refused):
                return hints
            offers[place] = Offer(provider.name, hints.value)
        name = container.name if container else ""
        merged = self.managers.merged_hint(self.pod, name, tuple(offers))
        if isinstance(merged, Granted):
            self.because += merged.because
        return merged

    def _allocate(self, container: Container | None, hint: Hint) -> tuple[Reason, ...]:
        for _, provider, demand in self.demands:
            self.held, verdict = provider.allocate(self.held, demand, container, hint)
            if isinstance(verdict, Refused):
                return verdict.because
            self.because += verdict.because
        return ()
