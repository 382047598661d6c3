"""The CPU topology of a machine: cores, caches, sockets and NUMA nodes as bit masks."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import force_setattr

from nodewright.model.hardware import Core, MachineInfo
from nodewright.model.reasons.cpu import (
    CoreThreadsRepeated,
    CoreWithoutThreads,
    CPUCountUnknown,
    CPUMachineFault,
)
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.idset import CPUSet, NUMASet

Mask: TypeAlias = int
"""A set of CPUs as bits. Assignment works on plain integers; public functions take and return CPUSet."""


class CPUInfo(NamedTuple):
    """The topology of a CPU. A core's id is its lowest CPU."""

    cpu: int
    numa: int
    socket: int
    core: int
    uncore_cache: int


class TopologyPart(NamedTuple):
    """A unit (core, cache, socket or NUMA node) within a larger one."""

    id: int
    inside: Mask
    whole: Mask
    """All its CPUs; more than `inside` only on machines whose units do not nest."""


TopologyParts: TypeAlias = tuple[TopologyPart, ...]


class CorePattern(NamedTuple):
    """Cores that differ in their lowest CPU only, which orders them: all of them are compared at once."""

    lowest: Mask
    """The lowest CPU of each core."""
    offsets: tuple[int, ...]
    """The CPUs of a core, counted from its lowest."""

    @classmethod
    def of(cls, cores: TopologyParts) -> "CorePattern | None":
        """The pattern of these cores; None: they differ, or are not all inside the larger unit."""
        lowest, shapes = 0, set()
        for core in cores:
            first = core.whole & -core.whole
            if core.inside != core.whole or first <= lowest:
                return None
            lowest |= first
            shapes.add(core.whole // first)
        if len(shapes) != 1:
            return None
        return cls(lowest, tuple(CPUSet(shapes.pop())))

    def free_cores(self, free: Mask) -> Mask:
        """The lowest CPUs of the cores all of whose CPUs are free."""
        cores = self.lowest
        for offset in self.offsets:
            cores &= free >> offset
        return cores

    def cpus(self, cores: Mask) -> Mask:
        """All CPUs of these cores, which are given by their lowest CPU."""
        cpus = 0
        for offset in self.offsets:
            cpus |= cores << offset
        return cpus


class CPUTopology(msgspec.Struct, frozen=True, eq=False):
    """The machine's CPUs. The counts are the kubelet's and may differ from `cpu_info` on irregular machines.

    Follows: v1.36, cpumanager/topology/topology.go, CPUTopology and CPUDetails.
    """

    num_cpus: int
    num_cores: int
    num_sockets: int
    num_numa_nodes: int
    num_uncore_caches: int
    cpu_info: tuple[CPUInfo, ...]
    """One entry per CPU, ascending."""

    # Derived from these, whatever is passed.
    cpus: CPUSet = CPUSet()
    in_core: Mapping[int, Mask] = {}
    in_socket: Mapping[int, Mask] = {}
    in_numa: Mapping[int, Mask] = {}
    in_uncore_cache: Mapping[int, Mask] = {}
    sockets: TopologyParts = ()
    numa_nodes: TopologyParts = ()
    sockets_in_numa: Mapping[int, TopologyParts] = {}
    numa_in_socket: Mapping[int, TopologyParts] = {}
    cores_in_socket: Mapping[int, TopologyParts] = {}
    cores_in_numa: Mapping[int, TopologyParts] = {}
    core_patterns_in_socket: Mapping[int, CorePattern | None] = {}
    core_patterns_in_numa: Mapping[int, CorePattern | None] = {}
    cores_in_uncore_cache: Mapping[int, TopologyParts] = {}
    uncore_caches_in_numa: Mapping[int, TopologyParts] = {}
    numa_ids: NUMASet = NUMASet()
    """The NUMA nodes that have CPUs."""
    cpus_by_numa: tuple[tuple[int, Mask], ...] = ()
    """Each of these NUMA nodes, as a set of one, and its CPUs, by number."""
    smallest_core: int = 0
    """CPUs of the smallest core, as of the smallest socket and NUMA node: with fewer missing, none is taken whole."""
    smallest_socket: int = 0
    smallest_numa_node: int = 0
    numa_sizes: tuple[int, ...] = ()
    """The number of CPUs of each NUMA node, descending."""

    def __post_init__(self) -> None:
        # First of all: a mask of an id that is too large would take all memory.
        cpus = CPUSet.from_ids(info.cpu for info in self.cpu_info)
        cores = _masks(self.cpu_info, lambda info: info.core)
        sockets = _masks(self.cpu_info, lambda info: info.socket)
        numa = _masks(self.cpu_info, lambda info: info.numa)
        caches = _masks(self.cpu_info, lambda info: info.uncore_cache)
        cores_in_socket, cores_in_numa = _parts(sockets, cores), _parts(numa, cores)
        derived: dict[str, object] = {
            "cpus": cpus,
            "in_core": cores,
            "in_socket": sockets,
            "in_numa": numa,
            "in_uncore_cache": caches,
            "sockets": tuple(TopologyPart(socket, mask, mask) for socket, mask in sockets.items()),
            "numa_nodes": tuple(TopologyPart(node, mask, mask) for node, mask in numa.items()),
            "sockets_in_numa": _parts(numa, sockets),
            "numa_in_socket": _parts(sockets, numa),
            "cores_in_socket": cores_in_socket,
            "cores_in_numa": cores_in_numa,
            "core_patterns_in_socket": _patterns(cores_in_socket),
            "core_patterns_in_numa": _patterns(cores_in_numa),
            "cores_in_uncore_cache": _parts(caches, cores),
            "uncore_caches_in_numa": _parts(numa, caches),
            "numa_ids": NUMASet.from_ids(numa),
            "cpus_by_numa": tuple((1 << node, mask) for node, mask in numa.items()),
            "smallest_core": min(map(int.bit_count, cores.values()), default=0),
            "smallest_socket": min(map(int.bit_count, sockets.values()), default=0),
            "smallest_numa_node": min(map(int.bit_count, numa.values()), default=0),
            "numa_sizes": tuple(sorted(map(int.bit_count, numa.values()), reverse=True)),
        }
        for name, value in derived.items():
            force_setattr(self, name, value)

    def __eq__(self, other: object) -> bool:
        return self._described() == other._described() if isinstance(other, CPUTopology) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._described())

    def _described(self) -> tuple[object, ...]:
        """What the rest is derived from."""
        counts = (
            self.num_cpus,
            self.num_cores,
            self.num_sockets,
            self.num_numa_nodes,
            self.num_uncore_caches,
        )
        return (*counts, self.cpu_info)

    @property
    def cpus_per_core(self) -> int:
        """CPUs per core on average, rounded down; 0 without cores."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @property
    def cpus_per_socket(self) -> int:
        """CPUs per socket on average, rounded down; 0 without sockets."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @property
    def cpus_per_uncore_cache(self) -> int:
        """CPUs per last-level cache on average, rounded down; 0 without caches."""
        return self.num_cpus // self.num_uncore_caches if self.num_uncore_caches else 0

    @property
    def numa_is_outer(self) -> bool:
        """Whether NUMA nodes contain sockets (or match them), rather than sockets NUMA nodes."""
        return self.num_sockets >= self.num_numa_nodes

    def whole_cores(self, cpus: CPUSet) -> CPUSet:
        """These CPUs and their siblings on the same cores."""
        mask = 0
        for core in self.in_core.values():
            if core & cpus.mask:
                mask |= core
        return CPUSet(mask)


