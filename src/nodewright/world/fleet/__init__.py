"""Readers of fleets and their workloads: manifests, dumps of clusters, CSV of traces and of our own."""
