"""Pod lifecycle: the next actions for a pod, its status, its probes and its termination."""
