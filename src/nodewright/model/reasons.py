"""The closed list of facts that decide. Wording is render's business; here are the numbers."""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class InsufficientResource:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUnavailable:
    """The node object could not be had."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OSLabelMismatch:
    """The pod's label `kubernetes.io/os` names another operating system than the kubelet's."""

    wanted: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OSFieldMismatch:
    """`spec.os.name` names another operating system than the kubelet's."""

    wanted: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SupplementalGroupsPolicyUnsupported:
    """The pod wants `supplementalGroupsPolicy: Strict`, which the node does not declare."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUpdateFailed:
    """The device manager could not bring the plugin resources up to date."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinityMismatch:
    """The node's labels do not satisfy the pod's node selector or required node affinity."""

    node: str
    selector: tuple[tuple[str, str], ...] = ()
    """The node selector's pairs that the node lacks."""
    terms: tuple[str, ...] = ()
    """The required terms, as text, of which the node satisfies none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeNameMismatch:
    """The pod names another node."""

    wanted: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPortTaken:
    """A host port that the pod wants is in use."""

    port: int
    protocol: str
    host_ip: str
    holder: str
    """The pod that has it, as namespace/name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntoleratedTaint:
    """The node has a NoExecute taint that the pod does not tolerate."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherPredicate:
    """A predicate that failed elsewhere; only its name and description are known here."""

    predicate: str
    description: str


PredicateFailure: TypeAlias = (
    InsufficientResource
    | NodeAffinityMismatch
    | NodeNameMismatch
    | HostPortTaken
    | UntoleratedTaint
    | OtherPredicate
)
"""What the predicates' failure handler (preemption) is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoVictimsSuffice:
    """A critical pod lacks resources, and all the pods it may push out do not hold enough.

    Units: as InsufficientResource; each pair is a resource and what would still be missing.
    """

    unmet: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SysctlForbidden:
    """The pod sets a sysctl that is not on the kubelet's list of allowed ones."""

    sysctl: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevelResourcesDisabled:
    """The pod has pod-level resources, and the gate PodLevelResources is off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJudged:
    """Something that would count is not modelled or not known, so the verdict is open."""

    what: str
    """The part of the kubelet, e.g. `cpu manager`."""
    because: str
    """The setting or fact that makes it count, e.g. `cpuManagerPolicy: static`."""


Reason: TypeAlias = (
    InsufficientResource
    | NodeUnavailable
    | OSLabelMismatch
    | OSFieldMismatch
    | SupplementalGroupsPolicyUnsupported
    | PluginUpdateFailed
    | NodeAffinityMismatch
    | NodeNameMismatch
    | HostPortTaken
    | UntoleratedTaint
    | OtherPredicate
    | NoVictimsSuffice
    | SysctlForbidden
    | PodLevelResourcesDisabled
    | NotJudged
)
