"""A fleet and its workload as values: many nodes, and pods that arrive, run and leave."""

from collections.abc import Mapping
from typing import Any

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
    only_on: str = ""
    """The one node that it is meant for, as a DaemonSet's is, which no cordon keeps away; empty: any."""
    gpu_milli: int = 0
    """Its share of one device, where it takes no whole one: accounted for, not placed."""
    controlled: bool = False
    """Whether a controller makes another one in its place when it is refused, preempted or evicted."""
    usage: tuple[Used, ...] = ()
    """What it uses, by time; empty: not known."""
    selector: Mapping[str, Any] | None = None
    """The label selector of the Services and of the controller that mean it, all together; None: there are none.

    Pods that are alike have one and the same: ask with `is`.
    """
    place: str = ""
    """Where it is described, e.g. `pods.csv:12`."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class Share(msgspec.Struct, frozen=True):
    """So many pods, or so many of a hundred."""

    amount: int
    is_percent: bool = False

    def of(self, pods: int) -> int:
        """How many that are of so many pods, rounded up.

        >>> Share(2).of(10), Share(25, is_percent=True).of(10)
        (2, 3)
        """
        return -(-pods * self.amount // 100) if self.is_percent else self.amount


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget: how many of the pods that it means are to be left in peace. One of the bounds is there."""

    name: str
    namespace: str
    selector: Mapping[str, Any] | None
    min_available: Share | None = None
    max_unavailable: Share | None = None

    def least(self, wanted: int) -> int:
        """How many have to be healthy where so many are wanted.

        >>> Budget(name="b", namespace="d", selector={}, max_unavailable=Share(1)).least(3)
        2
        """
        if self.max_unavailable is not None:
            return max(wanted - self.max_unavailable.of(wanted), 0)
        return self.min_available.of(wanted) if self.min_available is not None else wanted
