"""Pod templates: the properties of a pod that the scheduler uses, derived once for all equal pods.

They include its constraints on other pods: topology spread, affinity and anti-affinity, label selectors.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from nodewright.engine.core.predicates.predicate_check import HostPort, host_ports
from nodewright.engine.core.predicates.scheduler_filters import BoundVolume
from nodewright.engine.core.requests.effective_resources import USE_STATUS, pod_requests, scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.fleet.workload import FleetPod
from nodewright.model.kubernetes.objects import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
)
from nodewright.model.values.quantity import ZERO, Quantity

# Assumed requests of a container without requests, so that such pods are not all scored onto one node.
NONZERO_DEFAULT_REQUESTS = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("200Mi")}
_ALWAYS_FITS = -(2**63)
_SCORE_OPTIONS = msgspec.structs.replace(USE_STATUS, non_missing_container_requests=NONZERO_DEFAULT_REQUESTS)
NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"
SYSTEM_DEFAULT_CONSTRAINTS: Sequence[Mapping[str, Any]] = (
    {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"},
    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
)
"""Spread constraints of pods of Services and controllers without constraints of their own.

Follows: v1.36, pkg/scheduler/framework/plugins/podtopologyspread/plugin.go, systemDefaultConstraints.
"""
Labels: TypeAlias = Mapping[str, str]
_Requirement: TypeAlias = Callable[[Labels], bool]


class PreferredNodeTerm(msgspec.Struct, frozen=True):
    """A preferred node affinity term of a pod."""

    weight: int
    required_spec: PodSpec
    """A pod spec that requires the term, for use with the required-affinity check."""


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


class PodTemplate:
    """The properties of equal pods that the scheduler uses; the pods differ in name and times only.

    Units: cpu in thousandths, memory in bytes, everything else in bytes or units.
    Follows: v1.36, pkg/scheduler/framework/types.go, PodInfo.CalculateResource (scores use
        `NONZERO_DEFAULT_REQUESTS` where a container requests nothing).
    """

    __slots__ = (
        "cpu",
        "exclusive_cpus",
        "filter_cpu",
        "filter_memory",
        "labels",
        "may_preempt",
        "memory",
        "namespace",
        "nonzero_cpu",
        "nonzero_memory",
        "number",
        "other_requests",
        "pod",
        "pod_terms",
        "ports",
        "preferred",
        "priority",
        "requests",
        "required_names",
        "required_node",
        "selector",
        "selects_nodes",
        "spreads_by_default",
        "topology_spreads",
        "volumes",
    )

    def __init__(
        self,
        number: int,
        pod: Pod,
        namespace: str,
        selector: Mapping[str, Any] | None = None,
        *,
        required_node: str = "",
        volumes: tuple[BoundVolume, ...] = (),
    ) -> None:
        self.number, self.pod, self.namespace, self.selector = number, pod, namespace, selector
        self.volumes = volumes
        self.required_node = required_node
        self.required_names = frozenset({required_node}) if required_node else _required_names(pod)
        """The only nodes for it, by name; None: any."""
        self.labels: Mapping[str, str] = pod.metadata.labels
        requests = scheduler_requests(pod)
        self.requests: tuple[tuple[str, int], ...] = tuple(
            sorted((k, v) for k, v in requests.items() if v > 0)
        )
        self.cpu, self.memory = requests.get("cpu", 0), requests.get("memory", 0)
        self.other_requests = tuple(
            request for request in self.requests if request[0] not in ("cpu", "memory")
        )
        # A pod that does not request a resource fits even where the resource is overcommitted.
        self.filter_cpu, self.filter_memory = self.cpu or _ALWAYS_FITS, self.memory or _ALWAYS_FITS
        scored = pod_requests(pod, _SCORE_OPTIONS)
        self.nonzero_cpu = scored.get("cpu", ZERO).milli_value()
        self.nonzero_memory = scored.get("memory", ZERO).value()
        self.ports: tuple[HostPort, ...] = tuple(host_ports(pod))
        self.priority = pod.spec.priority or 0
        self.may_preempt = pod.spec.preemption_policy != "Never"
        self.exclusive_cpus = _exclusive_cpus(pod)
        """CPUs that a static CPU manager allocates exclusively to it."""
        self.selects_nodes = selects_nodes(pod.spec)
        self.preferred = _preferred_terms(pod)
        self.spreads_by_default = not pod.spec.topology_spread_constraints and selector is not None
        """Whether the system default constraints apply: a pod of a Service or controller without constraints."""
        self.topology_spreads = self._spread_constraints()
        self.pod_terms = PodAffinityTerms(pod, namespace)

    def _spread_constraints(self) -> tuple[TopologySpreadConstraint, ...]:
        constraints = self.pod.spec.topology_spread_constraints
        if self.spreads_by_default:
            constraints = tuple(
                {**default, "labelSelector": self.selector} for default in SYSTEM_DEFAULT_CONSTRAINTS
            )
        return tuple(TopologySpreadConstraint(constraint, self.labels) for constraint in constraints)

    @property
    def amounts_key(self) -> Hashable:
        """Everything that resource filters and resource scores depend on."""
        return (self.requests, self.nonzero_cpu, self.nonzero_memory, self.exclusive_cpus, self.ports)

    @property
    def scored_amounts(self) -> Hashable:
        """Everything that resource scores depend on."""
        return (self.cpu, self.memory, self.nonzero_cpu, self.nonzero_memory, self.exclusive_cpus)

    @property
    def needs_cluster_scores(self) -> bool:
        """Whether scores depend on other pods, or on a comparison of nodes."""
        return bool(self.preferred or self.topology_spreads or self.pod_terms.has_any)

    @property
    def has_required_pod_terms(self) -> bool:
        """Whether the placement of other pods can make a node infeasible for it."""
        return bool(
            self.pod_terms.required_affinity
            or self.pod_terms.required_anti_affinity
            or any(spread.is_hard for spread in self.topology_spreads)
        )

    @property
    def has_only_soft_spreads(self) -> bool:
        """Whether soft spread constraints are its only dependency on other pods."""
        return bool(self.topology_spreads) and not (
            self.preferred or self.pod_terms.has_any or self.has_required_pod_terms
        )


class PodTemplates:
    """The templates of all pods so far."""

    def __init__(self) -> None:
        self.templates: list[PodTemplate] = []
        self._numbers: dict[tuple[int, str, int, str], int] = {}

    def template_of(self, pod: FleetPod) -> PodTemplate:
        """The template of this pod."""
        key = (id(pod.pod), pod.namespace, id(pod.selector), pod.required_node)
        number = self._numbers.get(key)
        if number is None:
            # The template keeps the pod alive, so that no other object gets its id.
            number = self._numbers[key] = len(self.templates)
            self.templates.append(
                PodTemplate(
                    number,
                    pod.pod,
                    pod.namespace,
                    pod.selector,
                    required_node=pod.required_node,
                    volumes=pod.volumes,
                )
            )
        return self.templates[number]


def _exclusive_cpus(pod: Pod) -> int:
    """Follows: v1.36, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs."""
    if qos_class(pod) is not QOSClass.GUARANTEED:
        return 0
    requests_milli = (
        container.resources.requests.get("cpu", ZERO).milli_value() for container in pod.spec.containers
    )
    return sum(milli // 1000 for milli in requests_milli if milli % 1000 == 0)


def _required_names(pod: Pod) -> frozenset[str] | None:
    """The nodes that required node affinity names in `matchFields`; None: a term names none.

    Follows: v1.36, pkg/scheduler/framework/plugins/nodeaffinity/node_affinity.go, PreFilter.
    """
    required = _required_node_affinity(pod.spec)
    if required is None or not required.node_selector_terms:
        return None
    names: frozenset[str] = frozenset()
    for term in required.node_selector_terms:
        fields = [
            frozenset(field.values)
            for field in term.match_fields
            if field.key == "metadata.name" and field.operator == "In"
        ]
        if not fields:
            return None
        names |= frozenset.intersection(*fields)
    return names


def selects_nodes(spec: PodSpec) -> bool:
    """Whether the labels or names of nodes matter to the pod."""
    return bool(spec.node_selector) or _required_node_affinity(spec) is not None


def _required_node_affinity(spec: PodSpec) -> NodeSelector | None:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _preferred_terms(pod: Pod) -> tuple[PreferredNodeTerm, ...]:
    """Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity, NewPreferredSchedulingTerms."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    documents: tuple[dict[str, Any], ...] = (
        affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    )
    terms = (
        (document.get("weight", 0), msgspec.convert(document.get("preference") or {}, NodeSelectorTerm))
        for document in documents
    )
    return tuple(
        PreferredNodeTerm(weight, _spec_requiring(term))
        for weight, term in terms
        if weight and (term.match_expressions or term.match_fields)
    )


def _spec_requiring(term: NodeSelectorTerm) -> PodSpec:
    required = NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector((term,)))
    return PodSpec(affinity=Affinity(node_affinity=required))


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
