"""A machine from what `lscpu -J` (a summary), `lscpu -e -J` (CPU by CPU) and `lscpu -C -J` (caches) print."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodewright.model.machine import MachineInfo
from nodewright.values.idset import CPUSet, IdSetError
from nodewright.world.documents import parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import read_file
from nodewright.world.machine.assemble import CPURow, machine_from_rows
from nodewright.world.machine.check import contradictions
from nodewright.world.machine.lacks import Fact, Lack

WANTED = "must be what `lscpu -e -J` or `lscpu -J` prints"
_NODE_CPUS = re.compile(r"NUMA node([0-9]+) CPU\(s\)", re.ASCII)
# Some releases print numbers that they do not know (of CPUs that are offline) as a bare dash, which is no JSON.
_BARE_DASH = re.compile(rb'(":\s*)-(\s*[,}])')
_SIZE = re.compile(r"([0-9.]+) ?([KMGT]?)(?:iB|B)?(?: \(([0-9]+) instances?\))?", re.ASCII)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True, slots=True)
class FromLscpu:
    """The machine, its processor as the kernel calls it (empty: not said), and what lscpu does not tell."""

    machine: MachineInfo
    processor: str
    lacks: tuple[Lack, ...]


@dataclass(slots=True)
class _Said:
    """What the files say, one after the other."""

    source: str
    fields: dict[str, str] = field(default_factory=dict)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    l3: dict[str, Any] = field(default_factory=dict)
    lacks: list[Lack] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, path: str, value: object, rule: str) -> None:
        self.faults.append(Fault(source=self.source, path=path, value=value, rule=rule))

    def number(self, path: str, value: object) -> int:
        text = str(value)
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
        self.fault(path, value, "must be a whole number")
        return 0

    def end(self) -> None:
        if self.faults:
            raise InputError(self.faults)


def read_lscpu(paths: Sequence[str | Path]) -> FromLscpu:
    """The machine that the files describe together.

    With a list of CPUs (`-e`) it is exact but for sizes; the summary alone leaves out which CPUs share a
    core, which is then told from the numbering or, on a single NUMA node, assumed.

    Errors: InputError with the faults of the first step that fails: reading, fields, counts.
    """
    said = _Said(", ".join(map(str, paths)))
    for path in paths:
        _read(Path(path), said)
    said.end()
    if not said.rows and "CPU(s)" not in said.fields:
        raise InputError([Fault(source=said.source, rule=WANTED)])
    rows, offline = _listed(said) if said.rows else _summed(said)
    said.end()
    if not rows:
        raise InputError([Fault(source=said.source, rule="no CPU is online")])
    l3_bytes = _l3_bytes(said)
    if any(row.l3 is not None for row in rows) and not l3_bytes:
        said.lacks.append(Lack(fact=Fact.CACHE_SIZES, place="lscpu", instead="0"))
    machine = machine_from_rows(rows, offline=offline, l3_bytes=l3_bytes)
    said.faults.extend(contradictions(machine, said.source, field=""))
    said.end()
    return FromLscpu(machine, said.fields.get("Architecture", ""), tuple(said.lacks))


def _read(path: Path, said: _Said) -> None:
    content = _BARE_DASH.sub(rb"\1null\2", read_file(str(path)).content)
    documents = parse_documents(content, str(path))
    for document in documents:
        value = document.value
        known = isinstance(value, dict) and {"lscpu", "cpus", "caches"} & value.keys()
        if not known or not all(isinstance(value[key], list) for key in known):
            said.faults.append(Fault(source=str(path), rule=WANTED))
            continue
        said.fields.update(_flat(value.get("lscpu", ())))
        said.rows.extend(row for row in value.get("cpus", ()) if isinstance(row, dict))
        for cache in value.get("caches", ()):
            if isinstance(cache, dict) and cache.get("name") == "L3":
                said.l3 = cache


def _flat(entries: Any) -> Iterator[tuple[str, str]]:
    """The fields of a summary; newer releases of lscpu nest them."""
    pending = list(entries)
    while pending:
        entry = pending.pop(0)
        if isinstance(entry, dict) and isinstance(entry.get("field"), str):
            yield entry["field"].strip().rstrip(":"), str(entry.get("data") or "").strip()
            children = entry.get("children")
            pending.extend(children if isinstance(children, list) else ())


def _listed(said: _Said) -> tuple[list[CPURow], int]:
    """The rows of `lscpu -e`, and how many CPUs are offline."""
    rows, offline, seen = [], 0, set[int]()
    for index, row in enumerate(said.rows):
        path = f"cpus[{index}]"
        if row.get("online") in (False, "no", "n"):
            offline += 1
            continue
        cpu = said.number(f"{path}.cpu", row.get("cpu"))
        if cpu in seen:
            said.fault(f"{path}.cpu", cpu, "a CPU is listed once")
        seen.add(cpu)
        rows.append(
            CPURow(
                cpu=cpu,
                core=said.number(f"{path}.core", row.get("core")),
                socket=0 if _absent(row.get("socket")) else said.number(f"{path}.socket", row["socket"]),
                numa=None if _absent(row.get("node")) else said.number(f"{path}.node", row["node"]),
                l3=_l3_of(said, path, row),
            )
        )
    if rows and any(row.numa is None for row in rows):
        said.lacks.append(Lack(fact=Fact.NUMA_NODES, place="lscpu"))
    return rows, offline


def _l3_of(said: _Said, path: str, row: Mapping[str, Any]) -> int | None:
    """The last-level cache of a row: columns such as `l1d:l1i:l2:l3` hold `0:0:0:0`."""
    for name, value in row.items():
        levels = name.lower().split(":")
        numbers = str(value).split(":")
        if "l3" in levels and len(numbers) == len(levels):
            number = numbers[levels.index("l3")]
            return None if _absent(number) else said.number(f"{path}.{name}", number)
    return None


def _absent(value: object) -> bool:
    return value in (None, "", "-")


def _summed(said: _Said) -> tuple[list[CPURow], int]:
    """CPUs as the summary lets us guess them."""
    total = said.number("CPU(s)", said.fields["CPU(s)"])
    online = _cpus(said, "On-line CPU(s) list", f"0-{total - 1}" if total else "")
    threads = _count(said, "Thread(s) per core")
    sockets = _count(said, "Socket(s)")
    nodes = {
        int(match[1]): _cpus(said, name, "") & online
        for name in said.fields
        if (match := _NODE_CPUS.fullmatch(name))
    }
    if not nodes:
        said.lacks.append(Lack(fact=Fact.NUMA_NODES, place="lscpu"))
    per_socket = _count(said, "Core(s) per socket", len(online) // (threads * sockets))
    sizes = [len(cpus) for cpus in nodes.values()] or [len(online)]
    whole = sockets * per_socket * threads == sum(sizes) == len(online)
    if not whole or any(size % threads for size in sizes):
        rule = "cores, threads and CPUs that are online do not add up (hybrid cores, offline CPUs?): use `lscpu -e -J`"
        said.fault("CPU(s)", len(online), rule)
        return [], 0
    cores: list[tuple[int | None, tuple[int, ...]]] = []
    for node, cpus in sorted(nodes.items()):
        cores.extend((node, core) for core in _cores(cpus, threads, alone=len(nodes) < 2))
    if not nodes:
        cores.extend((None, core) for core in _cores(online, threads, alone=True))
    if threads > 1 and len(nodes) < 2:
        said.lacks.append(Lack(fact=Fact.SIBLINGS, place="lscpu", instead=_spelled(cores[0][1])))
    caches = _l3_instances(said)
    rows = []
    for index, (numa, core) in enumerate(cores):
        l3 = index * caches // len(cores) if caches else None
        socket = index * sockets // len(cores)
        rows += [CPURow(cpu=cpu, core=index, socket=socket, numa=numa, l3=l3) for cpu in core]
    return rows, total - len(online)


def _cores(cpus: CPUSet, threads: int, *, alone: bool) -> Iterator[tuple[int, ...]]:
    """The CPUs of a NUMA node in cores.

    A node with one run of CPUs among others has its threads side by side; else all first threads come
    before all second ones.
    """
    ids = list(cpus)
    adjacent = len(list(cpus.ranges())) == 1 and not alone
    count = len(ids) // threads
    for index in range(count):
        yield tuple(ids[index * threads : (index + 1) * threads] if adjacent else ids[index::count])


def _spelled(core: tuple[int, ...]) -> str:
    return ",".join(map(str, core))


def _count(said: _Said, name: str, default: int = 1) -> int:
    text = said.fields.get(name, "-")
    if _absent(text):
        return max(default, 1)
    return said.number(name, text) or 1


def _cpus(said: _Said, name: str, default: str) -> CPUSet:
    text = said.fields.get(name, default)
    try:
        return CPUSet.parse(text)
    except IdSetError as error:
        said.fault(name, text, str(error))
        return CPUSet()


def _l3_bytes(said: _Said) -> int:
    """The size of one L3 cache; 0: not said."""
    total, instances = _l3_text(said)
    return total // instances


def _l3_instances(said: _Said) -> int:
    total, instances = _l3_text(said)
    return instances if total else 0


def _l3_text(said: _Said) -> tuple[int, int]:
    """The size of all L3 caches, and how many there are."""
    if said.l3:
        one, every = (_bytes(str(said.l3.get(key, "")))[0] for key in ("one-size", "all-size"))
        return every, max(every // one if one else 1, 1)
    return _bytes(said.fields.get("L3 cache", said.fields.get("L3", "")))


def _bytes(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text)
    if match is None or match[1].count(".") > 1 or match[1] == ".":
        return 0, 1
    return int(float(match[1]) * 2 ** _POWERS[match[2]]), max(int(match[3] or 1), 1)
