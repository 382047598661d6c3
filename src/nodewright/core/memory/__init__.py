"""Whose memory and huge pages, on which NUMA nodes? The memory manager."""
