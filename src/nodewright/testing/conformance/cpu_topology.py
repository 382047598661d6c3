"""Family cpu-topology: the cores, caches, sockets and NUMA nodes of a machine's CPUs."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology, discover
from nodewright.model.hardware import MachineInfo
from nodewright.model.reasons.cpu import CPUReason
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import CPUSet, IdSet


def answer(question: dict[str, Any], machines: Mapping[str, Any], _release: ReleaseTable) -> Any:
    """The topology with every lookup table, or the error."""
    match topology_of(question, machines):
        case Refused() as refused:
            return error_document(refused)
        case Granted(value=topology):
            return _counts(topology) | _tables(topology)


def error_document(refused: Refused) -> dict[str, str]:
    """The kubelet's text, and its type if it has one."""
    reason = refused.because[0]
    assert isinstance(reason, CPUReason), reason
    kind = reason.error_type()
    return {"error": reason.kubelet_error()} | ({"errorType": kind} if kind else {})


def topology_of(question: dict[str, Any], machines: Mapping[str, Any]) -> Verdict[CPUTopology]:
    """The topology in a question of one of the cpu families."""
    if "cpuTopology" in question:
        return Granted(_given(question["cpuTopology"]))
    machine = question["machine"]
    return discover(decode(machines[machine] if isinstance(machine, str) else machine, MachineInfo))


def _given(table: dict[str, Any]) -> CPUTopology:
    rows = sorted(table.get("cpus") or ())
    return CPUTopology(
        num_cpus=table["numCPUs"],
        num_cores=table["numCores"],
        num_sockets=table["numSockets"],
        num_numa_nodes=table["numNUMANodes"],
        num_uncore_caches=table["numUncoreCaches"],
        cpu_info=tuple(CPUInfo(cpu, numa, socket, core, cache) for cpu, numa, socket, core, cache in rows),
    )


def _counts(topology: CPUTopology) -> dict[str, Any]:
    return {
        "numCPUs": topology.num_cpus,
        "numCores": topology.num_cores,
        "numSockets": topology.num_sockets,
        "numNUMANodes": topology.num_numa_nodes,
        "numUncoreCaches": topology.num_uncore_caches,
        "cpusPerCore": topology.cpus_per_core,
        "cpusPerSocket": topology.cpus_per_socket,
        "cpusPerUncoreCache": topology.cpus_per_uncore_cache,
        "cpus": [
            [place.cpu, place.numa, place.socket, place.core, place.uncore_cache]
            for place in topology.cpu_info
        ],
    }


def _tables(topology: CPUTopology) -> dict[str, Any]:
    return {
        "cpusInCore": _sets(topology.in_core),
        "cpusInSocket": _sets(topology.in_socket),
        "cpusInNUMANode": _sets(topology.in_numa),
        "cpusInUncoreCache": _sets(topology.in_uncore_cache),
        "numaNodesInSocket": _ids(topology.numa_in_socket),
        "socketsInNUMANode": _ids(topology.sockets_in_numa),
        "coresInSocket": _ids(topology.cores_in_socket),
        "uncoreCachesInNUMANode": _ids(topology.uncore_caches_in_numa),
    }


def _sets(units: Mapping[int, int]) -> dict[str, str]:
    return {str(id_): str(CPUSet(mask)) for id_, mask in units.items()}


def _ids(units: Mapping[int, Any]) -> dict[str, str]:
    return {str(id_): str(IdSet.from_ids(part.id for part in parts)) for id_, parts in units.items()}
