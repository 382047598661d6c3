"""A machine as cAdvisor describes it: CPUs, NUMA nodes, caches, huge pages; and faults of a description."""
