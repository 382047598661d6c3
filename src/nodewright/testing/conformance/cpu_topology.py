"""Family cpu-topology: how the CPUs of a machine lie in cores, caches, sockets and NUMA nodes."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.cpu.topology import CPUPlace, CPUTopology, discover
from nodewright.model.cpu_reasons import CPUReason
from nodewright.model.machine import MachineInfo
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.render.cpu_messages import cpu_error_type, cpu_message
from nodewright.values.idset import CPUSet, IdSet
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """The topology with every look-up table, or the error."""
    match topology_of(question, machines):
        case Refused() as refused:
            return error(refused)
        case Granted(value=topology):
            return _counts(topology) | _tables(topology)


def error(refused: Refused) -> dict[str, str]:
    """The kubelet's text, and its type where it has one."""
    reason = refused.because[0]
    assert isinstance(reason, CPUReason), reason
    kind = cpu_error_type(reason)
    return {"error": cpu_message(reason)} | ({} if kind is None else {"errorType": kind})


def topology_of(question: dict[str, Any], machines: Mapping[str, Any]) -> Verdict[CPUTopology]:
    """The topology that a question of one of the cpu families is about."""
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
        places=tuple(CPUPlace(cpu, numa, socket, core, cache) for cpu, numa, socket, core, cache in rows),
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
            [place.cpu, place.numa, place.socket, place.core, place.uncore_cache] for place in topology.places
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
    return {str(one): str(CPUSet(mask)) for one, mask in units.items()}


def _ids(units: Mapping[int, Any]) -> dict[str, str]:
    return {str(one): str(IdSet.from_ids(part.id for part in parts)) for one, parts in units.items()}
