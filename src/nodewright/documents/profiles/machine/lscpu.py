"""Reads a machine from what a tool says of it: lscpu, or cAdvisor (`/api/v1.3/machine`, or a kubelet's `/spec/`).

Of lscpu, the output of `lscpu -J` (summary), `lscpu -e -J` (list of CPUs) and `lscpu -C -J` (caches).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import parse_documents, read_file
from nodewright.documents.profiles.machine.host_facts import MachineFact, MissingFact
from nodewright.model.errors import Fault, InputError
from nodewright.model.hardware import (
    Core,
    MachineInfo,
    NUMANode,
    SharedCache,
    UncoreCache,
    contradictions,
    uncore_and_node_caches,
)
from nodewright.model.values.golang import is_number_of_digits
from nodewright.model.values.idset import CPUSet, IdSetError


class CPURow(msgspec.Struct, frozen=True, kw_only=True):
    """An online CPU. `core` is unique in the machine; NUMA node or L3 None: not known."""

    cpu: int
    core: int
    socket: int = 0
    numa: int | None = None
    l3: int | None = None


def machine_from_rows(
    rows: Sequence[CPURow], *, offline: int = 0, l3_bytes: int = 0, memory_only: Iterable[int] = ()
) -> MachineInfo:
    """The machine with these CPUs, ordered and counted as in cAdvisor; memory is not known.

    Without NUMA nodes each socket counts as one, and offline CPUs are counted, too. `memory_only` are the NUMA nodes
    without CPUs.

    >>> rows = [CPURow(cpu=0, core=0, numa=0), CPURow(cpu=1, core=0, numa=0)]
    >>> machine_from_rows(rows).topology[0].cores[0].thread_ids
    (0, 1)
    """
    in_order = sorted(rows, key=lambda row: str(row.cpu))
    with_numa = all(row.numa is not None for row in rows)
    cpus_of_l3 = Counter(row.l3 for row in rows if row.l3 is not None)
    nodes: dict[int, dict[int, list[CPURow]]] = {}
    for row in in_order:
        node = row.socket if row.numa is None or not with_numa else row.numa
        nodes.setdefault(node, {}).setdefault(row.core, []).append(row)
    topology = []
    for node, cores in nodes.items():
        node_cores, node_caches = [], {}
        for core, threads in cores.items():
            core_caches = _uncore_cache(threads[0].l3, cpus_of_l3, l3_bytes)
            uncore, shared = uncore_and_node_caches(core_caches, cores=len(cores), threads=len(threads))
            node_caches.update(dict.fromkeys(shared))
            node_cores.append(Core(core, threads[0].socket, tuple(row.cpu for row in threads), uncore))
        topology.append(NUMANode(node_id=node, cores=tuple(node_cores), caches=tuple(node_caches)))
    topology += [NUMANode(node_id=node) for node in sorted(set(memory_only) - nodes.keys())]
    return MachineInfo(
        num_cores=len(rows) if with_numa else len(rows) + offline,
        num_physical_cores=len({row.core for row in rows}),
        num_sockets=len({row.socket for row in rows}),
        topology=tuple(sorted(topology, key=lambda node: str(node.node_id))),
    )


def _uncore_cache(number: int | None, cpus_of_l3: Counter[int], l3_bytes: int) -> list[SharedCache]:
    if number is None:
        return []
    cache = UncoreCache(id=number, size=l3_bytes, type="Unified", level=3)
    return [SharedCache(cache, cpus_of_l3[number])]


LSCPU_FORMAT_RULE = "must be the output of `lscpu -e -J` or `lscpu -J`"
_NODE_CPUS = re.compile(r"NUMA node([0-9]+) CPU\(s\)", re.ASCII)
# On IBM Z the numbers of sockets, books and drawers are each those of the level above.
_SOCKET_COUNTS = ("Socket(s)", "Socket(s) per book", "Book(s)", "Book(s) per drawer", "Drawer(s)")
# Some releases print unknown numbers (of offline CPUs) as a bare dash, which is not valid JSON.
_BARE_DASH = re.compile(rb'(":\s*)-(\s*[,}])')
_SIZE = re.compile(r"([0-9.]+) ?([KMGT]?)(?:iB|B)?(?: \(([0-9]+) instances?\))?", re.ASCII)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class LscpuMachine(msgspec.Struct, frozen=True):
    """The machine, the kernel's name of its architecture (empty: not known), and the missing facts."""

    machine: MachineInfo
    processor: str
    missing: tuple[MissingFact, ...]


@dataclass(slots=True)
class _LscpuOutput:
    """The content of all files."""

    source: str
    fields: dict[str, str] = field(default_factory=dict)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    l3: dict[str, Any] = field(default_factory=dict)
    missing: list[MissingFact] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def add_fault(self, path: str, value: object, rule: str) -> None:
        self.faults.append(Fault(source=self.source, path=path, value=value, rule=rule))

    def number(self, path: str, value: object) -> int:
        text = str(value)
        if is_number_of_digits(text) and len(text) < 10:
            return int(text)
        self.add_fault(path, value, "must be an integer")
        return 0

    def finish(self) -> None:
        if self.faults:
            raise InputError(self.faults)


