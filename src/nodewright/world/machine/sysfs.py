"""The topology of a machine as cAdvisor, and so the kubelet, makes it out from /sys."""

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from nodewright.model.caches import CacheSeen, sort_caches
from nodewright.model.machine import Core, HugePages, NUMANode, UncoreCache
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.world.errors import WorldError
from nodewright.world.machine.files import Sources
from nodewright.world.machine.lacks import Fact
from nodewright.world.machine.proc import counted, processors, total_bytes

CPUS, NODES, HUGE_PAGES = "devices/system/cpu", "devices/system/node", "kernel/mm/hugepages"

# What cAdvisor's glob patterns `cpu*[0-9]` and `node*[0-9]` match and its parser then accepts.
_CPU = re.compile(r"cpu([0-9]+)", re.ASCII)
_NODE = re.compile(r"node([0-9]+)", re.ASCII)
_HUGE = re.compile(r"[^-]*-([0-9]+)kB", re.ASCII)
_LEADING_NUMBER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_SIZE = re.compile(r"([0-9]+)K", re.ASCII)


@dataclass(slots=True)
class _Core:
    """A core while its threads are being met."""

    core_id: int
    socket_id: int
    threads: list[int] = field(default_factory=list)


Topology: TypeAlias = tuple[tuple[NUMANode, ...], int]
"""The NUMA nodes, and the number of CPUs that the kubelet counts."""


def topology(sources: Sources) -> Topology:
    """NUMA nodes with their cores, and the number of CPUs.

    The order is cAdvisor's: directories by name, so node10 comes before node2 and CPU 10 before CPU 2.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, GetNodesInfo.
    Departs: a file that is no number is an error; cAdvisor logs it and goes on without CPUs. A copy that
        has lost the links from NUMA nodes to CPUs is read by `cpulist`. Books and drawers (s390x) are not
        told apart.
    """
    names = [name for name in sources.sys.names(NODES) if _NODE.fullmatch(name)]
    if not names:
        sources.lack(Fact.NUMA_NODES, sources.sys.place(NODES))
        return _without_numa(sources)
    nodes = tuple(_node(sources, name) for name in names)
    return nodes, sum(len(core.thread_ids) for node in nodes for core in node.cores)


def huge_pages(sources: Sources, directory: str) -> tuple[HugePages, ...]:
    """The huge pages that a directory such as /sys/kernel/mm/hugepages lists; none where it lacks.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, GetHugePagesInfo.
    """
    found = []
    for name in sources.sys.names(directory):
        match = _HUGE.fullmatch(name)
        if match is None:
            sources.fault(sources.sys.place(f"{directory}/{name}"), name, "must be named as hugepages-2048kB")
            continue
        path = f"{directory}/{name}/nr_hugepages"
        text = sources.sys.text(path) or ""
        count = sources.number(sources.sys.place(path), text)
        found.append(HugePages(page_size=int(match[1]), num_pages=count))
    return tuple(found)


def counts(sources: Sources) -> tuple[int, int]:
    """num_physical_cores and num_sockets.

    Follows: v1.36, cadvisor/machine/machine.go, GetPhysicalCores and GetSockets: what /proc/cpuinfo says, and
        where it says nothing (Arm), what sysfs says of the CPUs that are online.
    """
    cpuinfo = sources.proc.text("cpuinfo")
    if cpuinfo is None:
        sources.lack(Fact.CPUINFO, sources.proc.place("cpuinfo"))
    cores, sockets = counted(cpuinfo or "")
    return cores or _different(sources, "core_id"), sockets or _different(sources, "physical_package_id")


def _different(sources: Sources, name: str) -> int:
    """How many pairs of this property and a socket the CPUs have; what a CPU lacks counts as 0.

    Follows: v1.36, cadvisor/utils/sysfs/sysfs.go, GetUniqueCPUPropertyCount.
    """
    online = _online(sources)
    seen = set()
    for cpu, directory in _cpus(sources, CPUS):
        if online is None or cpu in online:
            values = (
                sources.sys.text(f"{directory}/topology/{one}") for one in (name, "physical_package_id")
            )
            seen.add(tuple("0" if value is None else value for value in values))
    return len(seen)


