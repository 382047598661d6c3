"""Machines for tests: Hypothesis strategies, and files of /sys and /proc as the kernel shows them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from hypothesis import assume
from hypothesis import strategies as st

from nodewright.documents.profiles.machine.lscpu import CPURow, machine_from_rows
from nodewright.model.hardware.machine_info import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.values.idset import CPUSet

KIB = 1024
L3_BYTES = 32 << 20

Files = dict[str, str]
"""Contents by path below a directory; `-> TARGET` is a link."""


# ---------------------------------------------------------------- machines


def regular_machine(numa: int = 1, cpus: int = 4, *, memory_bytes: int = 4 << 30) -> MachineInfo:
    """A machine with one socket per NUMA node, each with these CPUs, one per core, and this memory.

    >>> [str(CPUSet.from_ids(core.thread_ids[0] for core in node.cores)) for node in regular_machine(2).topology]
    ['0-3', '4-7']
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


# ---------------------------------------------------------------- files


def machine_files(machine: MachineInfo) -> Files:
    """The kernel's files for the machine: `sys/…` and `proc/…`, cgroup v2, no swap."""
    files = {
        "sys/devices/system/cpu/online": f"{CPUSet.from_ids(_threads(machine))}\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
        "proc/meminfo": f"MemTotal:  {machine.memory_capacity // KIB} kB\nSwapTotal:  0 kB\n",
        "proc/cpuinfo": "\n".join(_cpuinfo(machine)),
        "proc/sys/kernel/pid_max": "4194304\n",
        "proc/sys/kernel/threads-max": "128000\n",
    }
    files |= _huge_page_files("sys/kernel/mm/hugepages", machine.hugepages)
    shared = _sharing(machine)
    for node in machine.topology:
        files |= _node_files(node)
        for core in node.cores:
            for thread in core.thread_ids:
                directory = f"sys/devices/system/cpu/cpu{thread}"
                files[f"{directory}/topology/core_id"] = f"{core.core_id}\n"
                files[f"{directory}/topology/physical_package_id"] = f"{core.socket_id}\n"
                files |= _cache_files(f"{directory}/cache/index0", _L1, CPUSet.of(thread))
                for place, cache in enumerate(_last_level(node, core)):
                    own = shared[cache]
                    files |= _cache_files(f"{directory}/cache/index{3 + place}", cache, own)
    return files


def write_machine_files(files: Mapping[str, str], directory: Path) -> Path:
    """Writes these files into the directory, and returns it."""
    for folder in {path.rpartition("/")[0] for path in files}:
        (directory / folder).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        place = directory / path
        if text.startswith("-> "):
            place.symlink_to(text.removeprefix("-> "))
        else:
            place.write_text(text)
    return directory


def files_from_dump(dump: str) -> Files:
    r"""The files of a dump: `[directory]`, then `name = text`, `name -> target`, or lines that start with `|`.

    >>> files_from_dump("[sys]\na = 1\nb -> a\nc =\n  | x\n  |")
    {'sys/a': '1\n', 'sys/b': '-> a', 'sys/c': 'x\n\n'}
    """
    files: Files = {}
    directory = path = ""
    for line in dump.splitlines():
        if line.startswith("["):
            directory = line.strip("[]")
        elif line.startswith("  |"):
            files[path] += line[4:] + "\n"
        else:
            name, mark, text = line.partition(" -> " if " -> " in line else " =")
            path = f"{directory}/{name}"
            files[path] = f"-> {text}" if mark == " -> " else f"{text[1:]}\n" if text else ""
    return files


_L1 = UncoreCache(id=0, size=48 * KIB, type="Data", level=1)


def _threads(machine: MachineInfo) -> Iterator[int]:
    return (thread for node in machine.topology for core in node.cores for thread in core.thread_ids)


def _sharing(machine: MachineInfo) -> dict[UncoreCache, CPUSet]:
    """The CPUs of each cache beyond level 2."""
    shared: dict[UncoreCache, CPUSet] = {}
    for node in machine.topology:
        for core in node.cores:
            for cache in _last_level(node, core):
                shared[cache] = shared.get(cache, CPUSet()) | CPUSet.from_ids(core.thread_ids)
    return shared


def _last_level(node: NUMANode, core: Core) -> tuple[UncoreCache, ...]:
    """The caches that a core uses: its own group's, else those of its node."""
    return core.uncore_caches or node.caches


def _cpuinfo(machine: MachineInfo) -> Iterator[str]:
    for node in machine.topology:
        for core in node.cores:
            for thread in core.thread_ids:
                yield f"processor\t: {thread}\nphysical id\t: {core.socket_id}\ncore id\t\t: {core.core_id}\n"


def _node_files(node: NUMANode) -> Files:
    directory = f"sys/devices/system/node/node{node.node_id}"
    threads = [thread for core in node.cores for thread in core.thread_ids]
    files = {
        f"{directory}/cpulist": f"{CPUSet.from_ids(threads)}\n",
        f"{directory}/meminfo": f"Node {node.node_id} MemTotal:  {node.memory // KIB} kB\n",
        f"{directory}/distance": " ".join(map(str, node.distances)) + "\n",
    }
    files |= {f"{directory}/cpu{thread}": f"-> ../../cpu/cpu{thread}" for thread in threads}
    return files | _huge_page_files(f"{directory}/hugepages", node.hugepages)


def _huge_page_files(directory: str, pages: tuple[HugePages, ...]) -> Files:
    return {f"{directory}/hugepages-{page.page_size}kB/nr_hugepages": f"{page.num_pages}\n" for page in pages}


def _cache_files(directory: str, cache: UncoreCache, cpus: CPUSet) -> Files:
    """A cache; the kernel writes masks of CPUs in groups of eight hexadecimal digits."""
    digits = f"{cpus.mask:x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    mask = ",".join(digits[start : start + 8] for start in range(0, len(digits), 8))
    return {
        f"{directory}/id": f"{cache.id}\n",
        f"{directory}/size": f"{cache.size // KIB}K\n",
        f"{directory}/level": f"{cache.level}\n",
        f"{directory}/type": f"{cache.type}\n",
        f"{directory}/shared_cpu_map": f"{mask}\n",
    }
