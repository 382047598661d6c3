"""How many CPUs of their own do a pod's containers get?"""

from typing import Self

import msgspec

from nodewright.core.cpu.options import CPUGates
from nodewright.core.requests import QOSClass, pod_level_resources_set, qos_class
from nodewright.model.cpu_reasons import PodSharedPoolEmpty
from nodewright.model.objects import Container, Pod, ResourceRequirements
from nodewright.model.resource_names import CPU, MEMORY
from nodewright.values.quantity import ZERO, Quantity
from nodewright.values.units import wrap_int64


class PodWants(msgspec.Struct, frozen=True):
    """What a pod asks of the static policy. Only Guaranteed pods, and only whole CPUs, get any.

    Units:   CPUs.
    Follows: v1.36, cpumanager/policy_static.go, guaranteedCPUs, podGuaranteedCPUs.
    """

    pod: Pod
    is_guaranteed: bool
    has_pod_level: bool
    """Whether there are pod-level resources."""
    is_pod_managed: bool
    """Whether they count for the managers: there are some, and the gate PodLevelResourceManagers is on."""
    is_skipped: bool
    """Whether the managers leave the pod alone, because it has pod-level resources and the gates are off."""

    @classmethod
    def of(cls, pod: Pod, gates: CPUGates) -> Self:
        """The wants of the pod under these gates."""
        has_pod_level = pod_level_resources_set(pod)
        judged = pod
        if not gates.pod_level_resources and pod.spec.resources is not None:
            judged = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, resources=None))
        return cls(
            pod,
            qos_class(judged) is QOSClass.GUARANTEED,
            has_pod_level,
            has_pod_level and gates.pod_level_managers,
            has_pod_level and not (gates.pod_level_managers and gates.pod_level_resources),
        )

    def container(self, container: Container) -> int:
        """The CPUs that the container gets for itself; 0: it runs in a shared pool."""
        if not self.is_guaranteed:
            return 0
        if self.is_pod_managed and not _is_guaranteed_alone(container.resources):
            return 0
        return _whole_cpus(container.resources.requests.get(CPU, ZERO))

    def whole_pod(self) -> int:
        """The CPUs that the pod needs at once: app containers and sidecars, or an init container's moment."""
        if not self.is_guaranteed:
            return 0
        if self.is_pod_managed:
            level = self.pod.spec.resources
            return _whole_cpus(level.requests.get(CPU, ZERO)) if level is not None else 0
        sidecars = most_at_init = 0
        for container in self.pod.spec.init_containers:
            wanted = self.container(container)
            if container.is_sidecar:
                sidecars += wanted
            else:
                most_at_init = max(most_at_init, sidecars + wanted)
        return max(sidecars + sum(map(self.container, self.pod.spec.containers)), most_at_init)

    def shared_pool_fault(self) -> PodSharedPoolEmpty | None:
        """Why a pod with CPUs as a whole cannot run: its exclusive containers leave nothing to the others.

        Follows: v1.36, cpumanager/policy_static.go, validatePodScopeResources.
        """
        total, exclusive, has_sharers = self.whole_pod(), 0, False
        for container in self.pod.spec.init_containers:
            wanted = self.container(container)
            if container.is_sidecar:
                exclusive += wanted
                has_sharers |= wanted == 0
            elif wanted == 0 and exclusive >= total:
                return PodSharedPoolEmpty(pod_cpus=total, exclusive=exclusive, init=True)
        for container in self.pod.spec.containers:
            wanted = self.container(container)
            exclusive += wanted
            has_sharers |= wanted == 0
        if has_sharers and exclusive >= total:
            return PodSharedPoolEmpty(pod_cpus=total, exclusive=exclusive, init=False)
        return None


def _is_guaranteed_alone(resources: ResourceRequirements) -> bool:
    """Whether requests equal limits and neither is zero, for cpu and memory.

    Follows: v1.36, kubelet/cm/qos, IsContainerEquivalentQOSGuaranteed.
    """
    for name in (CPU, MEMORY):
        request = resources.requests.get(name, ZERO)
        if request.is_zero() or request != resources.limits.get(name, ZERO):
            return False
    return True


def _whole_cpus(amount: Quantity) -> int:
    """The amount in CPUs; 0 if it is not whole.

    Follows: v1.36, cpumanager/policy_static.go, isIntegralCPUAmount, in 64-bit integers as there.
    """
    value = amount.value()
    return value if wrap_int64(value * 1000) == amount.milli_value() else 0
