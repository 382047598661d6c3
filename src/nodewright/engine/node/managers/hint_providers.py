"""The resource managers as the topology manager's hint providers: hints, allocation and release."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu import cpu_allocation as cpus
from nodewright.engine.core.cpu.cpu_policy import CPUPolicy, StaticCPUPolicy
from nodewright.engine.core.cpu.cpu_state import CPUState, PodCPURequests
from nodewright.engine.core.devices import device_assignment as devices
from nodewright.engine.core.devices.device_state import DeviceManager, DeviceState
from nodewright.engine.core.memory import memory_allocation as memory
from nodewright.engine.core.memory.memory_policy import MemoryPolicy
from nodewright.engine.core.memory.memory_policy import StaticMemoryPolicy as StaticMemory
from nodewright.engine.core.memory.memory_state import MemoryState, PodMemoryDemand
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.verdict import Granted, Verdict
from nodewright.model.values.topology_hints import Hint, Offer, ProviderHints

ActiveContainers: TypeAlias = Mapping[str, Collection[str]]
"""The containers, init containers included, of every active pod by its uid."""


class Holdings(msgspec.Struct, frozen=True):
    """The allocated CPUs, memory and devices of all pods, and the hints of their containers."""

    cpu: CPUState
    memory: MemoryState
    devices: DeviceState
    hints: Mapping[str, Mapping[str, Hint]] = {}
    """By pod uid and container name."""

    def hint(self, pod: str, container: str) -> Hint:
        """The container's hint."""
        return self.hints.get(pod, {}).get(container, NO_HINT)

    def without_hints(self, pods: Iterable[str]) -> "Holdings":
        """The holdings without the hints of the containers of these pods."""
        hinted = [pod for pod in pods if pod in self.hints]
        if not hinted:
            return self
        remaining = dict(self.hints)
        for pod in hinted:
            del remaining[pod]
        return replace(self, hints=remaining)


NO_HINT = Hint(None, preferred=False)


class HintProvider(Protocol):
    """A resource manager; `demand` is its precomputed view of a pod's requests."""

    @property
    def name(self) -> str:
        """The managed resource: `devices`, `cpu` or `memory`."""

    @property
    def no_demand(self) -> Offer:
        """The offer for a container or pod without a demand."""

    def demand(self, held: Holdings, pod: Pod) -> Any:
        """The pod's demand, in the manager's own form; None: there are no hints and nothing is allocated or changed."""

    def hints(
        self, held: Holdings, demand: Any, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """The hints for the container, or for the whole pod if None; Refused: the kubelet crashes."""

    def allocate(
        self, held: Holdings, demand: Any, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """The holdings after allocation for the container, or for the whole pod if None."""

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        """The holdings without those of containers that are not active."""

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """The holdings after all containers of the pod have been started."""


class CPUProvider(msgspec.Struct, frozen=True):
    """The CPU manager."""

    policy: CPUPolicy
    name: str = "cpu"
    no_demand: Offer = Offer("cpu", None)

    def demand(self, held: Holdings, pod: Pod) -> PodCPURequests | None:
        """The pod's demand for the static policy; None under policy none, and for a pod that is not Guaranteed."""
        del held
        if not isinstance(self.policy, StaticCPUPolicy):
            return None
        requests = self.policy.cpu_requests(pod)
        return requests if requests.is_guaranteed else None

    def hints(
        self, held: Holdings, demand: PodCPURequests, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """As HintProvider."""
        if container is None:
            return Granted(cpus.pod_hints(self.policy, held.cpu, demand))
        return Granted(cpus.container_hints(self.policy, held.cpu, demand, container))

    def allocate(
        self, held: Holdings, demand: PodCPURequests, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As HintProvider."""
        if container is None:
            allocation = cpus.allocate_pod(self.policy, held.cpu, demand, hint.numa)
        else:
            allocation = cpus.allocate(self.policy, held.cpu, demand, container, hint.numa)
        return _with_cpu(held, allocation.state), allocation.verdict

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        """As HintProvider."""
        return _with_cpu(held, cpus.without_stale_containers(self.policy, held.cpu, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As HintProvider; init containers keep their CPUs until the pod is removed."""
        del pod
        return held


class MemoryProvider(msgspec.Struct, frozen=True):
    """The memory manager."""

    policy: MemoryPolicy
    name: str = "memory"
    no_demand: Offer = Offer("memory", None)

    def demand(self, held: Holdings, pod: Pod) -> PodMemoryDemand | None:
        """The pod's demand for the static policy; None under policy none, and for a pod that is not Guaranteed."""
        del held
        if not isinstance(self.policy, StaticMemory):
            return None
        demand = PodMemoryDemand.of(pod, self.policy.gates)
        return demand if demand.is_guaranteed else None

    def hints(
        self, held: Holdings, demand: PodMemoryDemand, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """As HintProvider."""
        if container is None:
            return memory.pod_hints(self.policy, held.memory, demand)
        return memory.container_hints(self.policy, held.memory, demand, container)

    def allocate(
        self, held: Holdings, demand: PodMemoryDemand, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As HintProvider."""
        if container is None:
            allocation = memory.allocate_pod_memory(self.policy, held.memory, demand, hint)
        else:
            allocation = memory.allocate_container_memory(self.policy, held.memory, demand, container, hint)
        return _with_memory(held, allocation.state), allocation.verdict

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        """As HintProvider."""
        return _with_memory(held, memory.without_stale_containers(self.policy, held.memory, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As HintProvider; finished init containers release their memory.

        Follows: v1.36, memorymanager/memory_manager.go, AddContainer.
        """
        init_containers = pod.spec.init_containers
        if not init_containers:
            return held
        state = held.memory
        for container in init_containers:
            if not container.is_sidecar:
                state = memory.release_memory(self.policy, state, pod.uid, container.name)
        return _with_memory(held, state)


class DeviceProvider(msgspec.Struct, frozen=True):
    """The device manager."""

    manager: DeviceManager
    name: str = "devices"
    no_demand: Offer = Offer("devices", {})

    def demand(self, held: Holdings, pod: Pod) -> Pod | None:
        """The pod itself; None if it neither requests nor holds devices and no pod's devices are reusable."""
        return pod if held.devices.concerns(pod) else None

    def hints(
        self, held: Holdings, demand: Pod, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """As HintProvider."""
        if container is None:
            return devices.pod_hints(self.manager, held.devices, demand)
        return devices.container_hints(self.manager, held.devices, demand, container)

    def allocate(
        self, held: Holdings, demand: Pod, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As HintProvider.

        Follows: v1.36, devicemanager/manager.go, AllocatePod: for pod-level allocation the device manager
            allocates nothing, although it gives hints.
        """
        if container is None:
            return held, Granted(None)
        allocation = devices.allocate(self.manager, held.devices, demand, container, hint.numa)
        return _with_devices(held, allocation.state), allocation.verdict

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        """As HintProvider."""
        return _with_devices(held, devices.without_inactive_pods(held.devices, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As HintProvider; containers keep their devices until the pod is removed."""
        del pod
        return held


# Most allocations leave most of the state unchanged, so unchanged holdings are not copied.


def _with_cpu(held: Holdings, state: CPUState) -> Holdings:
    return held if state is held.cpu else replace(held, cpu=state)


def _with_memory(held: Holdings, state: MemoryState) -> Holdings:
    return held if state is held.memory else replace(held, memory=state)


def _with_devices(held: Holdings, state: DeviceState) -> Holdings:
    return held if state is held.devices else replace(held, devices=state)
