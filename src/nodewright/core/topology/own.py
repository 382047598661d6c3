"""Topology policies of somebody's own: which NUMA nodes a pod gets is theirs to say, pod by pod.

There are two ways to write one. `topology_policy` merges hints: it sees what the resource managers offer and
says which NUMA nodes it shall be. `topology_choice` comes before anything is asked, and chooses for each pod
which of the kubelet's own policies it is judged by, and in which scope.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

from nodewright.core.topology.merge import merge
from nodewright.core.topology.policy import (
    BEST_EFFORT,
    CONTAINER,
    NONE,
    POD,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    TopologyManager,
)
from nodewright.model.hints import Hint, HintList, Offer
from nodewright.model.objects import Pod
from nodewright.model.policies import Policy, PolicyError, failure, first_line
from nodewright.model.topology_reasons import HintsMerged, JudgedBy, NoCommonNUMA, PodUnfit
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import NUMASet
from nodewright.values.search import Distances

POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
SCOPES = (CONTAINER, POD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """What a merging policy is asked: a pod, and what the resource managers offer it.

    >>> cpu = Offer("cpu", {"cpu": HintList((Hint(NUMASet.of(1), preferred=True),))})
    >>> asked = Alignment(pod=Pod(), offers=(cpu,), manager=TopologyManager(numa=NUMASet.of(0, 1)))
    >>> [(resource, [str(hint) for hint in hints]) for resource, hints in asked.hints()]
    [('cpu', ['{1} preferred'])]
    >>> str(asked.as_kubelet("best-effort").hint)
    '{1} preferred'
    """

    pod: Pod
    container: str = ""
    """Empty: it is asked for the pod as a whole."""
    offers: tuple[Offer, ...]
    """What each resource manager says; they are read and counted, not gone through: a rule stands for many hints."""
    manager: TopologyManager
    """The topology manager as the kubelet's configuration makes it."""

    @property
    def numa(self) -> NUMASet:
        """The NUMA nodes of the machine."""
        return self.manager.numa

    @property
    def distances(self) -> Distances | None:
        """Distances by NUMA node, where the kubelet's configuration makes them count."""
        return self.manager.distances

    def hints(self) -> Iterator[tuple[str, HintList | None]]:
        """The hints for each resource; None: any NUMA nodes will do. Without a resource: its manager says nothing."""
        for offer in self.offers:
            yield from sorted((offer.hints or {}).items())

    def as_kubelet(self, policy: str) -> "Ruling":
        """What the kubelet's policy of that name would say.

        Errors: ValueError where there is none.
        """
        if policy not in POLICIES:
            raise ValueError(f"the kubelet has no topology policy {policy!r}: {', '.join(POLICIES)}")
        merged = merge(replace(self.manager, policy=policy), self.offers)
        return Ruling(merged.hint, admit=merged.admit, proved=merged.proved)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a merging policy says: the hint that allocation follows, and whether the pod gets in."""

    hint: Hint
    admit: bool
    said: str = ""
    """Why, in a few words for people."""
    proved: bool = True
    """False: there may be a better hint."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a pod is judged: by one of the kubelet's policies, in one of its scopes."""

    policy: str
    scope: str = CONTAINER
    said: str = ""
    """Why, in a few words for people; empty: it is as for every pod."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A choosing policy does not take the pod, and why."""

    said: str


Merging: TypeAlias = Callable[[Alignment], Ruling]
Choosing: TypeAlias = Callable[[Pod, Manner], Manner | Unfit]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPolicy(Policy):
    """A topology policy that is not the kubelet's; it has one of the two functions."""

    merging: Merging | None = None
    choosing: Choosing | None = None

    kind: ClassVar[str] = "topology policy"
    field: ClassVar[str] = "topology"
    kubelets: ClassVar[frozenset[str]] = frozenset(POLICIES)


