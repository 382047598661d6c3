"""What a description of a machine could not tell, and what stands in the profile instead."""

from dataclasses import dataclass
from enum import StrEnum


class Fact(StrEnum):
    """A fact about a machine that a source may fail to give."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A fact that could not be learned."""

    fact: Fact
    place: str = ""
    """Where it was looked for: a file, a NUMA node, a CPU."""
    instead: str = ""
    """What the profile says now."""
