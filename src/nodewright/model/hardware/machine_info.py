"""A machine as cAdvisor describes it: NUMA nodes, sockets, cores, threads, uncore caches, huge pages."""

from collections.abc import Sequence

import msgspec


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
