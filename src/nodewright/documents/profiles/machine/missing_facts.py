"""Facts about a machine that a source does not have, and the values in the profile instead."""

from enum import StrEnum
from typing import assert_never

import msgspec


class MachineFact(StrEnum):
    """A fact about a machine that a source may lack."""

    NUMA_NODES = "NUMA nodes"
    NODE_CPUS = "links from a NUMA node to its CPUs"
    NODE_MEMORY = "memory of a NUMA node"
    DISTANCES = "distances of a NUMA node"
    TOPOLOGY = "core or socket of a CPU"
    CACHES = "caches of a NUMA node"
    CACHE_SIZES = "cache sizes"
    ONLINE = "which CPUs are online"
    CPUINFO = "/proc/cpuinfo"
    SIBLINGS = "which CPUs share a core"
    MEMORY = "memory"
    HUGE_PAGES = "huge pages"
    SWAP = "swap"
    CGROUP_HYBRID = "cgroup hierarchies"
    CGROUP_VERSION = "cgroup version"
    PID_MAX = "limit of processes"
    PAGE_SIZE = "page size"
    ROOT_FS = "capacity of the kubelet's file system"
    KUBELET_CONFIGURATION = "kubelet configuration"


class MissingFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that could not be read."""

    fact: MachineFact
    place: str = ""
    """The file, NUMA node or CPU that lacks it."""
    substitute: str = ""
    """The value in the profile instead."""


def missing_fact_sentence(missing: MissingFact) -> str:
    """The missing fact and the value in the profile instead, as a sentence."""
    match missing.fact:
        case MachineFact.KUBELET_CONFIGURATION if missing.substitute:
            return f"kubelet configuration: none given (--kubelet-config); the kubelet's defaults are assumed, with {missing.substitute}"
        case MachineFact.KUBELET_CONFIGURATION:
            return "kubelet configuration: none given (--kubelet-config); the kubelet's defaults are assumed"
        case MachineFact.NUMA_NODES:
            return "NUMA nodes: none are described; as the kubelet does, each socket counts as one, without memory and distances"
        case MachineFact.NODE_CPUS:
            return f"{missing.place}: its links to CPUs are missing, {missing.substitute} is used"
        case MachineFact.TOPOLOGY if missing.substitute:
            return f"{missing.place} is missing: cores and sockets are taken from {missing.substitute}"
        case MachineFact.TOPOLOGY:
            return f"{missing.place} is missing: this CPU is left out, as the kubelet does"
        case MachineFact.CACHES:
            return f"caches of {missing.place}: not readable from {missing.substitute} on; as the kubelet does, the cores from there on have none"
        case MachineFact.CACHE_SIZES:
            return "cache sizes: not known, 0 in the profile"
        case MachineFact.ONLINE:
            return f"{missing.place} is missing: all CPUs count as online"
        case MachineFact.CPUINFO:
            return f"{missing.place} is missing: sockets and cores are counted in sysfs"
        case MachineFact.SIBLINGS:
            return f"which CPUs share a core: not known; {missing.substitute} and so on are assumed (`lscpu -e -J` lists them)"
        case MachineFact.CGROUP_HYBRID:
            return f"{missing.place} has hierarchies of both versions: version {missing.substitute} for the kubelet"
        case MachineFact.ROOT_FS:
            return "capacity of the kubelet's file system: not known; set spec.rootFsCapacity, or no pod with an ephemeral-storage request fits"
        case MachineFact.MEMORY:
            return "memory: not known; set memory_capacity and the memory of each NUMA node, or no pod with a memory request fits"
        case MachineFact.CGROUP_VERSION if missing.place:
            return f"{missing.fact}: not known ({missing.place} is empty or missing), {missing.substitute} in the profile"
        case (
            MachineFact.NODE_MEMORY
            | MachineFact.SWAP
            | MachineFact.CGROUP_VERSION
            | MachineFact.PID_MAX
            | MachineFact.PAGE_SIZE
        ):
            place = f" ({missing.place} is missing)" if missing.place else ""
            return f"{missing.fact}: not known{place}, {missing.substitute} in the profile"
        case MachineFact.DISTANCES | MachineFact.HUGE_PAGES:
            place = f" ({missing.place} is missing)" if missing.place else ""
            return f"{missing.fact}: not known{place}, none in the profile"
        case _:
            assert_never(missing.fact)
