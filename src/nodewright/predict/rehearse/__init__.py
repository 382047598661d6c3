"""The report of a restart rehearsal: whether the kubelet starts, and the outcome of each pod."""
