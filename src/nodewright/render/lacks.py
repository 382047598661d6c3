"""What could not be learned of a machine, in sentences."""

from typing import assert_never

from nodewright.world.machine.lacks import Fact, Lack


def lack_sentence(lack: Lack) -> str:
    """What is missing and what stands in the profile instead."""
    match lack.fact:
        case Fact.KUBELET_CONFIGURATION if lack.instead:
            return f"kubelet configuration: none given (--kubelet-config), the kubelet's defaults are assumed, but {lack.instead}"
        case Fact.KUBELET_CONFIGURATION:
            return "kubelet configuration: none given (--kubelet-config), the kubelet's defaults are assumed"
        case Fact.NUMA_NODES:
            return "NUMA nodes: none are described; as the kubelet does, each socket counts as one, without memory and distances"
        case Fact.NODE_CPUS:
            return f"{lack.place}: its links to CPUs are missing, {lack.instead} is used"
        case Fact.TOPOLOGY if lack.instead:
            return f"{lack.place} is missing: cores and sockets are taken from {lack.instead}"
        case Fact.TOPOLOGY:
            return f"{lack.place} is missing: this CPU is left out, as the kubelet does"
        case Fact.CACHES:
            return f"caches of {lack.place}: not readable from {lack.instead} on; as the kubelet does, the cores from there on have none"
        case Fact.CACHE_SIZES:
            return "cache sizes: not said, 0 in the profile"
        case Fact.ONLINE:
            return f"{lack.place} is missing: all CPUs count as online"
        case Fact.CPUINFO:
            return f"{lack.place} is missing: sockets and cores are counted by sysfs"
        case Fact.SIBLINGS:
            return f"which CPUs share a core: not said; {lack.instead} and so on are assumed (`lscpu -e -J` says it)"
        case Fact.CGROUP_HYBRID:
            return f"{lack.place} has hierarchies of both versions: version {lack.instead} to the kubelet"
        case Fact.ROOT_FS:
            return "capacity of the kubelet's file system: not known; set spec.rootFsCapacity, or no pod with an ephemeral-storage request fits"
        case Fact.MEMORY:
            return "memory: not known; set memory_capacity and the memory of each NUMA node, or no pod with a memory request fits"
        case Fact.NODE_MEMORY | Fact.SWAP | Fact.CGROUP_VERSION | Fact.PID_MAX | Fact.PAGE_SIZE:
            place = f" ({lack.place} is missing)" if lack.place else ""
            return f"{lack.fact}: not known{place}, {lack.instead} in the profile"
        case Fact.DISTANCES | Fact.HUGE_PAGES:
            place = f" ({lack.place} is missing)" if lack.place else ""
            return f"{lack.fact}: not known{place}, none in the profile"
        case _:
            assert_never(lack.fact)
