"""Machines that ship with the package: well-known real ones, and those of the recorded decisions."""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import (
    GIB,
    HUGE_PAGE_SIZES_ARM_KIB,
    HUGE_PAGE_SIZES_X86_KIB,
    MIB,
    CPUNumbering,
    MachineInfo,
    MachineShape,
    machine_from_shape,
)
from nodewright.model.kubernetes.node_profile import Device, NodeProfile, NodeProfileSpec, kubelet_labels
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.printable import counted

_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
_MAX_NAME_LENGTH = 100
"""Longer names are not looked for: no machine has one."""
SOURCES_ANNOTATION = "nodewright.dev/sources"


ASSUMED_ANNOTATION = "nodewright.dev/assumed"
"""What a profile from the catalogue says of its figures: where they are from, and which have no source."""


DEFAULT_ROOT_FS_BYTES = 500 << 30


DEFAULT_PID_MAX = 4_194_304  # set by systemd on 64-bit machines


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A real machine as `data/machines.toml` describes it; the names of the shape are those of `MachineShape`.

    Units: GiB of memory (of a NUMA node), MiB of an L3 cache.
    """

    description: str
    is_instance_type: bool = False
    """Whether the name is that of a cloud's instance type."""
    architecture: str = "amd64"
    sockets: int = 1
    numa_per_socket: int = 1
    cores: int = 1
    threads: int = 1
    small_cores: int = 0
    l3_mib: int = 0
    l3_cores: int = 0
    memory_gib: int
    memory_only_gib: tuple[int, ...] = ()
    distances: tuple[int, int] = (12, 20)
    slit: tuple[tuple[int, ...], ...] = ()
    numbering: CPUNumbering = CPUNumbering.OFFSET
    devices: dict[str, int | tuple[int, ...]] = {}
    """The NUMA node of each device of a resource; a number: the NUMA nodes of so many devices are not known."""
    address_pods: int = 0
    """The pods for which an EC2 instance has addresses; 0: unknown."""
    sources: tuple[str, ...] = ()
    """Which figures are from where."""
    assumed: str = ""
    """The figures that no source confirms."""


class CatalogueMachine(msgspec.Struct, frozen=True):
    """A machine of the catalogue; `is_recorded` marks those on which the kubelet's decisions were recorded."""

    name: str
    entry: CatalogueEntry | None = None
    """None: a recorded machine."""

    @property
    def is_recorded(self) -> bool:
        """Whether the kubelet's decisions were recorded on this machine."""
        return self.entry is None

    @property
    def machine(self) -> MachineInfo:
        """The machine as cAdvisor describes it."""
        return _machine(self.name)

    @property
    def architecture(self) -> str:
        """The architecture as Go names it."""
        return "amd64" if self.entry is None else self.entry.architecture

    @property
    def description(self) -> str:
        """The machine in a line."""
        if self.entry is None:
            return _recorded_description(self.name, self.machine)
        return self.entry.description

    @property
    def sources(self) -> tuple[str, ...]:
        """Which figures are from where."""
        return () if self.entry is None else self.entry.sources

    @property
    def assumed(self) -> str:
        """The figures that no source confirms."""
        return "" if self.entry is None else self.entry.assumed

    @property
    def devices(self) -> dict[str, tuple[Device, ...]]:
        """The devices by resource, as their plugins list them."""
        entry = self.entry
        return (
            {} if entry is None else {name: _devices(name, places) for name, places in entry.devices.items()}
        )

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the machine's cloud gives a node, beside the kubelet's own."""
        return {_INSTANCE_TYPE: self.name} if self.entry is not None and self.entry.is_instance_type else {}


@cache
def catalogue() -> Mapping[str, CatalogueMachine]:
    """All machines by name, real ones first, then the recorded ones."""
    real = {name: CatalogueMachine(name, entry) for name, entry in real_machines().items()}
    return real | {name: CatalogueMachine(name) for name in recorded_machines()}


@cache
def real_machines() -> dict[str, CatalogueEntry]:
    """The real machines by name."""
    return msgspec.convert(tomllib.loads(_text("machines.toml")), dict[str, CatalogueEntry])


@cache
def recorded_machines() -> dict[str, dict[str, Any]]:
    """The recorded machines as plain documents with cAdvisor's names."""
    import json  # noqa: PLC0415 - start-up time

    machines: dict[str, dict[str, Any]] = json.loads(_text("machines.json"))
    return machines