def discover(machine: MachineInfo) -> Verdict[CPUTopology]:
    """The topology of a machine, or the fault in its description.

    Follows: v1.36, cpumanager/topology/topology.go, Discover.
    """
    if machine.num_cores == 0:
        return Refused((CPUCountUnknown(),))
    cpu_info: dict[int, CPUInfo] = {}
    num_cores = 0
    for node in machine.topology:
        num_cores += len(node.cores)
        for core in node.cores:
            fault = _fault(node.node_id, core)
            if fault is not None:
                return Refused((fault,))
            core_id = min(core.thread_ids)
            cache = core.uncore_caches[0].id if core.uncore_caches else core.socket_id
            for cpu in core.thread_ids:  # a CPU that two cores list belongs to the later one
                cpu_info[cpu] = CPUInfo(cpu, node.node_id, core.socket_id, core_id, cache)
    return Granted(
        CPUTopology(
            num_cpus=machine.num_cores,
            num_cores=num_cores,
            num_sockets=machine.num_sockets,
            num_numa_nodes=len({info.numa for info in cpu_info.values()}),
            num_uncore_caches=len({info.uncore_cache for info in cpu_info.values()}),
            cpu_info=tuple(cpu_info[cpu] for cpu in sorted(cpu_info)),
        )
    )


def _fault(numa: int, core: Core) -> CPUMachineFault | None:
    if not core.thread_ids:
        return CoreWithoutThreads(numa=numa, core=core.core_id)
    if len(set(core.thread_ids)) != len(core.thread_ids):
        return CoreThreadsRepeated(numa=numa, core=core.core_id, threads=core.thread_ids)
    return None


def _masks(cpu_info: Iterable[CPUInfo], unit: Callable[[CPUInfo], int]) -> dict[int, Mask]:
    masks: dict[int, Mask] = {}
    for info in cpu_info:
        unit_id = unit(info)
        masks[unit_id] = masks.get(unit_id, 0) | 1 << info.cpu
    return dict(sorted(masks.items()))


def _parts(outer: Mapping[int, Mask], inner: Mapping[int, Mask]) -> dict[int, TopologyParts]:
    return {
        outer_id: tuple(
            TopologyPart(inner_id, mask & whole, whole) for inner_id, whole in inner.items() if mask & whole
        )
        for outer_id, mask in outer.items()
    }


def _patterns(cores: Mapping[int, TopologyParts]) -> dict[int, CorePattern | None]:
    return {outer_id: CorePattern.of(parts) for outer_id, parts in cores.items()}
