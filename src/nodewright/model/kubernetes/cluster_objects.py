"""Objects of the cluster that take part in decisions.

Without a namespace: nodes, PriorityClasses and RuntimeClasses. With one: those that quotas and limit ranges apply to,
ConfigMaps and Secrets.
"""

import msgspec

from nodewright.model.kubernetes.objects import (
    ObjectMeta,
    ResourceList,
    ResourceRequirements,
    Taint,
    Toleration,
)


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """A name for a priority of pods."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class Overhead(msgspec.Struct, frozen=True, rename="camel"):
    """What running a pod uses besides its containers."""

    pod_fixed: ResourceList = {}


class RuntimeScheduling(msgspec.Struct, frozen=True, rename="camel"):
    """Which nodes can run the pods of a RuntimeClass."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(msgspec.Struct, frozen=True, rename="camel"):
    """A way to run pods, e.g. in virtual machines: its overhead and its nodes."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""
    """The container runtime's name for it."""
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling = RuntimeScheduling()


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The desired state of a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeFeatures(msgspec.Struct, frozen=True, rename="camel"):
    """Features of a node's runtime."""

    supplemental_groups_policy: bool = False


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The observed state of a node."""

    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    features: NodeFeatures | None = None


class APINode(msgspec.Struct, frozen=True):
    """A Kubernetes node object."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ScopeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """One expression of a scope selector: a scope, `Exists`, `DoesNotExist`, `In` or `NotIn`, and values."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Expressions that must all match."""

    match_expressions: tuple[ScopeTerm, ...] = ()


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The limits of a quota, and which objects it applies to."""

    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def terms(self) -> tuple[ScopeTerm, ...]:
        """All terms that an object must match: a plain scope means `Exists`.

        Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, getScopeSelectorsFromQuota.
        """
        plain = tuple(ScopeTerm(scope_name=scope, operator="Exists") for scope in self.scopes)
        return plain + (self.scope_selector.match_expressions if self.scope_selector else ())


class ResourceQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The enforced limits and the usage."""

    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(msgspec.Struct, frozen=True):
    """A limit on what the objects of a namespace use together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def name(self) -> str:
        """The quota's name."""
        return self.metadata.name


class LimitedResource(msgspec.Struct, frozen=True, rename="camel"):
    """A resource that requires a quota: an entry of the API server's admission configuration.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/types.go, LimitedResource.
    """

    resource: str = ""
    api_group: str = ""
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[ScopeTerm, ...] = ()


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """Bounds and defaults for one type of object: `Container`, `Pod` or `PersistentVolumeClaim`."""

    type: str = ""
    max: ResourceList = {}
    min: ResourceList = {}
    default: ResourceList = {}
    default_request: ResourceList = {}
    max_limit_request_ratio: ResourceList = {}


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """The items of a limit range."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(msgspec.Struct, frozen=True):
    """Bounds and defaults for the requests and limits of each object of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ServicePort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    protocol: str = ""
    node_port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Service that quotas count and pods see."""

    type: str = ""
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ports: tuple[ServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None


class Service(msgspec.Struct, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class PersistentVolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The storage that a claim requests."""

    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pending change of a volume's attributes."""

    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The storage that a claim has."""

    allocated_resources: ResourceList = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(msgspec.Struct, frozen=True):
    """A claim for a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ExactDeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of a class: exactly `count`, or all that match."""

    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 0


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """The devices of a claim: one request, or the first available of several."""

    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] = ()


class DeviceClaim(msgspec.Struct, frozen=True):
    """All the device requests of a claim."""

    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True):
    """The spec of a resource claim."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(msgspec.Struct, frozen=True):
    """A claim for devices (dynamic resource allocation)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplateSpec(msgspec.Struct, frozen=True):
    """The metadata and spec of claims that are created from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(msgspec.Struct, frozen=True):
    """A template from which each pod that names it gets its own claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The spec of a device class."""

    extended_resource_name: str = ""


class DeviceClass(msgspec.Struct, frozen=True):
    """A cluster-wide class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class NamespaceStatus(msgspec.Struct, frozen=True):
    """The part of a namespace's status that decisions depend on."""

    phase: str = ""


class Namespace(msgspec.Struct, frozen=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()

    @property
    def is_terminating(self) -> bool:
        """Whether nothing new is created in it."""
        return self.status.phase == "Terminating"


class PartialObjectMetadata(msgspec.Struct, frozen=True):
    """An object that quotas only count."""

    metadata: ObjectMeta = ObjectMeta()


class ConfigMap(msgspec.Struct, frozen=True, rename="camel"):
    """Text and binary data for pods, by key."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}
    immutable: bool | None = None


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """Confidential data for pods, by key. `string_data` is unencoded input."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes] = {}
    string_data: dict[str, str] = {}
    immutable: bool | None = None

    @property
    def content(self) -> dict[str, bytes]:
        """All the data, as the API server stores it."""
        return {**self.data, **{key: value.encode() for key, value in self.string_data.items()}}
