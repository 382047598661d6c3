"""The topology manager: the NUMA nodes that the CPU, memory and device managers agree on."""