def topology_policy(name: str) -> Callable[[Merging], TopologyPolicy]:
    """The function as the topology policy of that name: it merges the hints of the resource managers.

    >>> @topology_policy("at-most-two")
    ... def at_most_two(asked: Alignment) -> Ruling:
    ...     "Never on more than two NUMA nodes."
    ...     best = asked.as_kubelet("best-effort")
    ...     return Ruling(best.hint, admit=len(best.hint.numa or ()) <= 2)
    >>> at_most_two.name, at_most_two.about
    ('at-most-two', 'Never on more than two NUMA nodes.')
    """
    return lambda merging: TopologyPolicy(name=name, about=first_line(merging.__doc__), merging=merging)


def topology_choice(name: str) -> Callable[[Choosing], TopologyPolicy]:
    """The function as the topology policy of that name: it chooses the kubelet's policy and scope pod by pod.

    It gets the pod, and what holds by the kubelet's configuration.

    >>> @topology_choice("strict-for-critical")
    ... def strict_for_critical(pod: Pod, usual: Manner) -> Manner:
    ...     return Manner("restricted", usual.scope, "it is critical") if pod.spec.priority else usual
    """
    return lambda choosing: TopologyPolicy(name=name, about=first_line(choosing.__doc__), choosing=choosing)


def manager_for(manager: TopologyManager, own: TopologyPolicy, pod: Pod) -> Verdict[TopologyManager]:
    """The topology manager that judges this pod, or why the policy does not take it.

    Errors: PolicyError if the policy fails or says what cannot be.
    """
    if own.choosing is None:
        return Granted(manager)
    usual = Manner(manager.policy, manager.scope)
    try:
        chosen = own.choosing(pod, usual)
    except Exception as error:
        raise PolicyError(own, f"fails on {pod.full_name}: {failure(error)}") from error
    if chosen == usual:
        return Granted(manager)
    if isinstance(chosen, Unfit):
        return Refused((PodUnfit(policy=own.name, said=chosen.said),))
    if not isinstance(chosen, Manner):
        raise PolicyError(own, f"answers {chosen!r}, which is no Manner and no Unfit")
    if chosen.policy not in POLICIES or chosen.scope not in SCOPES:
        rule = f"the kubelet has no policy {chosen.policy!r} with scope {chosen.scope!r}"
        raise PolicyError(own, rule)
    by = JudgedBy(policy=own.name, said=chosen.said)
    return Granted(replace(manager, policy=chosen.policy, scope=chosen.scope, judged_by=by))


def own_affinity(own: TopologyPolicy, asked: Alignment, *, pod_level: bool) -> Verdict[Hint]:
    """The hint that allocation is to follow, or the refusal, by a policy that merges; else as `affinity`.

    Errors: PolicyError if the policy fails or says what cannot be.
    """
    ruling = _ruled(own, asked)
    evidence = HintsMerged(
        policy=own.name,
        numa=asked.numa,
        offers=asked.offers,
        hint=ruling.hint,
        proved=ruling.proved,
        judged_by=JudgedBy(policy=own.name, said=ruling.said),
    )
    if ruling.admit:
        return Granted(ruling.hint, (evidence,))
    refusal = NoCommonNUMA(
        scope=asked.manager.scope, container=asked.container, pod_level=pod_level, merged=evidence
    )
    return Refused((refusal,))


def _ruled(own: TopologyPolicy, asked: Alignment) -> Ruling:
    assert own.merging is not None
    try:
        ruling = own.merging(asked)
    except Exception as error:
        raise PolicyError(own, f"fails on {asked.pod.full_name}: {failure(error)}") from error
    if not isinstance(ruling, Ruling):
        raise PolicyError(own, f"answers {ruling!r}, which is no Ruling")
    numa = ruling.hint.numa
    if numa is not None and not numa:
        raise PolicyError(own, "answers with no NUMA node at all; Hint(None, ...) stands for any")
    if numa is not None and not numa <= asked.numa:
        raise PolicyError(own, f"answers NUMA nodes {numa}, and the machine has {asked.numa}")
    return ruling
