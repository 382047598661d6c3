"""Objects of Dynamic Resource Allocation from documents of any version of their API."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode, decode_json, decoding_fault
from nodewright.engine.admission.quota.object_usage import claim_with_defaults, template_with_defaults
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.model.errors import JSON_ERRORS, InputError
from nodewright.model.kubernetes.claims import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

T = TypeVar("T")
_BEFORE_V1 = "resource.k8s.io/v1beta1"
"""The version with other fields than v1."""
_NAMED_BESIDE_EXACTLY = frozenset({"name", "exactly", "firstAvailable"})


def claim_cluster(objects: Iterable[Any], namespace: str) -> ClaimCluster | None:
    """What the objects have of Dynamic Resource Allocation; None: nothing.

    ``namespace``: of claims and templates that name none.
    """
    by_kind: dict[type, list[Any]] = {kind: [] for kind in _KINDS}
    for item in objects:
        kind = type(item)
        if kind in (ResourceClaim, ResourceClaimTemplate) and not item.metadata.namespace:
            metadata = replace(item.metadata, namespace=namespace)
            by_kind[kind].append(replace(item, metadata=metadata))
        elif kind in by_kind:
            by_kind[kind].append(item)
    if not any(by_kind.values()):
        return None
    members = {_KINDS[kind]: tuple(items) for kind, items in by_kind.items()}
    return ClaimCluster(**members, is_whole=False)


_WITH_DEFAULTS: dict[type, Callable[[Any], Any]] = {
    ResourceClaim: claim_with_defaults,
    ResourceClaimTemplate: template_with_defaults,
}


class _Kind(msgspec.Struct, rename="camel"):
    api_version: str
    kind: Literal["ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule"]


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


def stored_claims(lists: Mapping[str, bytes]) -> ClaimCluster | None:
    """What an API server has of Dynamic Resource Allocation, by source its objects as a `List`; None: nothing.

    It judged them when it stored them, by the rules of its own release: they are decoded, and get defaults of later ones.
    Errors: InputError for an object that cannot be decoded.
    """
    kinds = {kind.__name__: kind for kind in _KINDS}
    objects = list[Any]()
    for source, content in lists.items():
        for index, item in enumerate(decode_json(content, _Items).items):
            try:
                named = decode_json(item, _Kind)
                kind, is_v1 = kinds[named.kind], named.api_version != _BEFORE_V1
                decoded: Any = (
                    decode_json(item, kind) if is_v1 else decode_claim_object(msgspec.json.decode(item), kind)
                )
                with_defaults = _WITH_DEFAULTS.get(kind)
                objects.append(decoded if with_defaults is None else with_defaults(decoded))
            except (
                *JSON_ERRORS,
                TypeError,
                AttributeError,
            ) as error:  # v1beta1 is converted before it is decoded
                fault = decoding_fault(error)
                raise InputError(
                    [replace(fault, source=source, path=f"items[{index}].{fault.path}")]
                ) from None
    return claim_cluster(objects, "")


def joined_claims(given: ClaimCluster | None, stored: ClaimCluster | None) -> ClaimCluster | None:
    """Both together: an object that is given takes the place of the stored one of its name."""
    if given is None or stored is None:
        return given or stored
    members = {}
    for name in _KINDS.values():
        items = (*getattr(stored, name), *getattr(given, name))
        members[name] = tuple(
            {(each.metadata.namespace, each.metadata.name): each for each in items}.values()
        )
    return ClaimCluster(**members, is_whole=given.is_whole and stored.is_whole)


_KINDS: dict[type, str] = {
    ResourceSlice: "slices",
    DeviceClass: "classes",
    ResourceClaim: "claims",
    ResourceClaimTemplate: "templates",
    DeviceTaintRule: "taint_rules",
}


def decode_claim_object(document: Mapping[str, Any], kind: type[T]) -> T:
    """The document as an object of the kind; v1beta1 and v1beta2 are converted to v1.

    Errors: msgspec.ValidationError at the first fault.
    """
    return decode(as_v1(document), kind)


def as_v1(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the fields of v1.

    Follows: v1.36, pkg/apis/resource/v1beta1/conversion.go; v1beta2 has the fields of v1.
    """
    if document.get("apiVersion") != _BEFORE_V1:
        return document
    spec = document.get("spec") or {}
    if document.get("kind") == "ResourceSlice":
        spec = _changed(spec, "devices", _device)
    elif document.get("kind") == "ResourceClaim":
        spec = _claim_spec(spec)
    elif document.get("kind") == "ResourceClaimTemplate":
        spec = {**spec, "spec": _claim_spec(spec.get("spec") or {})}
    return {**document, "spec": spec}


def _claim_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {**spec, "devices": _changed(spec.get("devices") or {}, "requests", _request)}


def _changed(holder: Mapping[str, Any], name: str, convert: Any) -> dict[str, Any]:
    items = holder.get(name)
    return {**holder, name: list(map(convert, items))} if isinstance(items, list) else dict(holder)


def _device(device: Any) -> Any:
    """A device has its fields in `basic`."""
    if not isinstance(device, dict) or not isinstance(device.get("basic"), dict):
        return device
    return {**device["basic"], **{name: value for name, value in device.items() if name != "basic"}}


def _request(request: Any) -> Any:
    """A request that is no list of alternatives has the fields of `exactly` itself."""
    if not isinstance(request, dict):
        return request
    own = {name: value for name, value in request.items() if name not in _NAMED_BESIDE_EXACTLY}
    if not own:
        return request
    return {name: value for name, value in request.items() if name not in own} | {"exactly": own}
