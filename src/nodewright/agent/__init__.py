"""Floor 4: observe, step, perform, journal."""

from nodewright.agent.rotate import RotateRule, rotate_logs
from nodewright.agent.sources import Listener, watch_directory, watch_url
from nodewright.world.asking import HostAsker

__all__ = ["HostAsker", "Listener", "RotateRule", "rotate_logs", "watch_directory", "watch_url"]
