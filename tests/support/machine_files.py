"""The files of /sys and /proc of a machine, as the kernel shows them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode, UncoreCache
from nodewright.model.values.idset import CPUSet

KIB = 1024
Files = dict[str, str]
"""Contents by path below a directory; `-> TARGET` is a link."""


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
    files |= {"sys/kernel/mm/ksm/run": "0\n"} | _huge_page_files("sys/kernel/mm/hugepages", machine.hugepages)
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
