"""The facts that decide which NUMA nodes a container gets, and why the topology manager does not start."""

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Literal, TypeAlias

import msgspec

from nodewright.model.reasons.fact import Fact, KubeletText, StartFact, numa_nodes
from nodewright.model.values.golang import quoted
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import nonempty_subsets
from nodewright.model.values.topology_hints import Hint, Offer, ResourceHintList, resource_hint_lists

# ---------------------------------------------------------------- the policy and its options


class TopologyStartFact(StartFact, frozen=True):
    """Why the kubelet does not start its topology manager.

    Follows: v1.36, topologymanager/topology_manager.go, NewManager; policy_options.go; numa_info.go.
    """


class TopologyOptionUnknown(TopologyStartFact, frozen=True, kw_only=True):
    """There is no topology manager policy option of this name."""

    option: str

    def kubelet_error(self) -> str:
        return f"unknown Topology Manager Policy option: {quoted(self.option)}"


class TopologyOptionGated(TopologyStartFact, frozen=True, kw_only=True):
    """The feature gate of beta options of the topology manager is off."""

    option: str
    is_lower_case: bool = True
    """Whether the kubelet's text begins in lower case."""

    def kubelet_error(self) -> str:
        text = f"Topology Manager Policy Beta-level Options not enabled, but option {quoted(self.option)} provided"
        if self.is_lower_case:
            text = text.replace(
                "Topology Manager Policy Beta-level Options", "topology manager policy beta-level options"
            )
        return text

    def sentence(self) -> str:
        return (
            f"the option {self.option} needs the feature gate TopologyManagerPolicyBetaOptions, which is off"
        )


class TopologyOptionMalformed(TopologyStartFact, frozen=True, kw_only=True):
    """The value of a topology manager policy option cannot be parsed."""

    option: str
    value: str
    fault: Literal["no truth value", "no number", "beyond 64 bits"]

    def kubelet_error(self) -> str:
        option, value = quoted(self.option), quoted(self.value)
        if self.fault == "no truth value":
            return f"bad value for option {option}: strconv.ParseBool: parsing {value}: invalid syntax"
        problem = "invalid syntax" if self.fault == "no number" else "value out of range"
        return (
            f"unable to convert policy option to integer {option}: strconv.Atoi: parsing {value}: {problem}"
        )


class TopologyLimitTooLow(TopologyStartFact, frozen=True, kw_only=True):
    """The option for the maximum number of NUMA nodes is below the default."""

    option: str
    least: int

    def kubelet_error(self) -> str:
        return f"the minimum value of {quoted(self.option)} should not be less than {self.least}"


class NUMADistancesUnknown(TopologyStartFact, frozen=True, kw_only=True):
    """Distances between NUMA nodes are preferred, and the machine does not report them."""

    def kubelet_error(self) -> str:
        return "cannot discover NUMA topology: error getting NUMA distances from cadvisor"


class TooManyNUMANodes(TopologyStartFact, frozen=True, kw_only=True):
    """The machine has more NUMA nodes than the topology manager supports."""

    nodes: int
    limit: int

    def kubelet_error(self) -> str:
        return f"unsupported on machines with more than {self.limit} NUMA Nodes"


class TopologyPolicyUnknown(TopologyStartFact, frozen=True, kw_only=True):
    """There is no topology manager policy of this name."""

    policy: str

    def kubelet_error(self) -> str:
        return f'unknown policy: "{self.policy}"'


class TopologyScopeUnknown(TopologyStartFact, frozen=True, kw_only=True):
    """There is no topology manager scope of this name."""

    scope: str

    def kubelet_error(self) -> str:
        return f'unknown scope: "{self.scope}"'


TopologyFault: TypeAlias = (
    TopologyOptionGated
    | TopologyOptionUnknown
    | TopologyOptionMalformed
    | TopologyLimitTooLow
    | NUMADistancesUnknown
    | TooManyNUMANodes
    | TopologyPolicyUnknown
    | TopologyScopeUnknown
)
"""Why the kubelet does not start its topology manager."""

# ---------------------------------------------------------------- merging

TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError"


class JudgedBy(msgspec.Struct, frozen=True, kw_only=True):
    """The custom policy that decided, or that chose the kubelet policy which decides."""

    policy: str
    said: str
    """Its explanation; empty: none."""

    def choice(self) -> str:
        """Which custom policy chose the kubelet policy, and why."""
        return f"chosen by the custom policy {self.policy}{self.explanation()}"

    def explanation(self) -> str:
        """The custom policy's explanation after a colon."""
        return f": {self.said}" if self.said else ""


