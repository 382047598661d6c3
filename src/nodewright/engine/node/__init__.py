"""The node as one function, `step`, in the kubelet's order."""
