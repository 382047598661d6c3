"""The kubelet's admission predicates, in its order.

They read the requests and host ports of a node's pods, as sums that change with each pod.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.engine.core.requests.effective_resources import (
    NEWEST_REQUEST_RULES,
    RequestRules,
    scheduler_requests,
    scheduler_usage,
)
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.model.kubernetes.cluster_objects import APINode
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList, Taint, untolerated
from nodewright.model.kubernetes.resource_names import is_extended, is_scalar
from nodewright.model.reasons.predicates import (
    HostPortsTaken,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeNameMismatch,
    PortConflict,
    PredicateFailure,
    UntoleratedTaints,
)
from nodewright.model.reasons.reason import (
    NodeUnavailable,
    OSFieldMismatch,
    OSLabelMismatch,
    PluginUpdateFailed,
    SidecarForbidden,
    SupplementalGroupsPolicyUnsupported,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.releases.release_rules import ClaimedInPredicates
from nodewright.model.values.quantity import INT64_MAX, INT64_MIN, ZERO, wrap_int64

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - Kubernetes' value where a pod sets no host IP
_ORDER = {"pods": 0, "cpu": 1, "memory": 2, "ephemeral-storage": 3}


OS_LABEL = "kubernetes.io/os"


class HostPort(NamedTuple):
    """A port of the node that a pod uses or requests."""

    port: int
    protocol: str
    host_ip: str


class AllocatedHostPort(NamedTuple):
    """A port of the node and the pod that uses it, as namespace/name."""

    port: HostPort
    holder: str


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The number, requests and host ports of the pods on a node.

    Units: requests in thousandths for cpu, else bytes or pieces.
    """

    pods: int = 0
    requests: Mapping[str, int] = {}
    ports: tuple[AllocatedHostPort, ...] = ()
    rules: RequestRules = NEWEST_REQUEST_RULES
    sidecar_ports: bool = True
    """Whether host ports of sidecars count."""

    def plus(self, *pods: Pod) -> "NodeUsage":
        """The usage with these pods added."""
        requests, ports = dict(self.requests), self.ports
        for pod in pods:
            for name, amount in scheduler_usage(pod, self.rules).items():
                total = requests.get(name, 0) + amount
                requests[name] = total if INT64_MIN <= total <= INT64_MAX else wrap_int64(total)
            if has_ports(pod):
                own_ports = host_ports(pod, sidecars=self.sidecar_ports)
                ports += tuple([AllocatedHostPort(port, pod.full_name) for port in own_ports])
        return replace(self, pods=self.pods + len(pods), requests=requests, ports=ports)

    def minus(self, *pods: Pod) -> "NodeUsage":
        """The usage without these pods, which must be as they were when they were added, status included."""
        requests = dict(self.requests)
        ports = list(self.ports)
        for pod in pods:
            for name, amount in scheduler_usage(pod, self.rules).items():
                total = requests[name] - amount
                requests[name] = total if INT64_MIN <= total <= INT64_MAX else wrap_int64(total)
            if ports:
                for port in host_ports(pod, sidecars=self.sidecar_ports):
                    ports.remove(AllocatedHostPort(port, pod.full_name))
        return replace(self, pods=self.pods - len(pods), requests=requests, ports=tuple(ports))


class PredicateRules(msgspec.Struct, frozen=True, kw_only=True):
    """The operating system and the feature gates of the kubelet, as far as the predicates depend on them."""

    os: str = "linux"
    requests: RequestRules = NEWEST_REQUEST_RULES
    taint_comparisons: bool = False
    """The gate TaintTolerationComparisonOperators: tolerations with Lt and Gt."""
    claimed_resources: ClaimedInPredicates = ClaimedInPredicates.MAPPED_DROPPED
    """What is done about extended resources that a claim provides, by release and the gate DRAExtendedResource."""
    forbids_sidecars: bool = False
    """The gate SidecarContainers is off: pods with restartable init containers are refused."""
    supplemental_groups_checked: bool = True
    """As in `ReleaseRules`; so are the next two."""
    sidecar_host_ports: bool = True
    refetches_node: bool = True

    @classmethod
    def of(cls, gates: FeatureGates) -> "PredicateRules":
        """The rules under these gates."""
        rules = gates.rules
        is_claimed = gates["DRAExtendedResource"]
        return cls(
            requests=RequestRules.of(gates),
            taint_comparisons=gates["TaintTolerationComparisonOperators"],
            claimed_resources=rules.claimed_in_predicates if is_claimed else ClaimedInPredicates.COUNTED,
            forbids_sidecars=not gates["SidecarContainers"],
            supplemental_groups_checked=rules.supplemental_groups_checked,
            sidecar_host_ports=rules.sidecar_host_ports,
            refetches_node=rules.refetches_node,
        )

    @property
    def no_usage(self) -> NodeUsage:
        """The usage of a node without pods."""
        return NodeUsage(rules=self.requests, sidecar_ports=self.sidecar_host_ports)


