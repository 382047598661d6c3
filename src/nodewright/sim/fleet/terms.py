"""What a pod wants of the pods around it, read once: spreading, affinity and anti-affinity."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.model.objects import Pod
from nodewright.sim.fleet.selectors import Selector, labels_by_keys

NAME_OF_NAMESPACE = "kubernetes.io/metadata.name"

SYSTEM_SPREADS: Sequence[Mapping[str, Any]] = (
    {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
)
"""How pods of Services and controllers are spread that say nothing of it.

Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/plugin.go, systemDefaultConstraints.
"""


class Spread:
    """A topology spread constraint.

    Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/common.go, filterTopologySpreadConstraints.
    """

    __slots__ = ("honors_affinity", "honors_taints", "is_hard", "key", "max_skew", "min_domains", "selector")

    def __init__(self, document: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        own = labels_by_keys(document.get("matchLabelKeys") or (), labels)
        self.max_skew: int = document.get("maxSkew", 1)
        self.key: str = document.get("topologyKey", "")
        self.selector = Selector(document.get("labelSelector"), own)
        self.min_domains: int = document.get("minDomains") or 1
        self.honors_affinity = (document.get("nodeAffinityPolicy") or "Honor") == "Honor"
        self.honors_taints = document.get("nodeTaintsPolicy") == "Honor"
        self.is_hard = document.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"


class Term:
    """A term of pod affinity or anti-affinity. `weight` is 0 for one that is required.

    Follows: v1.36, kube-scheduler/framework/types.go, AffinityTerm; of `matchLabelKeys` and `mismatchLabelKeys`
        pkg/registry/core/pod/strategy.go, applyMatchLabelKeysAndMismatchLabelKeys.
    Departs: of a namespace's labels only the one is known that says its name.
    """

    __slots__ = ("key", "mismatches", "namespaces", "of_namespaces", "selector", "weight")

    def __init__(self, document: Mapping[str, Any], pod: Pod, namespace: str, weight: int = 0) -> None:
        labels = pod.metadata.labels
        names, selector = document.get("namespaces") or (), document.get("namespaceSelector")
        self.key: str = document.get("topologyKey", "")
        self.selector = Selector(
            document.get("labelSelector"), labels_by_keys(document.get("matchLabelKeys") or (), labels)
        )
        self.mismatches = labels_by_keys(document.get("mismatchLabelKeys") or (), labels)
        # A term that names no namespaces means those of its pod.
        self.namespaces = frozenset(names or ((namespace,) if selector is None else ()))
        self.of_namespaces = Selector(selector)
        self.weight = weight

    def means(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels in that namespace is meant."""
        if namespace not in self.namespaces and not self.of_namespaces.matches(
            {NAME_OF_NAMESPACE: namespace}
        ):
            return False
        if any(labels.get(key) == value for key, value in self.mismatches.items()):
            return False
        return self.selector.matches(labels)


class Terms:
    """The terms of one pod: required and preferred, for and against."""

    __slots__ = ("against", "are_any", "far", "near", "towards")

    def __init__(self, pod: Pod, namespace: str) -> None:
        affinity = pod.spec.affinity
        wanted = (affinity.pod_affinity if affinity else None) or {}
        unwanted = (affinity.pod_anti_affinity if affinity else None) or {}
        self.near = _required(wanted, pod, namespace)
        self.far = _required(unwanted, pod, namespace)
        self.towards = _preferred(wanted, pod, namespace)
        self.against = _preferred(unwanted, pod, namespace)
        self.are_any = bool(self.near or self.far or self.towards or self.against)


def mean_all(terms: Iterable[Term], namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether all the terms mean the pod; no terms mean nobody."""
    found = [term.means(namespace, labels) for term in terms]
    return bool(found) and all(found)


def _required(document: Mapping[str, Any], pod: Pod, namespace: str) -> Sequence[Term]:
    found = document.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(Term(one, pod, namespace) for one in found)


def _preferred(document: Mapping[str, Any], pod: Pod, namespace: str) -> Sequence[Term]:
    found = document.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        Term(one.get("podAffinityTerm") or {}, pod, namespace, one.get("weight", 0)) for one in found
    )
