"""PodResources v1, the kubelet's socket for those who want to know which container has what."""