def has_ports(pod: Pod) -> bool:
    """Whether a container of the pod lists ports, of which only some may be ports of the host."""
    spec = pod.spec
    for container in spec.containers:
        if container.ports:
            return True
    return any(init.ports for init in spec.init_containers)


def host_ports(pod: Pod, *, sidecars: bool = True) -> Iterator[HostPort]:
    """The host ports of the pod's sidecars, if they count, and containers.

    Follows: v1.36, pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    restartable = [init for init in spec.init_containers if init.is_sidecar] if sidecars else []
    for container in (*restartable, *spec.containers):
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.host_port, port.protocol or "TCP", port.host_ip or ALL_ADDRESSES)


DEFAULT_PREDICATE_RULES = PredicateRules()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a node that the predicates compare.

    Units: allocatable in thousandths for cpu, else bytes or pieces.
    """

    name: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    allocatable: Mapping[str, int] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    has_supplemental_groups_policy: bool = False

    @classmethod
    def of(cls, node: APINode) -> "NodeView":
        """The facts of a node object."""
        features = node.status.features
        return cls(
            name=node.metadata.name,
            labels=node.metadata.labels,
            allocatable=allocatable_amounts(node.status.allocatable),
            taints=node.spec.taints,
            has_supplemental_groups_policy=features is not None and features.supplemental_groups_policy,
        )

    def as_cached_by_kubelet(self, rules: PredicateRules = DEFAULT_PREDICATE_RULES) -> "NodeView":
        """The node as in the kubelet's cache: with the correct label for the operating system.

        Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, rejectPodAdmissionBasedOnOSSelector: a node
            without any label keeps none.
        """
        if not self.labels or self.labels.get(OS_LABEL) == rules.os:
            return self
        return replace(self, labels={**self.labels, OS_LABEL: rules.os})

    def with_allocated_devices(self, allocated: Mapping[str, int]) -> "NodeView":
        """The node with at least as much of each device allocatable as is already allocated.

        Follows: v1.36, pkg/kubelet/cm/devicemanager/manager.go, sanitizeNodeAllocatable.
        """
        if not allocated:
            return self
        raised = {
            name: count
            for name, count in allocated.items()
            if name not in self.allocatable or self.allocatable[name] < count
        }
        return replace(self, allocatable={**self.allocatable, **raised}) if raised else self


class PredicateResult(msgspec.Struct, frozen=True):
    """The verdict of the predicates."""

    verdict: Granted[None] | Refused
    failures: tuple[PredicateFailure, ...] = ()
    """The failures that preemption may resolve for a critical pod; empty if it was rejected earlier."""
    refetched: bool = False
    """Whether the node was fetched again, because only its labels failed the pod."""


def check_predicates(
    pod: Pod,
    node: NodeView | NodeUnavailable,
    others: NodeUsage,
    *,
    fresh: NodeView | None = None,
    plugin_error: str = "",
    rules: PredicateRules = DEFAULT_PREDICATE_RULES,
) -> PredicateResult:
    """Whether the pod may run on the node beside the other pods, and all predicate failures.

    ``node`` is the node in the kubelet's cache, ``fresh`` the one at the API server (None: unreachable),
    ``plugin_error`` why the device manager could not update its resources.

    Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, predicateAdmitHandler.Admit.
    Departs: shortages of several scalar resources are ordered by name; the kubelet's order is random.
    """
    if isinstance(node, NodeUnavailable):
        return PredicateResult(Refused((node,)))
    node = node.as_cached_by_kubelet(rules)
    early_refusal = _unresolvable_failure(pod, node, rules) or (
        PluginUpdateFailed(error=plugin_error) if plugin_error else None
    )
    if early_refusal is not None:
        return PredicateResult(Refused((early_refusal,)))
    requests = requests_on_node(pod, node.allocatable, rules)
    failures = _failures(pod, requests, node, others, rules)
    if not failures:
        return _FITS
    refetched = rules.refetches_node and all(
        isinstance(failure, NodeAffinityMismatch) for failure in failures
    )
    if refetched and fresh is not None:
        failures = _failures(pod, requests, fresh, others, rules)
        if not failures:
            return _FITS_AFTER_REFETCH
    return PredicateResult(Refused(tuple(failures)), tuple(failures), refetched)


