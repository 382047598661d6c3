"""The checks in the kubelet's order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
from msgspec.structs import replace as changed

from nodewright.core.predicates.affinity import affinity_mismatch
from nodewright.core.predicates.room import Others, allocatable_amounts, port_conflicts, shortages
from nodewright.core.predicates.taints import untolerated
from nodewright.core.requests import is_static, scheduler_requests
from nodewright.model.objects import Container, Node, Pod, Taint
from nodewright.model.reasons import (
    HostPortsTaken,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeNameMismatch,
    NodeUnavailable,
    OSFieldMismatch,
    OSLabelMismatch,
    PluginUpdateFailed,
    PredicateFailure,
    SupplementalGroupsPolicyUnsupported,
    UntoleratedTaints,
)
from nodewright.model.resource_names import is_extended, is_scalar
from nodewright.model.verdict import Granted, Refused
from nodewright.values.quantity import ZERO

OS_LABEL = "kubernetes.io/os"
_STRICT = "Strict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the checks depend on beside pods and nodes: the kubelet's system and its feature gates."""

    os: str = "linux"
    taint_comparisons: bool = False
    """The gate TaintTolerationComparisonOperators: tolerations with Lt and Gt."""
    claimed_extended_resources: bool = True
    """The gate DRAExtendedResource: what a resource claim provides is not counted."""


DEFAULT_RULES = Rules()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """What the predicates look at in a node, ready to compare.

    Units: allocatable in thousandths for cpu, else bytes or pieces.
    """

    name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    has_supplemental_groups_policy: bool = False

    @classmethod
    def of(cls, node: Node) -> "NodeView":
        """The node object as it is."""
        features = node.status.features
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels,
            allocatable=allocatable_amounts(node.status.allocatable),
            taints=node.spec.taints,
            has_supplemental_groups_policy=features is not None and features.supplemental_groups_policy,
        )

    def seen_by_kubelet(self, rules: Rules = DEFAULT_RULES) -> "NodeView":
        """The node as the kubelet's cache has it: its label for the operating system is put right.

        Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, rejectPodAdmissionBasedOnOSSelector: a node
            without any label stays without.
        """
        if not self.labels or self.labels.get(OS_LABEL) == rules.os:
            return self
        return replace(self, labels={**self.labels, OS_LABEL: rules.os})

    def with_allocated_devices(self, allocated: Mapping[str, int]) -> "NodeView":
        """The node with no less of a device allocatable than is handed out already.

        Follows: v1.36, pkg/kubelet/cm/devicemanager/manager.go, sanitizeNodeAllocatable.
        """
        raised = {
            name: count
            for name, count in allocated.items()
            if name not in self.allocatable or self.allocatable[name] < count
        }
        return replace(self, allocatable={**self.allocatable, **raised}) if raised else self


class Judgement(msgspec.Struct, frozen=True):
    """The answer of the predicates."""

    verdict: Granted[None] | Refused
    failures: tuple[PredicateFailure, ...] = ()
    """What a critical pod may try to overcome by preemption; empty if it was turned away before."""
    refetched: bool = False
    """Whether the node was fetched again, because nothing but its labels spoke against the pod."""


_FITS = Judgement(Granted(None))
_FITS_AFTER_ALL = Judgement(Granted(None), refetched=True)


def judge(
    pod: Pod,
    node: NodeView | NodeUnavailable,
    others: Others,
    *,
    fresh: NodeView | None = None,
    plugin_error: str = "",
    rules: Rules = DEFAULT_RULES,
) -> Judgement:
    """Whether the pod may run on the node beside the other pods, and all that speaks against it.

    ``node`` is what the kubelet has in its cache, ``fresh`` what the API server has (None: it cannot be
    asked), ``plugin_error`` why the device manager could not update its resources.

    Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, predicateAdmitHandler.Admit.
    Departs: where the gate PodLevelResources is off, the caller passes pods without `spec.resources`.
        Shortages of several scalar resources are in order of their names; the kubelet's is random.
    """
    if isinstance(node, NodeUnavailable):
        return Judgement(Refused((node,)))
    node = node.seen_by_kubelet(rules)
    early = _beyond_help(pod, node, rules) or (
        PluginUpdateFailed(error=plugin_error) if plugin_error else None
    )
    if early is not None:
        return Judgement(Refused((early,)))
    asked = _asked(pod, node.allocatable, rules)
    failures = _failures(pod, asked, node, others, rules)
    if not failures:
        return _FITS
    refetched = all(isinstance(failure, NodeAffinityMismatch) for failure in failures)
    if refetched and fresh is not None:
        failures = _failures(pod, asked, fresh, others, rules)
        if not failures:
            return _FITS_AFTER_ALL
    return Judgement(Refused(tuple(failures)), tuple(failures), refetched)


