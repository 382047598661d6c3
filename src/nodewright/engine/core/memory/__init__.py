"""The memory manager: exclusive memory and huge pages on NUMA nodes."""
