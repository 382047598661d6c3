"""Nodes of a fleet, assembled from Node objects, machine shapes and a kubelet configuration."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.machine_shapes import (
    MachineChoice,
    ShapeRule,
    chosen_machine,
    resized,
    with_memory,
    with_system_core,
)
from nodewright.fleet.workload import FleetNode
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import Device, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta, ResourceList, Taint
from nodewright.model.kubernetes.resource_names import (
    EPHEMERAL_STORAGE,
    HUGE_PAGE_RULE,
    huge_page_bytes,
    is_extended,
    is_huge_page,
)
from nodewright.model.releases.release_table import NEWEST, reported_release
from nodewright.model.values.quantity import INT64_MAX, ZERO, Quantity, QuantityFormat

DEFAULT_CONFIGURATION: Mapping[str, Any] = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "best-effort",
}
"""The default kubelet configuration of a fleet, with exclusive CPUs."""
DEFAULT_MAX_PODS = 110
_MAX_DEVICES = 64
_MAX_CPUS = 8192
LARGEST_AMOUNT = Quantity.of(INT64_MAX // 1000)
"""Of any resource, so that thousandths of it fit into 64 bits as well."""
MAX_MACHINE_CPUS = 1 << 19
"""Default limit of the CPUs of different machines: each takes time and memory, and a line of a table makes one."""
_MACHINE_COST = 64
"""What a machine counts besides its CPUs."""
_THRESHOLD_BYTES = 100 << 20
_MEMORY_THRESHOLD, _DISK_THRESHOLD = "memory.available", "nodefs.available"


class NodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A node as read from a file."""

    name: str
    capacity: ResourceList
    allocatable: ResourceList
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: dict[str, int] = msgspec.field(default_factory=dict)
    """Sizes in bytes, by name."""
    release: str = NEWEST.name
    """The minor release of the kubelet."""
    shape: str = ""
    """Its machine in the catalogue, if its object names one."""
    configuration: Mapping[str, Any] | None = None
    """The configuration of its kubelet, if objects tell it."""
    cpu_decider: str = ""
    """What decides about its CPUs beside its kubelet; empty: nothing that is known."""
    source: str = ""


