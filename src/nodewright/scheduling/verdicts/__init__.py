"""Verdicts of many nodes about a pod that has no node yet, for schedulers: exact states, reservations, preemption."""
