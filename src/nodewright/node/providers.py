"""The resource managers of a node as the topology manager sees them: they give hints, allocate, and collect."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.core.cpu import allocate as cpus
from nodewright.core.cpu.hints import container_hints as cpu_container_hints
from nodewright.core.cpu.hints import pod_hints as cpu_pod_hints
from nodewright.core.cpu.policy import CPUPolicy, StaticPolicy
from nodewright.core.cpu.state import CPUState
from nodewright.core.cpu.wants import PodWants
from nodewright.core.devices import DeviceManager, DeviceState
from nodewright.core.devices import allocate as devices
from nodewright.core.devices import hints as device_hints
from nodewright.core.memory import allocate as memory
from nodewright.core.memory import hints as memory_hints
from nodewright.core.memory.policy import MemoryPolicy
from nodewright.core.memory.policy import StaticPolicy as StaticMemory
from nodewright.core.memory.state import MemoryState
from nodewright.core.memory.wants import MemoryWants
from nodewright.model.hints import Hint, ProviderHints
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted, Verdict

Active: TypeAlias = Mapping[str, Collection[str]]
"""The containers, init containers included, of every active pod by its uid."""


class Holdings(msgspec.Struct, frozen=True):
    """What pods hold of the node's CPUs, memory and devices, and the hints that they follow."""

    cpu: CPUState
    memory: MemoryState
    devices: DeviceState
    hints: Mapping[str, Mapping[str, Hint]] = {}
    """By pod uid and container name."""

    def hint(self, pod: str, container: str) -> Hint:
        """The hint that the container follows."""
        return self.hints.get(pod, {}).get(container, NO_HINT)

    def with_hint(self, pod: str, container: str, hint: Hint) -> "Holdings":
        """The holdings with a hint for the container."""
        return replace(self, hints={**self.hints, pod: {**self.hints.get(pod, {}), container: hint}})

    def without_hints(self, pod: str) -> "Holdings":
        """The holdings without the hints that the pod's containers follow."""
        if pod not in self.hints:
            return self
        return replace(self, hints={uid: hints for uid, hints in self.hints.items() if uid != pod})


NO_HINT = Hint(None, preferred=False)


class Provider(Protocol):
    """A resource manager; `wants` is whatever it works out of a pod once."""

    @property
    def name(self) -> str:
        """What it looks after: `devices`, `cpu` or `memory`."""

    def wants(self, pod: Pod) -> Any:
        """What the pod asks of it."""

    def hints(self, held: Holdings, wants: Any, container: Container | None) -> Verdict[ProviderHints | None]:
        """Its hints for the container, or for the pod as a whole; refused: the kubelet crashes."""

    def allocate(
        self, held: Holdings, wants: Any, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """The holdings after it has served the container, or the pod as a whole."""

    def collected(self, held: Holdings, active: Active) -> Holdings:
        """The holdings without those of containers that are not active."""

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """The holdings once all containers of the pod have been started, one after the other."""


@dataclass(frozen=True, slots=True)
class CPUs:
    """The CPU manager."""

    policy: CPUPolicy
    name: str = "cpu"

    def wants(self, pod: Pod) -> PodWants | None:
        """What the pod asks of the static policy."""
        return self.policy.wants(pod) if isinstance(self.policy, StaticPolicy) else None

    def hints(
        self, held: Holdings, wants: PodWants | None, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """As Provider."""
        if wants is None:
            return Granted(None)
        if container is None:
            return Granted(cpu_pod_hints(self.policy, held.cpu, wants))
        return Granted(cpu_container_hints(self.policy, held.cpu, wants, container))

    def allocate(
        self, held: Holdings, wants: PodWants | None, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As Provider."""
        if wants is None:
            return held, Granted(None)
        if container is None:
            done = cpus.allocate_pod(self.policy, held.cpu, wants, hint.numa)
        else:
            done = cpus.allocate(self.policy, held.cpu, wants, container, hint.numa)
        return _with_cpu(held, done.state), done.verdict

    def collected(self, held: Holdings, active: Active) -> Holdings:
        """As Provider."""
        return _with_cpu(held, cpus.without_stale(self.policy, held.cpu, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As Provider: CPUs of init containers stay theirs until the pod goes."""
        del pod
        return held


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory manager."""

    policy: MemoryPolicy
    name: str = "memory"

    def wants(self, pod: Pod) -> MemoryWants | None:
        """What the pod asks of the static policy."""
        return MemoryWants.of(pod, self.policy.gates) if isinstance(self.policy, StaticMemory) else None

    def hints(
        self, held: Holdings, wants: MemoryWants | None, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        """As Provider."""
        if wants is None:
            return Granted(None)
        if container is None:
            return memory_hints.pod_hints(self.policy, held.memory, wants)
        return memory_hints.container_hints(self.policy, held.memory, wants, container)

    def allocate(
        self, held: Holdings, wants: MemoryWants | None, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As Provider."""
        if wants is None:
            return held, Granted(None)
        if container is None:
            done = memory.allocate_pod(self.policy, held.memory, wants, hint)
        else:
            done = memory.allocate(self.policy, held.memory, wants, container, hint)
        return _with_memory(held, done.state), done.verdict

    def collected(self, held: Holdings, active: Active) -> Holdings:
        """As Provider."""
        return _with_memory(held, memory.without_stale(self.policy, held.memory, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As Provider: init containers that have ended hold no memory any more.

        Follows: v1.36, memorymanager/memory_manager.go, AddContainer.
        """
        state = held.memory
        for container in pod.spec.init_containers:
            if not container.is_sidecar:
                state = memory.remove(self.policy, state, pod.uid, container.name)
        return _with_memory(held, state)


@dataclass(frozen=True, slots=True)
class Devices:
    """The device manager."""

    manager: DeviceManager
    name: str = "devices"

    def wants(self, pod: Pod) -> Pod:
        """The pod itself."""
        return pod

    def hints(self, held: Holdings, wants: Pod, container: Container | None) -> Verdict[ProviderHints | None]:
        """As Provider."""
        if container is None:
            return device_hints.pod_hints(self.manager, held.devices, wants)
        return device_hints.container_hints(self.manager, held.devices, wants, container)

    def allocate(
        self, held: Holdings, wants: Pod, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        """As Provider.

        Follows: v1.36, devicemanager/manager.go, AllocatePod: of a pod that is served as a whole, the device
            manager serves nothing, though its hints were asked for.
        """
        if container is None:
            return held, Granted(None)
        done = devices.allocate(self.manager, held.devices, wants, container, hint.numa)
        return _with_devices(held, done.state), done.verdict

    def collected(self, held: Holdings, active: Active) -> Holdings:
        """As Provider."""
        return _with_devices(held, devices.without_stale(held.devices, active))

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        """As Provider: devices stay with the containers until the pod goes."""
        del pod
        return held


# Most pods leave most of this as it was.


def _with_cpu(held: Holdings, state: CPUState) -> Holdings:
    return held if state is held.cpu else replace(held, cpu=state)


def _with_memory(held: Holdings, state: MemoryState) -> Holdings:
    return held if state is held.memory else replace(held, memory=state)


def _with_devices(held: Holdings, state: DeviceState) -> Holdings:
    return held if state is held.devices else replace(held, devices=state)
