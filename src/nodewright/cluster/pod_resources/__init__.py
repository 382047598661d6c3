"""PodResources v1: the kubelet's socket that reports the resources of containers."""