def alternative_failures(failures: tuple[PredicateFailure, ...]) -> tuple[PredicateFailure, ...]:
    """The other failures that the kubelet may report first: its order of scalar resources is random."""
    return tuple(
        other for other in failures[1:] if is_scalar_shortage(failures[0]) and is_scalar_shortage(other)
    )


def is_scalar_shortage(failure: PredicateFailure) -> bool:
    """Whether it is a shortage of a scalar resource, which the kubelet checks in random order."""
    return isinstance(failure, InsufficientResource) and is_scalar(failure.resource)


def requests_on_node(pod: Pod, allocatable: Mapping[str, int], rules: PredicateRules) -> Mapping[str, int]:
    """The pod's requests on this node, without extended resources that the node does not have.

    Follows: v1.36, pkg/kubelet/lifecycle/predicate.go, removeMissingExtendedResources: overhead still counts.
    """
    claim = pod.status.extended_resource_claim_status
    if claim is not None and rules.claimed_resources is ClaimedInPredicates.MAPPED_DROPPED:
        claimed = frozenset(
            (mapping.container_name, mapping.resource_name) for mapping in claim.request_mappings
        )
        pod = _without_claimed_requests(pod, claimed)
    requests = scheduler_requests(pod, rules.requests)
    unknown = [name for name in requests if name not in allocatable and is_extended(name)]
    if unknown:
        requests = {
            **requests,
            **{name: (pod.spec.overhead or {}).get(name, ZERO).value() for name in unknown},
        }
    match rules.claimed_resources:
        case ClaimedInPredicates.UNLISTED_SKIPPED:
            skipped = [name for name in requests if is_scalar(name) and name not in allocatable]
        case ClaimedInPredicates.EMPTY_SKIPPED:
            skipped = [name for name in requests if is_scalar(name) and not allocatable.get(name)]
        case _:
            return requests
    return {name: amount for name, amount in requests.items() if name not in skipped}


NO_USAGE = NodeUsage()


def node_usage(pods: Iterable[Pod], empty: NodeUsage = NO_USAGE) -> NodeUsage:
    """The usage of these pods together, by the rules of the empty one."""
    return empty.plus(*pods)


def allocatable_amounts(resources: ResourceList) -> dict[str, int]:
    """The node's allocatable amounts as integers, for the resources that are counted.

    Units:   cpu in thousandths, memory and storage in bytes, everything else in pieces; rounded up.
    Follows: v1.36, pkg/scheduler/framework/types.go, Resource.Add.
    """
    return {
        name: amount.milli_value() if name == "cpu" else amount.value()
        for name, amount in resources.items()
        if name in _ORDER or is_scalar(name)
    }


def shortages(
    requests: Mapping[str, int], others: NodeUsage, allocatable: Mapping[str, int]
) -> list[InsufficientResource]:
    """The insufficient resources: pods, cpu, memory, ephemeral-storage, then the others by name.

    Follows: v1.36, pkg/scheduler/framework/plugins/noderesources/fit.go, fitsRequest.
    Departs: the others are ordered by name; the kubelet's order is random.
    """
    short = []
    pod_capacity = allocatable.get("pods", 0)
    if others.pods >= pod_capacity:
        short.append(
            InsufficientResource(resource="pods", requested=1, used=others.pods, capacity=pod_capacity)
        )
    requests_in_use = others.requests
    for name, amount in requests.items():
        if amount > 0:
            used, capacity = requests_in_use.get(name, 0), allocatable.get(name, 0)
            left = capacity - used
            if amount > (left if INT64_MIN <= left <= INT64_MAX else wrap_int64(left)):
                short.append(
                    InsufficientResource(resource=name, requested=amount, used=used, capacity=capacity)
                )
    if len(short) > 1:
        short.sort(key=lambda shortage: (_ORDER.get(shortage.resource, len(_ORDER)), shortage.resource))
    return short


