"""Reads the topology of a machine from /sys as cAdvisor, and so the kubelet, does."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from nodewright.documents.profiles.machine.host_facts import (
    MachineFact,
    MachineSources,
    core_and_socket_counts,
    memory_capacity,
    processors,
    total_bytes,
)
from nodewright.model.errors import HostError
from nodewright.model.hardware import (
    LOCAL_DISTANCE,
    Core,
    HugePages,
    NUMANode,
    SharedCache,
    UncoreCache,
    uncore_and_node_caches,
)
from nodewright.model.values.idset import CPUSet, IdSetError

CPUS, NODES, HUGE_PAGES = "devices/system/cpu", "devices/system/node", "kernel/mm/hugepages"

# Names that match cAdvisor's glob patterns `cpu*[0-9]` and `node*[0-9]` and that its parser accepts.
_CPU = re.compile(r"cpu([0-9]+)", re.ASCII)
_NODE = re.compile(r"node([0-9]+)", re.ASCII)
_HUGE = re.compile(r"[^-]*-([0-9]+)kB", re.ASCII)
_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SIZE = re.compile(r"([0-9]+)K", re.ASCII)


@dataclass(slots=True)
class _Core:
    """A core while its threads are collected."""

    core_id: int
    socket_id: int
    threads: list[int] = field(default_factory=list)


Topology: TypeAlias = tuple[tuple[NUMANode, ...], int]
"""The NUMA nodes, and the number of CPUs that the kubelet counts."""


def topology(sources: MachineSources) -> Topology:
    """NUMA nodes with their cores, and the number of CPUs.

    The order is cAdvisor's: directories by name, so node10 comes before node2 and CPU 10 before CPU 2.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, GetNodesInfo.
    Departs: a file that should hold a number and does not is an error; cAdvisor logs it and continues without
        CPUs. What a copy lacks is read from other files of it: `cpulist` or `cpumap` for links from NUMA nodes to
        CPUs, siblings or /proc/cpuinfo for ids.
    """
    names = [name for name in sources.sys.names(NODES) if _NODE.fullmatch(name)]
    if not names:
        sources.add_missing(MachineFact.NUMA_NODES, sources.sys.full_path(NODES))
        return _without_numa(sources)
    cpus_of = _cpus_of_copied_nodes(sources, names) if sources.is_copy else {}
    nodes = tuple(
        _node(sources, name, cpus_of[name] if sources.is_copy else _cpus(sources, f"{NODES}/{name}"))
        for name in names
    )
    if sources.is_copy:
        nodes = _with_known_distances(sources, _with_shares(sources, nodes))
    return nodes, sum(len(core.thread_ids) for node in nodes for core in node.cores)


def huge_pages(sources: MachineSources, directory: str) -> tuple[HugePages, ...]:
    """The huge pages in a directory such as /sys/kernel/mm/hugepages; none if it does not exist.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, GetHugePagesInfo.
    """
    pages = []
    names = sources.sys.names(directory)
    if directory == HUGE_PAGES:
        is_gap = not sources.sys.names("kernel/mm")
    else:
        is_gap = not names and bool(sources.sys.names(HUGE_PAGES))
    if is_gap and sources.is_copy:
        sources.add_missing(MachineFact.HUGE_PAGES, sources.sys.full_path(directory))
    for name in names:
        match = _HUGE.fullmatch(name)
        if match is None:
            sources.add_fault(
                sources.sys.full_path(f"{directory}/{name}"),
                name,
                "must have a name such as hugepages-2048kB",
            )
            continue
        path = f"{directory}/{name}/nr_hugepages"
        text = sources.sys.text(path)
        if text is None and sources.is_copy:
            sources.add_missing(MachineFact.HUGE_PAGES, sources.sys.full_path(path))
            continue
        count = sources.number(sources.sys.full_path(path), text or "")
        pages.append(HugePages(page_size=int(match[1]), num_pages=count))
    return tuple(pages)


def physical_counts(sources: MachineSources) -> tuple[int, int]:
    """`num_physical_cores` and `num_sockets`.

    Follows: v1.36, cadvisor/machine/machine.go, GetPhysicalCores and GetSockets: from /proc/cpuinfo or, if it has
        no ids (Arm), from the online CPUs in sysfs.
    """
    cpuinfo = sources.proc.text("cpuinfo")
    if cpuinfo is None:
        sources.add_missing(MachineFact.CPUINFO, sources.proc.full_path("cpuinfo"))
    cores, sockets = core_and_socket_counts(cpuinfo or "")
    return cores or _distinct_count(sources, "core_id"), sockets or _distinct_count(
        sources, "physical_package_id"
    )


def _distinct_count(sources: MachineSources, name: str) -> int:
    """The number of different pairs of this property and a socket; a missing value counts as 0.

    Follows: v1.36, cadvisor/utils/sysfs/sysfs.go, GetUniqueCPUPropertyCount.
    """
    online = _online(sources)
    pairs = set()
    for cpu, directory in _cpus(sources, CPUS):
        if online is None or cpu in online:
            values = (
                _cpu_property(sources, cpu, directory, property_name)
                for property_name in (name, "physical_package_id")
            )
            pairs.add(tuple("0" if value is None else value for value in values))
    return len(pairs)


def _node(sources: MachineSources, name: str, cpus: list[tuple[int, str]]) -> NUMANode:
    directory = f"{NODES}/{name}"
    cores, caches = _with_caches(sources, name, _cores(sources, cpus))
    return NUMANode(
        node_id=int(name.removeprefix("node")),
        memory=_memory(sources, directory),
        hugepages=huge_pages(sources, f"{directory}/hugepages"),
        distances=_distances(sources, directory),
        cores=cores,
        caches=caches,
    )


def _without_numa(sources: MachineSources) -> Topology:
    """A NUMA node for each socket, without memory and distances; offline CPUs are counted, too.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, getCPUTopology.
    Departs: the nodes are sorted by id; cAdvisor's order is random.
    """
    cpus = _cpus(sources, CPUS)
    if not cpus:
        return _from_cpuinfo(sources)
    sockets: dict[int, list[tuple[int, str]]] = {}
    for cpu, directory in cpus:
        path = f"{directory}/topology/physical_package_id"
        text = sources.sys.text(path)
        if text is not None:
            socket = sources.number(sources.sys.full_path(path), text, minimum=-1)
            sockets.setdefault(socket, []).append((cpu, directory))
    nodes = []
    for socket, socket_cpus in sorted(sockets.items()):
        cores, caches = _with_caches(sources, f"socket {socket}", _cores(sources, socket_cpus))
        nodes.append(NUMANode(node_id=socket, cores=cores, caches=caches))
    return tuple(nodes), len(cpus)


def _from_cpuinfo(sources: MachineSources) -> Topology:
    """The topology from /proc/cpuinfo alone, for copies without the CPUs of /sys."""
    cpuinfo, place = sources.proc.text("cpuinfo"), sources.proc.full_path("cpuinfo")
    cores: dict[tuple[int, int], list[int]] = {}
    for fields in processors(cpuinfo or ""):
        cpu = sources.number(place, fields["processor"])
        socket = sources.number(place, fields.get("physical id", "0"))
        core = sources.number(place, fields.get("core id", str(cpu)))
        cores.setdefault((socket, core), []).append(cpu)
    if not cores:
        sources.add_fault(
            sources.sys.full_path(CPUS), None, "neither this directory nor /proc/cpuinfo has a CPU"
        )
    sources.add_missing(MachineFact.TOPOLOGY, sources.sys.full_path(CPUS), place)
    nodes = tuple(
        NUMANode(
            node_id=socket,
            cores=tuple(
                Core(core_id=core, socket_id=socket, thread_ids=tuple(threads))
                for (socket_id, core), threads in cores.items()
                if socket_id == socket
            ),
        )
        for socket in sorted({socket for socket, _ in cores})
    )
    return nodes, sum(map(len, cores.values()))


def _cpus(sources: MachineSources, directory: str) -> list[tuple[int, str]]:
    """The CPUs in a directory with their own directories, in the order of their names."""
    return [
        (int(match[1]), f"{directory}/{match[0]}")
        for name in sources.sys.names(directory)
        if (match := _CPU.fullmatch(name))
    ]


def _cpus_of_copied_nodes(sources: MachineSources, names: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """The CPUs of each NUMA node of a copy, which may lack any of the links and files that name them."""
    listed = _cpus(sources, CPUS)
    placed: dict[str, CPUSet | None] = {}
    for name in names:
        directory = f"{NODES}/{name}"
        links = CPUSet.from_ids(cpu for cpu, _ in _cpus(sources, directory))
        back = CPUSet.from_ids(cpu for cpu, own in listed if name in sources.sys.names(own))
        ids = _cpu_mask(sources, directory, "cpumap")
        placed[name] = links | back | (ids or CPUSet()) if ids is not None or links or back else None
        if ids is not None and ids - links:
            sources.add_missing(
                MachineFact.NODE_CPUS, sources.sys.full_path(directory), "`cpulist` or `cpumap`"
            )
    known = CPUSet.from_ids(cpu for cpus in placed.values() for cpu in cpus or ())
    unplaced = (_online(sources) or CPUSet.from_ids(cpu for cpu, _ in listed)) - known
    unknown = [name for name, cpus in placed.items() if cpus is None]
    if unplaced and len(unknown) > 1:
        rule = f"neither links to CPUs nor `cpulist` nor `cpumap` are in this copy: the NUMA nodes of CPUs {unplaced} are not known"
        sources.add_fault(sources.sys.full_path(f"{NODES}/{unknown[0]}"), None, rule)
    elif unplaced and unknown:
        placed[unknown[0]] = unplaced
        sources.add_missing(
            MachineFact.NODE_CPUS, sources.sys.full_path(f"{NODES}/{unknown[0]}"), f"{unplaced}"
        )
    return {
        name: [(cpu, f"{CPUS}/cpu{cpu}") for cpu in sorted(cpus or (), key=str)]
        for name, cpus in placed.items()
    }


def _cpu_mask(sources: MachineSources, directory: str, name: str) -> CPUSet | None:
    """The CPUs of a file in one of the kernel's two forms, a list or a hexadecimal mask; None: neither is there."""
    for path in (f"{directory}/{name.removesuffix('map')}list", f"{directory}/{name}_list"):
        if (text := sources.sys.text(path)) is not None:
            return _cpu_list(sources, path, text)
    text = sources.sys.text(f"{directory}/{name}")
    if text is None:
        return None
    try:
        return CPUSet.from_ids(
            32 * group + bit
            for group, digits in enumerate(reversed(text.split(",")))
            for bit in range(32)
            if int(digits.strip(), 16) >> bit & 1
        )
    except ValueError:
        rule = "must be a mask of CPUs such as 00000000,0000ffff"
        sources.add_fault(sources.sys.full_path(f"{directory}/{name}"), text[:80], rule)
        return CPUSet()


