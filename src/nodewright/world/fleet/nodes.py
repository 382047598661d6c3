"""Nodes of a fleet: what their objects tell, completed by a machine's shape and a kubelet's configuration."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodewright.model.fleet import FleetNode
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ObjectMeta, ResourceList, Taint
from nodewright.model.profile import Device, NodeProfile, NodeProfileSpec
from nodewright.model.resource_names import EPHEMERAL_STORAGE, HUGE_PAGES_PREFIX, is_extended, is_huge_page
from nodewright.values.quantity import ZERO, Format, Quantity
from nodewright.world.errors import Fault, InputError
from nodewright.world.fleet.shapes import Chosen, Rule, choose, sized, with_memory, with_system_core

USUAL_CONFIGURATION: Mapping[str, Any] = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "best-effort",
}
"""What the kubelets of a fleet are configured to where nothing is said: CPUs are given out one by one."""
USUAL_PODS = 110
_MOST_DEVICES = 64
_MOST_CPUS = 8192
_THRESHOLD_BYTES = 100 << 20
_MEMORY_THRESHOLD, _DISK_THRESHOLD = "memory.available", "nodefs.available"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNode:
    """A node as far as a file tells."""

    name: str
    capacity: ResourceList
    allocatable: ResourceList
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Furniture:
    """What nodes are completed with."""

    rules: tuple[Rule, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=lambda: USUAL_CONFIGURATION)
    devices: frozenset[str] = frozenset()
    """Resources that a device plugin offers, besides those whose names say GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Furnished:
    """The nodes, and what had to be assumed for them."""

    nodes: tuple[FleetNode, ...]
    assumed: Mapping[str, int] = field(default_factory=dict)
    """How many nodes have a shape that nobody named, by shape."""
    named: Mapping[str, int] = field(default_factory=dict)
    """How many nodes have a shape by a rule, by shape."""
    with_system_core: int = 0
    """How many were given a core for the system, since their kubelet would not start without one."""
    with_system_memory: int = 0
    """How many were given 100Mi on top, since without a threshold they would never evict anybody."""


def furnished(nodes: Iterable[ReadNode], furniture: Furniture) -> Furnished:
    """The nodes with a machine and a kubelet each; those that are alike have one and the same profile.

    Errors: InputError where a rule about shapes does not fit a node, or a node cannot be.
    """
    made = _Made(furniture)
    found = tuple(node for one in nodes if (node := made.node(one)) is not None)
    if made.faults:
        raise InputError(made.faults)
    return Furnished(
        nodes=found,
        assumed=dict(sorted(made.assumed.items())),
        named=dict(sorted(made.named.items())),
        with_system_core=made.with_system_core,
        with_system_memory=made.with_system_memory,
    )