def port_conflicts(pod: Pod, others: NodeUsage) -> tuple[PortConflict, ...]:
    """The pod's host ports that are in use; an address conflicts with itself and with 0.0.0.0.

    Follows: v1.36, kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
    """
    if not others.ports:
        return ()
    return tuple(
        PortConflict(
            port=requested.port,
            protocol=requested.protocol,
            host_ip=requested.host_ip,
            holder=holder,
            holder_ip=allocated.host_ip,
        )
        for requested in host_ports(pod, sidecars=others.sidecar_ports)
        for allocated, holder in others.ports
        if _conflict(requested, allocated)
    )


_STRICT = "Strict"
_FITS = PredicateResult(Granted(None))
_FITS_AFTER_REFETCH = PredicateResult(Granted(None), refetched=True)
_EarlyRefusal: TypeAlias = (
    OSLabelMismatch | OSFieldMismatch | SidecarForbidden | SupplementalGroupsPolicyUnsupported
)


def _unresolvable_failure(pod: Pod, node: NodeView, rules: PredicateRules) -> _EarlyRefusal | None:
    """A failure that preemption cannot resolve."""
    label = pod.metadata.labels.get(OS_LABEL)
    # The node's label has been corrected, so the kubelet's operating system counts.
    if label is not None and label != rules.os:
        return OSLabelMismatch(wanted=label, actual=rules.os)
    if pod.spec.os is not None and pod.spec.os.name != rules.os:
        return OSFieldMismatch(wanted=pod.spec.os.name, actual=rules.os)
    if rules.forbids_sidecars:
        sidecar = next((init for init in pod.spec.init_containers if init.is_sidecar), None)
        if sidecar is not None:
            return SidecarForbidden(container=sidecar.name)
    context = pod.spec.security_context
    is_strict = context is not None and context.supplemental_groups_policy == _STRICT
    if is_strict and rules.supplemental_groups_checked and not node.has_supplemental_groups_policy:
        return SupplementalGroupsPolicyUnsupported(policy=_STRICT)
    return None


def _without_claimed_requests(pod: Pod, claimed: frozenset[tuple[str, str]]) -> Pod:
    """The pod without the container requests that a resource claim provides."""

    def without_claimed(container: Container) -> Container:
        requests = {
            name: amount
            for name, amount in container.resources.requests.items()
            if (container.name, name) not in claimed or not _is_claimable(name)
        }
        return replace(container, resources=replace(container.resources, requests=requests))

    spec = replace(
        pod.spec,
        containers=tuple(map(without_claimed, pod.spec.containers)),
        init_containers=tuple(map(without_claimed, pod.spec.init_containers)),
    )
    return replace(pod, spec=spec)


def _is_claimable(resource: str) -> bool:
    return resource.startswith("deviceclass.resource.kubernetes.io/") or is_extended(resource)


def _failures(
    pod: Pod, requests: Mapping[str, int], node: NodeView, others: NodeUsage, rules: PredicateRules
) -> list[PredicateFailure]:
    """The failures of all predicates that the kubelet evaluates together.

    Follows: v1.36, pkg/scheduler/eventhandlers.go, AdmissionCheck; pkg/kubelet/lifecycle/predicate.go,
        generalFilter.
    """
    spec = pod.spec
    failures: list[PredicateFailure] = [*shortages(requests, others, node.allocatable)]
    mismatch = affinity_mismatch(spec, node.name, node.labels)
    if mismatch is not None:
        failures.append(mismatch)
    if spec.node_name and spec.node_name != node.name:
        failures.append(NodeNameMismatch(wanted=spec.node_name, actual=node.name))
    conflicts = port_conflicts(pod, others)
    if conflicts:
        failures.append(HostPortsTaken(conflicts=conflicts))
    if node.taints and not is_static(pod):
        taints = untolerated(
            node.taints, spec.tolerations, ("NoExecute",), comparisons=rules.taint_comparisons
        )
        if taints:
            failures.append(UntoleratedTaints(taints=taints))
    return failures


def _conflict(port: HostPort, other: HostPort) -> bool:
    return (
        port.port == other.port
        and port.protocol == other.protocol
        and (port.host_ip == other.host_ip or ALL_ADDRESSES in (port.host_ip, other.host_ip))
    )
