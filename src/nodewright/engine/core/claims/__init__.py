"""Which devices do a pod's resource claims get on a node, and if none, why? Dynamic Resource Allocation."""
