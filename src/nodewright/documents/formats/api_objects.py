"""Loads the objects of manifests that create no pods: quotas, limit ranges, claims and all others.

Maps kinds to resources: their plural, and whether they are namespaced.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.claim_versions import as_v1
from nodewright.documents.formats.decode import checked, decode, decoding_fault, without_nulls
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.engine.admission import limit_ranger
from nodewright.engine.admission.quota import evaluator, object_usage
from nodewright.engine.admission.validation.quotas_and_limit_ranges import (
    limit_range_violations,
    quota_violations,
)
from nodewright.engine.admission.validation.violation import Violation, metadata_violations
from nodewright.engine.admission.validation.volumes import template_metadata_violations
from nodewright.model.errors import Fault
from nodewright.model.kubernetes.api_request import CLUSTER_WIDE, APIObject, GroupResource
from nodewright.model.kubernetes.claims import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    Namespace,
    PartialObjectMetadata,
    PersistentVolumeClaim,
    ResourceQuota,
    Service,
)
from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    dns1123_subdomain_errors,
    path_segment_errors,
)
from nodewright.model.kubernetes.objects import ObjectMeta

_CONFIGURATION = frozenset(
    {"apiserver.k8s.io", "audit.k8s.io", "eksctl.io", "kind.x-k8s.io", "kubeadm.k8s.io", "node.eks.aws"}
    | {"nodewright.dev"}
)


def is_configuration_api(api_version: str) -> bool:
    """Whether objects of that version are configuration files of programs, never sent to an API server.

    >>> [is_configuration_api(version) for version in ("kubelet.config.k8s.io/v1beta1", "audit.k8s.io/v1", "v1")]
    [True, True, False]
    """
    group = api_version.rpartition("/")[0]
    return group in _CONFIGURATION or group.endswith(".config.k8s.io")


class RESTMapping(NamedTuple):
    """A resource, and whether its objects are namespaced."""

    resource: GroupResource
    is_namespaced: bool


class RESTMapper(msgspec.Struct, frozen=True):
    """The kinds that are served: those of Kubernetes, and those of CustomResourceDefinitions."""

    custom_resources: dict[tuple[str, str], RESTMapping] = msgspec.field(default_factory=dict)
    """By API group and kind."""

    def rest_mapping(self, api_version: str, kind: str) -> RESTMapping:
        """The resource of that kind; the plural of an unknown kind is guessed, as kubectl does."""
        group = api_version.rpartition("/")[0]
        custom = self.custom_resources.get((group, kind))
        if custom is not None:
            return custom
        is_namespaced = (group, kind) not in CLUSTER_WIDE and not is_configuration_api(api_version)
        return RESTMapping(GroupResource(guessed_plural(kind), group), is_namespaced)


def guessed_plural(kind: str) -> str:
    """The most likely resource name of a kind.

    Follows: v1.36, apimachinery/pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.

    >>> [guessed_plural(kind) for kind in ("Deployment", "Ingress", "NetworkPolicy", "Endpoints")]
    ['deployments', 'ingresses', 'networkpolicies', 'endpoints']
    """
    singular = kind.lower()
    if singular.endswith("endpoints"):
        return singular
    if singular.endswith("s"):
        return f"{singular}es"
    return f"{singular[:-1]}ies" if singular.endswith("y") else f"{singular}s"


class APIKind(NamedTuple):
    """How objects of a kind are read: their schema and type, the API server's defaulting and its validation."""

    type_name: str
    type: type[Any]
    stored: Callable[[Any], Any] = lambda item: item
    violations: Callable[[Any], tuple[Violation, ...]] | None = None
    """None: those in the metadata."""


