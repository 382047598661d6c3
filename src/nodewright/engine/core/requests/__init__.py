"""Effective requests and limits of a pod, defaults, QoS class, oom_score_adj and criticality."""