class HintsMerged(Fact, frozen=True, kw_only=True):
    """The hints of the providers and the result of merging them."""

    policy: str
    numa: NUMASet
    """All NUMA nodes of the machine."""
    offers: tuple[Offer, ...]
    hint: Hint
    proved: bool = True
    """False: a search over dozens of NUMA nodes was cut short, there may be a better hint."""
    judged_by: JudgedBy | None = None
    """None: the kubelet's own policy, by its configuration."""

    def kubelet(self) -> KubeletText:
        return KubeletText("", f"merged hint: {self.hint}")

    def sentence(self) -> str:
        by = self.judged_by
        if by is None:
            return self._result()
        if by.policy != self.policy:
            return f"{self._result()} (policy {self.policy}, {by.choice()})"
        where = numa_nodes(self.hint.numa) if self.hint.numa else "any NUMA nodes"
        return f"{_custom(by.policy)} chooses {where}{by.explanation()}"

    def _result(self) -> str:
        unproved = "" if self.proved else "; the search was cut short, there may be better ones"
        names = [hints.resource for hints in resource_hints(self) if hints.says == "hints"]
        if not names:
            return "no resource prefers particular NUMA nodes"
        if self.hint.preferred:
            where = numa_nodes(self.hint.numa) if self.hint.numa else "any NUMA node"
            return f"{_joined(names)} {'agree' if len(names) > 1 else 'settles'} on {where}{unproved}"
        where = numa_nodes(self.hint.numa) if self.hint.numa else "no NUMA nodes"
        return f"{where} for {_joined(names)}, not preferred: {_obstacles_text(self)}{unproved}"


class NoCommonNUMA(Fact, frozen=True, kw_only=True):
    """The merged hint is not preferred, and the policy accepts no other.

    Follows: v1.36, topologymanager/topology_manager.go, TopologyAffinityError, PodLevelTopologyAffinityError.
    """

    scope: str
    container: str
    """Empty: the pod as a whole."""
    pod_level: bool
    """Whether the pod has pod-level resources that the managers handle; the message differs."""
    merged: HintsMerged

    def kubelet(self) -> KubeletText:
        if not self.pod_level:
            return KubeletText(
                TOPOLOGY_AFFINITY_ERROR, "Resources cannot be allocated with Topology locality"
            )
        if self.scope == "pod":
            problem = "failed admission under pod-scope topology manager"
        else:
            problem = "failed admission with a container-level topology manager"
        return KubeletText(TOPOLOGY_AFFINITY_ERROR, f"Pod Scope pod with pod-level resources {problem}")

    def sentence(self) -> str:
        subject = f"container {self.container}" if self.container else "the pod as a whole"
        by, policy = self.merged.judged_by, self.merged.policy
        if by is not None and by.policy == policy:
            return (
                f"{_custom(policy)} has no NUMA nodes for {subject}: "
                f"{by.said or _obstacles_text(self.merged)}"
            )
        choice = f" ({by.choice()})" if by is not None else ""
        return (
            f"policy {policy}{choice} accepts only preferred NUMA nodes, "
            f"and there are none for {subject}: {_obstacles_text(self.merged)}"
        )


class PodUnfit(Fact, frozen=True, kw_only=True):
    """A custom policy rejects the pod before any provider is asked for hints."""

    policy: str
    said: str

    def kubelet(self) -> KubeletText:
        return KubeletText(TOPOLOGY_AFFINITY_ERROR, f"topology policy {self.policy}: {self.said}")

    def sentence(self) -> str:
        return f"{_custom(self.policy)} rejects the pod: {self.said}"


class DistanceMissing(Fact, frozen=True, kw_only=True):
    """A list of distances ends before a NUMA node that hints name: the kubelet crashes."""

    numa: int
    """The NUMA node with the list that is too short."""
    other: int
    """The NUMA node that is not in it."""
    listed: int

    def kubelet(self) -> KubeletText:
        return KubeletText("KubeletCrashes", f"index out of range [{self.other}] with length {self.listed}")

    def sentence(self) -> str:
        return (
            f"the kubelet crashes: it looks up the distance from NUMA node {self.numa} to {self.other} "
            f"in a list of {self.listed}"
        )


TopologyReason: TypeAlias = TopologyFault | HintsMerged | NoCommonNUMA | PodUnfit | DistanceMissing

# ---------------------------------------------------------------- why a merged hint is not preferred

