"""Reports on why a node admits or refuses a pod, and on the smallest change that reverses the decision."""
