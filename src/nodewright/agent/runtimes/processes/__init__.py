"""Containers as plain processes: without images and namespaces, with cgroups, logs and exit records."""
