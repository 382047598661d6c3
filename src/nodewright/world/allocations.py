"""What a NodeProfile says that pods hold (`spec.allocations`): whether it can be, and what it comes to."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodewright.core.arrival import identified
from nodewright.core.memory.policy import huge_pages_name
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Pod
from nodewright.model.profile import ContainerAllocation, Kept, MemoryBlock, NodeProfileSpec
from nodewright.model.resource_names import MEMORY
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.world.errors import Fault


def allocation_faults(spec: NodeProfileSpec) -> Iterator[Fault]:
    """Allocations to whom there is not, of what there is not, and to two at once."""
    if spec.allocations:
        yield from _Check(spec).faults(spec.allocations)


def policy_faults(
    spec: NodeProfileSpec, kubelet: KubeletConfiguration, *, pod_level: bool
) -> Iterator[Fault]:
    """Allocations that there cannot be under this configuration; `pod_level`: the gate PodLevelResourceManagers."""
    for index, one in enumerate(spec.allocations or ()):
        path = f"spec.allocations[{index}]"
        if one.cpus and kubelet.cpu_manager_policy == "none":
            rule = "cpuManagerPolicy is none: no container has CPUs of its own"
            yield Fault(path=f"{path}.cpus", value=one.cpus, rule=rule)
        if one.memory and kubelet.memory_manager_policy == "None":
            rule = "memoryManagerPolicy is None: no container has memory of its own"
            yield Fault(path=f"{path}.memory", error="Forbidden", rule=rule)
        if not one.container and not pod_level:
            rule = "only with the gate PodLevelResourceManagers a pod holds something as a whole"
            yield Fault(path=f"{path}.container", error="Required value", rule=rule)


def kept_by(spec: NodeProfileSpec) -> Kept:
    """What the pods hold; `allocation_faults` has found nothing."""
    pods = _by_reference(spec.pods)
    cpus: dict[str, dict[str, CPUSet]] = {}
    memory: dict[str, dict[str, tuple[MemoryBlock, ...]]] = {}
    devices: dict[str, dict[str, Mapping[str, frozenset[str]]]] = {}
    for one in spec.allocations or ():
        uid = identified(pods[one.pod]).uid
        if one.cpus:
            cpus.setdefault(uid, {})[one.container] = CPUSet.parse(one.cpus)
        if one.memory:
            memory.setdefault(uid, {})[one.container] = one.memory
        if one.devices:
            held = {resource: frozenset(ids) for resource, ids in one.devices.items()}
            devices.setdefault(uid, {})[one.container] = held
    return Kept(cpus, memory, devices)


def _by_reference(pods: Sequence[Pod]) -> dict[str, Pod]:
    """The pods by namespace and name, and by uid; of several with one name the last that has not ended."""
    ended = [pod for pod in pods if pod.has_ended]
    others = [pod for pod in pods if not pod.has_ended]
    in_order = (*ended, *others)
    return {pod.full_name: pod for pod in in_order} | {identified(pod).uid: pod for pod in in_order}


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who has something."""

    pod: Pod
    container: str
    divides: bool
    """Whether the pod holds something as a whole."""

    def __str__(self) -> str:
        return f"{self.pod.full_name}, container {self.container}" if self.container else self.pod.full_name

    def shares_with(self, other: "_Holder") -> bool:
        """Whether both may have the same: init containers leave theirs to others, a pod to its containers."""
        return self.pod is other.pod and (self.divides or self.passes_on or other.passes_on)

    @property
    def passes_on(self) -> bool:
        """Whether it is an init container that ends before others start."""
        inits = self.pod.spec.init_containers
        return any(one.name == self.container and not one.is_sidecar for one in inits)


