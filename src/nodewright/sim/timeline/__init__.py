"""Memory under pressure, played forward in virtual time: who is first, the kubelet or the kernel?"""

from nodewright.sim.timeline.advise import Advice, advise, with_hard_threshold
from nodewright.sim.timeline.moments import Timeline
from nodewright.sim.timeline.play import played
from nodewright.sim.timeline.setting import Assumptions, ContainerPart, Growth, PodPart, Scope, Setting
from nodewright.sim.timeline.start import setting_of

__all__ = [
    "Advice",
    "Assumptions",
    "ContainerPart",
    "Growth",
    "PodPart",
    "Scope",
    "Setting",
    "Timeline",
    "advise",
    "played",
    "setting_of",
    "with_hard_threshold",
]