_SINGLE_NUMA_NODE = "single-numa-node"
_MOST_SHOWN = 8
_MOST_EXAMINED = 4_096
"""The number of sets of a rule that are searched for examples; with more NUMA nodes there may be others."""


class ResourceHints(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of one provider's hints for one resource."""

    provider: str
    resource: str
    """Empty: the provider has no opinion at all."""
    says: Literal["no opinion", "impossible", "hints"]
    preferred: tuple[NUMASet, ...] = ()
    """Preferred sets of NUMA nodes, fewest nodes first; at most eight."""
    narrowest: NUMASet | None = None
    """One of the smallest sets of NUMA nodes that is possible now, preferred or not."""


class NothingPreferred(msgspec.Struct, frozen=True, kw_only=True):
    """No hint for this resource is preferred: nothing is possible, or only more NUMA nodes than should be needed."""

    hints: ResourceHints


class PreferencesDiffer(msgspec.Struct, frozen=True, kw_only=True):
    """Each of these resources has preferred NUMA nodes, but no set of them is preferred for all."""

    hints: tuple[ResourceHints, ...]


AffinityObstacle: TypeAlias = NothingPreferred | PreferencesDiffer
"""Why a merged hint is not preferred."""


def resource_hints(merged: HintsMerged) -> tuple[ResourceHints, ...]:
    """The hints of each provider for each resource, in the order of the providers."""
    single_only = merged.policy == _SINGLE_NUMA_NODE
    return tuple(_summary(hints, single_only=single_only) for hints in resource_hint_lists(merged.offers))


def obstacles(merged: HintsMerged) -> tuple[AffinityObstacle, ...]:
    """What prevents the merged hint from being preferred; nothing if it is."""
    if merged.hint.preferred:
        return ()
    summaries = resource_hints(merged)
    unpreferred = [hints for hints in summaries if hints.says != "no opinion" and not hints.preferred]
    if unpreferred:
        return tuple(NothingPreferred(hints=hints) for hints in unpreferred)
    return (PreferencesDiffer(hints=tuple(hints for hints in summaries if hints.says == "hints")),)


def _summary(hints: ResourceHintList, *, single_only: bool) -> ResourceHints:
    if hints.any_nodes:
        says: Literal["no opinion", "impossible"] = "no opinion" if hints.any_preferred else "impossible"
        return ResourceHints(provider=hints.provider, resource=hints.resource, says=says)
    listed = dict.fromkeys(sorted(hints.preferred, key=_by_size))
    rule = (mask for mask in _examples(hints) if hints.rule_prefers(mask) and mask not in listed)
    preferred = (mask for mask in chain(listed, rule) if not single_only or mask.bit_count() == 1)
    return ResourceHints(
        provider=hints.provider,
        resource=hints.resource,
        says="hints",
        preferred=tuple(map(NUMASet, islice(preferred, _MOST_SHOWN))),
        narrowest=_narrowest(hints),
    )


def _examples(hints: ResourceHintList) -> Iterable[int]:
    return islice(nonempty_subsets(hints.fitting.nodes.mask), _MOST_EXAMINED) if hints.fitting else ()


def _narrowest(hints: ResourceHintList) -> NUMASet | None:
    possible = list(hints.listed)
    if hints.fitting is not None:
        fits = hints.fitting.fits
        possible += islice((mask for mask in _examples(hints) if fits(mask)), 1)
    return NUMASet(min(possible, key=_by_size)) if possible else None


def _by_size(mask: int) -> tuple[int, int]:
    return mask.bit_count(), mask


# ---------------------------------------------------------------- words


def _custom(policy: str) -> str:
    return f"custom topology policy {policy}"


def _obstacles_text(merged: HintsMerged) -> str:
    return "; ".join(map(_obstacle_text, obstacles(merged)))


def _obstacle_text(obstacle: AffinityObstacle) -> str:
    if isinstance(obstacle, PreferencesDiffer):
        preferences = [
            f"{hints.resource} prefers {' or '.join(f'{{{numa}}}' for numa in hints.preferred)}"
            for hints in obstacle.hints
        ]
        return f"no set of NUMA nodes is preferred for all: {', '.join(preferences)}"
    hints = obstacle.hints
    if hints.says == "impossible" or hints.narrowest is None:
        return f"no NUMA nodes have enough {hints.resource} free"
    count = len(hints.narrowest)
    return (
        f"{hints.resource} has no preferred NUMA nodes now: it needs {count} NUMA "
        f"node{'s' if count > 1 else ''}, for example {hints.narrowest}"
    )


def _joined(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
