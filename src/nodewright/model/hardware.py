"""A machine as cAdvisor describes it: NUMA nodes, sockets, cores, threads, uncore caches, huge pages.

Descriptions can be generated from a short shape: sockets, NUMA nodes, cores, threads, caches. The faults of a description are
contradictions, and irregularities that the kubelet tolerates.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain

import msgspec

from nodewright.model.errors import Fault
from nodewright.model.values.idset import LARGEST_ID

GIB = 1 << 30
MIB = 1 << 20

# Page sizes in KiB, in the order in which directories such as hugepages-2048kB sort.
HUGE_PAGE_SIZES_X86_KIB = (1048576, 2048)
HUGE_PAGE_SIZES_ARM_KIB = (1048576, 2048, 32768, 64)

LOCAL_DISTANCE = 10
"""The distance of a NUMA node to itself, by the kernel's rule."""


class HugePages(msgspec.Struct, frozen=True):
    """Huge pages of one size.

    Units: page_size in KiB.
    """

    page_size: int
    """In KiB."""
    num_pages: int = 0
    """Number of reserved pages."""


class UncoreCache(msgspec.Struct, frozen=True):
    """A cache beyond level 2 that a core shares with others.

    Units: size in bytes.
    """

    id: int = 0
    """The kernel's number of the cache."""
    size: int = 0
    """In bytes."""
    type: str = ""
    """`Unified`, `Data` or `Instruction`."""
    level: int = 0
    """3 for an L3."""


class Core(msgspec.Struct, frozen=True):
    """A physical core. `core_id` is unique only within its socket."""

    core_id: int = 0
    """The kernel's number of the core, unique within its socket."""
    socket_id: int = 0
    """The socket (physical package)."""
    thread_ids: tuple[int, ...] = ()
    """The CPUs of the core."""
    uncore_caches: tuple[UncoreCache, ...] = ()
    """Caches that it shares with some cores of its NUMA node."""


class NUMANode(msgspec.Struct, frozen=True):
    """A NUMA node. `distances` is indexed by node id. `caches` are those beyond level 2 that all its cores share.

    Units: memory in bytes.
    """

    node_id: int = 0
    """The kernel's number of the NUMA node."""
    memory: int = 0
    """In bytes."""
    hugepages: tuple[HugePages, ...] = ()
    """Huge pages by size."""
    distances: tuple[int, ...] = ()
    """Distances to all NUMA nodes, by number."""
    cores: tuple[Core, ...] = ()
    """The cores; none on NUMA nodes that have only memory."""
    caches: tuple[UncoreCache, ...] = ()
    """Caches that all its cores share."""


class MachineInfo(msgspec.Struct, frozen=True):
    """A machine, with cAdvisor's JSON names. Absent fields are zero or empty.

    Units: memory_capacity in bytes; num_cores counts CPUs (hardware threads).
    """

    num_cores: int = 0
    """Number of CPUs (hardware threads)."""
    num_physical_cores: int = 0
    """Number of cores, as cAdvisor counts them: on x86 an id that each socket has counts once."""
    num_sockets: int = 0
    """Number of sockets."""
    memory_capacity: int = 0
    """In bytes."""
    hugepages: tuple[HugePages, ...] = ()
    """Huge pages of the machine, by size."""
    topology: tuple[NUMANode, ...] = ()
    """The NUMA nodes."""


MAX_CORE_CACHE_LEVEL = 2
"""Caches up to this level belong to a core or a small cluster and are ignored."""


class SharedCache(msgspec.Struct, frozen=True):
    """A cache that a CPU uses, with the number of CPUs that share it."""

    cache: UncoreCache
    cpus: int


def uncore_and_node_caches(
    caches: Sequence[SharedCache], *, cores: int, threads: int
) -> tuple[tuple[UncoreCache, ...], tuple[UncoreCache, ...]]:
    """A core's uncore caches, and those that are shared by its whole NUMA node.

    `cores` is the number of cores on the NUMA node, `threads` the number of threads of this core.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, addCacheInfo: a cache is the node's if cores x threads
        of *this* core share it. So the L3 of a socket with several NUMA nodes is an uncore cache of every core, and on
        hybrid machines every L3 is.

    >>> l3 = UncoreCache(id=0, size=1 << 25, type="Unified", level=3)
    >>> uncore_and_node_caches([SharedCache(l3, cpus=16)], cores=8, threads=2) == ((), (l3,))
    True
    >>> uncore_and_node_caches([SharedCache(l3, cpus=8)], cores=8, threads=2) == ((l3,), ())
    True
    """
    candidates = [shared for shared in caches if shared.cache.level > MAX_CORE_CACHE_LEVEL]
    uncore = dict.fromkeys(shared.cache for shared in candidates if shared.cpus != cores * threads)
    of_node = dict.fromkeys(shared.cache for shared in candidates if shared.cpus == cores * threads)
    return tuple(uncore), tuple(of_node)


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


