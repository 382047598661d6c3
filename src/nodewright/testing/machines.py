"""Machines for tests: a regular one, and strategies."""

import msgspec
from hypothesis import assume
from hypothesis import strategies as st

from nodewright.documents.profiles.machine.lscpu import CPURow, machine_from_rows
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode

KIB = 1024
L3_BYTES = 32 << 20


def regular_machine(numa: int = 1, cpus: int = 4, *, memory_bytes: int = 4 << 30) -> MachineInfo:
    """A machine with one socket per NUMA node, each with these CPUs, one per core, and this memory.

    >>> [node.cores[0].thread_ids for node in regular_machine(2).topology]
    [(0,), (4,)]
    """
    nodes = tuple(
        NUMANode(
            node_id=place,
            memory=memory_bytes,
            distances=tuple(10 if other == place else 20 for other in range(numa)),
            cores=tuple(
                Core(core_id=cpu, socket_id=place, thread_ids=(cpu,))
                for cpu in range(place * cpus, (place + 1) * cpus)
            ),
        )
        for place in range(numa)
    )
    return _counted(nodes, ())


@st.composite
def machines(draw: st.DrawFn, *, max_numa: int = 5) -> MachineInfo:
    """Consistent machines, in cAdvisor's order.

    NUMA nodes with holes in their numbers and without CPUs, cores with different numbers of threads, CPUs
    numbered at random, L3 caches of any number of cores, ids of cores that come again on other sockets.
    """
    ids = draw(st.lists(st.integers(0, 20), min_size=1, max_size=max_numa, unique=True))
    rows = draw(_rows(sorted(ids)))
    # Excluded: two caches that each span the whole node, which files of cores cannot represent.
    known = {node.node_id: node for node in machine_from_rows(rows, l3_bytes=L3_BYTES).topology}
    assume(all(len(node.caches) < 2 for node in known.values()))
    sizes = draw(st.sampled_from([(), (2048,), (1048576, 2048)]))
    nodes = [
        msgspec.structs.replace(
            known.get(number, NUMANode(node_id=number)),
            memory=draw(st.integers(0, 1 << 30)) * KIB + (1 << 33),
            hugepages=tuple(HugePages(page_size=size, num_pages=draw(st.integers(0, 4))) for size in sizes),
            distances=tuple(10 if other == number else draw(st.integers(11, 255)) for other in sorted(ids)),
        )
        for number in sorted(ids, key=str)
    ]
    return _counted(_renumbered(nodes, per_socket=draw(st.booleans())), sizes)


@st.composite
def _rows(draw: st.DrawFn, numa_ids: list[int]) -> list[CPURow]:
    """CPUs for some of the NUMA nodes, at least one."""
    with_cpus = draw(st.lists(st.sampled_from(numa_ids), min_size=1, unique=True))
    sockets = draw(st.integers(1, len(with_cpus)))
    cores = [
        (place * sockets // len(with_cpus), numa, threads)
        for place, numa in enumerate(sorted(with_cpus))
        for threads in draw(st.lists(st.sampled_from([1, 2, 2, 4]), min_size=1, max_size=6))
    ]
    sharing = draw(st.integers(0, 4))
    total = sum(threads for _, _, threads in cores)
    cpus = iter(draw(st.permutations(range(total))))
    return [
        CPURow(cpu=next(cpus), core=core, socket=socket, numa=numa, l3=core // sharing if sharing else None)
        for core, (socket, numa, threads) in enumerate(cores)
        for _ in range(threads)
    ]


def _renumbered(nodes: list[NUMANode], *, per_socket: bool) -> tuple[NUMANode, ...]:
    """The nodes with core ids that start at 0 on each socket, as on hardware, or unchanged."""
    if not per_socket:
        return tuple(nodes)
    seen: dict[int, dict[int, int]] = {}
    for node in nodes:
        for core in node.cores:
            own = seen.setdefault(core.socket_id, {})
            own.setdefault(core.core_id, len(own))
    return tuple(
        msgspec.structs.replace(
            node,
            cores=tuple(
                msgspec.structs.replace(core, core_id=seen[core.socket_id][core.core_id])
                for core in node.cores
            ),
        )
        for node in nodes
    )


def _counted(nodes: tuple[NUMANode, ...], sizes: tuple[int, ...]) -> MachineInfo:
    cores = [core for node in nodes for core in node.cores]
    return MachineInfo(
        num_cores=sum(len(core.thread_ids) for core in cores),
        num_physical_cores=len({core.core_id for core in cores}),
        num_sockets=len({core.socket_id for core in cores}),
        memory_capacity=sum(node.memory for node in nodes),
        hugepages=tuple(
            HugePages(page_size=size, num_pages=sum(node.hugepages[place].num_pages for node in nodes))
            for place, size in enumerate(sizes)
        ),
        topology=nodes,
    )
