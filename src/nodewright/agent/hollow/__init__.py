"""Many simulated Nodes of a cluster in one process: each decides as its kubelet does, and runs no container."""