def missing_node_facts(status: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[Fault]:
    """Faults of a Node object that lacks what every node has."""
    if not meta.get("name"):
        yield Fault(path="metadata.name", error="Required value", rule="")
    allocatable = status.get("allocatable")
    for name in ("cpu", "memory"):
        if not isinstance(allocatable, dict) or allocatable.get(name) is None:
            rule = "a node without it cannot hold pods"
            yield Fault(path=f"status.allocatable[{name}]", error="Required value", rule=rule)


def node_release(status: Mapping[str, Any]) -> str:
    """The minor release of the kubelet that a Node's status reports; the newest if it reports none."""
    info = status.get("nodeInfo")
    return reported_release(info.get("kubeletVersion") if isinstance(info, dict) else None)


def node_images(status: Mapping[str, Any]) -> dict[str, int]:
    """The images in a node's status: sizes in bytes, by name; those without a size of 63 bits do not count."""
    images = status.get("images")
    sizes: dict[str, int] = {}
    for image in images if isinstance(images, list) else ():
        names, size = (
            (image.get("names"), image.get("sizeBytes")) if isinstance(image, dict) else (None, None)
        )
        if isinstance(names, list) and isinstance(size, int) and 0 <= size <= INT64_MAX:
            sizes |= {name: size for name in names if isinstance(name, str)}
    return sizes


class NodeDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults for facts that files do not contain."""

    rules: tuple[ShapeRule, ...] = ()
    configuration: Mapping[str, Any] = msgspec.field(default_factory=lambda: DEFAULT_CONFIGURATION)
    max_machine_cpus: int = MAX_MACHINE_CPUS
    """Maximum number of CPUs of the different machines of the nodes."""


class AssembledNodes(msgspec.Struct, frozen=True, kw_only=True):
    """The assembled nodes, and the assumptions made."""

    nodes: tuple[FleetNode, ...]
    assumed_shapes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of nodes with an assumed shape, by shape."""
    configured_shapes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Number of nodes with a configured shape, by shape."""
    with_system_core: int = 0
    """Number of nodes with an added core for the system, without which the kubelet would not start."""
    with_system_memory: int = 0
    """Number of nodes with 100Mi of added memory for an eviction threshold."""


def assembled_nodes(nodes: Iterable[NodeEntry], defaults: NodeDefaults) -> AssembledNodes:
    """The nodes with machines and kubelets; equal nodes share one profile object.

    Errors: InputError where a shape rule does not fit a node, or a node's amounts are impossible.
    """
    assembler = _NodeAssembler(defaults)
    assembled = tuple(node for entry in nodes if (node := assembler.node(entry)) is not None)
    if assembler.faults:
        raise InputError(assembler.faults)
    return AssembledNodes(
        nodes=assembled,
        assumed_shapes=dict(sorted(assembler.assumed.items())),
        configured_shapes=dict(sorted(assembler.configured.items())),
        with_system_core=assembler.with_system_core,
        with_system_memory=assembler.with_system_memory,
    )


@dataclass(slots=True)
class _NodeAssembler:
    defaults: NodeDefaults
    faults: list[Fault] = field(default_factory=list)
    assumed: dict[str, int] = field(default_factory=dict)
    configured: dict[str, int] = field(default_factory=dict)
    with_system_core: int = 0
    with_system_memory: int = 0
    machine_cpus: int = 0
    _profiles: dict[object, tuple[NodeProfile, bool]] = field(default_factory=dict)

    def node(self, entry: NodeEntry) -> FleetNode | None:
        cpus = -(-entry.capacity["cpu"].milli_value() // 1000)
        faults = list(_impossible(entry, cpus))
        rules = self.defaults.rules
        if entry.shape:
            rules = (*rules, ShapeRule(shape=entry.shape, text=entry.shape))
        chosen = chosen_machine(rules, entry.labels, cpus) if not faults else faults.pop()
        if isinstance(chosen, Fault):
            source = f"{entry.source}, Node {entry.name}".lstrip(", ")
            self.faults += [replace(fault, source=source) for fault in (*faults, chosen)]
            return None
        if entry.capacity["cpu"].milli_value() % 1000:
            # A machine has whole CPUs, even if the node reports a fraction.
            entry = replace(entry, capacity={**entry.capacity, "cpu": Quantity.of(cpus)})
        counts = self.assumed if chosen.is_assumed else self.configured
        counts[chosen.name] = counts.get(chosen.name, 0) + 1
        amounts = (tuple(entry.capacity.items()), tuple(entry.allocatable.items()))
        key = (chosen.name, entry.release, *amounts, id(entry.configuration))
        cached = self._profiles.get(key)
        if cached is None:
            self._check_machines(entry, cpus)
            cached = self._profiles[key] = _profile(entry, chosen, self.defaults)
        profile, with_core = cached
        self.with_system_core += with_core
        self.with_system_memory += _NodeReservation.of_node(entry).memory_bytes == 0
        return FleetNode(
            name=entry.name,
            profile=profile,
            shape=profile.metadata.name,
            labels=entry.labels,
            taints=entry.taints,
            unschedulable=entry.unschedulable,
            images=entry.images,
            source=entry.source,
        )

    def _check_machines(self, entry: NodeEntry, cpus: int) -> None:
        """Errors: InputError beyond the limit of different machines."""
        self.machine_cpus += cpus + _MACHINE_COST
        limit = self.defaults.max_machine_cpus
        if self.machine_cpus > limit:
            rule = (
                f"the different machines of the nodes up to this one have more than {limit} CPUs "
                f"(each counts {_MACHINE_COST} more), which is the limit of --max-machine-cpus"
            )
            raise InputError([Fault(source=f"{entry.source}, Node {entry.name}", rule=rule)])


def _impossible(entry: NodeEntry, cpus: int) -> Iterator[Fault]:
    """Faults of amounts that no machine can have, or with which the node cannot hold pods."""
    for name, amount in entry.allocatable.items():
        path, capacity = f"status.allocatable[{name}]", entry.capacity.get(name, ZERO)
        if name in ("cpu", "memory") and amount.sign() <= 0:
            yield Fault(path=path, value=str(amount), rule="a node without any cannot hold pods")
        elif amount > capacity:
            yield Fault(path=path, value=str(amount), rule=f"is more than the capacity, {capacity}")
        elif is_extended(name) and amount.milli_value() % 1000:
            yield Fault(path=path, value=str(amount), rule="must be an integer")
        if is_huge_page(name) and huge_page_bytes(name) is None:
            yield Fault(path=path, value=str(amount), rule=HUGE_PAGE_RULE)
    for name, amount in entry.capacity.items():
        if amount > LARGEST_AMOUNT:
            rule = f"must be at most {LARGEST_AMOUNT}"
            yield Fault(path=f"status.capacity[{name}]", value=str(amount), rule=rule)
    if cpus > _MAX_CPUS:
        rule = f"no machine has more than {_MAX_CPUS:,} CPUs under Linux"
        yield Fault(path="status.capacity[cpu]", value=str(entry.capacity["cpu"]), rule=rule)


def _profile(entry: NodeEntry, chosen: MachineChoice, defaults: NodeDefaults) -> tuple[NodeProfile, bool]:
    """The profile of such nodes, and whether a core for the system was added."""
    pages = {
        size: amount.value()
        for name, amount in entry.capacity.items()
        if is_huge_page(name) and (size := huge_page_bytes(name)) is not None
    }
    machine = resized(
        chosen.machine,
        entry.capacity["memory"].value(),
        {size // 1024: total // size for size, total in pages.items()},
    )
    reservation = _NodeReservation.of_node(entry)
    base = defaults.configuration if entry.configuration is None else entry.configuration
    configuration = reservation.configuration(base, machine)
    if not reservation.memory_bytes:
        # Without a threshold no pod is evicted, and a static memory manager does not start.
        machine = with_memory(machine, _THRESHOLD_BYTES)
    needs_core = base.get("cpuManagerPolicy") == "static" and not reservation.of("cpu").value()
    if needs_core:
        machine, cpus = with_system_core(machine)
        configuration["reservedSystemCPUs"] = ",".join(map(str, cpus))
    devices, others = _devices(entry, machine)
    spec = NodeProfileSpec(
        kubernetes_version=entry.release,
        machine_info=machine,
        root_fs_capacity=entry.capacity.get(EPHEMERAL_STORAGE, ZERO).value(),
        kubelet_configuration=configuration,
        devices=devices,
        extended_resources=others,
        allocatable={name: amount for name, amount in entry.allocatable.items() if not is_extended(name)},
    )
    return NodeProfile(metadata=ObjectMeta(name=_label(entry, chosen)), spec=spec), needs_core


def _label(entry: NodeEntry, chosen: MachineChoice) -> str:
    """The name of such nodes in reports: shape, memory, devices, and an older release."""
    gib = entry.allocatable["memory"].value() / (1 << 30)
    gpus = [f"{entry.allocatable[name]} {name}" for name in sorted(entry.allocatable) if _is_gpu(name)]
    releases = [f"kubelet {entry.release}"] if entry.release != NEWEST.name else []
    return ", ".join([f"{chosen.name} {gib:.0f}Gi", *gpus, *releases])


def _is_gpu(name: str) -> bool:
    """Whether the name of a resource indicates whole GPUs."""
    last = name.rpartition("/")[2].lower()
    return is_extended(name) and "gpu" in last and "milli" not in last and "mem" not in last


def _devices(entry: NodeEntry, machine: MachineInfo) -> tuple[dict[str, tuple[Device, ...]], ResourceList]:
    """Devices of plugins, distributed over the NUMA nodes with CPUs; and other extended resources."""
    numa_ids = [
        node.node_id for node in sorted(machine.topology, key=lambda numa: numa.node_id) if node.cores
    ]
    devices: dict[str, tuple[Device, ...]] = {}
    others: ResourceList = {}
    for name, capacity in entry.capacity.items():
        if not is_extended(name):
            continue
        count, healthy_count = capacity.value(), entry.allocatable.get(name, ZERO).value()
        if count <= _MAX_DEVICES and _is_gpu(name):
            short = name.rpartition("/")[2]
            devices[name] = tuple(
                Device(f"{short}-{at}", (numa_ids[at * len(numa_ids) // count],), healthy=at < healthy_count)
                for at in range(count)
            )
        else:
            others[name] = Quantity.of(healthy_count)
    return devices, others


class _NodeReservation(msgspec.Struct, frozen=True):
    """The reservation of a node: capacity minus allocatable.

    Units: huge_bytes in bytes of all huge pages.
    """

    entry: NodeEntry
    huge_bytes: int

    @classmethod
    def of_node(cls, entry: NodeEntry) -> "_NodeReservation":
        """The reservation of this node."""
        return cls(
            entry, sum(amount.value() for name, amount in entry.capacity.items() if is_huge_page(name))
        )

    def of(self, resource: str) -> Quantity:
        """The reserved amount of a resource; never negative."""
        reserved = self.entry.capacity.get(resource, ZERO) - self.entry.allocatable.get(resource, ZERO)
        return ZERO if reserved.sign() < 0 else reserved

    @property
    def memory_bytes(self) -> int:
        """The reserved memory, without huge pages."""
        return max(self.of("memory").value() - self.huge_bytes, 0)

    def configuration(self, base: Mapping[str, Any], machine: MachineInfo) -> dict[str, Any]:
        """The kubelet configuration that results in the node's allocatable amounts."""
        memory = self.memory_bytes or _THRESHOLD_BYTES
        threshold = min(memory, _THRESHOLD_BYTES)
        kube_reserved = {"memory": memory - threshold, EPHEMERAL_STORAGE: self.of(EPHEMERAL_STORAGE).value()}
        reserved = {
            name: str(Quantity.of(amount, QuantityFormat.BINARY_SI))
            for name, amount in kube_reserved.items()
            if amount
        }
        if self.of("cpu").sign():
            reserved["cpu"] = str(self.of("cpu"))
        kept = {
            name: value
            for name, value in base.items()
            if name not in ("systemReserved", "reservedSystemCPUs", "reservedMemory", "podsPerCore")
        }
        configuration = {
            **kept,
            "kubeReserved": reserved,
            "evictionHard": {
                **(base.get("evictionHard") or {}),
                _MEMORY_THRESHOLD: str(threshold),
                _DISK_THRESHOLD: "0%",
            },
            "maxPods": self.entry.allocatable.get("pods", Quantity.of(DEFAULT_MAX_PODS)).value(),
        }
        if base.get("memoryManagerPolicy") == "Static":
            numa_id = min(node.node_id for node in machine.topology if node.memory)
            configuration["reservedMemory"] = [{"numaNode": numa_id, "limits": {"memory": str(memory)}}]
        return configuration
