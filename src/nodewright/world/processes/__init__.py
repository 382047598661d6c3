"""Containers that are plain processes: no images, no namespaces, but cgroups, logs and an end like any other's."""
