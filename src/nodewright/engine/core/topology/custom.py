"""Custom topology policies, and one that pods select by annotations.

There are two kinds. `topology_policy` merges hints: it gets the hints of the resource managers and returns the
NUMA nodes. `topology_choice` runs before the hints are collected, and chooses for each pod one of the kubelet's
policies and a scope.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.topology.hint_merge import merged_hint
from nodewright.engine.core.topology.manager_config import (
    BEST_EFFORT,
    CONTAINER_SCOPE,
    NONE_POLICY,
    POD_SCOPE,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    TopologyManager,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.topology import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.custom_policy import (
    CustomPolicy,
    CustomPolicyError,
    docstring_summary,
    failure_text,
)
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import NUMADistances
from nodewright.model.values.topology_hints import Hint, HintList, Offer

KUBELET_POLICIES = (NONE_POLICY, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
KUBELET_SCOPES = (CONTAINER_SCOPE, POD_SCOPE)


class MergeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a merging policy: a pod, and the hints of the resource managers.

    >>> cpu = Offer("cpu", {"cpu": HintList((Hint(NUMASet.of(1), preferred=True),))})
    >>> request = MergeRequest(pod=Pod(), offers=(cpu,), manager=TopologyManager(numa=NUMASet.of(0, 1)))
    >>> [(resource, [str(hint) for hint in hints]) for resource, hints in request.hints()]
    [('cpu', ['{1} preferred'])]
    >>> str(request.as_kubelet("best-effort").hint)
    '{1} preferred'
    """

    pod: Pod
    container: str = ""
    """Empty: the request is for the pod as a whole."""
    offers: tuple[Offer, ...]
    """The hints of each resource manager; a rule in them stands for many hints, which are never enumerated."""
    manager: TopologyManager
    """The topology manager of the kubelet's configuration."""

    @property
    def numa(self) -> NUMASet:
        """The NUMA nodes of the machine."""
        return self.manager.numa

    @property
    def distances(self) -> NUMADistances | None:
        """Distances by NUMA node, if the kubelet's configuration uses them."""
        return self.manager.distances

    def hints(self) -> Iterator[tuple[str, HintList | None]]:
        """The hints for each resource; None: no preference. A manager without hints has no entry."""
        for offer in self.offers:
            yield from sorted((offer.hints or {}).items())

    def as_kubelet(self, policy: str) -> "MergeResult":
        """The result of the kubelet's policy with this name.

        Errors: ValueError for an unknown policy.
        """
        if policy not in KUBELET_POLICIES:
            raise ValueError(f"the kubelet has no topology policy {policy!r}: {', '.join(KUBELET_POLICIES)}")
        merged = merged_hint(replace(self.manager, policy=policy), self.offers)
        return MergeResult(merged.hint, admit=merged.admit, proved=merged.proved)


class MergeResult(msgspec.Struct, frozen=True):
    """The result of a merging policy: the hint for the allocation, and whether the pod is admitted."""

    hint: Hint
    admit: bool
    reason: str = ""
    """A short explanation."""
    proved: bool = True
    """False: there may be a better hint."""


class PolicyChoice(msgspec.Struct, frozen=True):
    """One of the kubelet's policies and scopes, chosen for a pod."""

    policy: str
    scope: str = CONTAINER_SCOPE
    reason: str = ""
    """A short explanation; empty: the same as for every pod."""


class Rejection(msgspec.Struct, frozen=True):
    """A choosing policy rejects the pod for this reason."""

    reason: str


HintMerger: TypeAlias = Callable[[MergeRequest], MergeResult]
PolicyChooser: TypeAlias = Callable[[Pod, PolicyChoice], PolicyChoice | Rejection]


class TopologyPolicy(CustomPolicy, frozen=True, kw_only=True):
    """A custom topology policy, with one of the two functions."""

    merge_hints: HintMerger | None = None
    choose_policy: PolicyChooser | None = None

    kind: ClassVar[str] = "topology policy"
    profile_field: ClassVar[str] = "topology"
    builtin_names: ClassVar[frozenset[str]] = frozenset(KUBELET_POLICIES)


def topology_policy(name: str) -> Callable[[HintMerger], TopologyPolicy]:
    """Decorates a function that merges the hints of the resource managers as the topology policy of this name.

    >>> @topology_policy("at-most-two")
    ... def at_most_two(request: MergeRequest) -> MergeResult:
    ...     "Never on more than two NUMA nodes."
    ...     best = request.as_kubelet("best-effort")
    ...     return MergeResult(best.hint, admit=len(best.hint.numa or ()) <= 2)
    >>> at_most_two.name, at_most_two.description
    ('at-most-two', 'Never on more than two NUMA nodes.')
    """
    return lambda merging: TopologyPolicy(
        name=name, description=docstring_summary(merging.__doc__), merge_hints=merging
    )


