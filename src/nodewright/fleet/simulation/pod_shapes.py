"""Pod shapes: the properties of a pod that the scheduler uses, derived once for all equal pods."""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from nodewright.engine.core.predicates.predicate_check import HostPort, host_ports
from nodewright.engine.core.requests.effective_resources import USE_STATUS, pod_requests, scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.fleet.simulation.pod_templates import (
    SYSTEM_DEFAULT_CONSTRAINTS,
    PodAffinityTerms,
    TopologySpreadConstraint,
)
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


class PreferredNodeTerm(msgspec.Struct, frozen=True):
    """A preferred node affinity term of a pod."""

    weight: int
    required_spec: PodSpec
    """A pod spec that requires the term, for use with the required-affinity check."""


class PodShape:
    """The properties of a pod that the scheduler uses.

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
    )

    def __init__(
        self,
        number: int,
        pod: Pod,
        namespace: str,
        selector: Mapping[str, Any] | None = None,
        *,
        required_node: str = "",
    ) -> None:
        self.number, self.pod, self.namespace, self.selector = number, pod, namespace, selector
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
        self.selects_nodes = _selects_nodes(pod)
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


class PodShapes:
    """The shapes of all pods so far."""

    def __init__(self) -> None:
        self.shapes: list[PodShape] = []
        self._numbers: dict[tuple[int, str, int, str], int] = {}

    def shape_of(self, pod: FleetPod) -> PodShape:
        """The shape of this pod."""
        key = (id(pod.pod), pod.namespace, id(pod.selector), pod.required_node)
        number = self._numbers.get(key)
        if number is None:
            # The shape keeps the pod alive, so that no other object gets its id.
            number = self._numbers[key] = len(self.shapes)
            self.shapes.append(
                PodShape(number, pod.pod, pod.namespace, pod.selector, required_node=pod.required_node)
            )
        return self.shapes[number]


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
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
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


def _selects_nodes(pod: Pod) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return bool(pod.spec.node_selector or required is not None)


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