class MachineRule(StrEnum):
    """A rule for machine descriptions, as text."""

    NOT_NEGATIVE = "must not be negative"
    CPU_ID = f"a CPU's number must be 0 to {LARGEST_ID}"
    NUMA_ID = f"a NUMA node's number must be 0 to {LARGEST_ID}"
    HARDWARE_ID = "must be -1 (unknown to the kernel) or more"
    NUMA_ID_TWICE = "a NUMA node is described once"
    NO_THREADS = "a core has at least one thread"
    THREAD_TWICE = "a thread is listed once in its core"
    THREAD_IN_TWO_CORES = "a thread belongs to one core"
    CORE_ON_TWO_NUMA_NODES = "a core lies on one NUMA node"
    CPUS_MISCOUNTED = "num_cores counts CPUs (hardware threads): it must equal the thread_ids of all cores"
    DISTANCES_LENGTH = "distances hold one number for each NUMA node"
    LOCAL_DISTANCE = f"the distance of a NUMA node to itself is {LOCAL_DISTANCE}"
    REMOTE_DISTANCE = f"the distance to another NUMA node is at least {LOCAL_DISTANCE}"
    PAGE_SIZE = "the size of a huge page is at least 1 (KiB)"
    PAGE_SIZE_TWICE = "a size of huge pages is listed once"
    HUGE_PAGES_BEYOND_MEMORY = "huge pages must fit into the memory"

    NO_CPUS = "the kubelet sees no CPU; its static CPU policy does not start"
    OFFLINE_CPUS_COUNTED = (
        "more CPUs are counted than have a core: without NUMA information the kubelet counts those offline"
    )
    SOCKETS_MISCOUNTED = "differs from the sockets that the cores name"
    PHYSICAL_CORES_MISCOUNTED = "differs from the cores that are listed; no decision depends on it"
    CORE_ID_TWICE = "core ids are unique within a socket and a NUMA node; no decision depends on it"
    HOLES_IN_NUMA_IDS = "distances are indexed by the node's number: the kubelet crashes when prefer-closest-numa-nodes looks one up that lies beyond the list"
    NODES_BEYOND_MEMORY = "the memory of the NUMA nodes exceeds memory_capacity"
    HUGE_PAGES_ELSEWHERE = "differs from the huge pages of the NUMA nodes"


class MachineFault(msgspec.Struct, frozen=True):
    """One fault: the field, its value, and the rule that it breaks."""

    path: str
    value: object
    rule: MachineRule
    tolerated: bool = False
    """Whether the kubelet tolerates it, so that this is only a warning."""


def machine_faults(machine: MachineInfo) -> tuple[MachineFault, ...]:
    """The contradictions of a machine, then the tolerated irregularities, each in the order of its fields.

    Paths are relative to the machine: `topology[1].cores[0].thread_ids`.

    Departs: the kubelet starts with several of the contradictions and decides wrongly (a CPU in two cores
        counts for the later one); no machine has them, so they are errors here. Irregularities of real
        machines (nodes without CPUs, hybrid cores, offline threads, gaps in node numbers) are tolerated.

    >>> broken = MachineInfo(num_cores=3, topology=(NUMANode(memory=1, cores=(Core(thread_ids=(0, 0)),)),))
    >>> [(fault.path, fault.value) for fault in machine_faults(broken) if not fault.tolerated]
    [('num_cores', 3), ('topology[0].cores[0].thread_ids', (0, 0))]
    """
    faults = chain(
        _numbers(machine),
        _counts(machine),
        _ids(machine),
        _shared_threads(machine),
        _distances(machine),
        _huge_pages(machine),
        _memory(machine),
    )
    return tuple(sorted(faults, key=lambda fault: fault.tolerated))


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


