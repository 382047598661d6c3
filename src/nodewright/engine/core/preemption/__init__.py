"""Preemption for critical pods: the kubelet's choice of victims, and the smallest possible one."""