_CLAIM_GROUP = "resource.k8s.io"
_CLAIM_KINDS = {
    "ResourceClaim": APIKind("DeviceResourceClaim", ResourceClaim, object_usage.claim_with_defaults),
    "ResourceClaimTemplate": APIKind(
        "ResourceClaimTemplate", ResourceClaimTemplate, object_usage.template_with_defaults
    ),
    "ResourceSlice": APIKind("ResourceSlice", ResourceSlice),
    "DeviceClass": APIKind("DeviceClass", DeviceClass),
}
_OTHER_IN_V1BETA1 = ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
API_KINDS = {
    ("v1", "ResourceQuota"): APIKind(
        "ResourceQuota", ResourceQuota, evaluator.quota_as_stored, quota_violations
    ),
    ("v1", "LimitRange"): APIKind(
        "LimitRange", LimitRange, limit_ranger.limit_range_as_stored, limit_range_violations
    ),
    ("v1", "Namespace"): APIKind("Namespace", Namespace),
    ("v1", "Service"): APIKind("Service", Service),
    ("v1", "PersistentVolume"): APIKind("PersistentVolume", PartialObjectMetadata),
    ("v1", "PersistentVolumeClaim"): APIKind("PersistentVolumeClaim", PersistentVolumeClaim),
    **{
        (f"{_CLAIM_GROUP}/{version}", "DeviceTaintRule"): APIKind("DeviceTaintRule", DeviceTaintRule)
        for version in ("v1alpha3", "v1beta2")
    },
    **{
        (f"{_CLAIM_GROUP}/{version}", kind): api_kind
        for version in ("v1beta1", "v1beta2", "v1")
        for kind, api_kind in _CLAIM_KINDS.items()
    },
    **{
        (f"{_CLAIM_GROUP}/v1beta1", kind): _CLAIM_KINDS[kind]._replace(
            type_name=f"{_CLAIM_KINDS[kind].type_name}V1beta1"
        )
        for kind in _OTHER_IN_V1BETA1
    },
}
"""The last version of a kind is the one that is named where another one is asked for."""
_VERSIONS = {(version.rpartition("/")[0], kind): version for version, kind in API_KINDS}
_ANY_KIND = APIKind("AnyObject", PartialObjectMetadata)
_NAME_ERRORS: dict[tuple[str, str], Callable[[str], Sequence[str]]] = {
    ("", "Namespace"): dns1123_label_errors,
    ("", "Service"): dns1123_label_errors,
    ("rbac.authorization.k8s.io", ""): path_segment_errors,  # e.g. system:node
}
"""The rules of groups and kinds for names; other names are DNS subdomains."""
_KEEP_GENERATION = frozenset(
    {"", "autoscaling", "certificates.k8s.io", "coordination.k8s.io", "node.k8s.io"}
    | {"rbac.authorization.k8s.io", "storage.k8s.io"}
)
_WITH_KNOWN_FINALIZERS = _KEEP_GENERATION - {"coordination.k8s.io", "node.k8s.io"} | {
    "apps", "batch", "discovery.k8s.io", "flowcontrol.apiserver.k8s.io", "networking.k8s.io", "resource.k8s.io",
    "scheduling.k8s.io",
}  # fmt: skip
"""The groups whose validation is that of the core; of others finalizers may have any qualified name."""
_CUSTOM_RESOURCE_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")


class LoadedObject(NamedTuple):
    """A loaded object: the object itself, or its index among the workloads."""

    value: dict[str, Any]
    location: ObjectLocation
    item: APIObject | int


MAX_POLICIES = 100
"""LimitRanges, and ResourceQuotas, of a namespace."""


