"""A machine from a list of CPUs, each with the core, socket, NUMA node and L3 cache it belongs to."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nodewright.model.caches import CacheSeen, sort_caches
from nodewright.model.machine import Core, MachineInfo, NUMANode, UncoreCache


@dataclass(frozen=True, slots=True, kw_only=True)
class CPURow:
    """A CPU that is online. `core` is unique in the machine; None NUMA node or L3: not known."""

    cpu: int
    core: int
    socket: int = 0
    numa: int | None = None
    l3: int | None = None


def machine_from_rows(rows: Sequence[CPURow], *, offline: int = 0, l3_bytes: int = 0) -> MachineInfo:
    """The machine that these CPUs make, as cAdvisor would order and count it; memory is not known.

    Without NUMA nodes each socket counts as one, and the CPUs that are offline are counted, too.

    >>> rows = [CPURow(cpu=0, core=0, numa=0), CPURow(cpu=1, core=0, numa=0)]
    >>> machine_from_rows(rows).topology[0].cores[0].thread_ids
    (0, 1)
    """
    in_order = sorted(rows, key=lambda row: str(row.cpu))
    with_numa = all(row.numa is not None for row in rows)
    sharing = Counter(row.l3 for row in rows if row.l3 is not None)
    nodes: dict[int, dict[int, list[CPURow]]] = {}
    for row in in_order:
        node = row.socket if row.numa is None or not with_numa else row.numa
        nodes.setdefault(node, {}).setdefault(row.core, []).append(row)
    topology = []
    for node, cores in nodes.items():
        listed, whole = [], {}
        for core, threads in cores.items():
            seen = _seen(threads[0].l3, sharing, l3_bytes)
            uncore, shared = sort_caches(seen, cores=len(cores), threads=len(threads))
            whole.update(dict.fromkeys(shared))
            listed.append(Core(core, threads[0].socket, tuple(row.cpu for row in threads), uncore))
        topology.append(NUMANode(node_id=node, cores=tuple(listed), caches=tuple(whole)))
    return MachineInfo(
        num_cores=len(rows) if with_numa else len(rows) + offline,
        num_physical_cores=len({row.core for row in rows}),
        num_sockets=len({row.socket for row in rows}),
        topology=tuple(sorted(topology, key=lambda one: str(one.node_id))),
    )


def _seen(number: int | None, sharing: Counter[int], l3_bytes: int) -> list[CacheSeen]:
    if number is None:
        return []
    cache = UncoreCache(id=number, size=l3_bytes, type="Unified", level=3)
    return [CacheSeen(cache, sharing[number])]
