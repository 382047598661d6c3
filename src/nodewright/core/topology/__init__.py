"""Which NUMA nodes suit the CPU, memory and device managers at once? The topology manager."""

from nodewright.core.topology.affinity import affinity
from nodewright.core.topology.explain import combinations, obstacles, resource_hints
from nodewright.core.topology.merge import Merged, merge
from nodewright.core.topology.own import Alignment, TopologyPolicy, manager_for, own_affinity
from nodewright.core.topology.policy import TopologyManager, topology_manager

__all__ = [
    "Alignment",
    "Merged",
    "TopologyManager",
    "TopologyPolicy",
    "affinity",
    "combinations",
    "manager_for",
    "merge",
    "obstacles",
    "own_affinity",
    "resource_hints",
    "topology_manager",
]
