"""Why the kubelet or the API server rejects a resize of a running pod, beside all that can reject a new pod.

Follows: v1.36, pkg/kubelet/allocation/handlers.go; plugin/pkg/admission/podresize/admission.go;
    plugin/pkg/admission/nodedeclaredfeatures/admission.go; apimachinery/pkg/util/validation/field/errors.go.
"""

from typing import Literal, TypeAlias

import msgspec

from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.reasons.api_server import aggregate_error
from nodewright.model.reasons.fact import Fact, KubeletText

RESIZE_INFEASIBLE_REASON, RESIZE_DEFERRED_REASON = "Infeasible", "Deferred"

# ---------------------------------------------------------------- the kubelet


class SwapInTheWay(Fact, frozen=True, kw_only=True):
    """The memory request of a container that may swap would change, and its swap limit with it."""

    container: str

    def kubelet(self) -> KubeletText:
        return KubeletText(
            RESIZE_INFEASIBLE_REASON, "In-place resize of containers with swap is not supported."
        )

    def sentence(self) -> str:
        return (
            f"container {self.container} may swap, and how much depends on the memory it requests: set the resize policy "
            "RestartContainer for memory"
        )


class PodLevelResizeDisabled(Fact, frozen=True, kw_only=True):
    """`spec.resources` would change, and the kubelet's gate InPlacePodLevelResourcesVerticalScaling is off."""

    def kubelet(self) -> KubeletText:
        return KubeletText(RESIZE_INFEASIBLE_REASON, "InPlacePodLevelResourcesVerticalScaling is disabled")

    def sentence(self) -> str:
        return "the kubelet's feature gate InPlacePodLevelResourcesVerticalScaling is off"


_MANAGERS = {"cpu": ("CPU Manager", "static"), "memory": ("Memory Manager", "Static")}
_GATES = {
    "cpu": "InPlacePodVerticalScalingExclusiveCPUs",
    "memory": "InPlacePodVerticalScalingExclusiveMemory",
}


class StaticPolicyInTheWay(Fact, frozen=True, kw_only=True):
    """Requests of a Guaranteed pod would change that the kubelet's static policy may have pinned.

    >>> StaticPolicyInTheWay(resource="cpu", containers=("app",)).kubelet().message
    'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    """

    resource: Literal["cpu", "memory"]
    containers: tuple[str, ...]
    """The containers whose requests would change."""

    @property
    def gate(self) -> str:
        """The feature gate with which the kubelet attempts the resize nevertheless."""
        return _GATES[self.resource]

    def kubelet(self) -> KubeletText:
        manager, policy = _MANAGERS[self.resource]
        return KubeletText(
            RESIZE_INFEASIBLE_REASON,
            f'Resize is infeasible for Guaranteed Pods alongside {manager} policy "{policy}"',
        )

    def sentence(self) -> str:
        what = "CPUs" if self.resource == "cpu" else "memory"
        return (
            f"the pod is Guaranteed and the kubelet's static policy pins {what}: what container "
            f"{', '.join(self.containers)} requests of {self.resource} stays as it is until the pod is recreated "
            f"(the gate {self.gate} is off)"
        )


ResizeInfeasible: TypeAlias = SwapInTheWay | PodLevelResizeDisabled | StaticPolicyInTheWay
"""Why a kubelet never performs the resize while the node and the pod stay as they are."""

# ---------------------------------------------------------------- the API server


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """More of a resource than the allocatable of the node.

    Units: cpu in thousandths, memory in bytes.
    """

    resource: str
    requested: int
    allocatable: int


class ResizeBeyondNode(Fact, frozen=True, kw_only=True):
    """The pod would request more than the allocatable of the node."""

    excesses: tuple[Excess, ...]

    def kubelet(self) -> KubeletText:
        texts = (
            f"{excess.resource}, requested: {excess.requested}, allocatable: {excess.allocatable}"
            for excess in self.excesses
        )
        return KubeletText("Forbidden", f"node didn't have enough allocatable resources: {'; '.join(texts)}")

    def sentence(self) -> str:
        return "; ".join(
            f"{excess.resource}: {readable_amount(excess.resource, excess.requested)} requested, "
            f"the whole node has {readable_amount(excess.resource, excess.allocatable)} for pods"
            for excess in self.excesses
        )


class ResizeOnOtherSystem(Fact, frozen=True, kw_only=True):
    """The node does not run Linux."""

    node: str
    os: str

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "Forbidden", f'pod resize is only supported on linux nodes, node "{self.node}" is "{self.os}"'
        )

    def sentence(self) -> str:
        return f"node {self.node} runs {self.os}; only Linux nodes resize pods"


class ResizeFeaturesMissing(Fact, frozen=True, kw_only=True):
    """The resize needs features that the node does not declare."""

    node: str
    features: tuple[str, ...]

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "Forbidden",
            f'pod update requires features {", ".join(self.features)} which are not available on node "{self.node}"',
        )

    def sentence(self) -> str:
        return f"node {self.node} does not declare {', '.join(self.features)}, which the resize needs"


class ResizeBeyondQuota(Fact, frozen=True, kw_only=True):
    """A quota of the namespace has less left than the resize adds."""

    error: str
    """The API server's text about the quota."""

    def kubelet(self) -> KubeletText:
        return KubeletText("Forbidden", self.error)

    def sentence(self) -> str:
        return f"the resize adds more than a quota has left: {self.error}"


class ResizeOfField(msgspec.Struct, frozen=True, kw_only=True):
    """A validation rule of the API server that the resized pod breaks."""

    path: str
    error: str
    """The API server's kind of error, e.g. `Forbidden`."""
    value: object = None
    rule: str = ""

    def message(self) -> str:
        """The API server's error."""
        import json  # noqa: PLC0415 - start-up time

        value = "" if self.value is None else f": {json.dumps(self.value, ensure_ascii=False)}"
        return f"{self.path}: {self.error}{value}{f': {self.rule}' if self.rule else ''}"

    def sentence(self) -> str:
        """The fault in words, without a full stop."""
        where = "" if self.path == "[]" else f"{self.path}: "
        return f"{where}{self.rule or self.error}"


class ResizeInvalid(Fact, frozen=True, kw_only=True):
    """The resized pod is invalid."""

    faults: tuple[ResizeOfField, ...]

    def kubelet(self) -> KubeletText:
        return KubeletText("Invalid", aggregate_error(fault.message() for fault in self.faults))

    def sentence(self) -> str:
        return "; ".join(dict.fromkeys(fault.sentence() for fault in self.faults))


ResizeForbidden: TypeAlias = (
    ResizeInvalid | ResizeBeyondNode | ResizeOnOtherSystem | ResizeFeaturesMissing | ResizeBeyondQuota
)
"""Why the API server rejects the request, so that it never reaches a kubelet."""

ResizeReason: TypeAlias = ResizeInfeasible | ResizeForbidden
"""`kubelet()` is the reason and message of the pod's condition, or of the API server's status without the pod's name."""


def resize_api_error(reason: ResizeForbidden, name: str) -> str:
    """The whole text with which the API server rejects the request.

    Follows: v1.36, apimachinery/pkg/api/errors/errors.go, NewInvalid; apiserver/pkg/admission/errors.go,
        NewForbidden.
    """
    if isinstance(reason, ResizeInvalid):
        return f'Pod "{name}" is invalid: {reason.kubelet().message}'
    return f'pods "{name}" is forbidden: {reason.kubelet().message}'
