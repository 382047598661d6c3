"""The API objects that we read, with the fields that decisions look at.

Decoded by msgspec straight from JSON-like documents from which nulls were taken out (null means
absent in Kubernetes); a field that is None here was absent where absence makes a difference.
"""

from typing import Any, TypeAlias

import msgspec

from nodewright.model.pod_settings import DNSConfig, HostAlias, PodSecurityContext
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity

ResourceList: TypeAlias = dict[str, Quantity]
"""Amounts by resource name. Never changed in place, though the type could be."""


USUAL_GRACE_PERIOD_S = 30
"""How long a pod has to end that does not say so itself: the API server's default."""


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    resource_version: str = ""
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: int | None = None


class ResourceRequirements(msgspec.Struct, frozen=True, rename="camel"):
    """Requests and limits of a container or, at the pod level, of a pod."""

    requests: ResourceList = {}
    limits: ResourceList = {}
    claims: tuple[dict[str, Any], ...] = ()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a container."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""
    name: str = ""


class EnvVar(msgspec.Struct, frozen=True, rename="camel"):
    """An environment variable."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class ContainerResizePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Whether a container has to start again where a resource of it is resized."""

    resource_name: str = ""
    restart_policy: str = ""


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
        """Whether this init container keeps running beside the main containers."""
        return self.restart_policy == "Always"


class Toleration(msgspec.Struct, frozen=True, rename="camel"):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SelectorRequirement(msgspec.Struct, frozen=True, rename="camel"):
    """One expression over a label or field."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    """Expressions that must all hold; an empty term holds nowhere."""

    match_expressions: tuple[SelectorRequirement, ...] = ()
    match_fields: tuple[SelectorRequirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod wants of its node's labels."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[dict[str, Any], ...] = ()


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's wishes for its place."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodOS(msgspec.Struct, frozen=True):
    """The operating system that a pod is made for."""

    name: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a pod is to be."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: ResourceList = {}
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
    dns_config: DNSConfig | None = None
    host_users: bool | None = None
    os: PodOS | None = None
    security_context: PodSecurityContext | None = None
    runtime_class_name: str | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    image_pull_secrets: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    """Why a container does not run yet, or not again."""

    reason: str = ""
    message: str = ""


class Running(msgspec.Struct, frozen=True, rename="camel"):
    """Since when a container runs."""

    started_at: Instant | None = None


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: Instant | None = None
    finished_at: Instant | None = None
    container_id: str = msgspec.field(default="", name="containerID")


class ContainerState(msgspec.Struct, frozen=True, rename="camel"):
    """How a container is: one of these, or nothing that is known."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a container. `resources` is what it really has, `allocated_resources` what it was given."""

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
    allocated_resources: ResourceList = {}


class PodCondition(msgspec.Struct, frozen=True, rename="camel"):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a resource claim takes of the node's own resources."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}


class ExtendedResourceMapping(msgspec.Struct, frozen=True, rename="camel"):
    """A container's extended resource that a resource claim provides in place of a device plugin."""

    container_name: str = ""
    resource_name: str = ""


class ExtendedResourceClaim(msgspec.Struct, frozen=True, rename="camel"):
    """The resource claim that was made for a pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceMapping, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    qos_class: str = ""
    start_time: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    node_allocatable_resource_claim_statuses: tuple[ClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def uid(self) -> str:
        """The uid that tells pods apart."""
        return self.metadata.uid

    @property
    def has_ended(self) -> bool:
        """Whether its containers have stopped for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def full_name(self) -> str:
        """Namespace and name, as kubectl prints them."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A name for a priority of pods."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Overhead(msgspec.Struct, frozen=True, rename="camel"):
    """What running a pod takes besides its containers."""

    pod_fixed: ResourceList = {}


class RuntimeScheduling(msgspec.Struct, frozen=True, rename="camel"):
    """Which nodes can run the pods of a RuntimeClass."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(msgspec.Struct, frozen=True, rename="camel"):
    """A way to run pods, e.g. in virtual machines: what it takes, and where it can be had."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    """What the container runtime calls it."""
    overhead: Overhead = Overhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class Taint(msgspec.Struct, frozen=True, rename="camel"):
    """A mark on a node that keeps pods away."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a node is to be."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeFeatures(msgspec.Struct, frozen=True, rename="camel"):
    """What a node's runtime can do."""

    supplemental_groups_policy: bool = False


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a node has."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    features: NodeFeatures | None = None


class Node(msgspec.Struct, frozen=True):
    """A Kubernetes node object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