def read_lscpu(paths: Sequence[str | Path]) -> LscpuMachine:
    """The machine that the files together describe.

    With a list of CPUs (`-e`) it is exact except for sizes; the summary alone does not report which CPUs share a
    core, which is then derived from the numbering or, on a single NUMA node, assumed.

    Errors: InputError with the faults of the first step that fails: reading, fields, counts.
    """
    output = _LscpuOutput(", ".join(map(str, paths)))
    for path in paths:
        _read(Path(path), output)
    output.finish()
    if not output.rows and "CPU(s)" not in output.fields:
        raise InputError([Fault(source=output.source, rule=LSCPU_FORMAT_RULE)])
    rows, offline = _rows_from_list(output) if output.rows else _rows_from_summary(output)
    output.finish()
    if not rows:
        raise InputError([Fault(source=output.source, rule="no CPU is online")])
    l3_bytes = _l3_bytes(output)
    if any(row.l3 is not None for row in rows) and not l3_bytes:
        output.missing.append(MissingFact(fact=MachineFact.CACHE_SIZES, place="lscpu", substitute="0"))
    listed = _listed_nodes(output)
    memory_only = [node for node, cpus in listed.items() if not cpus]
    machine = machine_from_rows(rows, offline=offline, l3_bytes=l3_bytes, memory_only=memory_only)
    if all(row.numa is not None for row in rows) and len(listed) < _count(output, "NUMA node(s)"):
        output.missing.append(MissingFact(fact=MachineFact.NODES_WITHOUT_CPUS, place="lscpu"))
    output.faults.extend(contradictions(machine, output.source, field=""))
    output.finish()
    return LscpuMachine(machine, output.fields.get("Architecture", ""), tuple(output.missing))


def _read(path: Path, output: _LscpuOutput) -> None:
    content = _BARE_DASH.sub(rb"\1null\2", read_file(str(path)).content)
    documents = parse_documents(content, str(path))
    for document in documents:
        value = document.value
        known = isinstance(value, dict) and {"lscpu", "cpus", "caches"} & value.keys()
        if not known or not all(isinstance(value[key], list) for key in known):
            output.faults.append(Fault(source=str(path), rule=LSCPU_FORMAT_RULE))
            continue
        output.fields.update(_flat(value.get("lscpu", ())))
        output.rows.extend(row for row in value.get("cpus", ()) if isinstance(row, dict))
        for cache in value.get("caches", ()):
            if isinstance(cache, dict) and cache.get("name") == "L3":
                output.l3 = cache


def _flat(entries: Any) -> Iterator[tuple[str, str]]:
    """The fields of a summary; newer releases of lscpu nest them."""
    pending = list(entries)
    while pending:
        entry = pending.pop(0)
        if isinstance(entry, dict) and isinstance(entry.get("field"), str):
            yield entry["field"].strip().rstrip(":"), str(entry.get("data") or "").strip()
            children = entry.get("children")
            pending.extend(children if isinstance(children, list) else ())


def _rows_from_list(output: _LscpuOutput) -> tuple[list[CPURow], int]:
    """The rows of `lscpu -e`, and the number of offline CPUs."""
    rows, offline, cpus = [], 0, set[int]()
    for index, row in enumerate(output.rows):
        path = f"cpus[{index}]"
        if row.get("online") in (False, "no", "n"):
            offline += 1
            continue
        cpu = output.number(f"{path}.cpu", row.get("cpu"))
        if cpu in cpus:
            output.add_fault(f"{path}.cpu", cpu, "this CPU is listed more than once")
        cpus.add(cpu)
        rows.append(
            CPURow(
                cpu=cpu,
                core=output.number(f"{path}.core", row.get("core")),
                socket=0 if _absent(row.get("socket")) else output.number(f"{path}.socket", row["socket"]),
                numa=None if _absent(row.get("node")) else output.number(f"{path}.node", row["node"]),
                l3=_l3_of(output, path, row),
            )
        )
    if rows and any(row.numa is None for row in rows):
        output.missing.append(MissingFact(fact=MachineFact.NUMA_NODES, place="lscpu"))
    return rows, offline


def _l3_of(output: _LscpuOutput, path: str, row: Mapping[str, Any]) -> int | None:
    """The L3 cache of a row: columns such as `l1d:l1i:l2:l3` hold `0:0:0:0`."""
    for name, value in row.items():
        levels = name.lower().split(":")
        numbers = str(value).split(":")
        if "l3" in levels and len(numbers) == len(levels):
            number = numbers[levels.index("l3")]
            return None if _absent(number) else output.number(f"{path}.{name}", number)
    return None


def _absent(value: object) -> bool:
    return value in (None, "", "-")


