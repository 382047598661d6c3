"""What does the topology manager make of a pod? Hints, merge and allocation, container by container or at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from nodewright.core.requests import pod_level_resources_set
from nodewright.core.topology import (
    Alignment,
    TopologyManager,
    TopologyPolicy,
    affinity,
    manager_for,
    own_affinity,
)
from nodewright.core.topology.policy import NONE, POD
from nodewright.model.hints import Hint, Offer
from nodewright.model.objects import Container, Pod
from nodewright.model.reasons import Reason
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.providers import NO_HINT, Active, Holdings, Provider


@dataclass(frozen=True, slots=True)
class Managers:
    """The topology manager and the providers that it asks, in its order."""

    topology: TopologyManager
    providers: tuple[Provider, ...]
    pod_level: bool = False
    """The gate PodLevelResourceManagers."""
    own: TopologyPolicy | None = None
    """Who says in the kubelet's place which NUMA nodes a pod gets; None: the topology manager."""

    @property
    def policy(self) -> str:
        """The name of the policy that judges."""
        return self.topology.policy if self.own is None else self.own.name

    def for_pod(self, pod: Pod) -> "Verdict[Managers]":
        """The managers with the topology manager that judges this pod, or why it is not taken.

        Errors: PolicyError if a policy that is not the kubelet's fails.
        """
        if self.own is None:
            return Granted(self)
        found = manager_for(self.topology, self.own, pod)
        if isinstance(found, Refused):
            return found
        merging = self.own if self.own.merging is not None else None
        return Granted(replace(self, topology=found.value, own=merging))

    def merged(self, pod: Pod, container: str, offers: tuple[Offer, ...]) -> Verdict[Hint]:
        """What the offers to a container come to, or to the pod as a whole; for managers `for_pod`.

        Errors: PolicyError if a policy that is not the kubelet's fails.
        """
        pod_level = self.pod_level and pod_level_resources_set(pod)
        if self.own is None:
            return affinity(self.topology, offers, container=container, pod_level=pod_level)
        asked = Alignment(pod=pod, container=container, offers=offers, manager=self.topology)
        return own_affinity(self.own, asked, pod_level=pod_level)

    def collected(self, held: Holdings, active: Active) -> Holdings:
        """The holdings without those of containers that are not active."""
        for provider in self.providers:
            held = provider.collected(held, active)
        return held


class Aligned(msgspec.Struct, frozen=True):
    """What became of a pod, and what is held after it; a refused pod keeps what it was given until collected."""

    held: Holdings
    refused_for: tuple[Reason, ...] = ()
    because: tuple[Reason, ...] = ()
    """The hints and choices behind what was granted, in order."""


def align(managers: Managers, held: Holdings, pod: Pod, active: Active | None) -> Aligned:
    """The pod with everything allocated to its containers that they hold for themselves, or the refusal.

    ``active`` are the containers of all active pods, this one included: what is held for others is collected
    first. None: nothing is.

    Follows: v1.36, topologymanager/{scope,scope_container,scope_pod}.go, Admit.
    """
    if active is not None:
        held = managers.collected(held, active)
    judging = managers.for_pod(pod)
    if isinstance(judging, Refused):
        return Aligned(held, judging.because)
    managers = judging.value
    alignment = _Alignment(managers, pod, held)
    if managers.policy == NONE:
        refused = alignment.serve_each(None)
    elif managers.topology.scope == POD:
        refused = alignment.align_pod()
    else:
        refused = alignment.align_each()
    return Aligned(alignment.held, refused, tuple(alignment.because))


class _Alignment:
    """One pod on its way through the managers."""

    def __init__(self, managers: Managers, pod: Pod, held: Holdings) -> None:
        self.managers = managers
        self.pod = pod
        self.held = held
        self.because: list[Reason] = []
        self.wants: Sequence[Any] = [provider.wants(pod) for provider in managers.providers]
        self.containers = (*pod.spec.init_containers, *pod.spec.containers)
        self.pod_level = managers.pod_level and pod_level_resources_set(pod)

    def align_each(self) -> tuple[Reason, ...]:
        """The container scope: each container is aligned and served before the next is looked at."""
        for container in self.containers:
            hint = self._merged(container)
            if isinstance(hint, Refused):
                return hint.because
            self.held = self.held.with_hint(self.pod.uid, container.name, hint.value)
            refused = self._served(container, hint.value)
            if refused:
                return refused
        return ()

    def align_pod(self) -> tuple[Reason, ...]:
        """The pod scope: one hint for all; pod-level resources are served at once, too."""
        hint = self._merged(None)
        if isinstance(hint, Refused):
            return hint.because
        if not self.pod_level:
            return self.serve_each(hint.value)
        for container in self.containers:
            self.held = self.held.with_hint(self.pod.uid, container.name, hint.value)
        return self._served(None, hint.value)

    def serve_each(self, hint: Hint | None) -> tuple[Reason, ...]:
        """Each container is served, all by the same hint if there is one."""
        for container in self.containers:
            if hint is not None:
                self.held = self.held.with_hint(self.pod.uid, container.name, hint)
            refused = self._served(container, hint or NO_HINT)
            if refused:
                return refused
        return ()

    def _merged(self, container: Container | None) -> Verdict[Hint]:
        offers = []
        for provider, wants in zip(self.managers.providers, self.wants, strict=True):
            found = provider.hints(self.held, wants, container)
            if isinstance(found, Refused):
                return found
            offers.append(Offer(provider.name, found.value))
        name = container.name if container else ""
        merged = self.managers.merged(self.pod, name, tuple(offers))
        if isinstance(merged, Granted):
            self.because += merged.because
        return merged

    def _served(self, container: Container | None, hint: Hint) -> tuple[Reason, ...]:
        for provider, wants in zip(self.managers.providers, self.wants, strict=True):
            self.held, done = provider.allocate(self.held, wants, container, hint)
            if isinstance(done, Refused):
                return done.because
            self.because += done.because
        return ()