def _numbers(machine: MachineInfo) -> Iterator[MachineFault]:
    for name in ("num_cores", "num_physical_cores", "num_sockets", "memory_capacity"):
        value = getattr(machine, name)
        if value < 0:
            yield MachineFault(name, value, MachineRule.NOT_NEGATIVE)
    for index, node in enumerate(machine.topology):
        if node.memory < 0:
            yield MachineFault(f"topology[{index}].memory", node.memory, MachineRule.NOT_NEGATIVE)


def _counts(machine: MachineInfo) -> Iterator[MachineFault]:
    cores = [core for node in machine.topology for core in node.cores]
    threads = len({thread for core in cores for thread in core.thread_ids})
    if machine.num_cores == 0:
        yield _irregularity("num_cores", 0, MachineRule.NO_CPUS)
    if machine.topology and machine.num_cores != threads and machine.num_cores >= 0:
        numa_known = any(node.distances or node.memory for node in machine.topology)
        if numa_known or machine.num_cores < threads:
            yield MachineFault("num_cores", machine.num_cores, MachineRule.CPUS_MISCOUNTED)
        else:
            yield _irregularity("num_cores", machine.num_cores, MachineRule.OFFLINE_CPUS_COUNTED)
    if cores and machine.num_sockets != len({core.socket_id for core in cores}):
        yield _irregularity("num_sockets", machine.num_sockets, MachineRule.SOCKETS_MISCOUNTED)
    # cAdvisor counts distinct core ids in /proc/cpuinfo, which repeat on every socket.
    accepted_counts = {len(cores), len({core.core_id for core in cores})}
    if cores and machine.num_physical_cores not in accepted_counts:
        yield _irregularity(
            "num_physical_cores", machine.num_physical_cores, MachineRule.PHYSICAL_CORES_MISCOUNTED
        )


def _ids(machine: MachineInfo) -> Iterator[MachineFault]:
    nodes: set[int] = set()
    for index, node in enumerate(machine.topology):
        path = f"topology[{index}]"
        if not 0 <= node.node_id <= LARGEST_ID:
            yield MachineFault(f"{path}.node_id", node.node_id, MachineRule.NUMA_ID)
        if node.node_id in nodes:
            yield MachineFault(f"{path}.node_id", node.node_id, MachineRule.NUMA_ID_TWICE)
        nodes.add(node.node_id)
        cores: set[tuple[int, int]] = set()
        for place, core in enumerate(node.cores):
            yield from _core_ids(f"{path}.cores[{place}]", core)
            if (core.socket_id, core.core_id) in cores:
                yield _irregularity(f"{path}.cores[{place}].core_id", core.core_id, MachineRule.CORE_ID_TWICE)
            cores.add((core.socket_id, core.core_id))


def _core_ids(path: str, core: Core) -> Iterator[MachineFault]:
    for name, value in (("core_id", core.core_id), ("socket_id", core.socket_id)):
        if value < -1:
            yield MachineFault(f"{path}.{name}", value, MachineRule.HARDWARE_ID)
    for place, thread in enumerate(core.thread_ids):
        if not 0 <= thread <= LARGEST_ID:
            yield MachineFault(f"{path}.thread_ids[{place}]", thread, MachineRule.CPU_ID)
    threads = f"{path}.thread_ids"
    if not core.thread_ids:
        yield MachineFault(threads, (), MachineRule.NO_THREADS)
    if len(set(core.thread_ids)) < len(core.thread_ids):
        yield MachineFault(threads, core.thread_ids, MachineRule.THREAD_TWICE)


def _shared_threads(machine: MachineInfo) -> Iterator[MachineFault]:
    """Threads that an earlier core also has."""
    owner: dict[int, int] = {}
    for index, node in enumerate(machine.topology):
        for place, core in enumerate(node.cores):
            path = f"topology[{index}].cores[{place}].thread_ids"
            for thread in dict.fromkeys(core.thread_ids):
                if thread in owner:
                    on_same_node = owner[thread] == index
                    rule = (
                        MachineRule.THREAD_IN_TWO_CORES
                        if on_same_node
                        else MachineRule.CORE_ON_TWO_NUMA_NODES
                    )
                    yield MachineFault(path, thread, rule)
            owner.update(dict.fromkeys(core.thread_ids, index))


