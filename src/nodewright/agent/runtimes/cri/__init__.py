"""Pods run by a container runtime that speaks CRI v1, as containerd and CRI-O do."""

from nodewright.agent.runtimes.cri.channel import CRIChannel, runtime_health
from nodewright.agent.runtimes.cri.cri_runtime import CRIImageStore, CRIRuntime, CRIStreamingServer

__all__ = ["CRIChannel", "CRIImageStore", "CRIRuntime", "CRIStreamingServer", "runtime_health"]
