"""The largest pods that a node admits, what of it is stranded, and which pods to move."""
