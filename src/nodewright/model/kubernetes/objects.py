"""The API objects, with the fields that decisions depend on; whether a toleration covers a taint, or another toleration.

msgspec decodes them from documents without nulls; None was absent, where absence makes a difference.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast
from weakref import ref

import msgspec

from nodewright.model.kubernetes.pod_spec_fields import (
    ContainerPort,
    ContainerResizePolicy,
    EnvVar,
    HostAlias,
    PodDNSConfig,
    PodOS,
    PodSecurityContext,
)
from nodewright.model.patterns import lazy_pattern
from nodewright.model.values.golang import saturated_int
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity, fits_int64

ResourceList: TypeAlias = dict[str, Quantity]
"""Amounts by resource name. Never changed in place, though the type allows it."""

DEFAULT_GRACE_PERIOD_S = 30
"""The API server's default of `terminationGracePeriodSeconds`."""

_DECIMAL = lazy_pattern(r"0|-?[1-9][0-9]*", re.ASCII)
_INTEGER = lazy_pattern(r"[+-]?[0-9]{1,4000}", re.ASCII)


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to the owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    resource_version: str = ""
    generation: int = 0
    """Which version of the spec it is; 0: the object is not from an API server."""
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: int | None = None


NOT_SET: ResourceList = {}
"""The amounts of a field that is absent; an empty list is equal to it, and another object."""


