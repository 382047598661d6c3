"""Controllers and their existing pods, and objects that select pods: Services, disruption budgets, controllers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, decoding_fault, type_faults
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.engine.core.disruption.pod_eviction import BudgetStatus, EvictionFacts
from nodewright.engine.core.requests.qos_and_priority import CONFIG_MIRROR
from nodewright.fleet.workload import DisruptionBudget, IntOrPercent
from nodewright.model.errors import Fault
from nodewright.model.values.instant import Instant, InstantError

MAX_REPLICAS = 200_000
"""Default limit of the pods that controllers create: nine lines can ask for any number."""
BUDGET, SERVICE = ("policy/v1", "PodDisruptionBudget"), ("v1", "Service")
_BY_LABELS = (("v1", "ReplicationController"),)
_BY_SELECTOR = (("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"))
DAEMON_SET = ("apps/v1", "DaemonSet")
_BEGINNING_S = 10.0**11
"""The year 5138, in seconds since 1970."""
_SHARE = re.compile(r"([0-9]{1,9})(%?)")
_BOUNDS = {"minAvailable": "min_available", "maxUnavailable": "max_unavailable"}
_POLICY = "unhealthyPodEvictionPolicy"
_HASH = "pod-template-hash"


@dataclass(slots=True)
class PodSelectors:
    """The selectors read so far."""

    budgets: list[DisruptionBudget] = field(default_factory=list)
    services: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    """Namespaces and label selectors of Services."""

    def add_object(
        self, value: Mapping[str, Any], namespace: str, location: ObjectLocation
    ) -> list[Fault] | None:
        """Adds a Service or disruption budget; its faults, or None if it is another object."""
        kind = (value.get("apiVersion"), value.get("kind"))
        if kind not in (BUDGET, SERVICE):
            return None
        meta, spec = mapping(value.get("metadata")), mapping(value.get("spec"))
        namespace = str(meta.get("namespace") or namespace)
        if kind == SERVICE:
            if labels := mapping(spec.get("selector")):
                self.services.append((namespace, {str(key): str(text) for key, text in labels.items()}))
            return []
        faults = list(_faults(spec, is_stored="status" in value))
        if not faults:
            shares = {name: _share(spec.get(key)) for key, name in _BOUNDS.items()}
            name = str(meta.get("name") or "")
            try:
                status = _budget_status(value, name)
            except msgspec.ValidationError as error:
                fault = decoding_fault(error)
                return [location.locate(replace(fault, path=f"status.{fault.path}"))]
            self.budgets.append(
                DisruptionBudget(
                    name=name,
                    namespace=namespace,
                    selector=spec.get("selector"),
                    evicts_unhealthy=spec.get(_POLICY) == "AlwaysAllow",
                    status=status,
                    **shares,
                )
            )
        return [location.locate(fault) for fault in faults]

    def default_selector(
        self, namespace: str, labels: Mapping[str, str], controller_selector_value: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        """The combined selector of all Services and the controller that select the pod; None: there are none.

        Follows: v1.36, pkg/scheduler/framework/plugins/helper/spread.go, DefaultSelector.
        """
        labels_to_match = dict(mapping((controller_selector_value or {}).get("matchLabels")))
        for service_namespace, selector in self.services:
            if service_namespace == namespace and selector.items() <= labels.items():
                labels_to_match |= selector
        expressions = (controller_selector_value or {}).get("matchExpressions") or []
        return (
            {"matchLabels": labels_to_match, "matchExpressions": expressions}
            if labels_to_match or expressions
            else None
        )


def _budget_status(value: Mapping[str, Any], name: str) -> BudgetStatus | None:
    """The status of a budget that an API server has; None: it is a manifest.

    Errors: msgspec.ValidationError.
    """
    generation, status = mapping(value.get("metadata")).get("generation"), value.get("status")
    if not isinstance(status, dict) or not (generation or status.get("observedGeneration")):
        return None
    evicts_unhealthy = mapping(value.get("spec")).get(_POLICY) == "AlwaysAllow"
    own = {"name": name, "generation": generation, "evictsUnhealthy": evicts_unhealthy}
    return decode(status | own, BudgetStatus)


def controller_selector(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The selector of a controller if the scheduler considers it: not of Jobs and DaemonSets."""
    kind = (value.get("apiVersion"), value.get("kind"))
    selector = mapping(value.get("spec")).get("selector")
    if not isinstance(selector, dict):
        return None
    if kind in _BY_LABELS:
        return {"matchLabels": selector}
    return selector if kind in _BY_SELECTOR else None


def _faults(spec: Mapping[str, Any], *, is_stored: bool) -> Iterator[Fault]:
    bounds = [key for key in _BOUNDS if spec.get(key) is not None]
    # The API server takes a budget without a bound, which allows no disruption.
    if len(bounds) > 1 or not (bounds or is_stored):
        rule = "must have exactly one of minAvailable and maxUnavailable"
        yield Fault(path="spec", rule=rule)
    for key in bounds:
        if _share(spec[key]) is None:
            rule = "must be a whole number or a percentage, 0 or more"
            yield Fault(path=f"spec.{key}", value=spec[key], rule=rule)
    yield from type_faults({"spec": {"selector": spec.get("selector")}}, "Deployment")


