"""The CPU manager's state: the shared pool and the exclusive CPUs of containers and pods."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.reasons.cpu import CPUHolder
from nodewright.model.values.idset import CPUSet

NO_CPUS = CPUSet()

Assignments: TypeAlias = Mapping[str, Mapping[str, CPUSet]]
"""CPUs by pod uid and container name."""


class ReusableCPUs(msgspec.Struct, frozen=True):
    """CPUs of a pod's init containers that its later containers may reuse."""

    pod: str
    cpus: CPUSet


class CPUState(msgspec.Struct, frozen=True):
    """The shared pool, and the exclusive CPUs of containers and pods. Never changed in place.

    Follows: v1.36, cpumanager/state/state.go; `reusable` is in the kubelet's policy, and lost at a restart.
    """

    default: CPUSet = NO_CPUS
    """The shared pool: the CPUs of all containers without exclusive ones."""
    assignments: Assignments = {}
    pods: Mapping[str, CPUSet] = {}
    """CPUs of pods that are allocated CPUs at pod level."""
    reusable: ReusableCPUs | None = None

    def exclusive(self, pod: str, container: str) -> CPUSet | None:
        """The exclusive CPUs of the container; None: it has no assignment and runs in the shared pool."""
        of_pod = self.assignments.get(pod)
        return None if of_pod is None else of_pod.get(container)

    def usable(self, pod: str, container: str) -> CPUSet:
        """The CPUs that the container may run on."""
        cpus = self.exclusive(pod, container)
        return self.default if cpus is None else cpus

    def reusable_by(self, pod: str) -> CPUSet:
        """The CPUs of its init containers that the pod may reuse."""
        return self.reusable.cpus if self.reusable is not None and self.reusable.pod == pod else NO_CPUS

    def with_assignment(self, pod: str, container: str, cpus: CPUSet) -> "CPUState":
        """The state with these CPUs assigned to the container; the shared pool is unchanged."""
        of_pod = {**self.assignments.get(pod, {}), container: cpus}
        return replace(self, assignments={**self.assignments, pod: of_pod})

    def with_taken(self, pod: str, container: str, cpus: CPUSet) -> "CPUState":
        """The state with these CPUs taken out of the shared pool and assigned to the container."""
        of_pod = {**self.assignments.get(pod, {}), container: cpus}
        return replace(self, default=self.default - cpus, assignments={**self.assignments, pod: of_pod})

    def with_reusable(self, pod: str, cpus: CPUSet) -> "CPUState":
        """The state with these CPUs reusable by the pod's later containers."""
        return replace(self, reusable=ReusableCPUs(pod, cpus))

    def without_assignment(self, pod: str, container: str) -> "CPUState":
        """The state without an assignment to the container; the shared pool is unchanged."""
        of_pod = {name: cpus for name, cpus in self.assignments.get(pod, {}).items() if name != container}
        others = {uid: containers for uid, containers in self.assignments.items() if uid != pod}
        return replace(self, assignments={**others, pod: of_pod} if of_pod else others)

    def with_default(self, cpus: CPUSet) -> "CPUState":
        """The state with this shared pool."""
        return replace(self, default=cpus)

    def holders(self) -> Iterator[CPUHolder]:
        """All assignments by pod and container; a pod's CPUs outside its containers are a holder of their own."""
        for pod in sorted({*self.assignments, *self.pods}):
            of_pod = self.assignments.get(pod, {})
            rest = self.pods.get(pod, NO_CPUS)
            for container in sorted(of_pod):
                yield CPUHolder(pod=pod, container=container, cpus=of_pod[container])
                rest -= of_pod[container]
            if rest:
                yield CPUHolder(pod=pod, container="", cpus=rest)
