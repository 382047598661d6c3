"""What speaks against the resize of a pod that runs, beside all that could speak against its arrival."""

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapInTheWay:
    """A container that may swap would request another amount of memory, and its swap would have to follow."""

    container: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevelResizeDisabled:
    """`spec.resources` is to change, and the kubelet's gate InPlacePodLevelResourcesVerticalScaling is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPolicyInTheWay:
    """A Guaranteed pod would request another amount of what the kubelet's static policy may have pinned."""

    resource: Literal["cpu", "memory"]
    containers: tuple[str, ...]
    """Those whose requests would change."""

    @property
    def gate(self) -> str:
        """The feature gate under which the kubelet tries it all the same."""
        return _GATES[self.resource]


_GATES = {
    "cpu": "InPlacePodVerticalScalingExclusiveCPUs",
    "memory": "InPlacePodVerticalScalingExclusiveMemory",
}

ResizeInfeasible: TypeAlias = SwapInTheWay | PodLevelResizeDisabled | StaticPolicyInTheWay
"""Why a kubelet will never do it as the node and the pod are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """More of a resource than the node has for pods altogether.

    Units: cpu in thousandths, memory in bytes.
    """

    resource: str
    requested: int
    allocatable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeBeyondNode:
    """The pod would request more than the node has for pods altogether."""

    excesses: tuple[Excess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeOnOtherSystem:
    """The node does not run Linux."""

    node: str
    os: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeFeaturesMissing:
    """The resize needs features that the node does not declare."""

    node: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeOfField:
    """A rule of the API server that the resized pod offends against."""

    path: str
    error: str
    """What is wrong in the API server's words, e.g. `Forbidden`."""
    value: object = None
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeInvalid:
    """The API server does not let a pod be changed so."""

    faults: tuple[ResizeOfField, ...]


ResizeForbidden: TypeAlias = ResizeInvalid | ResizeBeyondNode | ResizeOnOtherSystem | ResizeFeaturesMissing
"""Why the API server does not take the request, so that no kubelet hears of it."""

ResizeReason: TypeAlias = ResizeInfeasible | ResizeForbidden
