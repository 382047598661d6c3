"""Floor 4: observe, step, perform, journal."""

from nodewright.agent.compose import ContainerComposer, ProcessComposer
from nodewright.agent.composing import Site
from nodewright.agent.images import ImageKeeper
from nodewright.agent.rotate import RotateRule, rotate_logs
from nodewright.agent.sources import Listener, watch_directory, watch_url
from nodewright.world.asking import HostAsker
from nodewright.world.mounts import KernelMounts
from nodewright.world.volumes import Volumes

__all__ = [
    "ContainerComposer",
    "HostAsker",
    "ImageKeeper",
    "KernelMounts",
    "Listener",
    "ProcessComposer",
    "RotateRule",
    "Site",
    "Volumes",
    "rotate_logs",
    "watch_directory",
    "watch_url",
]