@dataclass(slots=True)
class OtherObjects:
    """Collects all objects of manifests in order, besides the workloads that `manifests` loads."""

    objects: list["LoadedObject"] = field(default_factory=list)
    custom_resources: dict[tuple[str, str], RESTMapping] = field(default_factory=dict)
    """The resources of CustomResourceDefinitions, by API group and kind."""

    def crowded_namespaces(self, default: str) -> list[Fault]:
        """The faults of namespaces with so many policies that to compare each pod with each takes very long."""
        counts = Counter(
            (type(loaded.item).__name__, loaded.item.metadata.namespace or default)
            for loaded in self.objects
            if isinstance(loaded.item, LimitRange | ResourceQuota)
        )
        return [
            Fault(rule=f"namespace {namespace} has {count} {kind}s; the limit is {MAX_POLICIES}")
            for (kind, namespace), count in counts.items()
            if count > MAX_POLICIES
        ]

    def add(self, value: dict[str, Any], location: ObjectLocation) -> list[Fault | Violation]:
        """Adds an object of another kind; returns its faults."""
        version, kind = value["apiVersion"], value["kind"]
        group = version.rpartition("/")[0]
        served = _VERSIONS.get((group, kind), version)
        if (version, kind) not in API_KINDS and version != served:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {served}'
            return [Fault(rule=rule, path="apiVersion")]
        if is_configuration_api(version):
            self.objects.append(LoadedObject(value, location, PartialObjectMetadata()))
            return []
        api_kind = API_KINDS.get((version, kind), _ANY_KIND)
        is_custom = (group, kind) == _CUSTOM_RESOURCE_DEFINITION
        check = checked(value, kind if is_custom else api_kind.type_name)
        valid_value = check.valid_part()
        # What is decoded and judged of an object of Dynamic Resource Allocation has the fields of v1.
        document = as_v1(without_nulls(valid_value)) if group == _CLAIM_GROUP else valid_value
        try:
            decoded = decode(_without_status(document, api_kind), api_kind.type)
        except msgspec.ValidationError as error:  # In the status, which the schema leaves open.
            return [*check.faults, decoding_fault(error)]
        item = api_kind.stored(decoded)
        self.objects.append(LoadedObject(valid_value, location, item))
        if is_custom and not check.faults and valid_value.get("spec"):
            self._define(valid_value["spec"])
        check_item = api_kind.violations
        violations = list(check_item(item) if check_item else _violations(item, valid_value, group))
        if group == _CLAIM_GROUP and (version, kind) in API_KINDS:
            from nodewright.engine.admission.validation.device_objects import (  # noqa: PLC0415 - start-up time
                device_object_violations,
            )

            violations += device_object_violations(document, decode)
        return [*check.faults, *violations]

    def add_loaded(self, value: dict[str, Any], location: ObjectLocation, item: APIObject | int) -> None:
        """Adds an object that `manifests` has loaded: the object itself, or its index among the workloads."""
        self.objects.append(LoadedObject(value, location, item))

    def _define(self, spec: dict[str, Any]) -> None:
        group, names = spec["group"], spec["names"]
        resource = GroupResource(names["plural"], group)
        self.custom_resources[group, names["kind"]] = RESTMapping(resource, spec["scope"] != "Cluster")


def _violations(item: APIObject, value: Mapping[str, Any], group: str) -> Iterator[Violation]:
    """The violations in the metadata of an object, and in that of the claims which it is a template of."""
    kind = value["kind"]
    name_errors = _NAME_ERRORS.get((group, kind)) or _NAME_ERRORS.get((group, "")) or dns1123_subdomain_errors
    yield from metadata_violations(
        item.metadata,
        name_errors=name_errors,
        keeps_generation=group in _KEEP_GENERATION or kind.startswith("ResourceClaim"),
        names_finalizers_freely=group not in _WITH_KNOWN_FINALIZERS,
    )
    if isinstance(item, ResourceClaimTemplate):
        yield from template_metadata_violations(
            (value.get("spec") or {}).get("metadata") or {}, "spec.metadata"
        )


def with_namespace(item: APIObject, namespace: str) -> APIObject:
    """The object with the namespace; empty for cluster-scoped objects."""
    if item.metadata.namespace == namespace:
        return item
    assert isinstance(item, msgspec.Struct)
    meta: ObjectMeta = replace(item.metadata, namespace=namespace)
    namespaced: APIObject = replace(item, metadata=meta)
    return namespaced


def _without_status(value: Mapping[str, Any], api_kind: APIKind) -> Mapping[str, Any]:
    """A new object without status, which a stored one keeps.

    That of a quota holds the usage, that of a namespace its end, that of a claim its devices.
    """
    if api_kind.type in (ResourceQuota, Namespace, ResourceClaim) or (value.get("metadata") or {}).get("uid"):
        return value
    return {key: item for key, item in value.items() if key != "status"}
