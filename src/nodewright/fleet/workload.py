"""A fleet and its workload as values: nodes, and pods with times of arrival and durations."""

from collections.abc import Mapping
from typing import Any

import msgspec

from nodewright.engine.core.disruption.pod_eviction import BudgetStatus, EvictionFacts
from nodewright.engine.core.predicates.scheduler_filters import BoundVolume
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.values.golang import plain_float

BARE_POD = EvictionFacts()
"""A pod without a controller, running and ready."""
MAX_SECONDS = 10**10
"""The longest time in a table, 317 years; later times would not fit into a timestamp."""


def seconds_in(text: str, path: str, source: str) -> float:
    """The seconds of a cell.

    Errors: InputError for what is no number from 0 to MAX_SECONDS.
    """
    try:
        seconds = plain_float(text.strip())
    except ValueError:
        seconds = -1.0
    if 0 <= seconds <= MAX_SECONDS:
        return seconds
    rule = f"must be seconds, 0 or more, at most {MAX_SECONDS:,}"
    raise InputError([Fault(source=source, path=path, value=text, rule=rule)])


class FleetNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a fleet.

    Nodes that differ only in name, labels and taints share one `profile` object, so that everything derived from it
    is computed once; compare with `is`.
    """

    name: str
    profile: NodeProfile
    """Profile of the node; its name, labels and taints are not those of this node."""
    labels: Mapping[str, str] = {}
    """All labels of the node."""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    images: Mapping[str, int] = {}
    """Sizes in bytes of the images that it has, by name."""
    shape: str = ""
    """Name of the machine type in reports: a name of the catalogue, or a description."""
    source: str = ""
    """Where it is defined, e.g. `nodes.yaml:12`."""


class UsageStep(msgspec.Struct, frozen=True):
    """Usage of a pod from a time on.

    Units: at_s in seconds since its start; memory_bytes in bytes.
    """

    at_s: float
    memory_bytes: int


class FleetPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that arrives at a fleet.

    Pods that differ only in name and times share one `pod` object; compare with `is`.

    Units: seconds since the beginning of the workload; gpu_milli in thousandths of a device.
    """

    name: str
    namespace: str = "default"
    pod: Pod
    """The pod object; its name and uid are those of the first such pod."""
    arrives_s: float = 0
    runs_s: float | None = None
    """Running time; None: unlimited."""
    node: str = ""
    """The node on which it already runs; empty: the scheduler places it."""
    started_s: float | None = None
    """When its kubelet started it, before the beginning: negative; None: when it is placed."""
    required_node: str = ""
    """The only node for it, as for a pod of a DaemonSet, even if it is cordoned; empty: any node."""
    gpu_milli: int = 0
    """Its share of one GPU, if it does not take a whole one: accounted for, not placed."""
    has_controller: bool = False
    """Whether a controller replaces it when it is rejected, preempted or evicted."""
    usage: tuple[UsageStep, ...] = ()
    """Its usage in order of time; empty: not known."""
    selector: Mapping[str, Any] | None = None
    """The combined label selector of the Services and the controller that select it; None: there are none.

    Equal pods share one object; compare with `is`.
    """
    eviction: EvictionFacts = BARE_POD
    """What decides whether it is evicted from a node that is drained."""
    volumes: tuple[BoundVolume, ...] = ()
    """The volumes of its claims that only some nodes can use."""
    source: str = ""
    """Where it is defined, e.g. `pods.csv:12`."""

    @property
    def full_name(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class IntOrPercent(msgspec.Struct, frozen=True):
    """A number or a percentage of pods."""

    amount: int
    is_percent: bool = False

    def scaled(self, pods: int) -> int:
        """The number for a total of so many pods, rounded up.

        >>> IntOrPercent(2).scaled(10), IntOrPercent(25, is_percent=True).scaled(10)
        (2, 3)
        """
        return -(-pods * self.amount // 100) if self.is_percent else self.amount


class DisruptionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A PodDisruptionBudget; exactly one of its bounds is set."""

    name: str
    namespace: str
    selector: Mapping[str, Any] | None
    min_available: IntOrPercent | None = None
    max_unavailable: IntOrPercent | None = None
    evicts_unhealthy: bool = False
    """Whether `unhealthyPodEvictionPolicy` is AlwaysAllow."""
    status: BudgetStatus | None = None
    """What the disruption controller has counted; None: the budget is not of a cluster."""

    def desired_healthy(self, expected: int) -> int:
        """The number of pods that must stay healthy, of so many expected pods.

        >>> DisruptionBudget(name="b", namespace="d", selector={}, max_unavailable=IntOrPercent(1)).desired_healthy(3)
        2
        """
        if self.max_unavailable is not None:
            return max(expected - self.max_unavailable.scaled(expected), 0)
        return self.min_available.scaled(expected) if self.min_available is not None else expected


def duration_text(amount: float) -> str:
    """A duration, rounded for readers.

    >>> duration_text(0), duration_text(12.34), duration_text(3661), duration_text(12_537_496)
    ('0s', '12.3s', '1h1m1s', '145d2h')
    """
    if amount < 60:
        return f"{amount:.1f}".removesuffix(".0") + "s"
    whole = round(amount)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    parts = ((days, "d"), (hours, "h")) if days else ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number)
