"""Completes and validates a KubeletConfiguration, as the kubelet does at its start."""