def _share(value: Any) -> IntOrPercent | None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    match = _SHARE.fullmatch(str(value))
    # The API server rejects a number in quotes.
    if match is None or isinstance(value, str) != bool(match[2]):
        return None
    return IntOrPercent(int(match[1]), is_percent=bool(match[2]))


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


class PodController(NamedTuple):
    """The identity of a controller."""

    kind: str
    namespace: str
    name: str


def controller_of(meta: Mapping[str, Any], namespace: str) -> PodController | None:
    """The controller in an object's owner references; None: it has none."""
    reference = _controller_reference(meta)
    if not reference:
        return None
    return PodController(str(reference.get("kind")), namespace, str(reference.get("name")))


def _controller_reference(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """The owner reference of the controller; empty: there is none."""
    references = meta.get("ownerReferences")
    for reference in references if isinstance(references, list) else ():
        if isinstance(reference, dict) and reference.get("controller"):
            return reference
    return {}


def eviction_facts(value: Mapping[str, Any]) -> EvictionFacts:
    """What of a pod decides whether it is evicted; a pod without a status is taken to be running and ready."""
    meta, status = mapping(value.get("metadata")), mapping(value.get("status"))
    owner = _controller_reference(meta)
    conditions = status.get("conditions")
    listed = conditions if isinstance(conditions, list) else []
    ready = [each.get("status") for each in listed if isinstance(each, dict) and each.get("type") == "Ready"]
    return EvictionFacts(
        owner_kind=str(owner.get("kind") or ""),
        owner_name=str(owner.get("name") or ""),
        is_daemon=(owner.get("apiVersion"), owner.get("kind")) == DAEMON_SET,
        is_mirror=CONFIG_MIRROR in mapping(meta.get("annotations")),
        phase=str(status.get("phase") or "Running"),
        is_ready=ready[:1] == ["True"] if isinstance(conditions, list) else status.get("phase") != "Pending",
        is_deleting=meta.get("deletionTimestamp") is not None,
    )


@dataclass(slots=True)
class PodControllers:
    """The controllers in the files, and the number of their pods in the files."""

    parents: dict[PodController, PodController | None] = field(default_factory=dict)
    """Each controller and its own controller, such as the Deployment of a ReplicaSet."""
    selectors: dict[PodController, Mapping[str, Any] | None] = field(default_factory=dict)
    pods: Counter[PodController] = field(default_factory=Counter)
    """Number of pods by controller; for Jobs, including terminated ones."""
    nodes: dict[PodController, set[str]] = field(default_factory=dict)
    """The nodes on which their pods run."""

    def add_controller(self, value: Mapping[str, Any], namespace: str) -> PodController:
        """Adds a controller."""
        meta = mapping(value.get("metadata"))
        namespace = str(meta.get("namespace") or namespace)
        controller = PodController(str(value.get("kind")), namespace, str(meta.get("name")))
        self.parents[controller] = controller_of(meta, namespace)
        self.selectors[controller] = controller_selector(value)
        return controller

    def add_pod(self, owner: PodController, labels: Mapping[str, Any], node: str) -> None:
        """Adds a pod of this controller.

        Follows: v1.36, pkg/controller/deployment/sync.go, getNewReplicaSet: how a Deployment names its ReplicaSets.
        """
        self.pods[owner] += 1
        stem, is_hashed, _ = owner.name.rpartition(f"-{labels.get(_HASH)}")
        if owner.kind == "ReplicaSet" and is_hashed:
            self.parents.setdefault(owner, PodController("Deployment", owner.namespace, stem))
        self.nodes.setdefault(owner, set()).add(node)

    def has_parent_in_files(self, owner: PodController) -> bool:
        """Whether the controller's own controller is in the files, too, and creates the pods."""
        return self.parents.get(owner) in self.selectors

    def selector_of(self, owner: PodController | None) -> Mapping[str, Any] | None:
        """The selector of the first controller in the chain of owners that has one."""
        selectors = (self.selectors.get(controller) for controller in self._owner_chain(owner))
        return next((selector for selector in selectors if selector is not None), None)

    def existing_pods(self) -> Counter[PodController]:
        """Number of existing pods of each controller, including pods of the controllers that it owns."""
        counts: Counter[PodController] = Counter()
        for owner, count in self.pods.items():
            for controller in self._owner_chain(owner):
                counts[controller] += count
        return counts

    def merge(self, other: "PodControllers") -> None:
        """Adds the controllers and pods of another collection."""
        # The manifest of a controller takes precedence over what is derived from its pods.
        self.parents = {
            **self.parents,
            **other.parents,
            **{selector: self.parents[selector] for selector in self.selectors},
        }
        self.selectors |= other.selectors
        self.pods += other.pods
        for owner, nodes in other.nodes.items():
            self.nodes.setdefault(owner, set()).update(nodes)

    def _owner_chain(self, owner: PodController | None) -> Iterator[PodController]:
        """The controller and its chain of owners; each once, even if references are circular."""
        visited: set[PodController] = set()
        while owner is not None and owner not in visited:
            visited.add(owner)
            yield owner
            owner = self.parents.get(owner)


def started_s(start_time: object) -> float | None:
    """The start time as seconds before the beginning, which is later than all start times; None: there is none."""
    try:
        started_s = Instant.parse(start_time).nanoseconds / 10**9 if isinstance(start_time, str) else None
    except InstantError:
        return None
    return None if started_s is None else started_s - _BEGINNING_S
