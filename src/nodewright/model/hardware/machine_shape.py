"""Machine descriptions generated from a short shape: sockets, NUMA nodes, cores, threads, caches."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from nodewright.model.hardware.machine_info import (
    Core,
    HugePages,
    MachineInfo,
    NUMANode,
    SharedCache,
    UncoreCache,
    uncore_and_node_caches,
)

GIB = 1 << 30
MIB = 1 << 20

# Page sizes in KiB, in the order in which directories such as hugepages-2048kB sort.
HUGE_PAGE_SIZES_X86_KIB = (1048576, 2048)
HUGE_PAGE_SIZES_ARM_KIB = (1048576, 2048, 32768, 64)


class CPUNumbering(StrEnum):
    """How the kernel numbers the CPUs."""

    ADJACENT = "adjacent"
    """The threads of a core are adjacent: 0,1 then 2,3."""
    OFFSET = "offset"
    """All first threads, node by node, then all second ones: 0,64 then 1,65."""
    ROUND_ROBIN = "round robin"
    """As OFFSET, but alternating between the NUMA nodes: node 0 has the even CPUs."""


class MachineShape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of a machine.

    Units: memory_bytes and l3_bytes in bytes (of a NUMA node, of an L3 cache).
    """

    sockets: int = 1
    numa_per_socket: int = 1
    cores: int = 1
    """Cores of a NUMA node."""
    threads: int = 1
    """Threads of a core."""
    small_cores: int = 0
    """Further cores of a NUMA node, with one thread each (hybrid processors)."""
    l3_bytes: int = 0
    """0: the kernel reports no L3 cache."""
    l3_cores: int = 0
    """Cores that share an L3 cache; 0: all of the socket."""
    memory_bytes: int = GIB
    distances: tuple[int, int] = (12, 20)
    """From a NUMA node to others of its socket, and to other sockets."""
    slit: tuple[tuple[int, ...], ...] = ()
    """All distances, if two numbers are not enough."""
    memory_only_bytes: tuple[int, ...] = ()
    """Memory of the NUMA nodes without CPUs, which come last."""
    numbering: CPUNumbering = CPUNumbering.OFFSET
    huge_page_sizes: tuple[int, ...] = HUGE_PAGE_SIZES_X86_KIB
    core_ids_in_cpuinfo: bool = True
    """True on x86, where cAdvisor counts a core id once even if each socket has it; False on Arm."""


def machine_from_shape(shape: MachineShape) -> MachineInfo:
    """The machine of that shape, as the kubelet's cAdvisor would describe it, without huge pages.

    >>> machine = machine_from_shape(MachineShape(sockets=2, cores=2, threads=2))
    >>> [core.thread_ids for node in machine.topology for core in node.cores]
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    """
    count = shape.sockets * shape.numa_per_socket
    per_node = shape.cores + shape.small_cores
    nodes = [*(_node(shape, number) for number in range(count))]
    nodes += [
        NUMANode(count + place, memory_bytes, _no_pages(shape), numa_distances(shape, count + place))
        for place, memory_bytes in enumerate(shape.memory_only_bytes)
    ]
    on_socket = per_node * shape.numa_per_socket
    return MachineInfo(
        num_cores=count * (shape.cores * shape.threads + shape.small_cores),
        num_physical_cores=on_socket if shape.core_ids_in_cpuinfo else on_socket * shape.sockets,
        num_sockets=shape.sockets,
        memory_capacity=sum(node.memory for node in nodes),
        hugepages=_no_pages(shape),
        topology=tuple(sorted(nodes, key=lambda node: str(node.node_id))),
    )


def numa_distances(shape: MachineShape, node: int) -> tuple[int, ...]:
    """The distances from a NUMA node to all NUMA nodes."""
    if shape.slit:
        return shape.slit[node]
    near, far = shape.distances
    count = shape.sockets * shape.numa_per_socket
    socket = node // shape.numa_per_socket
    row = (
        10 if other == node else near if other // shape.numa_per_socket == socket else far
        for other in range(count)
    )
    return tuple(row)


def _node(shape: MachineShape, number: int) -> NUMANode:
    cores, node_caches = [], {}
    socket, part = divmod(number, shape.numa_per_socket)
    per_node = shape.cores + shape.small_cores
    for index, threads in _cores_of_node(shape, number):
        place = part * per_node + index
        caches = [_l3(shape, socket, place)] if shape.l3_bytes else []
        uncore, shared = uncore_and_node_caches(caches, cores=per_node, threads=len(threads))
        node_caches.update(dict.fromkeys(shared))
        cores.append(Core(place, socket, threads, uncore))
    # cAdvisor reads the CPUs in the order of their names: cpu10 before cpu2.
    cores.sort(key=lambda core: str(core.thread_ids[0]))
    return NUMANode(
        node_id=number,
        memory=shape.memory_bytes,
        hugepages=_no_pages(shape),
        distances=numa_distances(shape, number),
        cores=tuple(cores),
        caches=tuple(node_caches),
    )


def _cores_of_node(shape: MachineShape, number: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each core of a NUMA node, big ones first, with its CPUs in the order of their names."""
    nodes = shape.sockets * shape.numa_per_socket
    adjacent = shape.numbering is CPUNumbering.ADJACENT
    step = 1 if adjacent else nodes * shape.cores
    per_node = shape.cores * shape.threads + shape.small_cores
    for index in range(shape.cores):
        first = {
            CPUNumbering.ADJACENT: number * per_node + index * shape.threads,
            CPUNumbering.OFFSET: number * shape.cores + index,
            CPUNumbering.ROUND_ROBIN: index * nodes + number,
        }[shape.numbering]
        yield index, tuple(sorted((first + step * thread for thread in range(shape.threads)), key=str))
    # Small cores are numbered after the big ones: of their node with adjacent numbering, otherwise of all nodes.
    small = number * per_node + shape.cores * shape.threads
    if not adjacent:
        small = nodes * shape.cores * shape.threads + number * shape.small_cores
    for index in range(shape.small_cores):
        yield shape.cores + index, (small + index,)


def _l3(shape: MachineShape, socket: int, place: int) -> SharedCache:
    """The L3 cache of the core at this index of its socket."""
    on_socket = (shape.cores + shape.small_cores) * shape.numa_per_socket
    sharing = shape.l3_cores or on_socket
    number = socket * -(-on_socket // sharing) + place // sharing
    cache = UncoreCache(id=number, size=shape.l3_bytes, type="Unified", level=3)
    if shape.l3_cores:
        return SharedCache(cache, shape.l3_cores * shape.threads)
    return SharedCache(cache, (shape.cores * shape.threads + shape.small_cores) * shape.numa_per_socket)


def _no_pages(shape: MachineShape) -> tuple[HugePages, ...]:
    return tuple(HugePages(page_size=size) for size in shape.huge_page_sizes)
