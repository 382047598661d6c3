"""A pod's constraints on other pods, parsed once: topology spread, affinity and anti-affinity, label selectors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from nodewright.model.kubernetes.objects import Pod

Labels: TypeAlias = Mapping[str, str]
_Requirement: TypeAlias = Callable[[Labels], bool]


class LabelMatcher:
    """A parsed label selector.

    Follows: v1.36, apimachinery/pkg/apis/meta/v1/helpers.go, LabelSelectorAsSelector: a missing selector matches no
        pod, an empty one every pod.
    Departs: an invalid expression matches nothing; the API server would have rejected the pod.

    >>> LabelMatcher({"matchLabels": {"app": "web"}}).matches({"app": "web", "tier": "1"})
    True
    >>> LabelMatcher(None).matches({})
    False
    """

    __slots__ = ("is_empty", "requirements")

    def __init__(
        self, document: Mapping[str, Any] | None, extra_labels: Mapping[str, str] | None = None
    ) -> None:
        self.requirements: list[_Requirement] | None = None
        """None: the selector matches nothing."""
        if document is not None:
            equalities = {**(document.get("matchLabels") or {}), **(extra_labels or {})}
            self.requirements = [_equal(key, value) for key, value in sorted(equalities.items())]
            self.requirements += [
                _expression(expression) for expression in document.get("matchExpressions") or ()
            ]
        self.is_empty = self.requirements == []

    def matches(self, labels: Labels) -> bool:
        """Whether the selector matches these labels."""
        return self.requirements is not None and all(is_met(labels) for is_met in self.requirements)


def _equal(key: str, value: str) -> _Requirement:
    return lambda labels: labels.get(key) == value


def _expression(document: Mapping[str, Any]) -> _Requirement:
    """Follows: v1.36, apimachinery/pkg/labels/selector.go, Requirement.Matches."""
    key, values = document.get("key", ""), frozenset(document.get("values") or ())
    match document.get("operator"):
        case "In":
            return lambda labels: key in labels and labels[key] in values
        case "NotIn":
            return lambda labels: key not in labels or labels[key] not in values
        case "Exists":
            return lambda labels: key in labels
        case "DoesNotExist":
            return lambda labels: key not in labels
        case _:
            return lambda _: False


def labels_by_keys(keys: Sequence[str], labels: Labels) -> dict[str, str]:
    """The pod's labels with the keys in a constraint's `matchLabelKeys`."""
    return {key: labels[key] for key in keys if key in labels}


NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"

SYSTEM_DEFAULT_CONSTRAINTS: Sequence[Mapping[str, Any]] = (
    {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
)
"""Spread constraints of pods of Services and controllers without constraints of their own.

Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/plugin.go, systemDefaultConstraints.
"""


class TopologySpreadConstraint:
    """A topology spread constraint.

    Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/common.go, filterTopologySpreadConstraints.
    """

    __slots__ = (
        "honors_node_affinity",
        "honors_taints",
        "is_hard",
        "max_skew",
        "min_domains",
        "selector",
        "topology_key",
    )

    def __init__(self, document: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        pod_labels = labels_by_keys(document.get("matchLabelKeys") or (), labels)
        self.max_skew: int = document.get("maxSkew", 1)
        self.topology_key: str = document.get("topologyKey", "")
        self.selector = LabelMatcher(document.get("labelSelector"), pod_labels)
        self.min_domains: int = document.get("minDomains") or 1
        self.honors_node_affinity = (document.get("nodeAffinityPolicy") or "Honor") == "Honor"
        self.honors_taints = document.get("nodeTaintsPolicy") == "Honor"
        self.is_hard = document.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"


class AffinityTerm:
    """A term of pod affinity or anti-affinity. `weight` is 0 for one that is required.

    Follows: v1.36, kube-scheduler/framework/types.go, AffinityTerm; of `matchLabelKeys` and `mismatchLabelKeys`
        pkg/registry/core/pod/strategy.go, applyMatchLabelKeysAndMismatchLabelKeys.
    Departs: of a namespace's labels, only the one with its name is known.
    """

    __slots__ = ("mismatch_labels", "namespace_selector", "namespaces", "selector", "topology_key", "weight")

    def __init__(self, document: Mapping[str, Any], pod: Pod, namespace: str, weight: int = 0) -> None:
        labels = pod.metadata.labels
        names, selector = document.get("namespaces") or (), document.get("namespaceSelector")
        self.topology_key: str = document.get("topologyKey", "")
        self.selector = LabelMatcher(
            document.get("labelSelector"), labels_by_keys(document.get("matchLabelKeys") or (), labels)
        )
        self.mismatch_labels = labels_by_keys(document.get("mismatchLabelKeys") or (), labels)
        # A term without namespaces applies to the namespace of its pod.
        self.namespaces = frozenset(names or ((namespace,) if selector is None else ()))
        self.namespace_selector = LabelMatcher(selector)
        self.weight = weight

    def matches(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the term matches a pod with these labels in that namespace."""
        if namespace not in self.namespaces and not self.namespace_selector.matches(
            {NAMESPACE_NAME_LABEL: namespace}
        ):
            return False
        if any(labels.get(key) == value for key, value in self.mismatch_labels.items()):
            return False
        return self.selector.matches(labels)


class PodAffinityTerms:
    """All affinity and anti-affinity terms of one pod."""

    __slots__ = (
        "has_any",
        "preferred_affinity",
        "preferred_anti_affinity",
        "required_affinity",
        "required_anti_affinity",
    )

    def __init__(self, pod: Pod, namespace: str) -> None:
        affinity = pod.spec.affinity
        affinity_document = (affinity.pod_affinity if affinity else None) or {}
        anti_affinity_document = (affinity.pod_anti_affinity if affinity else None) or {}
        self.required_affinity = _required(affinity_document, pod, namespace)
        self.required_anti_affinity = _required(anti_affinity_document, pod, namespace)
        self.preferred_affinity = _preferred(affinity_document, pod, namespace)
        self.preferred_anti_affinity = _preferred(anti_affinity_document, pod, namespace)
        self.has_any = bool(
            self.required_affinity
            or self.required_anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
        )


def matches_all(terms: Iterable[AffinityTerm], namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether all terms match the pod; False without terms."""
    matches = [term.matches(namespace, labels) for term in terms]
    return bool(matches) and all(matches)


def _required(document: Mapping[str, Any], pod: Pod, namespace: str) -> Sequence[AffinityTerm]:
    terms = document.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(AffinityTerm(term, pod, namespace) for term in terms)


def _preferred(document: Mapping[str, Any], pod: Pod, namespace: str) -> Sequence[AffinityTerm]:
    terms = document.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        AffinityTerm(term.get("podAffinityTerm") or {}, pod, namespace, term.get("weight", 0))
        for term in terms
    )