@dataclass(slots=True)
class _Check:
    """Allocations as they are gone through, with who has what by now."""

    spec: NodeProfileSpec
    pods: dict[str, Pod] = field(init=False)
    cpus: CPUSet = field(init=False)
    kinds: dict[int, set[str]] = field(init=False)
    """The kinds of memory of each NUMA node."""
    cpu_holders: list[tuple[_Holder, CPUSet]] = field(default_factory=list)
    device_holders: dict[tuple[str, str], list[_Holder]] = field(default_factory=dict)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        topology = self.spec.machine_info.topology
        self.pods = _by_reference(self.spec.pods)
        self.cpus = CPUSet.from_ids(
            cpu for node in topology for core in node.cores for cpu in core.thread_ids
        )
        self.kinds = {
            node.node_id: {MEMORY, *(huge_pages_name(pages) for pages in node.hugepages)} for node in topology
        }

    def faults(self, allocations: Sequence[ContainerAllocation]) -> Iterator[Fault]:
        """All faults of the allocations, in their order."""
        whole = {self._uid(one.pod) for one in allocations if not one.container}
        for index, one in enumerate(allocations):
            path = f"spec.allocations[{index}]"
            cpus = CPUSet()
            try:
                cpus = CPUSet.parse(one.cpus or "")
            except IdSetError as error:
                yield Fault(path=f"{path}.cpus", value=one.cpus, rule=str(error))
            nobody = self._whom(path, one)
            if nobody is not None:
                yield nobody
                continue
            holder = _Holder(self.pods[one.pod], one.container, divides=self._uid(one.pod) in whole)
            yield from self._cpu_faults(f"{path}.cpus", holder, cpus)
            for place, block in enumerate(one.memory):
                yield from self._memory_faults(f"{path}.memory[{place}]", block)
            for resource, ids in one.devices.items():
                yield from self._device_faults(f"{path}.devices[{resource}]", holder, resource, ids)

    def _uid(self, reference: str) -> str:
        pod = self.pods.get(reference)
        return reference if pod is None else identified(pod).uid

    def _whom(self, path: str, one: ContainerAllocation) -> Fault | None:
        """The fault if the allocation is nobody's, or somebody's who has one."""
        pod = self.pods.get(one.pod)
        if pod is None:
            rule = "is neither the uid nor namespace/name of a pod of spec.pods"
            return Fault(path=f"{path}.pod", value=one.pod, rule=rule)
        names = [each.name for each in (*pod.spec.init_containers, *pod.spec.containers)]
        if one.container and one.container not in names:
            rule = f"is no container of {pod.full_name}, which has {', '.join(names)}"
            return Fault(path=f"{path}.container", value=one.container, rule=rule)
        key = (self._uid(one.pod), one.container)
        if key in self.seen:
            rule = f"{pod.full_name} has an allocation for it already"
            return Fault(path=f"{path}.container", error="Duplicate value", value=one.container, rule=rule)
        self.seen.add(key)
        return None

    def _cpu_faults(self, path: str, holder: _Holder, cpus: CPUSet) -> Iterator[Fault]:
        if unknown := cpus - self.cpus:
            rule = f"the machine has no CPU {unknown}, its CPUs are {self.cpus or 'none'}"
            yield Fault(path=path, value=str(cpus), rule=rule)
        for other, held in self.cpu_holders:
            if (twice := held & cpus) and not holder.shares_with(other):
                yield Fault(path=path, value=str(cpus), rule=f"CPU {twice} is held by {other}")
        self.cpu_holders.append((holder, cpus))

    def _memory_faults(self, path: str, block: MemoryBlock) -> Iterator[Fault]:
        if block.size < 0:
            yield Fault(path=f"{path}.size", value=block.size, rule="must be greater than or equal to 0")
        numa = list(block.numa_nodes)
        if not numa:
            yield Fault(path=f"{path}.numaNodes", error="Required value", rule="")
        elif len(set(numa)) < len(numa):
            yield Fault(path=f"{path}.numaNodes", value=numa, rule="names a NUMA node twice")
        elif unknown := [one for one in numa if one not in self.kinds]:
            rule = f"the machine has no NUMA node {unknown[0]}"
            yield Fault(path=f"{path}.numaNodes", value=numa, rule=rule)
        elif without := [one for one in numa if block.type not in self.kinds[one]]:
            kinds = ", ".join(sorted(self.kinds[without[0]]))
            rule = f"NUMA node {without[0]} has no such memory, it has {kinds}"
            yield Fault(path=f"{path}.type", value=block.type, rule=rule)

    def _device_faults(
        self, path: str, holder: _Holder, resource: str, ids: Sequence[str]
    ) -> Iterator[Fault]:
        known = {device.id for device in self.spec.devices.get(resource, ())}
        known.update(self.spec.gone_devices.get(resource, ()))
        for name in ids:
            if name not in known:
                yield Fault(path=path, value=name, rule=f"is no device of spec.devices[{resource}]")
            holders = self.device_holders.setdefault((resource, name), [])
            for other in holders:
                if not holder.shares_with(other) or holder is other:
                    yield Fault(path=path, value=name, rule=f"is held by {other}")
            holders.append(holder)
