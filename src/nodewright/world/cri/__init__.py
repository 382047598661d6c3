"""Pods run by a container runtime that speaks CRI v1, as containerd and CRI-O do."""

from nodewright.world.cri.channel import Channel
from nodewright.world.cri.images import CRIImages
from nodewright.world.cri.runtime import CRIRuntime

__all__ = ["CRIImages", "CRIRuntime", "Channel"]