def topology_choice(name: str) -> Callable[[PolicyChooser], TopologyPolicy]:
    """Decorates a function that chooses the kubelet's policy and scope for each pod as the policy of this name.

    It gets the pod and the choice of the kubelet's configuration.

    >>> @topology_choice("strict-for-critical")
    ... def strict_for_critical(pod: Pod, default: PolicyChoice) -> PolicyChoice:
    ...     return PolicyChoice("restricted", default.scope, "it is critical") if pod.spec.priority else default
    """
    return lambda choosing: TopologyPolicy(
        name=name, description=docstring_summary(choosing.__doc__), choose_policy=choosing
    )


def topology_manager_for(
    manager: TopologyManager, policy: TopologyPolicy, pod: Pod
) -> Verdict[TopologyManager]:
    """The topology manager for this pod, or why the policy rejects it.

    Errors: CustomPolicyError if the policy fails or returns an invalid result.
    """
    if policy.choose_policy is None:
        return Granted(manager)
    default = PolicyChoice(manager.policy, manager.scope)
    try:
        choice = policy.choose_policy(pod, default)
    except Exception as error:
        raise CustomPolicyError(policy, f"fails on {pod.full_name}: {failure_text(error)}") from error
    if choice == default:
        return Granted(manager)
    if isinstance(choice, Rejection):
        return Refused((PodUnfit(policy=policy.name, said=choice.reason),))
    if not isinstance(choice, PolicyChoice):
        raise CustomPolicyError(
            policy, f"returned {choice!r}, which is neither a PolicyChoice nor a Rejection"
        )
    if choice.policy not in KUBELET_POLICIES or choice.scope not in KUBELET_SCOPES:
        rule = f"the kubelet has no policy {choice.policy!r} with scope {choice.scope!r}"
        raise CustomPolicyError(policy, rule)
    judged_by = JudgedBy(policy=policy.name, said=choice.reason)
    return Granted(replace(manager, policy=choice.policy, scope=choice.scope, judged_by=judged_by))


def custom_affinity(policy: TopologyPolicy, request: MergeRequest, *, pod_level: bool) -> Verdict[Hint]:
    """The hint for the allocation, or the refusal, by a merging policy; otherwise as `numa_affinity`.

    Errors: CustomPolicyError if the policy fails or returns an invalid result.
    """
    result = _merge_result(policy, request)
    evidence = HintsMerged(
        policy=policy.name,
        numa=request.numa,
        offers=request.offers,
        hint=result.hint,
        proved=result.proved,
        judged_by=JudgedBy(policy=policy.name, said=result.reason),
    )
    if result.admit:
        return Granted(result.hint, (evidence,))
    refusal = NoCommonNUMA(
        scope=request.manager.scope, container=request.container, pod_level=pod_level, merged=evidence
    )
    return Refused((refusal,))


def _merge_result(policy: TopologyPolicy, request: MergeRequest) -> MergeResult:
    assert policy.merge_hints is not None
    try:
        result = policy.merge_hints(request)
    except Exception as error:
        raise CustomPolicyError(policy, f"fails on {request.pod.full_name}: {failure_text(error)}") from error
    if not isinstance(result, MergeResult):
        raise CustomPolicyError(policy, f"returned {result!r}, which is no MergeResult")
    numa = result.hint.numa
    if numa is not None and not numa:
        raise CustomPolicyError(policy, "returned no NUMA node at all; use Hint(None, ...) for any")
    if numa is not None and not numa <= request.numa:
        raise CustomPolicyError(policy, f"returned NUMA nodes {numa}, but the machine has {request.numa}")
    return result


POLICY_ANNOTATION = "nodewright.dev/topology-policy"
SCOPE_ANNOTATION = "nodewright.dev/topology-scope"


@topology_choice("pod-wish")
def annotated_policy(pod: Pod, default: PolicyChoice) -> PolicyChoice | Rejection:
    """The pod's annotations choose the kubelet's policy and scope."""
    annotations = pod.metadata.annotations
    policy = annotations.get(POLICY_ANNOTATION, default.policy)
    scope = annotations.get(SCOPE_ANNOTATION, default.scope)
    for key, value, known in (
        (POLICY_ANNOTATION, policy, KUBELET_POLICIES),
        (SCOPE_ANNOTATION, scope, KUBELET_SCOPES),
    ):
        if value not in known:
            return Rejection(f'annotation {key} has the value "{value}", not one of {", ".join(known)}')
    selected = ", ".join(
        f"{key}={annotations[key]}" for key in (POLICY_ANNOTATION, SCOPE_ANNOTATION) if key in annotations
    )
    return (
        PolicyChoice(policy, scope, reason=f"the pod is annotated with {selected}") if selected else default
    )