def _node(sources: Sources, name: str) -> NUMANode:
    directory = f"{NODES}/{name}"
    cpus = _cpus(sources, directory) or _listed(sources, directory)
    cores, caches = _with_caches(sources, name, _cores(sources, cpus))
    return NUMANode(
        node_id=int(name.removeprefix("node")),
        memory=_memory(sources, directory),
        hugepages=huge_pages(sources, f"{directory}/hugepages"),
        distances=_distances(sources, directory),
        cores=cores,
        caches=caches,
    )


def _without_numa(sources: Sources) -> Topology:
    """A node for each socket, without memory and distances; CPUs that are offline are counted, too.

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
            socket = sources.number(sources.sys.place(path), text, least=-1)
            sockets.setdefault(socket, []).append((cpu, directory))
    nodes = []
    for socket, own in sorted(sockets.items()):
        cores, caches = _with_caches(sources, f"socket {socket}", _cores(sources, own))
        nodes.append(NUMANode(node_id=socket, cores=cores, caches=caches))
    return tuple(nodes), len(cpus)


def _from_cpuinfo(sources: Sources) -> Topology:
    """The same from /proc/cpuinfo alone, for copies that have nothing else."""
    cpuinfo, place = sources.proc.text("cpuinfo"), sources.proc.place("cpuinfo")
    cores: dict[tuple[int, int], list[int]] = {}
    for fields in processors(cpuinfo or ""):
        cpu = sources.number(place, fields["processor"])
        socket = sources.number(place, fields.get("physical id", "0"))
        core = sources.number(place, fields.get("core id", str(cpu)))
        cores.setdefault((socket, core), []).append(cpu)
    if not cores:
        sources.fault(sources.sys.place(CPUS), None, "no CPU is there, nor in /proc/cpuinfo")
    sources.lack(Fact.TOPOLOGY, sources.sys.place(CPUS), place)
    nodes = tuple(
        NUMANode(
            node_id=socket,
            cores=tuple(
                Core(core_id=core, socket_id=socket, thread_ids=tuple(threads))
                for (on, core), threads in cores.items()
                if on == socket
            ),
        )
        for socket in sorted({socket for socket, _ in cores})
    )
    return nodes, sum(map(len, cores.values()))


def _cpus(sources: Sources, directory: str) -> list[tuple[int, str]]:
    """The CPUs that a directory holds, each with its own directory, in the order of their names."""
    return [
        (int(match[1]), f"{directory}/{match[0]}")
        for name in sources.sys.names(directory)
        if (match := _CPU.fullmatch(name))
    ]


def _listed(sources: Sources, directory: str) -> list[tuple[int, str]]:
    path = f"{directory}/cpulist"
    text = sources.sys.text(path)
    cpus = _list(sources, path, text or "")
    if cpus:
        sources.lack(Fact.NODE_CPUS, sources.sys.place(directory), path.rpartition("/")[2])
    return sorted(((cpu, f"{CPUS}/cpu{cpu}") for cpu in cpus), key=lambda pair: str(pair[0]))


def _online(sources: Sources) -> CPUSet | None:
    """The CPUs that are online; None: the kernel cannot switch CPUs off, all are."""
    path = f"{CPUS}/online"
    text = sources.sys.text(path)
    if text is None:
        sources.lack(Fact.ONLINE, sources.sys.place(path))
        return None
    if not text:
        sources.fault(sources.sys.place(path), "", "the file is empty")
    return _list(sources, path, text)


def _list(sources: Sources, path: str, text: str) -> CPUSet:
    try:
        return CPUSet.parse(text)
    except IdSetError as error:
        sources.fault(sources.sys.place(path), text, str(error))
        return CPUSet()


def _cores(sources: Sources, cpus: list[tuple[int, str]]) -> list[_Core]:
    """The cores of these CPUs, in the order in which they are met; CPUs that are offline are left out.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, getCoresInfo.
    """
    online = _online(sources)
    cores: dict[tuple[int, int], _Core] = {}
    for cpu, directory in cpus:
        if online is not None and cpu not in online:
            continue
        ids = []
        for name in ("core_id", "physical_package_id"):
            path = f"{directory}/topology/{name}"
            text = sources.sys.text(path)
            if text is None:
                sources.lack(Fact.TOPOLOGY, sources.sys.place(path))
                break
            ids.append(sources.number(sources.sys.place(path), text, least=-1))
        else:
            core_id, socket_id = ids
            cores.setdefault((core_id, socket_id), _Core(core_id, socket_id)).threads.append(cpu)
    return list(cores.values())


def _memory(sources: Sources, directory: str) -> int:
    path = f"{directory}/meminfo"
    text = sources.sys.text(path)
    if text is None:
        sources.lack(Fact.NODE_MEMORY, sources.sys.place(path), "0")
        return 0
    return total_bytes(sources, sources.sys.place(path), text, "MemTotal")


def _distances(sources: Sources, directory: str) -> tuple[int, ...]:
    path = f"{directory}/distance"
    text = sources.sys.text(path)
    if text is None:
        sources.lack(Fact.DISTANCES, sources.sys.place(path))
        return ()
    return tuple(sources.number(sources.sys.place(path), part) for part in text.split(" "))


def _with_caches(
    sources: Sources, name: str, cores: list[_Core]
) -> tuple[tuple[Core, ...], tuple[UncoreCache, ...]]:
    """The cores as values, each with the uncore caches that cAdvisor gives it, and the node's own caches.

    Follows: v1.36, cadvisor/utils/sysinfo/sysinfo.go, addCacheInfo: it ends at the first CPU without
        readable cache files (no `id` on many Arm machines), and the cores after it have no caches.
    """
    done: list[Core] = []
    whole: dict[UncoreCache, None] = {}
    readable = True
    for core in cores:
        seen = _caches(sources, core.threads[0]) if readable else []
        if seen is None:
            readable, seen = False, []
            sources.lack(Fact.CACHES, name, f"cpu{core.threads[0]}")
        uncore, shared = sort_caches(seen, cores=len(cores), threads=len(core.threads))
        whole.update(dict.fromkeys(shared))
        done.append(Core(core.core_id, core.socket_id, tuple(core.threads), uncore))
    return tuple(done), tuple(whole)


def _caches(sources: Sources, cpu: int) -> list[CacheSeen] | None:
    """The caches of a CPU; None where a file lacks or is not as it should be."""
    directory = f"{CPUS}/cpu{cpu}/cache"
    names = sources.sys.names(directory)
    if not names:
        return None
    seen = []
    for name in names:
        if name.startswith("index"):
            try:
                cache = _cache(sources, f"{directory}/{name}")
            except WorldError:
                return None
            if cache is None:
                return None
            seen.append(cache)
    return seen


def _cache(sources: Sources, directory: str) -> CacheSeen | None:
    texts = [
        sources.sys.text(f"{directory}/{name}") for name in ("id", "size", "level", "type", "shared_cpu_map")
    ]
    number, size, level, kind, shared = ("" if text is None else text for text in texts)
    id_match, size_match = _LEADING_NUMBER.match(number), _SIZE.match(size)
    level_match = _LEADING_NUMBER.match(level)
    if None in texts or id_match is None or size_match is None or level_match is None:
        return None
    try:
        cpus = sum(int(mask.strip(), 16).bit_count() for mask in shared.split(","))
    except ValueError:
        return None
    cache = UncoreCache(
        id=int(id_match[0]), size=int(size_match[1]) * 1024, type=kind, level=int(level_match[0])
    )
    return CacheSeen(cache, cpus)
