"""Faults of a machine description: contradictions, and irregularities that the kubelet tolerates."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import chain

import msgspec

from nodewright.model.hardware.machine_info import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.values.idset import LARGEST_ID

LOCAL_DISTANCE = 10
"""The distance of a NUMA node to itself, by the kernel's rule."""


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


class MachineFault(msgspec.Struct, frozen=True, kw_only=True):
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


def _numbers(machine: MachineInfo) -> Iterator[MachineFault]:
    for name in ("num_cores", "num_physical_cores", "num_sockets", "memory_capacity"):
        value = getattr(machine, name)
        if value < 0:
            yield MachineFault(path=name, value=value, rule=MachineRule.NOT_NEGATIVE)
    for index, node in enumerate(machine.topology):
        if node.memory < 0:
            path = f"topology[{index}].memory"
            yield MachineFault(path=path, value=node.memory, rule=MachineRule.NOT_NEGATIVE)


def _counts(machine: MachineInfo) -> Iterator[MachineFault]:
    cores = [core for node in machine.topology for core in node.cores]
    threads = len({thread for core in cores for thread in core.thread_ids})
    if machine.num_cores == 0:
        yield _irregularity("num_cores", 0, MachineRule.NO_CPUS)
    if machine.topology and machine.num_cores != threads and machine.num_cores >= 0:
        numa_known = any(node.distances or node.memory for node in machine.topology)
        if numa_known or machine.num_cores < threads:
            rule = MachineRule.CPUS_MISCOUNTED
            yield MachineFault(path="num_cores", value=machine.num_cores, rule=rule)
        else:
            yield _irregularity("num_cores", machine.num_cores, MachineRule.OFFLINE_CPUS_COUNTED)
    if cores and machine.num_sockets != len({core.socket_id for core in cores}):
        yield _irregularity("num_sockets", machine.num_sockets, MachineRule.SOCKETS_MISCOUNTED)
    # cAdvisor counts distinct core ids in /proc/cpuinfo, which repeat on every socket.
    accepted_counts = {len(cores), len({core.core_id for core in cores})}
    if cores and machine.num_physical_cores not in accepted_counts:
        path = "num_physical_cores"
        yield _irregularity(path, machine.num_physical_cores, MachineRule.PHYSICAL_CORES_MISCOUNTED)


def _ids(machine: MachineInfo) -> Iterator[MachineFault]:
    nodes: set[int] = set()
    for index, node in enumerate(machine.topology):
        path = f"topology[{index}]"
        if not 0 <= node.node_id <= LARGEST_ID:
            yield MachineFault(path=f"{path}.node_id", value=node.node_id, rule=MachineRule.NUMA_ID)
        if node.node_id in nodes:
            yield MachineFault(path=f"{path}.node_id", value=node.node_id, rule=MachineRule.NUMA_ID_TWICE)
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
            yield MachineFault(path=f"{path}.{name}", value=value, rule=MachineRule.HARDWARE_ID)
    for place, thread in enumerate(core.thread_ids):
        if not 0 <= thread <= LARGEST_ID:
            yield MachineFault(path=f"{path}.thread_ids[{place}]", value=thread, rule=MachineRule.CPU_ID)
    threads = f"{path}.thread_ids"
    if not core.thread_ids:
        yield MachineFault(path=threads, value=(), rule=MachineRule.NO_THREADS)
    if len(set(core.thread_ids)) < len(core.thread_ids):
        yield MachineFault(path=threads, value=core.thread_ids, rule=MachineRule.THREAD_TWICE)


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
                    yield MachineFault(path=path, value=thread, rule=rule)
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
            yield MachineFault(path=path, value=node.distances, rule=MachineRule.DISTANCES_LENGTH)


def _distance_row(path: str, node: NUMANode, position: dict[int, int]) -> Iterator[MachineFault]:
    own = position[node.node_id]
    for number in sorted(position.values()):
        distance = node.distances[number]
        if number == own and distance != LOCAL_DISTANCE:
            yield MachineFault(path=f"{path}[{number}]", value=distance, rule=MachineRule.LOCAL_DISTANCE)
        elif distance < LOCAL_DISTANCE:
            yield MachineFault(path=f"{path}[{number}]", value=distance, rule=MachineRule.REMOTE_DISTANCE)


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
                path = f"hugepages[{place}].num_pages"
                yield _irregularity(path, pages.num_pages, MachineRule.HUGE_PAGES_ELSEWHERE)


def _pages(path: str, listed: tuple[HugePages, ...], memory_bytes: int) -> Iterator[MachineFault]:
    sizes: set[int] = set()
    for place, pages in enumerate(listed):
        where = f"{path}[{place}]"
        if pages.page_size < 1:
            yield MachineFault(path=f"{where}.page_size", value=pages.page_size, rule=MachineRule.PAGE_SIZE)
        if pages.page_size in sizes:
            rule = MachineRule.PAGE_SIZE_TWICE
            yield MachineFault(path=f"{where}.page_size", value=pages.page_size, rule=rule)
        if pages.num_pages < 0:
            rule = MachineRule.NOT_NEGATIVE
            yield MachineFault(path=f"{where}.num_pages", value=pages.num_pages, rule=rule)
        sizes.add(pages.page_size)
    total = sum(pages.page_size * 1024 * max(pages.num_pages, 0) for pages in listed)
    if total > memory_bytes >= 0:
        yield MachineFault(path=path, value=total, rule=MachineRule.HUGE_PAGES_BEYOND_MEMORY)


def _memory(machine: MachineInfo) -> Iterator[MachineFault]:
    total = sum(node.memory for node in machine.topology)
    if total > machine.memory_capacity >= 0:
        yield _irregularity("memory_capacity", machine.memory_capacity, MachineRule.NODES_BEYOND_MEMORY)


def _irregularity(path: str, value: object, rule: MachineRule) -> MachineFault:
    return MachineFault(path=path, value=value, rule=rule, tolerated=True)
