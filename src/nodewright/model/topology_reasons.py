"""The facts that decide which NUMA nodes a container gets, and whether the topology manager starts at all."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from nodewright.model.hints import Hint, Offer
from nodewright.values.idset import NUMASet

# ---------------------------------------------------------------- the policy and its options


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyOptionUnknown:
    """There is no topology manager policy option of this name."""

    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyOptionMalformed:
    """A topology manager policy option has a value that cannot be read."""

    option: str
    value: str
    fault: Literal["no truth value", "no number", "beyond 64 bits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLimitTooLow:
    """The option that sets how many NUMA nodes are allowed sets fewer than always are."""

    option: str
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NUMADistancesUnknown:
    """Distances between NUMA nodes are to count, and the machine does not tell them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooManyNUMANodes:
    """The machine has more NUMA nodes than the topology manager takes."""

    nodes: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPolicyUnknown:
    """There is no topology manager policy of this name."""

    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyScopeUnknown:
    """There is no topology manager scope of this name."""

    scope: str


TopologyFault: TypeAlias = (
    TopologyOptionUnknown
    | TopologyOptionMalformed
    | TopologyLimitTooLow
    | NUMADistancesUnknown
    | TooManyNUMANodes
    | TopologyPolicyUnknown
    | TopologyScopeUnknown
)
"""Why the kubelet does not start its topology manager."""

# ---------------------------------------------------------------- merging


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBy:
    """A policy that is not the kubelet's has judged, or has chosen by which of the kubelet's a pod is judged."""

    policy: str
    said: str
    """Why, in its own words; empty: it says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HintsMerged:
    """What the providers' hints were and what they came to."""

    policy: str
    numa: NUMASet
    """All NUMA nodes of the machine."""
    offers: tuple[Offer, ...]
    hint: Hint
    proved: bool = True
    """False: a search over dozens of NUMA nodes was cut short, there may be a better hint."""
    judged_by: JudgedBy | None = None
    """None: the kubelet's own policy, by its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCommonNUMA:
    """The providers' hints do not come to a preferred one, and the policy takes no other."""

    scope: str
    container: str
    """Empty: it was asked for the pod as a whole."""
    pod_level: bool
    """Whether the pod has resources of its own that the managers look after; the message differs."""
    merged: HintsMerged


@dataclass(frozen=True, slots=True, kw_only=True)
class PodUnfit:
    """A policy that is not the kubelet's does not take the pod, before anything is asked."""

    policy: str
    said: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceMissing:
    """Distances count, and a list of distances ends before a NUMA node that hints name: the kubelet crashes."""

    numa: int
    """The node whose list is too short."""
    other: int
    """The node that is not in it."""
    listed: int


TopologyReason: TypeAlias = TopologyFault | HintsMerged | NoCommonNUMA | PodUnfit | DistanceMissing

# ---------------------------------------------------------------- what a merge came to, looked at closely


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceHints:
    """What one provider's hints for one resource come to."""

    provider: str
    resource: str
    """Empty: the provider had no opinion at all."""
    says: Literal["no opinion", "impossible", "hints"]
    preferred: tuple[NUMASet, ...] = ()
    """Preferred sets of NUMA nodes, fewest nodes first; at most eight."""
    narrowest: NUMASet | None = None
    """One of the smallest sets of NUMA nodes that would do now, preferred or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingPreferred:
    """For this resource no set of NUMA nodes is preferred: nothing does, or only more nodes than should be needed."""

    hints: ResourceHints


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencesDiffer:
    """Each of these resources has preferred NUMA nodes, but no set of them is preferred for all."""

    hints: tuple[ResourceHints, ...]


Obstacle: TypeAlias = NothingPreferred | PreferencesDiffer
"""Why a merged hint is not preferred."""
