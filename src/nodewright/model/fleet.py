"""A fleet and its workload as values: many nodes, and pods that arrive, run and leave."""

from collections.abc import Mapping

import msgspec

from nodewright.model.objects import Pod, Taint
from nodewright.model.profile import NodeProfile


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a fleet.

    Nodes that differ in name, labels and taints alone have one and the same `profile`, so that what follows
    from it is worked out once: ask with `is`.
    """

    name: str
    profile: NodeProfile
    """What the node is. Its own name, labels and taints are not those of this node."""
    labels: Mapping[str, str] = {}
    """All of its labels."""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    shape: str = ""
    """The machine that it is, for reports: a name of the catalogue, or what stands for it."""
    place: str = ""
    """Where it is described, e.g. `nodes.yaml:12`."""


class Used(msgspec.Struct, frozen=True):
    """What a pod uses from a moment on.

    Units: at_s in seconds since its start; memory_bytes in bytes.
    """

    at_s: float
    memory_bytes: int


class FleetPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that arrives at a fleet.

    Pods that differ in name and times alone have one and the same `pod`: ask with `is`.

    Units: seconds from the workload's own zero; gpu_milli in thousandths of a device.
    """

    name: str
    namespace: str = "default"
    pod: Pod
    """What it is. Name and uid in it are those of the first of its kind."""
    arrives_s: float = 0
    runs_s: float | None = None
    """How long it runs once it has started; None: for good."""
    node: str = ""
    """The node where it runs already; empty: it is to be placed."""
    gpu_milli: int = 0
    """Its share of one device, where it takes no whole one: accounted for, not placed."""
    controlled: bool = False
    """Whether a controller makes another one in its place when it is refused, preempted or evicted."""
    usage: tuple[Used, ...] = ()
    """What it uses, by time; empty: not known."""
    place: str = ""
    """Where it is described, e.g. `pods.csv:12`."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"
