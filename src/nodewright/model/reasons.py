"""The closed list of facts that decide. Wording is render's business; here are the numbers."""

from typing import TypeAlias

import msgspec

from nodewright.model.cpu_reasons import CPUReason
from nodewright.model.device_reasons import DeviceReason
from nodewright.model.eviction_reasons import EvictionReason
from nodewright.model.memory_reasons import MemoryReason
from nodewright.model.objects import Taint
from nodewright.model.resize_reasons import ResizeReason
from nodewright.model.start_reasons import StartReason
from nodewright.model.state_reasons import StateFileReason
from nodewright.model.topology_reasons import TopologyReason


class InsufficientResource(msgspec.Struct, frozen=True, kw_only=True):
    """The node has less of a resource left than was asked for.

    Units: cpu in thousandths, memory and storage in bytes, everything else in pieces.
    """

    resource: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        """How much would have to be freed."""
        return self.requested - (self.capacity - self.used)


class NodeUnavailable(msgspec.Struct, frozen=True, kw_only=True):
    """The node object could not be had."""

    error: str


class OSLabelMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """The pod's label `kubernetes.io/os` names another operating system than the kubelet's."""

    wanted: str
    actual: str


class OSFieldMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """`spec.os.name` names another operating system than the kubelet's."""

    wanted: str
    actual: str


class SupplementalGroupsPolicyUnsupported(msgspec.Struct, frozen=True, kw_only=True):
    """The pod wants `supplementalGroupsPolicy: Strict`, which the node does not declare."""

    policy: str


class PluginUpdateFailed(msgspec.Struct, frozen=True, kw_only=True):
    """The device manager could not bring the plugin resources up to date."""

    error: str


class LabelMissing(msgspec.Struct, frozen=True, kw_only=True):
    """A pair of the node selector that the node's labels do not have."""

    key: str
    wanted: str
    actual: str | None
    """The node's value; None: it has no such label."""


class RequirementUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """An expression of a required term that does not hold on the node."""

    key: str
    operator: str
    values: tuple[str, ...]
    actual: str | None
    """The node's value; None: it has no such label or field."""
    on_field: bool = False
    """Whether it looks at a field of the node and not at a label."""
    invalid: bool = False
    """Whether Kubernetes cannot read it, so that it holds nowhere."""


class TermUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """A required term of the node affinity that the node does not satisfy; an empty one holds nowhere."""

    index: int
    unmet: tuple[RequirementUnmet, ...]


class NodeAffinityMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """The node's labels do not satisfy the pod's node selector or required node affinity."""

    node: str
    selector: tuple[LabelMissing, ...] = ()
    """The node selector's pairs that the node lacks."""
    terms: tuple[TermUnmet, ...] = ()
    """All the required terms, if the node satisfies none; one of them would do."""


class NodeNameMismatch(msgspec.Struct, frozen=True, kw_only=True):
    """The pod names another node."""

    wanted: str
    actual: str


class PortConflict(msgspec.Struct, frozen=True, kw_only=True):
    """A host port that the pod wants and another pod has."""

    port: int
    protocol: str
    host_ip: str
    holder: str
    """The pod that has it, as namespace/name."""
    holder_ip: str
    """The address on which it has it; 0.0.0.0 is every address."""


class HostPortsTaken(msgspec.Struct, frozen=True, kw_only=True):
    """Host ports that the pod wants are in use; all of them are listed."""

    conflicts: tuple[PortConflict, ...]


class UntoleratedTaints(msgspec.Struct, frozen=True, kw_only=True):
    """The node has NoExecute taints that the pod does not tolerate; all of them are listed."""

    taints: tuple[Taint, ...]


class OtherPredicate(msgspec.Struct, frozen=True, kw_only=True):
    """A predicate that failed elsewhere; only its name and description are known here."""

    predicate: str
    description: str


PredicateFailure: TypeAlias = (
    InsufficientResource
    | NodeAffinityMismatch
    | NodeNameMismatch
    | HostPortsTaken
    | UntoleratedTaints
    | OtherPredicate
)
"""What the predicates' failure handler (preemption) is given."""


class NoVictimsSuffice(msgspec.Struct, frozen=True, kw_only=True):
    """A critical pod lacks resources, and all the pods it may push out do not hold enough.

    Units: as InsufficientResource; each pair is a resource and what would still be missing.
    """

    unmet: tuple[tuple[str, int], ...]


class SysctlForbidden(msgspec.Struct, frozen=True, kw_only=True):
    """The pod sets a sysctl that the kubelet does not let it set."""

    sysctl: str
    host_namespace: str = ""
    """`Net` or `IPC`: it would be allowed, did the pod not share this namespace with the host."""


class PodLevelResourcesDisabled(msgspec.Struct, frozen=True, kw_only=True):
    """The pod has pod-level resources, and the gate PodLevelResources is off."""


class NodeFeaturesMissing(msgspec.Struct, frozen=True, kw_only=True):
    """The pod needs features that this node does not declare."""

    features: tuple[str, ...]


class NotJudged(msgspec.Struct, frozen=True, kw_only=True):
    """Something that would count is not modelled or not known, so the verdict is open."""

    what: str
    """The part of the kubelet, e.g. `cpu manager`."""
    because: str
    """The setting or fact that makes it count, e.g. `cpuManagerPolicy: static`."""


AdmissionReason: TypeAlias = (
    InsufficientResource
    | NodeUnavailable
    | OSLabelMismatch
    | OSFieldMismatch
    | SupplementalGroupsPolicyUnsupported
    | PluginUpdateFailed
    | NodeAffinityMismatch
    | NodeNameMismatch
    | HostPortsTaken
    | UntoleratedTaints
    | OtherPredicate
    | NoVictimsSuffice
    | SysctlForbidden
    | PodLevelResourcesDisabled
    | NodeFeaturesMissing
    | NotJudged
)
"""What decides without any resource manager."""

Reason: TypeAlias = (
    AdmissionReason
    | CPUReason
    | DeviceReason
    | EvictionReason
    | MemoryReason
    | ResizeReason
    | TopologyReason
    | StateFileReason
    | StartReason
)
