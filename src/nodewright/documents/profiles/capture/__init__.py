"""Captures running nodes as profiles, from a kubelet's files and from a cluster's API."""