def _online(sources: MachineSources) -> CPUSet | None:
    """The online CPUs; None: all, because the kernel has no CPU hotplug."""
    path = f"{CPUS}/online"
    text = sources.sys.text(path)
    if text is None:
        sources.add_missing(MachineFact.ONLINE, sources.sys.full_path(path))
        return None
    if not text:
        sources.add_fault(sources.sys.full_path(path), "", "the file is empty")
    return _cpu_list(sources, path, text)


def _cpu_list(sources: MachineSources, path: str, text: str) -> CPUSet:
    try:
        return CPUSet.parse(text)
    except IdSetError as error:
        sources.add_fault(sources.sys.full_path(path), text, str(error))
        return CPUSet()


def _cores(sources: MachineSources, cpus: list[tuple[int, str]]) -> list[_Core]:
    """The cores of these CPUs, in the order of the CPUs; offline CPUs are left out.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, getCoresInfo: on s390x a core has a book and a drawer, too.
    """
    online = _online(sources)
    cores: dict[tuple[str, ...], _Core] = {}
    for cpu, directory in cpus:
        if online is not None and cpu not in online:
            continue
        books = [
            sources.sys.text(f"{CPUS}/cpu{cpu}/topology/{name}")
            for name in ("book_id", "drawer_id")
            if sources.is_s390x
        ]
        ids = []
        for name in ("core_id", "physical_package_id"):
            text = _cpu_property(sources, cpu, directory, name)
            if text is None and sources.is_copy and online is not None:
                sources.add_missing(MachineFact.SIBLINGS, sources.sys.full_path(f"{CPUS}/cpu{cpu}"))
                text = str(cpu) if name == "core_id" else "0"
            if text is None:
                sources.add_missing(
                    MachineFact.TOPOLOGY, sources.sys.full_path(f"{directory}/topology/{name}")
                )
                break
            place = sources.sys.full_path(f"{directory}/topology/{name}")
            ids.append(sources.number(place, text, minimum=-1))
        else:
            key = (*map(str, ids), *(text or "" for text in books))
            cores.setdefault(key, _Core(ids[0], ids[1])).threads.append(cpu)
    return list(cores.values())