def catalogue_machine(name: str) -> CatalogueMachine | None:
    """The machine of that name, equal to that of `catalogue`, of which it reads no more than needed; None: there is none."""
    entry = _real_machine(name) if len(name) <= _MAX_NAME_LENGTH else None
    return CatalogueMachine(name, entry) if entry is not None or name in recorded_machines() else None


def catalogue_profile(name: str) -> NodeProfile:
    """The catalogue machine of that name, as a node with typical disks and its devices.

    Errors: InputError if the catalogue has no such name.
    """
    machine = catalogue_machine(name)
    if machine is None:
        from difflib import get_close_matches  # noqa: PLC0415 - start-up time

        matches = get_close_matches(name[:_MAX_NAME_LENGTH], catalogue(), n=3)
        hint = f" (similar names: {', '.join(matches)})" if matches else ""
        rule = f"neither a file nor a name of `nodewright node catalogue`{hint}"
        raise InputError([Fault(source="--node", value=name, rule=rule)])
    return _profile(machine)


def _profile(machine: CatalogueMachine) -> NodeProfile:
    name = machine.name.lower().replace("_", "-")  # names of nodes have no others
    spec = NodeProfileSpec(
        machine_info=machine.machine,
        root_fs_capacity=DEFAULT_ROOT_FS_BYTES,
        labels=kubelet_labels(name, machine.architecture) | machine.labels,
        devices=machine.devices,
        pid_max=DEFAULT_PID_MAX,
    )
    annotations = {
        key: text
        for key, text in (
            (SOURCES_ANNOTATION, "; ".join(machine.sources)),
            (ASSUMED_ANNOTATION, machine.assumed),
        )
        if text
    }
    return NodeProfile(metadata=ObjectMeta(name=name, annotations=annotations), spec=spec)


@cache
def _real_machine(name: str) -> CatalogueEntry | None:
    key = rf"\[\"?{re.escape(name)}\"?"
    table = re.search(rf"^{key}\]\n(?:(?!\[).*\n|{key}\..*\n)*", _text("machines.toml"), re.MULTILINE)
    entry = tomllib.loads(table[0]).get(name) if table is not None else None
    return None if entry is None else msgspec.convert(entry, CatalogueEntry)


@cache
def _text(file: str) -> str:
    # importlib.resources takes long to import.
    path = os.path.join(os.path.dirname(__file__), "data", file)  # noqa: PTH118, PTH120 - pathlib takes long to import
    with open(path, encoding="utf-8") as opened:  # noqa: PTH123 - above
        return opened.read()


@cache
def _machine(name: str) -> MachineInfo:
    entry = _real_machine(name)
    if entry is None:
        return msgspec.convert(recorded_machines()[name], MachineInfo)
    is_x86 = entry.architecture == "amd64"
    shape = MachineShape(
        sockets=entry.sockets,
        numa_per_socket=entry.numa_per_socket,
        cores=entry.cores,
        threads=entry.threads,
        small_cores=entry.small_cores,
        l3_bytes=entry.l3_mib * MIB,
        l3_cores=entry.l3_cores,
        memory_bytes=entry.memory_gib * GIB,
        memory_only_bytes=tuple(amount * GIB for amount in entry.memory_only_gib),
        distances=entry.distances,
        slit=entry.slit or _distances(name, entry),
        numbering=entry.numbering,
        huge_page_sizes=HUGE_PAGE_SIZES_X86_KIB if is_x86 else HUGE_PAGE_SIZES_ARM_KIB,
        core_ids_in_cpuinfo=is_x86,
    )
    return machine_from_shape(shape)


