"""Which NUMA nodes suit the CPU, memory and device managers at once? The topology manager."""

from nodewright.core.topology.affinity import affinity
from nodewright.core.topology.explain import combinations, obstacles, resource_hints
from nodewright.core.topology.merge import Merged, merge
from nodewright.core.topology.policy import TopologyManager, topology_manager

__all__ = [
    "Merged",
    "TopologyManager",
    "affinity",
    "combinations",
    "merge",
    "obstacles",
    "resource_hints",
    "topology_manager",
]