_SIBLINGS = {
    "core_id": ("core id", ("core_cpus", "thread_siblings")),
    "physical_package_id": ("physical id", ("package_cpus", "core_siblings")),
}


def _cpu_property(sources: MachineSources, cpu: int, directory: str, name: str) -> str | None:
    """The text of `core_id` or `physical_package_id`; a copy without it may have it in /proc/cpuinfo, or siblings."""
    path = f"{directory}/topology/{name}"
    text = sources.sys.text(path)
    if text is not None or not sources.is_copy:
        return text
    field_name, masks = _SIBLINGS[name]
    place = sources.sys.full_path(f"{CPUS}/cpu*/topology/{name}")
    for fields in processors(sources.proc.text("cpuinfo") or ""):
        if fields["processor"] == str(cpu) and field_name in fields:
            sources.add_missing(MachineFact.TOPOLOGY, place, "/proc/cpuinfo")
            return fields[field_name]
    for mask in masks:
        if siblings := _cpu_mask(sources, f"{CPUS}/cpu{cpu}/topology", mask):
            sources.add_missing(MachineFact.TOPOLOGY, place, mask)
            return str(min(siblings))
    return None


def _memory(sources: MachineSources, directory: str) -> int:
    path = f"{directory}/meminfo"
    text = sources.sys.text(path)
    if text is None:
        substitute = "an equal share of what is left" if sources.is_copy else "0"
        sources.add_missing(MachineFact.NODE_MEMORY, sources.sys.full_path(path), substitute)
        return 0
    return total_bytes(sources, sources.sys.full_path(path), text, "MemTotal")