def _rows_from_summary(output: _LscpuOutput) -> tuple[list[CPURow], int]:
    """Rows derived from the summary, and the number of offline CPUs."""
    total = output.number("CPU(s)", output.fields["CPU(s)"])
    online = _cpus(output, "On-line CPU(s) list", f"0-{total - 1}" if total else "")
    threads = _count(output, "Thread(s) per core")
    sockets = math.prod(_count(output, name) for name in _SOCKET_COUNTS)
    nodes = {node: cpus & online for node, cpus in _listed_nodes(output).items() if cpus & online}
    if not nodes:
        output.missing.append(MissingFact(fact=MachineFact.NUMA_NODES, place="lscpu"))
    per_socket = _count(output, "Core(s) per socket", len(online) // (threads * sockets))
    sizes = [len(cpus) for cpus in nodes.values()] or [len(online)]
    is_consistent = sockets * per_socket * threads == sum(sizes) == len(online)
    if not is_consistent or any(size % threads for size in sizes):
        rule = "cores, threads and online CPUs do not add up (hybrid cores, offline CPUs?): use `lscpu -e -J`"
        output.add_fault("CPU(s)", len(online), rule)
        return [], 0
    cores: list[tuple[int | None, tuple[int, ...]]] = []
    for node, cpus in sorted(nodes.items()):
        cores.extend((node, core) for core in _cores(cpus, threads, is_only_node=len(nodes) < 2))
    if not nodes:
        cores.extend((None, core) for core in _cores(online, threads, is_only_node=True))
    if threads > 1 and len(nodes) < 2:
        output.missing.append(
            MissingFact(fact=MachineFact.SIBLINGS, place="lscpu", substitute=",".join(map(str, cores[0][1])))
        )
    caches = _l3_instances(output)
    rows = []
    for index, (numa, core) in enumerate(cores):
        l3 = index * caches // len(cores) if caches else None
        socket = index * sockets // len(cores)
        rows += [CPURow(cpu=cpu, core=index, socket=socket, numa=numa, l3=l3) for cpu in core]
    return rows, total - len(online)


def _listed_nodes(output: _LscpuOutput) -> dict[int, CPUSet]:
    """The NUMA nodes of the summary with their CPUs; none on nodes that have only memory."""
    return {
        int(match[1]): _cpus(output, name, "")
        for name in output.fields
        if (match := _NODE_CPUS.fullmatch(name))
    }


def _cores(cpus: CPUSet, threads: int, *, is_only_node: bool) -> Iterator[tuple[int, ...]]:
    """The CPUs of each core of a NUMA node.

    If the node has one contiguous range of CPUs and is not the only node, the threads of a core have consecutive
    numbers; otherwise all first threads are numbered before all second ones.
    """
    ids = list(cpus)
    adjacent = len(list(cpus.ranges())) == 1 and not is_only_node
    count = len(ids) // threads
    for index in range(count):
        yield tuple(ids[index * threads : (index + 1) * threads] if adjacent else ids[index::count])


def _count(output: _LscpuOutput, name: str, default: int = 1) -> int:
    text = output.fields.get(name, "-")
    if _absent(text):
        return max(default, 1)
    return output.number(name, text) or 1


def _cpus(output: _LscpuOutput, name: str, default: str) -> CPUSet:
    text = output.fields.get(name, default)
    try:
        return CPUSet.parse(text)
    except IdSetError as error:
        output.add_fault(name, text, str(error))
        return CPUSet()


def _l3_bytes(output: _LscpuOutput) -> int:
    """The size of one L3 cache; 0: not known."""
    total, instances = _l3_text(output)
    return total // instances


def _l3_instances(output: _LscpuOutput) -> int:
    total, instances = _l3_text(output)
    return instances if total else 0


def _l3_text(output: _LscpuOutput) -> tuple[int, int]:
    """The total size of the L3 caches, and their number."""
    if output.l3:
        one_size, all_size = (_bytes(str(output.l3.get(key, "")))[0] for key in ("one-size", "all-size"))
        return all_size, max(all_size // one_size if one_size else 1, 1)
    return _bytes(output.fields.get("L3 cache", output.fields.get("L3", "")))


def _bytes(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return 0, 1
    return int(float(match[1]) * 2 ** _POWERS[match[2]]), max(int(match[3] or 1), 1)


WithSwap: TypeAlias = tuple[MachineInfo, int | None]
"""A machine, and its swap in bytes; None: not known."""


def read_machine_info(path: str | Path) -> WithSwap:
    """The machine that a file with cAdvisor's MachineInfo (JSON) describes.

    Errors: InputError with the first field of a wrong type, or with all contradictions.
    """
    content, source = read_file(str(path)).content, str(path)
    documents = parse_documents(content, source)
    value: Any = documents[0].value if len(documents) == 1 else None
    if not isinstance(value, dict) or "num_cores" not in value:
        rule = "must be one MachineInfo of cAdvisor: an object with num_cores and topology"
        raise InputError([Fault(source=source, rule=rule)])
    try:
        machine = decode(value, MachineInfo)
    except msgspec.ValidationError as error:
        raise InputError([Fault(source=source, rule=str(error))]) from None
    if faults := contradictions(machine, source, field=""):
        raise InputError(faults)
    swap = value.get("swap_capacity")
    return machine, swap if isinstance(swap, int) and swap >= 0 else None
