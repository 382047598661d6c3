"""The CPU manager's state: the shared pool and the exclusive CPUs of containers and pods.

Also the number of exclusive CPUs that a pod and its containers request.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.requests.managed_pods import ManagedPod, is_guaranteed_container, manager_requests
from nodewright.model.kubernetes.objects import Container, Pod, cached_by_spec
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.reasons.cpu import CPUHolder, PodSharedPoolEmpty
from nodewright.model.releases.release_rules import AllocatedInStatus
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import ZERO, Quantity, wrap_int64

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

    def holds(self, pod: str) -> bool:
        """Whether the pod, or a container of it, has exclusive CPUs."""
        return pod in self.assignments or pod in self.pods

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


class PodCPURequests(ManagedPod[int], frozen=True):
    """The exclusive CPUs that a pod requests from the static policy: whole CPUs of Guaranteed pods only.

    Units:   CPUs.
    Follows: v1.36, cpumanager/policy_static.go, guaranteedCPUs, podGuaranteedCPUs.
    """

    @staticmethod
    def amounts_by_container(pod: Pod, allocated: AllocatedInStatus) -> Mapping[str, int]:
        """The whole CPUs that each container requests."""
        return _cpus_by_container(pod, allocated)

    def container_cpus(self, container: Container) -> int:
        """The container's exclusive CPUs; 0: it runs in a shared pool."""
        if not self.is_guaranteed:
            return 0
        if self.is_pod_managed and not is_guaranteed_container(container.resources):
            return 0
        requested = self.by_container.get(container.name)
        if requested is None:
            return _whole_cpus(manager_requests(self.pod, container, self.allocated).get(CPU, ZERO))
        return requested

    def pod_cpus(self) -> int:
        """The pod's exclusive CPUs: the maximum over its app phase and its init containers, sidecars included."""
        if not self.is_guaranteed:
            return 0
        if self.is_pod_managed:
            pod_resources = self.pod.spec.resources
            return _whole_cpus(pod_resources.requests.get(CPU, ZERO)) if pod_resources is not None else 0
        sidecars = init_maximum = 0
        for container in self.pod.spec.init_containers:
            requested = self.container_cpus(container)
            if container.is_sidecar:
                sidecars += requested
            else:
                init_maximum = max(init_maximum, sidecars + requested)
        return max(sidecars + sum(map(self.container_cpus, self.pod.spec.containers)), init_maximum)

    def shared_pool_fault(self) -> PodSharedPoolEmpty | None:
        """Why a pod with pod-level CPUs is rejected: its exclusive containers leave no CPU to the others.

        Follows: v1.36, cpumanager/policy_static.go, validatePodScopeResources.
        """
        total, exclusive, shares_pool = self.pod_cpus(), 0, False
        for container in self.pod.spec.init_containers:
            requested = self.container_cpus(container)
            if container.is_sidecar:
                exclusive += requested
                shares_pool |= requested == 0
            elif requested == 0 and exclusive >= total:
                return PodSharedPoolEmpty(pod_cpus=total, exclusive=exclusive, init=True)
        for container in self.pod.spec.containers:
            requested = self.container_cpus(container)
            exclusive += requested
            shares_pool |= requested == 0
        if shares_pool and exclusive >= total:
            return PodSharedPoolEmpty(pod_cpus=total, exclusive=exclusive, init=False)
        return None


@cached_by_spec
def _cpus_by_container(pod: Pod, allocated: AllocatedInStatus) -> Mapping[str, int]:
    """The whole CPUs of each container; ``allocated``: whose allocated resources count in place of requests."""
    return {
        container.name: _whole_cpus(manager_requests(pod, container, allocated).get(CPU, ZERO))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }


def _whole_cpus(amount: Quantity) -> int:
    """The amount in CPUs; 0 if it is not an integer.

    Follows: v1.36, cpumanager/policy_static.go, isIntegralCPUAmount, in 64-bit integers as in Go.
    """
    value = amount.value()
    return value if wrap_int64(value * 1000) == amount.milli_value() else 0