def _with_known_distances(sources: MachineSources, nodes: tuple[NUMANode, ...]) -> tuple[NUMANode, ...]:
    """The NUMA nodes of a copy without distances, if those of one are another's: in its place it has not 10."""
    for position, node in enumerate(sorted(nodes, key=lambda node: node.node_id)):
        if node.distances and LOCAL_DISTANCE not in node.distances[position : position + 1]:
            place = sources.sys.full_path(f"{NODES}/node{node.node_id}/distance")
            sources.add_missing(MachineFact.DISTANCES, place, f"{LOCAL_DISTANCE} to itself")
            return tuple(msgspec.structs.replace(node, distances=()) for node in nodes)
    return nodes


def _with_shares(sources: MachineSources, nodes: tuple[NUMANode, ...]) -> tuple[NUMANode, ...]:
    """The NUMA nodes, each without a meminfo in the copy with an equal share of the memory that is left."""
    gaps = [node for node in nodes if sources.sys.text(f"{NODES}/node{node.node_id}/meminfo") is None]
    if not gaps:
        return nodes
    left = max(memory_capacity(sources) - sum(node.memory for node in nodes), 0)
    return tuple(
        msgspec.structs.replace(node, memory=left // len(gaps)) if node in gaps else node for node in nodes
    )


def _distances(sources: MachineSources, directory: str) -> tuple[int, ...]:
    path = f"{directory}/distance"
    text = sources.sys.text(path)
    if text is None:
        sources.add_missing(MachineFact.DISTANCES, sources.sys.full_path(path))
        return ()
    return tuple(sources.number(sources.sys.full_path(path), part) for part in text.split(" "))


def _with_caches(
    sources: MachineSources, name: str, cores: list[_Core]
) -> tuple[tuple[Core, ...], tuple[UncoreCache, ...]]:
    """The cores, each with the uncore caches that cAdvisor assigns to it, and the NUMA node's caches.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, addCacheInfo: it stops at the first CPU without
        readable cache files (no `id` on many Arm machines), and later cores have no caches.
    """
    finished_cores: list[Core] = []
    node_caches: dict[UncoreCache, None] = {}
    readable = True
    for core in cores:
        core_caches = _caches(sources, core.threads[0]) if readable else []
        if core_caches is None:
            readable, core_caches = False, []
            cache_files = sources.sys.names(f"{CPUS}/cpu{core.threads[0]}/cache")
            is_gap = sources.is_copy and not cache_files
            sources.add_missing(MachineFact.CACHES, name, "" if is_gap else f"cpu{core.threads[0]}")
        uncore, shared = uncore_and_node_caches(core_caches, cores=len(cores), threads=len(core.threads))
        node_caches.update(dict.fromkeys(shared))
        finished_cores.append(Core(core.core_id, core.socket_id, tuple(core.threads), uncore))
    return tuple(finished_cores), tuple(node_caches)


def _caches(sources: MachineSources, cpu: int) -> list[SharedCache] | None:
    """The caches of a CPU; None if a file is missing or malformed."""
    directory = f"{CPUS}/cpu{cpu}/cache"
    names = sources.sys.names(directory)
    if not names:
        return None
    caches = []
    for name in names:
        if name.startswith("index"):
            try:
                cache = _cache(sources, f"{directory}/{name}")
            except HostError:
                return None
            if cache is None:
                return None
            caches.append(cache)
    return caches


def _cache(sources: MachineSources, directory: str) -> SharedCache | None:
    """The cache of a directory. On s390x caches have no id, so cAdvisor gives all of them 0.

    Follows: v1.36, cadvisor/utils/sysfs/sysfs.go, GetCacheInfo.
    """
    number, size, level, kind = (
        sources.sys.text(f"{directory}/{name}") for name in ("id", "size", "level", "type")
    )
    if number is None and sources.is_s390x:
        number = "0"
    cpus = _shared_cpu_count(sources, directory)
    id_match, size_match = _LEADING_NUMBER.match(number or ""), _SIZE.match(size or "")
    level_match = _LEADING_NUMBER.match(level or "")
    if kind is None or cpus is None or id_match is None or size_match is None or level_match is None:
        return None
    cache = UncoreCache(
        id=int(id_match[0]), size=int(size_match[1]) * 1024, type=kind, level=int(level_match[0])
    )
    return SharedCache(cache, cpus)


def _shared_cpu_count(sources: MachineSources, directory: str) -> int | None:
    shared = sources.sys.text(f"{directory}/shared_cpu_map")
    if shared is None and sources.is_copy:
        cpus = _cpu_mask(sources, directory, "shared_cpu_map")
        return None if cpus is None else len(cpus)
    try:
        return sum(int(mask.strip(), 16).bit_count() for mask in (shared or "").split(","))
    except ValueError:
        return None
