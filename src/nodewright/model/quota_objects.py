"""The API objects that quotas and limit ranges look at, with the fields that count there."""

import msgspec

from nodewright.model.objects import ObjectMeta, ResourceList, ResourceRequirements


class ScopeTerm(msgspec.Struct, frozen=True, rename="camel"):
    """One expression of a scope selector: a scope, `Exists`, `DoesNotExist`, `In` or `NotIn`, and values."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """Expressions that must all hold."""

    match_expressions: tuple[ScopeTerm, ...] = ()


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What may be used, and by which objects."""

    hard: ResourceList = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def terms(self) -> tuple[ScopeTerm, ...]:
        """All that an object must match: a plain scope stands for its `Exists`.

        Follows: v1.36, apiserver/pkg/quota/v1/generic/evaluator.go, getScopeSelectorsFromQuota.
        """
        plain = tuple(ScopeTerm(scope_name=scope, operator="Exists") for scope in self.scopes)
        return plain + (self.scope_selector.match_expressions if self.scope_selector else ())


class ResourceQuotaStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What is enforced, and what is in use."""

    hard: ResourceList = {}
    used: ResourceList = {}


class ResourceQuota(msgspec.Struct, frozen=True):
    """How much the objects of a namespace may use together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()

    @property
    def name(self) -> str:
        """The quota's name."""
        return self.metadata.name


class LimitedResource(msgspec.Struct, frozen=True, rename="camel"):
    """What nobody may use without a quota for it: an entry of the API server's admission configuration.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota/types.go, LimitedResource.
    """

    resource: str = ""
    api_group: str = ""
    match_contains: tuple[str, ...] = ()
    match_scopes: tuple[ScopeTerm, ...] = ()


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """Bounds and defaults for one type of thing: `Container`, `Pod` or `PersistentVolumeClaim`."""

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
    """How much each object of a namespace may ask for, and what it asks for that says nothing."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class ServicePort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a Service."""

    node_port: int = 0


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a Service takes of the cluster."""

    type: str = ""
    ports: tuple[ServicePort, ...] = ()
    allocate_load_balancer_node_ports: bool | None = None


class Service(msgspec.Struct, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()


class PersistentVolumeClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What storage a claim wants."""

    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None


class ModifyVolumeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A change of a volume's attributes under way."""

    target_volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What storage a claim has."""

    allocated_resources: ResourceList = {}
    current_volume_attributes_class_name: str | None = None
    modify_volume_status: ModifyVolumeStatus | None = None


class PersistentVolumeClaim(msgspec.Struct, frozen=True):
    """A claim to a volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class DeviceAsk(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of a class: exactly `count`, or all that match."""

    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 0


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Devices that a claim wants: one ask, or the first of several that can be had."""

    exactly: DeviceAsk | None = None
    first_available: tuple[DeviceAsk, ...] = ()


class DeviceClaim(msgspec.Struct, frozen=True):
    """All the devices that a claim wants."""

    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True):
    """What a resource claim wants."""

    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(msgspec.Struct, frozen=True):
    """A claim to devices (dynamic resource allocation)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplateSpec(msgspec.Struct, frozen=True):
    """What the claims are like that are made from a template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(msgspec.Struct, frozen=True):
    """A claim to devices that each pod which names it gets of its own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What devices are in a class."""

    extended_resource_name: str = ""


class DeviceClass(msgspec.Struct, frozen=True):
    """A class of devices, of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class CountedObject(msgspec.Struct, frozen=True):
    """An object of which quotas know only that it is there."""

    metadata: ObjectMeta = ObjectMeta()
