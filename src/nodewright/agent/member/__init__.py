"""The agent as a Node of a cluster: registration, lease, status, pods, mirror pods and events."""
