"""Pods run by a container runtime that speaks CRI v1, as containerd and CRI-O do."""

from nodewright.agent.runtimes.cri.channel import CRIChannel
from nodewright.agent.runtimes.cri.cri_runtime import CRIRuntime
from nodewright.agent.runtimes.cri.health import runtime_health
from nodewright.agent.runtimes.cri.image_service import CRIImageStore
from nodewright.agent.runtimes.cri.streaming import CRIStreamingServer

__all__ = ["CRIChannel", "CRIImageStore", "CRIRuntime", "CRIStreamingServer", "runtime_health"]
