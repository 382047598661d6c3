"""Reads what a node really holds, beside a kubelet, and follows its changes."""
