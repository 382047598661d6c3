"""A fleet: nodes, and pods that arrive, run and leave, as readers give them to the simulator."""

import msgspec

from nodewright.model.objects import Pod, Taint
from nodewright.model.profile import NodeProfile


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a fleet: its machine and kubelet are those of a profile that many nodes share."""

    name: str
    profile: NodeProfile
    """One object for all nodes that are alike; its own name, labels, taints and pods do not count."""
    shape: str = ""
    """What reports call nodes with this profile."""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    """Whether it is cordoned."""


class Used(msgspec.Struct, frozen=True):
    """What a pod uses from a moment on.

    Units: at_s in seconds since its start; memory_bytes in bytes.
    """

    at_s: float
    memory_bytes: int


class FleetPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of a fleet, and when it comes and goes.

    Units: arrives_s in seconds since the beginning, runs_s in seconds.
    """

    name: str
    template: Pod
    """All of it but its name and uid: one object for all pods that are alike, as the API server would give it out."""
    arrives_s: float = 0.0
    runs_s: float | None = None
    """How long it runs once it is placed; None: for ever."""
    controlled: bool = False
    """Whether a controller makes another one in its place when it is refused, preempted or evicted."""
    usage: tuple[Used, ...] = ()
    """What it uses, by time; empty: nothing is known, and it is never the reason for an eviction."""

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.template.metadata.namespace or "default"

    @property
    def full_name(self) -> str:
        """Namespace and name, as kubectl prints them."""
        return f"{self.namespace}/{self.name}"
