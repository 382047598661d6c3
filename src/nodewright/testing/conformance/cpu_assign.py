"""Family cpu-assign: the choice among the free CPUs."""

from collections.abc import Mapping
from typing import Any

from nodewright.engine.core.cpu.cpu_assignment import PackingOptions
from nodewright.engine.core.cpu.cpu_policy import AssignmentStrategy, take_cpus
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import CPUSet
from nodewright.testing.conformance.cpu_topology import error_document, topology_of
from nodewright.testing.conformance.vectors import question_gates


def answer(question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The chosen CPUs, or the error."""
    topology = topology_of(question, machines)
    if isinstance(topology, Refused):
        return error_document(topology)
    rules = question_gates(question, release).rules
    is_packed = question["algorithm"] == "packed"
    manner = PackingOptions(
        spread=question["sortingStrategy"] == "spread",
        rounds_cores_up=rules.uncore_cores_rounded_up,
        prefer_uncore_cache=is_packed and bool(question.get("preferAlignByUncoreCache")),
    )
    picking = AssignmentStrategy(
        packing=manner, cpu_group_size=None if is_packed else question["cpuGroupSize"]
    )
    match take_cpus(topology.value, CPUSet.parse(question["available"]), question["numCPUs"], picking):
        case Granted(value=taken):
            return {"cpus": str(taken)}
        case Refused() as refused:
            return error_document(refused)
