"""What a timeline starts from: a node, who uses how much memory, how that grows, and what is assumed."""

from enum import StrEnum

import msgspec

from nodewright.core.eviction import Claim, EvictionRules
from nodewright.model.forecast import SECOND_NS, Assumptions, Growth

__all__ = ["SECOND_NS", "Assumptions", "ContainerPart", "Growth", "PodPart", "Scope", "Setting"]


class Scope(StrEnum):
    """Whose memory reaches its limit."""

    NODE = "node"
    PODS = "pods"
    POD = "pod"
    CONTAINER = "container"


class ContainerPart(msgspec.Struct, frozen=True, kw_only=True):
    """A container at the start.

    Units: bytes; thousandths of a CPU.
    """

    name: str
    used_bytes: int = 0
    """Its working set."""
    file_bytes: int = 0
    """What of that are files, which the OOM killer does not count."""
    limit_bytes: int | None = None
    """Its `memory.max`; None: it has none."""
    swap_bytes: int = 0
    """Its `memory.swap.max`."""
    oom_score_adj: int = 0
    ends_as_a_whole: bool = True
    """`memory.oom.group`."""
    restarts: bool = True
    """Whether the kubelet starts it again after the kernel has ended it."""
    cpu_milli: int = 0
    """The CPU that it requests."""


class PodPart(msgspec.Struct, frozen=True, kw_only=True):
    """A pod at the start.

    Units: bytes; nanoseconds.
    """

    claim: Claim
    containers: tuple[ContainerPart, ...]
    limit_bytes: int | None = None
    """The `memory.max` of its group."""
    has_stats: bool = True
    age_ns: int | None = None
    """How long it has run; None: not known."""

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return self.claim.uid


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a timeline depends on besides the policy.

    Units: bytes; nanoseconds.
    """

    rules: EvictionRules
    """With thresholds on memory alone: nothing else is played."""
    pods: tuple[PodPart, ...]
    memory_bytes: int
    """What the node has."""
    system_bytes: int = 0
    """What is in use beside the pods."""
    pods_limit_bytes: int | None = None
    """The `memory.max` of all pods together."""
    pods_other_bytes: int = 0
    """What the group of all pods uses beside them."""
    swap_bytes: int = 0
    growth: tuple[Growth, ...] = ()
    """By time."""
    duration_ns: int = 600 * SECOND_NS
    for_pods: bool = True
    """Whether hard thresholds on memory count for all pods together, too (`enforceNodeAllocatable`)."""
    is_notified: bool = False
    """Whether the kernel tells the kubelet of thresholds (`kernelMemcgNotification`, version 1 of cgroups)."""
    assumed: Assumptions = Assumptions()
