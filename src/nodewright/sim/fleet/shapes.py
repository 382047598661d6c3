"""What the scheduler looks at in a pod, worked out once for all pods that are alike."""

from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from nodewright.core.predicates import host_ports
from nodewright.core.predicates.room import HostPort
from nodewright.core.requests import WITH_STATUS, QOSClass, pod_requests, qos_class, scheduler_requests
from nodewright.model.fleet import FleetPod
from nodewright.model.objects import Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, Pod, PodSpec
from nodewright.sim.fleet.terms import SYSTEM_SPREADS, Spread, Terms
from nodewright.values.quantity import ZERO, Quantity

# What a container counts for that requests nothing, so that such pods do not all go to one node.
USUAL_REQUESTS = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("200Mi")}
_NONE = -(2**63)
_AS_SCORED = msgspec.structs.replace(WITH_STATUS, non_missing_container_requests=USUAL_REQUESTS)


class Preferred(msgspec.Struct, frozen=True):
    """Labels that a pod would like its node to have, and how much."""

    weight: int
    as_spec: PodSpec
    """A pod that insists on them."""


class PodShape:
    """A pod as the scheduler sees it.

    Units: cpu in thousandths, memory in bytes, everything else in units or pieces.
    Follows: v1.36, pkg/scheduler/framework/types.go, PodInfo.CalculateResource (what is scored counts more than
        what is requested: `USUAL_REQUESTS`).
    """

    __slots__ = (
        "asks",
        "cpu",
        "labels",
        "may_preempt",
        "memory",
        "namespace",
        "number",
        "only_on",
        "others",
        "own_cpus",
        "pod",
        "ports",
        "preferred",
        "priority",
        "room_cpu",
        "room_memory",
        "scored_cpu",
        "scored_memory",
        "selector",
        "selects",
        "spreads",
        "spreads_by_default",
        "terms",
    )

    def __init__(
        self,
        number: int,
        pod: Pod,
        namespace: str,
        selector: Mapping[str, Any] | None = None,
        *,
        only_on: str = "",
    ) -> None:
        self.number, self.pod, self.namespace, self.selector = number, pod, namespace, selector
        self.only_on = only_on
        self.labels: Mapping[str, str] = pod.metadata.labels
        requests = scheduler_requests(pod)
        self.asks: tuple[tuple[str, int], ...] = tuple(sorted((k, v) for k, v in requests.items() if v > 0))
        self.cpu, self.memory = requests.get("cpu", 0), requests.get("memory", 0)
        self.others = tuple(one for one in self.asks if one[0] not in ("cpu", "memory"))
        # Of what it asks nothing of, there is room even where there is less than none.
        self.room_cpu, self.room_memory = self.cpu or _NONE, self.memory or _NONE
        scored = pod_requests(pod, _AS_SCORED)
        self.scored_cpu = scored.get("cpu", ZERO).milli_value()
        self.scored_memory = scored.get("memory", ZERO).value()
        self.ports: tuple[HostPort, ...] = tuple(host_ports(pod))
        self.priority = pod.spec.priority or 0
        self.may_preempt = pod.spec.preemption_policy != "Never"
        self.own_cpus = _own_cpus(pod)
        """How many CPUs a static CPU manager gives to it alone."""
        self.selects = _selects(pod)
        self.preferred = _preferred(pod)
        own = pod.spec.topology_spread_constraints
        self.spreads_by_default = not own and selector is not None
        """Whether it is spread as the scheduler spreads pods of Services and controllers that say nothing of it."""
        self.spreads = (
            tuple(Spread({**one, "labelSelector": selector}, self.labels) for one in SYSTEM_SPREADS)
            if self.spreads_by_default
            else tuple(Spread(one, self.labels) for one in own)
        )
        self.terms = Terms(pod, namespace)

    @property
    def amounts(self) -> Hashable:
        """All that filters of room and scores by amounts look at."""
        return (self.asks, self.scored_cpu, self.scored_memory, self.own_cpus, self.ports)

    @property
    def looks_around(self) -> bool:
        """Whether other pods, or how nodes compare, decide where it goes."""
        return bool(self.preferred or self.spreads or self.terms.are_any)

    @property
    def is_kept_by_others(self) -> bool:
        """Whether other pods can keep it from a node by where they are."""
        return bool(self.terms.near or self.terms.far or any(one.is_hard for one in self.spreads))

    @property
    def only_wishes_to_spread(self) -> bool:
        """Whether nothing about other pods matters to it but how evenly it would be spread."""
        return bool(self.spreads) and not (self.preferred or self.terms.are_any or self.is_kept_by_others)


class Shapes:
    """The shapes of the pods that came so far."""

    def __init__(self) -> None:
        self.known: list[PodShape] = []
        self._numbers: dict[tuple[int, str, int, str], int] = {}
        self._recognized = 0
        self._kept: list[FleetPod] = []

    def recognize(self) -> None:
        """From now on, pods that equal those that came so far have their shapes: those are read anew."""
        self._recognized = len(self.known)

    def of(self, pod: FleetPod) -> PodShape:
        """The shape of this pod."""
        key = (id(pod.pod), pod.namespace, id(pod.selector), pod.only_on)
        number = self._numbers.get(key)
        if number is None:
            for old in self.known[: self._recognized]:
                if old.only_on == pod.only_on and (old.namespace, old.pod, old.selector) == (
                    pod.namespace,
                    pod.pod,
                    pod.selector,
                ):
                    self._numbers[key] = old.number
                    self._kept.append(pod)
                    return old
            # The shape holds the pod, so that nothing else comes to stand at its address.
            number = self._numbers[key] = len(self.known)
            self.known.append(PodShape(number, pod.pod, pod.namespace, pod.selector, only_on=pod.only_on))
        return self.known[number]


def _own_cpus(pod: Pod) -> int:
    """Follows: v1.36, pkg/kubelet/cm/cpumanager/policy_static.go, guaranteedCPUs."""
    if qos_class(pod) is not QOSClass.GUARANTEED:
        return 0
    asked = (one.resources.requests.get("cpu", ZERO).milli_value() for one in pod.spec.containers)
    return sum(milli // 1000 for milli in asked if milli % 1000 == 0)


def _selects(pod: Pod) -> bool:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return bool(pod.spec.node_selector or required is not None)


def _preferred(pod: Pod) -> tuple[Preferred, ...]:
    """Follows: v1.36, component-helpers/scheduling/corev1/nodeaffinity, NewPreferredSchedulingTerms."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    found: tuple[dict[str, Any], ...] = (
        affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    )
    read = (
        (one.get("weight", 0), msgspec.convert(one.get("preference") or {}, NodeSelectorTerm))
        for one in found
    )
    return tuple(
        Preferred(weight, _insisting(term))
        for weight, term in read
        if weight and (term.match_expressions or term.match_fields)
    )


def _insisting(term: NodeSelectorTerm) -> PodSpec:
    required = NodeAffinity(required_during_scheduling_ignored_during_execution=NodeSelector((term,)))
    return PodSpec(affinity=Affinity(node_affinity=required))
