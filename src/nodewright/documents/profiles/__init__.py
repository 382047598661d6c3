"""Loads and captures NodeProfiles: from files, the catalogue, machines, clusters and the kubelet's files."""
