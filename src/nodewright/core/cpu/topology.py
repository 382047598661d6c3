"""How the CPUs of a machine lie in cores, caches, sockets and NUMA nodes, as bit masks ready for picking."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from nodewright.model.cpu_reasons import (
    CoreThreadsRepeated,
    CoreWithoutThreads,
    CPUCountUnknown,
    MachineFault,
)
from nodewright.model.machine import Core, MachineInfo
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import CPUSet, NUMASet

Mask: TypeAlias = int
"""A set of CPUs as bits. Inside this package sets are plain integers; its functions speak of CPUSet."""


class CPUPlace(NamedTuple):
    """Where a CPU lies. A core is named by the lowest CPU that it lists."""

    cpu: int
    numa: int
    socket: int
    core: int
    uncore_cache: int


class Part(NamedTuple):
    """A unit (core, cache, socket or NUMA node) as far as it lies in a larger one."""

    id: int
    inside: Mask
    whole: Mask
    """All its CPUs; more than `inside` only on machines whose units do not nest."""


Parts: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CPUTopology:
    """The machine's CPUs. The counts are the kubelet's and need not follow from the places.

    Follows: v1.36, cpumanager/topology/topology.go, CPUTopology and CPUDetails.
    """

    num_cpus: int
    num_cores: int
    num_sockets: int
    num_numa_nodes: int
    num_uncore_caches: int
    places: tuple[CPUPlace, ...]
    """One a CPU, ascending."""

    cpus: CPUSet = field(init=False, compare=False, repr=False)
    in_core: Mapping[int, Mask] = field(init=False, compare=False, repr=False)
    in_socket: Mapping[int, Mask] = field(init=False, compare=False, repr=False)
    in_numa: Mapping[int, Mask] = field(init=False, compare=False, repr=False)
    in_uncore_cache: Mapping[int, Mask] = field(init=False, compare=False, repr=False)
    sockets: Parts = field(init=False, compare=False, repr=False)
    numa_nodes: Parts = field(init=False, compare=False, repr=False)
    sockets_in_numa: Mapping[int, Parts] = field(init=False, compare=False, repr=False)
    numa_in_socket: Mapping[int, Parts] = field(init=False, compare=False, repr=False)
    cores_in_socket: Mapping[int, Parts] = field(init=False, compare=False, repr=False)
    cores_in_numa: Mapping[int, Parts] = field(init=False, compare=False, repr=False)
    cores_in_uncore_cache: Mapping[int, Parts] = field(init=False, compare=False, repr=False)
    uncore_caches_in_numa: Mapping[int, Parts] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        cores = _masks(self.places, lambda place: place.core)
        sockets = _masks(self.places, lambda place: place.socket)
        numa = _masks(self.places, lambda place: place.numa)
        caches = _masks(self.places, lambda place: place.uncore_cache)
        derived: dict[str, object] = {
            "cpus": CPUSet.from_ids(place.cpu for place in self.places),
            "in_core": cores,
            "in_socket": sockets,
            "in_numa": numa,
            "in_uncore_cache": caches,
            "sockets": tuple(Part(one, mask, mask) for one, mask in sockets.items()),
            "numa_nodes": tuple(Part(one, mask, mask) for one, mask in numa.items()),
            "sockets_in_numa": _parts(numa, sockets),
            "numa_in_socket": _parts(sockets, numa),
            "cores_in_socket": _parts(sockets, cores),
            "cores_in_numa": _parts(numa, cores),
            "cores_in_uncore_cache": _parts(caches, cores),
            "uncore_caches_in_numa": _parts(numa, caches),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def cpus_per_core(self) -> int:
        """CPUs a core has on average, rounded down; 0 without cores."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @property
    def cpus_per_socket(self) -> int:
        """CPUs a socket has on average, rounded down; 0 without sockets."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @property
    def cpus_per_uncore_cache(self) -> int:
        """CPUs that share a last-level cache on average, rounded down; 0 without caches."""
        return self.num_cpus // self.num_uncore_caches if self.num_uncore_caches else 0

    @property
    def numa_is_outer(self) -> bool:
        """Whether sockets lie in NUMA nodes (or match them), and not the other way round."""
        return self.num_sockets >= self.num_numa_nodes

    @property
    def numa_ids(self) -> NUMASet:
        """The NUMA nodes that have CPUs."""
        return NUMASet.from_ids(self.in_numa)

    def numa_of(self, cpus: CPUSet) -> NUMASet:
        """The NUMA nodes on which these CPUs lie.

        Departs: a CPU that the machine lacks lies nowhere; the kubelet's hints put it on NUMA node 0.
        """
        return NUMASet.from_ids(numa for numa, mask in self.in_numa.items() if mask & cpus.mask)

    def whole_cores(self, cpus: CPUSet) -> CPUSet:
        """These CPUs and all that share a core with one of them."""
        mask = 0
        for core in self.in_core.values():
            if core & cpus.mask:
                mask |= core
        return CPUSet(mask)


def discover(machine: MachineInfo) -> Verdict[CPUTopology]:
    """The topology of a machine, or what is wrong with its description.

    Follows: v1.36, cpumanager/topology/topology.go, Discover.
    """
    if machine.num_cores == 0:
        return Refused((CPUCountUnknown(),))
    places: dict[int, CPUPlace] = {}
    num_cores = 0
    for node in machine.topology:
        num_cores += len(node.cores)
        for core in node.cores:
            fault = _fault(node.node_id, core)
            if fault is not None:
                return Refused((fault,))
            name = min(core.thread_ids)
            cache = core.uncore_caches[0].id if core.uncore_caches else core.socket_id
            for cpu in core.thread_ids:  # a CPU that two cores list belongs to the later one
                places[cpu] = CPUPlace(cpu, node.node_id, core.socket_id, name, cache)
    return Granted(
        CPUTopology(
            num_cpus=machine.num_cores,
            num_cores=num_cores,
            num_sockets=machine.num_sockets,
            num_numa_nodes=len({place.numa for place in places.values()}),
            num_uncore_caches=len({place.uncore_cache for place in places.values()}),
            places=tuple(places[cpu] for cpu in sorted(places)),
        )
    )


def _fault(numa: int, core: Core) -> MachineFault | None:
    if not core.thread_ids:
        return CoreWithoutThreads(numa=numa, core=core.core_id)
    if len(set(core.thread_ids)) != len(core.thread_ids):
        return CoreThreadsRepeated(numa=numa, core=core.core_id, threads=core.thread_ids)
    return None


def _masks(places: Iterable[CPUPlace], unit: Callable[[CPUPlace], int]) -> dict[int, Mask]:
    found: dict[int, Mask] = {}
    for place in places:
        key = unit(place)
        found[key] = found.get(key, 0) | 1 << place.cpu
    return dict(sorted(found.items()))


def _parts(outer: Mapping[int, Mask], inner: Mapping[int, Mask]) -> dict[int, Parts]:
    return {
        one: tuple(Part(other, mask & whole, whole) for other, whole in inner.items() if mask & whole)
        for one, mask in outer.items()
    }
