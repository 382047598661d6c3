"""Kubelet startup on the state files of an earlier kubelet, and its rehearsal."""
