"""The objects of manifests that make no pods: those that quotas, limit ranges and claims are made of, and all others."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.core import limits
from nodewright.core.quota import devices, used
from nodewright.core.validation import (
    Violation,
    limit_range_violations,
    metadata_violations,
    quota_violations,
)
from nodewright.model.api_request import APIObject, GroupResource
from nodewright.model.objects import ObjectMeta
from nodewright.model.quota_objects import (
    CountedObject,
    DeviceClass,
    LimitRange,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    Service,
)
from nodewright.world.decode import decode
from nodewright.world.errors import Fault
from nodewright.world.kinds import Served, is_configuration
from nodewright.world.places import Place
from nodewright.world.schema import checked


class Reading(NamedTuple):
    """How a kind is read: its fields by name, its type, what the API server makes of it and has against it."""

    fields: str
    type: type[Any]
    stored: Callable[[Any], Any] = lambda one: one
    violations: Callable[[Any], tuple[Violation, ...]] = lambda one: tuple(metadata_violations(one.metadata))


READINGS = {
    ("v1", "ResourceQuota"): Reading("ResourceQuota", ResourceQuota, used.stored, quota_violations),
    ("v1", "LimitRange"): Reading("LimitRange", LimitRange, limits.stored, limit_range_violations),
    ("v1", "Service"): Reading("Service", Service),
    ("v1", "PersistentVolumeClaim"): Reading("PersistentVolumeClaim", PersistentVolumeClaim),
    ("resource.k8s.io/v1", "ResourceClaim"): Reading(
        "DeviceResourceClaim", ResourceClaim, devices.with_defaults
    ),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): Reading("ResourceClaimTemplate", ResourceClaimTemplate),
    ("resource.k8s.io/v1", "DeviceClass"): Reading("DeviceClass", DeviceClass),
}
_VERSIONS = {(version.rpartition("/")[0], kind): version for version, kind in READINGS}
_ANY = Reading("AnyObject", CountedObject)
_NAMED_FREELY = ("rbac.authorization.k8s.io",)  # system:node and the like
_CUSTOM = ("apiextensions.k8s.io", "CustomResourceDefinition")


class Taken(NamedTuple):
    """An object as it was taken in: itself, or the number of the workload that it is."""

    value: dict[str, Any]
    place: Place
    item: APIObject | int


@dataclass(slots=True)
class Others:
    """What there is in manifests besides the workloads that `manifests` looks for: gathered in order."""

    taken: list["Taken"] = field(default_factory=list)
    custom: dict[tuple[str, str], Served] = field(default_factory=dict)
    """What CustomResourceDefinitions bring, by API group and kind."""

    def take(self, value: dict[str, Any], place: Place) -> list[Fault | Violation]:
        """Take in an object of another kind; what is wrong with it."""
        version, kind = value["apiVersion"], value["kind"]
        group = version.rpartition("/")[0]
        served = _VERSIONS.get((group, kind), version)
        if version != served:
            rule = f'no matches for kind "{kind}" in version "{version}"; Kubernetes serves {served}'
            return [Fault(rule=rule, path="apiVersion")]
        if is_configuration(version):
            self.taken.append(Taken(value, place, CountedObject()))
            return []
        reading = READINGS.get((version, kind), _ANY)
        is_custom = (group, kind) == _CUSTOM
        check = checked(value, kind if is_custom else reading.fields)
        sound = check.sound_part()
        item = reading.stored(decode(_without_status(sound, reading), reading.type))
        self.taken.append(Taken(value, place, item))
        if is_custom and not check.faults and sound.get("spec"):
            self._define(sound["spec"])
        return [*check.faults, *(reading.violations(item) if group not in _NAMED_FREELY else ())]

    def _define(self, spec: dict[str, Any]) -> None:
        group, names = spec["group"], spec["names"]
        resource = GroupResource(names["plural"], group)
        self.custom[group, names["kind"]] = Served(resource, spec["scope"] != "Cluster")


def placed(item: APIObject, namespace: str) -> APIObject:
    """The object in the namespace; empty: in none."""
    assert isinstance(item, msgspec.Struct)
    meta: ObjectMeta = replace(item.metadata, namespace=namespace)
    placed_one: APIObject = replace(item, metadata=meta)
    return placed_one


def _without_status(value: dict[str, Any], reading: Reading) -> dict[str, Any]:
    """The object as new: nobody creates a status. What is in use of a quota is told in its status, though."""
    if reading.type is ResourceQuota:
        return value
    return {key: item for key, item in value.items() if key != "status"}