def _not_set() -> ResourceList:
    return NOT_SET


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Requests and limits of a container or, at the pod level, of a pod."""

    requests: ResourceList = msgspec.field(default_factory=_not_set)
    limits: ResourceList = msgspec.field(default_factory=_not_set)
    claims: tuple[dict[str, Any], ...] = ()


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container. `restart_policy` Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[dict[str, Any], ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[dict[str, Any], ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    volume_mounts: tuple[dict[str, Any], ...] = ()
    volume_devices: tuple[dict[str, Any], ...] = ()
    lifecycle: dict[str, Any] | None = None
    liveness_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    startup_probe: dict[str, Any] | None = None
    security_context: dict[str, Any] | None = None
    termination_message_path: str = ""
    termination_message_policy: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False

    @property
    def is_sidecar(self) -> bool:
        """Whether this init container keeps running beside the regular containers."""
        return self.restart_policy == "Always"


class EphemeralContainer(Container, frozen=True, rename="camel"):
    """A container that is added to a running pod, to look into it."""

    target_container_name: str = ""


class Toleration(msgspec.Struct, frozen=True, rename="camel"):
    """A taint that a pod tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class NodeSelectorRequirement(msgspec.Struct, frozen=True, rename="camel"):
    """One expression on a label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a valid expression holds.

        Follows: v1.36, apimachinery/pkg/labels/selector.go, Requirement.Matches.
        """
        actual = labels.get(self.key)
        match self.operator:
            case "In":
                return actual in self.values
            case "NotIn":
                return actual not in self.values
            case "Exists":
                return actual is not None
            case "DoesNotExist":
                return actual is None
            case _:
                number, limit = self.integer(actual or ""), self.integer(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator == "Gt" else number < limit

    @staticmethod
    def integer(text: str) -> int | None:
        """The number as Go parses it into 64 bits; None if it cannot."""
        if _INTEGER.fullmatch(text) is None:
            return None
        number = int(text)
        return number if fits_int64(number) else None


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Expressions that must all match; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Terms, one of which must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """Required and preferred labels of a pod's node."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[dict[str, Any], ...] = ()


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's affinity to nodes and to other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel", weakref=True):
    """The desired state of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[EphemeralContainer, ...] = ()
    overhead: ResourceList | None = None
    """What running the pod uses besides its containers; empty is not the same as absent to the API server."""
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    host_network: bool = False
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    share_process_namespace: bool = False
    hostname: str = ""
    hostname_override: str | None = None
    subdomain: str = ""
    set_hostname_as_fqdn: bool = msgspec.field(default=False, name="setHostnameAsFQDN")
    host_aliases: tuple[HostAlias, ...] = ()
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    host_users: bool | None = None
    os: PodOS | None = None
    security_context: PodSecurityContext | None = None
    runtime_class_name: str | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    service_account: str = ""
    """The deprecated name of `service_account_name`, which wins where both are set."""
    enable_service_links: bool | None = None
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    readiness_gates: tuple[dict[str, Any], ...] = ()
    scheduling_gates: tuple[dict[str, Any], ...] = ()

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """The init, regular and ephemeral containers."""
        return (*self.init_containers, *self.containers, *self.ephemeral_containers)


class ContainerStateWaiting(msgspec.Struct, frozen=True, rename="camel"):
    """Why a container is not running yet, or is not restarted yet."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(msgspec.Struct, frozen=True, rename="camel"):
    """When a container started."""

    started_at: Instant | None = None


class ContainerStateTerminated(msgspec.Struct, frozen=True, rename="camel"):
    """How a container terminated."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    """The state of a container: one of the three, or unknown."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The observed state of a container. `resources` are actuated, `allocated_resources` are admitted."""

    name: str = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    restart_count: int = 0
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    started: bool | None = None
    container_id: str = msgspec.field(default="", name="containerID")
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = msgspec.field(default_factory=_not_set)


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class NodeAllocatableMapping(msgspec.Struct, frozen=True, rename="camel"):
    """A node resource that the devices of a claim stand for."""

    name: str = ""
    quantity: Quantity | None = None


class NodeAllocatableOverhead(msgspec.Struct, frozen=True, rename="camel"):
    """A node resource that a claim needs beside its devices: once, and once more for each container."""

    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a resource claim uses of the node's own resources."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}
    """Up to 1.36; then the next two."""
    mapping: tuple[NodeAllocatableMapping, ...] = ()
    overhead: tuple[NodeAllocatableOverhead, ...] = ()


class ContainerExtendedResourceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """A container's extended resource that a resource claim provides instead of a device plugin."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""
    """The claim's request for it."""


class PodExtendedResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The resource claim that was created for a pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class PodResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The claim that was created for an entry of a pod's claims; without a name, none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(msgspec.Struct, frozen=True, rename="camel", weakref=True):
    """The observed state of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    qos_class: str = ""
    start_time: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[dict[str, str], ...] = msgspec.field(default=(), name="podIPs")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resize: str = ""
    """The state of a resize, as kubelets up to 1.32 report it."""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = msgspec.field(default_factory=_not_set)
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> str:
        """The unique id of the pod."""
        return self.metadata.uid

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has succeeded or failed, so that its containers never restart."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def full_name(self) -> str:
        """Namespace and name, as kubectl prints them."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    def __repr__(self) -> str:
        names = ", ".join(container.name for container in self.spec.containers)
        return f"<Pod {self.full_name}: {names}>"


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    """A mark on a node that repels pods without a matching toleration."""

    key: str = ""
    """The key that tolerations name."""
    value: str = ""
    """The value that tolerations name."""
    effect: str = ""
    """`NoSchedule`, `PreferNoSchedule` or `NoExecute`."""
    time_added: str | None = None
    """When it was added; not read."""


def tolerates(toleration: Toleration, taint: Taint, *, comparisons: bool = False) -> bool:
    """Whether the toleration covers the taint.

    Follows: v1.36, api/core/v1/toleration.go, ToleratesTaint. ``comparisons`` is the gate
        TaintTolerationComparisonOperators; without it Lt and Gt cover nothing.

    >>> tolerates(Toleration(operator="Exists"), Taint(key="maintenance", effect="NoExecute"))
    True
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Lt" | "Gt":
            return comparisons and _compares(toleration.operator, taint.value, toleration.value)
        case _:
            return False


UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
"""The taint of a cordoned node."""
CORDON = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


def with_cordon(taints: Iterable[Taint], *, is_unschedulable: bool) -> tuple[Taint, ...]:
    """The taints of a Node with the one that its `spec.unschedulable` stands for.

    Follows: v1.36, pkg/controller/nodelifecycle/node_lifecycle_controller.go, doNoScheduleTaintingPass.
    """
    kept = [
        taint
        for taint in taints
        if not is_unschedulable or (taint.key, taint.effect) != (CORDON.key, CORDON.effect)
    ]
    return (*kept, CORDON) if is_unschedulable else tuple(kept)


TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
"""The effects of taints that keep the scheduler from binding pods."""


def untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Sequence[str] = REPELLING_EFFECTS,
    *,
    comparisons: bool = False,
) -> tuple[Taint, ...]:
    """The taints with these effects that no toleration covers.

    Follows: v1.36, component-helpers/scheduling/corev1/helpers.go, FindMatchingUntoleratedTaint.

    >>> untolerated((Taint(key="spot", effect="NoSchedule"),), (Toleration(operator="Exists"),))
    ()
    """
    return tuple(
        taint
        for taint in taints
        if taint.effect in effects
        and not any(tolerates(toleration, taint, comparisons=comparisons) for toleration in tolerations)
    )


def merged_tolerations(first: Sequence[Toleration], second: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Both lists as one, without tolerations that others cover.

    Follows: v1.36, pkg/util/tolerations/tolerations.go, MergeTolerations.

    >>> any_taint, spot = Toleration(operator="Exists"), Toleration(key="spot", operator="Exists")
    >>> merged_tolerations((spot,), (any_taint,)) == (any_taint,)
    True
    """
    all_tolerations, merged = (*first, *second), list[Toleration]()
    for index, toleration in enumerate(all_tolerations):
        later = (other for other in all_tolerations[index + 1 :] if other != toleration)
        if not any(_covers(other, toleration) for other in (*merged, *later)):
            merged.append(toleration)
    return tuple(merged)


def _compares(operator: str, taint_value: str, toleration_value: str) -> bool:
    if _DECIMAL.fullmatch(taint_value) is None or _DECIMAL.fullmatch(toleration_value) is None:
        return False
    left, right = saturated_int(taint_value), saturated_int(toleration_value)
    if not (fits_int64(left) and fits_int64(right)):
        return False
    return left < right if operator == "Lt" else left > right


def _covers(wide: Toleration, narrow: Toleration) -> bool:
    """Whether the one toleration covers all taints of the other.

    Follows: v1.36, pkg/util/tolerations/tolerations.go, isSuperset: an `Equal` that is only implied is covered by
        nothing but an equal toleration.
    """
    if wide == narrow:
        return True
    if narrow.key != wide.key and (wide.key or wide.operator != "Exists"):
        return False
    if wide.effect not in ("", narrow.effect):
        return False
    if wide.effect == "NoExecute" and wide.toleration_seconds is not None:
        seconds = narrow.toleration_seconds
        if seconds is None or seconds > wide.toleration_seconds:
            return False
    if wide.operator in ("", "Equal"):
        return narrow.operator == "Equal" and narrow.value == wide.value
    return wide.operator == "Exists"


R = TypeVar("R")
Variant = ParamSpec("Variant")

_CACHE_SIZE = 4096
"""The number of cached pairs of spec and status."""
_DEFAULT = object()
"""In place of an argument that is not given."""


def cached_by_spec(
    function: Callable[Concatenate[Pod, Variant], R],
) -> Callable[Concatenate[Pod, Variant], R]:
    """Caches a function by the pod's spec and status and one more, hashable argument; its results are immutable.

    It must depend on nothing else. The key is the identity of both objects, because comparing them would cost more than most results.
    A result is kept no longer than the spec, and no more than `_CACHE_SIZE` are.

    >>> calls = []
    >>> count = cached_by_spec(lambda pod: calls.append(pod) or len(pod.spec.containers))
    >>> first = Pod(metadata=ObjectMeta(name="first"))
    >>> second = Pod(metadata=ObjectMeta(name="second"), spec=first.spec, status=first.status)
    >>> count(first), count(second), len(calls)
    (0, 0, 1)
    """
    cache: dict[tuple[Hashable, ...], tuple[ref[PodSpec], ref[PodStatus], R]] = {}
    call: Callable[..., R] = function

    @wraps(function)
    def cached(pod: Pod, variant: Hashable = _DEFAULT) -> R:
        spec, status = pod.spec, pod.status
        key = (id(spec), id(status), variant)
        entry = cache.get(key)
        # An id may be that of an object which is gone.
        if entry is None or entry[0]() is not spec or entry[1]() is not status:
            if len(cache) >= _CACHE_SIZE:
                cache.clear()
            result = call(pod) if variant is _DEFAULT else call(pod, variant)
            entry = cache[key] = (ref(spec, lambda _: cache.pop(key, None)), ref(status), result)
        return entry[2]

    return cast("Callable[Concatenate[Pod, Variant], R]", cached)