def alternatives(failures: tuple[PredicateFailure, ...]) -> tuple[PredicateFailure, ...]:
    """The other failures that the kubelet may name first: which of several scalar resources it does is random."""
    return tuple(other for other in failures[1:] if is_counted_last(failures[0]) and is_counted_last(other))


def is_counted_last(failure: PredicateFailure) -> bool:
    """Whether it is a shortage of a resource that the kubelet looks at in random order."""
    return isinstance(failure, InsufficientResource) and is_scalar(failure.resource)


_EarlyRefusal: TypeAlias = OSLabelMismatch | OSFieldMismatch | SupplementalGroupsPolicyUnsupported


def _beyond_help(pod: Pod, node: NodeView, rules: Rules) -> _EarlyRefusal | None:
    """What preemption could not change."""
    label = pod.metadata.labels.get(OS_LABEL)
    # The node's own label has been put right, so it is the kubelet's system that counts.
    if label is not None and label != rules.os:
        return OSLabelMismatch(wanted=label, actual=rules.os)
    if pod.spec.os is not None and pod.spec.os.name != rules.os:
        return OSFieldMismatch(wanted=pod.spec.os.name, actual=rules.os)
    context = pod.spec.security_context
    strict = context is not None and context.supplemental_groups_policy == _STRICT
    if strict and not node.has_supplemental_groups_policy:
        return SupplementalGroupsPolicyUnsupported(policy=_STRICT)
    return None


def _asked(pod: Pod, allocatable: Mapping[str, int], rules: Rules) -> Mapping[str, int]:
    """What the pod asks of this node, without extended resources that the node has never heard of.

    Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources: overhead still counts.
    """
    claim = pod.status.extended_resource_claim_status
    if claim is not None and rules.claimed_extended_resources:
        claimed = frozenset((one.container_name, one.resource_name) for one in claim.request_mappings)
        pod = _without(pod, claimed)
    asked = scheduler_requests(pod)
    unknown = [name for name in asked if name not in allocatable and is_extended(name)]
    return (
        {**asked, **{name: pod.spec.overhead.get(name, ZERO).value() for name in unknown}}
        if unknown
        else asked
    )


def _without(pod: Pod, claimed: frozenset[tuple[str, str]]) -> Pod:
    """The pod without the containers' requests that a resource claim provides."""

    def kept(container: Container) -> Container:
        requests = {
            name: amount
            for name, amount in container.resources.requests.items()
            if (container.name, name) not in claimed or not _claimable(name)
        }
        return changed(container, resources=changed(container.resources, requests=requests))

    spec = changed(
        pod.spec,
        containers=tuple(map(kept, pod.spec.containers)),
        init_containers=tuple(map(kept, pod.spec.init_containers)),
    )
    return changed(pod, spec=spec)


def _claimable(resource: str) -> bool:
    return resource.startswith("deviceclass.resource.kubernetes.io/") or is_extended(resource)


def _failures(
    pod: Pod, asked: Mapping[str, int], node: NodeView, others: Others, rules: Rules
) -> list[PredicateFailure]:
    """Everything that speaks against the pod on this node and that the kubelet looks at together.

    Follows: v1.36, pkg/scheduler/eventhandlers.go, AdmissionCheck; pkg/kubelet/lifecycle/predicate.go,
        generalFilter.
    """
    spec = pod.spec
    failures: list[PredicateFailure] = [*shortages(asked, others, node.allocatable)]
    mismatch = affinity_mismatch(spec, node.name, node.labels)
    if mismatch is not None:
        failures.append(mismatch)
    if spec.node_name and spec.node_name != node.name:
        failures.append(NodeNameMismatch(wanted=spec.node_name, actual=node.name))
    conflicts = port_conflicts(pod, others)
    if conflicts:
        failures.append(HostPortsTaken(conflicts=conflicts))
    if node.taints and not is_static(pod):
        taints = untolerated(node.taints, spec.tolerations, comparisons=rules.taint_comparisons)
        if taints:
            failures.append(UntoleratedTaints(taints=taints))
    return failures
