"""Floor 3: the node as one function, `step`, in the kubelet's order."""
