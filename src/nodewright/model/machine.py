"""A machine as cAdvisor describes it: NUMA nodes, sockets, cores, threads, caches, huge pages."""

import msgspec


class HugePages(msgspec.Struct, frozen=True):
    """Huge pages of one size.

    Units: page_size in KiB.
    """

    page_size: int
    num_pages: int = 0


class UncoreCache(msgspec.Struct, frozen=True):
    """A cache beyond level 2 that a core shares with others.

    Units: size in bytes.
    """

    id: int = 0
    size: int = 0
    type: str = ""
    level: int = 0


class Core(msgspec.Struct, frozen=True):
    """A physical core. `core_id` is unique only within its socket."""

    core_id: int = 0
    socket_id: int = 0
    thread_ids: tuple[int, ...] = ()
    uncore_caches: tuple[UncoreCache, ...] = ()


class NUMANode(msgspec.Struct, frozen=True):
    """A NUMA node. `distances` is indexed by node id. `caches` are those beyond level 2 that all its cores share.

    Units: memory in bytes.
    """

    node_id: int = 0
    memory: int = 0
    hugepages: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    cores: tuple[Core, ...] = ()
    caches: tuple[UncoreCache, ...] = ()


class MachineInfo(msgspec.Struct, frozen=True):
    """A machine, with cAdvisor's JSON names. Everything absent is zero or empty.

    Units: memory_capacity in bytes; num_cores counts CPUs (hardware threads).
    """

    num_cores: int = 0
    num_physical_cores: int = 0
    num_sockets: int = 0
    memory_capacity: int = 0
    hugepages: tuple[HugePages, ...] = ()
    topology: tuple[NUMANode, ...] = ()
