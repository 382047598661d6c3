"""Reads fleets and workloads from manifests, cluster dumps, CSV tables and traces."""
