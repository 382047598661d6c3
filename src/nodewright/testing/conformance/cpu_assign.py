"""Family cpu-assign: which of the free CPUs are taken."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.cpu.assign import Picking, take_cpus
from nodewright.core.cpu.packed import Manner
from nodewright.model.verdict import Granted, Refused
from nodewright.testing.conformance.cpu_topology import error, topology_of
from nodewright.values.idset import CPUSet


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The CPUs taken, or the error."""
    found = topology_of(question, machines)
    if isinstance(found, Refused):
        return error(found)
    is_packed = question["algorithm"] == "packed"
    manner = Manner(
        spread=question["sortingStrategy"] == "spread",
        prefer_uncore_cache=is_packed and bool(question.get("preferAlignByUncoreCache")),
    )
    picking = Picking(manner=manner, group=None if is_packed else question["cpuGroupSize"])
    match take_cpus(found.value, CPUSet.parse(question["available"]), question["numCPUs"], picking):
        case Granted(value=taken):
            return {"cpus": str(taken)}
        case Refused() as refused:
            return error(refused)