def _devices(resource: str, places: int | tuple[int, ...]) -> tuple[Device, ...]:
    stem = resource.rpartition("/")[2]
    if isinstance(places, int):
        return tuple(Device(id=f"{stem}-{number}") for number in range(places))
    return tuple(
        Device(id=f"{stem}-{number}", numa_nodes=(numa_node,)) for number, numa_node in enumerate(places)
    )


def _distances(name: str, entry: CatalogueEntry) -> tuple[tuple[int, ...], ...]:
    """The distances where two numbers are not enough, and there are too many to write down."""
    if name == "epyc-7742-2s-l3numa":
        return _l3_as_numa()
    return _grace(entry.sockets, len(entry.memory_only_gib)) if entry.memory_only_gib else ()


def _l3_as_numa() -> tuple[tuple[int, ...], ...]:
    """Distances of two EPYC 7742 with a NUMA node for each of their 2 x 16 L3 caches, four a quadrant."""

    def distance(numa_node: int, other: int) -> int:
        if numa_node == other:
            return 10
        if numa_node // 4 == other // 4:
            return 11
        return 12 if numa_node // 16 == other // 16 else 32

    return tuple(tuple(distance(numa_node, other) for other in range(32)) for numa_node in range(32))


def _grace(sockets: int, memory_only: int) -> tuple[tuple[int, ...], ...]:
    """Distances of Grace processors: the first nodes have the CPUs; the others belong to their GPUs, in equal parts."""
    count = sockets + memory_only

    def distance(numa_node: int, other: int) -> int:
        if numa_node == other:
            return 10
        cpu_nodes = tuple(
            number if number < sockets else (number - sockets) * sockets // memory_only
            for number in (numa_node, other)
        )
        if numa_node < sockets and other < sockets:
            return 40
        if numa_node >= sockets and other >= sockets:
            return 255
        return 80 if cpu_nodes[0] == cpu_nodes[1] else 120

    return tuple(tuple(distance(numa_node, other) for other in range(count)) for numa_node in range(count))


_ODD_MACHINES = {
    "odd-cpuless-node0": "NUMA node 0 without CPUs",
    "odd-cpuless-nodes": "two NUMA nodes with CPUs, then two without",
    "odd-hybrid-cores": "4 cores with two threads, 8 with one",
    "odd-l3-ids-per-socket": "ids of L3 caches repeat on the second socket",
    "odd-l3-unequal": "L3 caches shared by different numbers of cores",
    "odd-numa-ids-0-8": "NUMA nodes are numbered 0 and 8",
    "odd-offline-cpus": "two threads are offline",
    "odd-unequal-nodes": "NUMA nodes with 6, 2, 4 and 4 cores",
    "odd-unequal-sockets": "sockets with 6 and 2 cores",
}
_NUMBERINGS = {
    "adjacent": "the threads of a core numbered next to each other",
    "offset": "second threads numbered after all first ones",
    "interleaved": "CPUs numbered round-robin over the NUMA nodes",
    "scrambled": "CPUs numbered at random",
}


def _recorded_description(name: str, machine: MachineInfo) -> str:
    """The description of a recorded machine, from its topology and name."""
    if name in _ODD_MACHINES:
        return f"recorded machine: {_ODD_MACHINES[name]}"
    cores = [core for node in machine.topology for core in node.cores]
    parts = [f"recorded machine: {counted(machine.num_sockets, 'socket')}"]
    parts.append(counted(len(machine.topology), "NUMA node"))
    parts.append(f"{counted(len(cores), 'core')} with {counted(len(cores[0].thread_ids), 'thread')}")
    if numbering := _NUMBERINGS.get(name.rpartition("-")[2]):
        parts.append(numbering)
    return ", ".join(parts)