def _distances(machine: MachineInfo) -> Iterator[MachineFault]:
    ids = sorted({node.node_id for node in machine.topology})
    if ids and ids[0] < 0:
        return  # a separate fault, and not an index of a list
    # The kernel lists the online nodes; the kubelet expects one entry for each number up to the largest.
    by_rank = {number: rank for rank, number in enumerate(ids)}
    by_number = {number: number for number in ids}
    for index, node in enumerate(machine.topology):
        path = f"topology[{index}].distances"
        length = len(node.distances)
        if not length:
            continue
        if length == ids[-1] + 1:
            yield from _distance_row(path, node, by_number)
        elif length == len(ids):
            yield from _distance_row(path, node, by_rank)
            yield _irregularity(path, node.distances, MachineRule.HOLES_IN_NUMA_IDS)
        else:
            yield MachineFault(path, node.distances, MachineRule.DISTANCES_LENGTH)


def _distance_row(path: str, node: NUMANode, position: dict[int, int]) -> Iterator[MachineFault]:
    own = position[node.node_id]
    for number in sorted(position.values()):
        distance = node.distances[number]
        if number == own and distance != LOCAL_DISTANCE:
            yield MachineFault(f"{path}[{number}]", distance, MachineRule.LOCAL_DISTANCE)
        elif distance < LOCAL_DISTANCE:
            yield MachineFault(f"{path}[{number}]", distance, MachineRule.REMOTE_DISTANCE)


def _huge_pages(machine: MachineInfo) -> Iterator[MachineFault]:
    yield from _pages("hugepages", machine.hugepages, machine.memory_capacity)
    for index, node in enumerate(machine.topology):
        yield from _pages(f"topology[{index}].hugepages", node.hugepages, node.memory)
    if any(node.hugepages for node in machine.topology):
        for place, pages in enumerate(machine.hugepages):
            on_nodes = sum(
                own.num_pages
                for node in machine.topology
                for own in node.hugepages
                if own.page_size == pages.page_size
            )
            if on_nodes != pages.num_pages:
                yield _irregularity(
                    f"hugepages[{place}].num_pages", pages.num_pages, MachineRule.HUGE_PAGES_ELSEWHERE
                )


def _pages(path: str, listed: tuple[HugePages, ...], memory_bytes: int) -> Iterator[MachineFault]:
    sizes: set[int] = set()
    for place, pages in enumerate(listed):
        where = f"{path}[{place}]"
        if pages.page_size < 1:
            yield MachineFault(f"{where}.page_size", pages.page_size, MachineRule.PAGE_SIZE)
        if pages.page_size in sizes:
            yield MachineFault(f"{where}.page_size", pages.page_size, MachineRule.PAGE_SIZE_TWICE)
        if pages.num_pages < 0:
            yield MachineFault(f"{where}.num_pages", pages.num_pages, MachineRule.NOT_NEGATIVE)
        sizes.add(pages.page_size)
    total = sum(pages.page_size * 1024 * max(pages.num_pages, 0) for pages in listed)
    if total > memory_bytes >= 0:
        yield MachineFault(path, total, MachineRule.HUGE_PAGES_BEYOND_MEMORY)


def _memory(machine: MachineInfo) -> Iterator[MachineFault]:
    total = sum(node.memory for node in machine.topology)
    if total > machine.memory_capacity >= 0:
        yield _irregularity("memory_capacity", machine.memory_capacity, MachineRule.NODES_BEYOND_MEMORY)


def _irregularity(path: str, value: object, rule: MachineRule) -> MachineFault:
    return MachineFault(path, value, rule, tolerated=True)


_FIELD = "spec.machineInfo"


def contradictions(machine: MachineInfo, source: str = "", field: str = _FIELD) -> list[Fault]:
    """Contradictions in a machine, as faults for an InputError. `field` is the machine's path in its document."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if not fault.tolerated]


def irregularities(machine: MachineInfo, source: str = "", field: str = _FIELD) -> list[Fault]:
    """Irregularities that the kubelet tolerates, for warnings."""
    return [_fault(fault, source, field) for fault in machine_faults(machine) if fault.tolerated]


def _fault(fault: MachineFault, source: str, field: str) -> Fault:
    path = f"{field}.{fault.path}" if field else fault.path
    value = list(fault.value) if isinstance(fault.value, tuple) else fault.value
    return Fault(path=path, value=value, rule=str(fault.rule), source=source)