@dataclass(slots=True)
class _Made:
    furniture: Furniture
    faults: list[Fault] = field(default_factory=list)
    assumed: dict[str, int] = field(default_factory=dict)
    named: dict[str, int] = field(default_factory=dict)
    with_system_core: int = 0
    with_system_memory: int = 0
    _profiles: dict[object, tuple[NodeProfile, bool]] = field(default_factory=dict)

    def node(self, read: ReadNode) -> FleetNode | None:
        cpus = -(-read.capacity["cpu"].milli_value() // 1000)
        faults = list(_impossible(read, cpus))
        chosen = choose(self.furniture.rules, read.labels, cpus) if not faults else faults.pop()
        if isinstance(chosen, Fault):
            source = f"{read.place}, Node {read.name}".lstrip(", ")
            self.faults += [replace(one, source=source) for one in (*faults, chosen)]
            return None
        if read.capacity["cpu"].milli_value() % 1000:
            # CPUs are whole, whatever of them is given out.
            read = replace(read, capacity={**read.capacity, "cpu": Quantity.of(cpus)})
        counts = self.assumed if chosen.is_assumed else self.named
        counts[chosen.name] = counts.get(chosen.name, 0) + 1
        key = (chosen.name, tuple(read.capacity.items()), tuple(read.allocatable.items()))
        known = self._profiles.get(key)
        if known is None:
            known = self._profiles[key] = _profile(read, chosen, self.furniture)
        profile, with_core = known
        self.with_system_core += with_core
        self.with_system_memory += _Kept.of_node(read).memory_bytes == 0
        return FleetNode(
            name=read.name,
            profile=profile,
            shape=profile.metadata.name,
            labels={
                "kubernetes.io/hostname": read.name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                **read.labels,
            },
            taints=read.taints,
            unschedulable=read.unschedulable,
            place=read.place,
        )


def _impossible(read: ReadNode, cpus: int) -> Iterator[Fault]:
    """What keeps the amounts from being those of a machine, or a node that can hold pods."""
    for name, amount in read.allocatable.items():
        path, has = f"status.allocatable[{name}]", read.capacity.get(name, ZERO)
        if name in ("cpu", "memory") and amount.sign() <= 0:
            yield Fault(path=path, value=str(amount), rule="a node without any cannot hold pods")
        elif amount > has:
            yield Fault(path=path, value=str(amount), rule=f"is more than the capacity, {has}")
        elif is_extended(name) and amount.milli_value() % 1000:
            yield Fault(path=path, value=str(amount), rule="must be an integer")
    if cpus > _MOST_CPUS:
        rule = f"no machine has more than {_MOST_CPUS:,} CPUs under Linux"
        yield Fault(path="status.capacity[cpu]", value=str(read.capacity["cpu"]), rule=rule)


def _profile(read: ReadNode, chosen: Chosen, furniture: Furniture) -> tuple[NodeProfile, bool]:
    """The profile of nodes like this one, and whether a core for the system came on top."""
    pages = {
        Quantity.parse(name.removeprefix(HUGE_PAGES_PREFIX)).value(): amount.value()
        for name, amount in read.capacity.items()
        if is_huge_page(name)
    }
    machine = sized(
        chosen.machine,
        read.capacity["memory"].value(),
        {size // 1024: total // size for size, total in pages.items()},
    )
    kept = _Kept.of_node(read)
    configuration = kept.configuration(furniture.configuration, machine)
    if not kept.memory_bytes:
        # Without a threshold nobody is evicted, and a static memory manager does not start.
        machine = with_memory(machine, _THRESHOLD_BYTES)
    needs_core = furniture.configuration.get("cpuManagerPolicy") == "static" and not kept.of("cpu").value()
    if needs_core:
        machine, cpus = with_system_core(machine)
        configuration["reservedSystemCPUs"] = ",".join(map(str, cpus))
    devices, others = _devices(read, machine, furniture.devices)
    spec = NodeProfileSpec(
        machine_info=machine,
        root_fs_capacity=read.capacity.get(EPHEMERAL_STORAGE, ZERO).value(),
        kubelet_configuration=configuration,
        devices=devices,
        extended_resources=others,
    )
    return NodeProfile(metadata=ObjectMeta(name=_label(read, chosen)), spec=spec), needs_core


def _label(read: ReadNode, chosen: Chosen) -> str:
    """What nodes of this kind are called in reports: the shape, memory, and devices if there are any."""
    gib = read.allocatable["memory"].value() / (1 << 30)
    gpus = [f"{read.allocatable[name]} {name}" for name in sorted(read.allocatable) if _is_gpu(name)]
    return ", ".join([f"{chosen.name} {gib:.0f}Gi", *gpus])


def _is_gpu(name: str) -> bool:
    """Whether a resource's name says that it is a processor of its own kind, in whole pieces."""
    last = name.rpartition("/")[2].lower()
    return is_extended(name) and "gpu" in last and "milli" not in last and "mem" not in last


def _devices(
    read: ReadNode, machine: MachineInfo, named: frozenset[str]
) -> tuple[dict[str, tuple[Device, ...]], ResourceList]:
    """The devices of plugins, dealt out to the NUMA nodes with CPUs; and what is only counted."""
    homes = [node.node_id for node in sorted(machine.topology, key=lambda one: one.node_id) if node.cores]
    devices: dict[str, tuple[Device, ...]] = {}
    others: ResourceList = {}
    for name, capacity in read.capacity.items():
        if not is_extended(name):
            continue
        count, sound = capacity.value(), read.allocatable.get(name, ZERO).value()
        if name in named or (_is_gpu(name) and count <= _MOST_DEVICES):
            short = name.rpartition("/")[2]
            devices[name] = tuple(
                Device(f"{short}-{at}", (homes[at * len(homes) // count],), healthy=at < sound)
                for at in range(count)
            )
        else:
            others[name] = Quantity.of(sound)
    return devices, others


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a node keeps from pods: capacity less allocatable.

    Units: huge_bytes in bytes of all huge pages.
    """

    read: ReadNode
    huge_bytes: int

    @classmethod
    def of_node(cls, read: ReadNode) -> "_Kept":
        """What this node keeps."""
        return cls(read, sum(amount.value() for name, amount in read.capacity.items() if is_huge_page(name)))

    def of(self, resource: str) -> Quantity:
        """What is kept of a resource; never below zero."""
        left = self.read.capacity.get(resource, ZERO) - self.read.allocatable.get(resource, ZERO)
        return Quantity.of(0) if left.sign() < 0 else left

    @property
    def memory_bytes(self) -> int:
        """The memory that is kept, beside huge pages."""
        return max(self.of("memory").value() - self.huge_bytes, 0)

    def configuration(self, base: Mapping[str, Any], machine: MachineInfo) -> dict[str, Any]:
        """The kubelet's configuration with what gives the node the allocatable amounts that it has."""
        memory = self.memory_bytes or _THRESHOLD_BYTES
        threshold = min(memory, _THRESHOLD_BYTES)
        kube = {"memory": memory - threshold, EPHEMERAL_STORAGE: self.of(EPHEMERAL_STORAGE).value()}
        reserved = {
            name: str(Quantity.of(amount, Format.BINARY_SI)) for name, amount in kube.items() if amount
        }
        if self.of("cpu").sign():
            reserved["cpu"] = str(self.of("cpu"))
        wished = {
            name: value
            for name, value in base.items()
            if name not in ("systemReserved", "reservedSystemCPUs", "reservedMemory", "podsPerCore")
        }
        made = {
            **wished,
            "kubeReserved": reserved,
            "evictionHard": {
                **base.get("evictionHard", {}),
                _MEMORY_THRESHOLD: str(threshold),
                _DISK_THRESHOLD: "0%",
            },
            "maxPods": self.read.allocatable.get("pods", Quantity.of(USUAL_PODS)).value(),
        }
        if base.get("memoryManagerPolicy") == "Static":
            home = min(node.node_id for node in machine.topology if node.memory)
            made["reservedMemory"] = [{"numaNode": home, "limits": {"memory": str(memory)}}]
        return made
