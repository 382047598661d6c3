"""The facts that decide which NUMA nodes a container gets, and whether the topology manager starts at all."""

from typing import Literal, TypeAlias

import msgspec

from nodewright.model.hints import Hint, Offer
from nodewright.values.idset import NUMASet

# ---------------------------------------------------------------- the policy and its options


class TopologyOptionUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no topology manager policy option of this name."""

    option: str


class TopologyOptionMalformed(msgspec.Struct, frozen=True, kw_only=True):
    """A topology manager policy option has a value that cannot be read."""

    option: str
    value: str
    fault: Literal["no truth value", "no number", "beyond 64 bits"]


class TopologyLimitTooLow(msgspec.Struct, frozen=True, kw_only=True):
    """The option that sets how many NUMA nodes are allowed sets fewer than always are."""

    option: str
    least: int


class NUMADistancesUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """Distances between NUMA nodes are to count, and the machine does not tell them."""


class TooManyNUMANodes(msgspec.Struct, frozen=True, kw_only=True):
    """The machine has more NUMA nodes than the topology manager takes."""

    nodes: int
    limit: int


class TopologyPolicyUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """There is no topology manager policy of this name."""

    policy: str


class TopologyScopeUnknown(msgspec.Struct, frozen=True, kw_only=True):
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


class JudgedBy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that is not the kubelet's has judged, or has chosen by which of the kubelet's a pod is judged."""

    policy: str
    said: str
    """Why, in its own words; empty: it says nothing."""


class HintsMerged(msgspec.Struct, frozen=True, kw_only=True):
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


class NoCommonNUMA(msgspec.Struct, frozen=True, kw_only=True):
    """The providers' hints do not come to a preferred one, and the policy takes no other."""

    scope: str
    container: str
    """Empty: it was asked for the pod as a whole."""
    pod_level: bool
    """Whether the pod has resources of its own that the managers look after; the message differs."""
    merged: HintsMerged


class PodUnfit(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that is not the kubelet's does not take the pod, before anything is asked."""

    policy: str
    said: str


class DistanceMissing(msgspec.Struct, frozen=True, kw_only=True):
    """Distances count, and a list of distances ends before a NUMA node that hints name: the kubelet crashes."""

    numa: int
    """The node whose list is too short."""
    other: int
    """The node that is not in it."""
    listed: int


TopologyReason: TypeAlias = TopologyFault | HintsMerged | NoCommonNUMA | PodUnfit | DistanceMissing

# ---------------------------------------------------------------- what a merge came to, looked at closely


class ResourceHints(msgspec.Struct, frozen=True, kw_only=True):
    """What one provider's hints for one resource come to."""

    provider: str
    resource: str
    """Empty: the provider had no opinion at all."""
    says: Literal["no opinion", "impossible", "hints"]
    preferred: tuple[NUMASet, ...] = ()
    """Preferred sets of NUMA nodes, fewest nodes first; at most eight."""
    narrowest: NUMASet | None = None
    """One of the smallest sets of NUMA nodes that would do now, preferred or not."""


class NothingPreferred(msgspec.Struct, frozen=True, kw_only=True):
    """For this resource no set of NUMA nodes is preferred: nothing does, or only more nodes than should be needed."""

    hints: ResourceHints


class PreferencesDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """Each of these resources has preferred NUMA nodes, but no set of them is preferred for all."""

    hints: tuple[ResourceHints, ...]


Obstacle: TypeAlias = NothingPreferred | PreferencesDiffer
"""Why a merged hint is not preferred."""
