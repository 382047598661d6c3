"""Objects of Dynamic Resource Allocation from documents of any version of their API."""

from collections.abc import Mapping
from typing import Any, TypeVar

from nodewright.documents.formats.decode import decode

T = TypeVar("T")
BEFORE_V1 = "resource.k8s.io/v1beta1"
"""The version with other fields than v1."""
_NAMED_BESIDE_EXACTLY = frozenset({"name", "exactly", "firstAvailable"})


def decode_claim_object(document: Mapping[str, Any], kind: type[T]) -> T:
    """The document as an object of the kind; v1beta1 and v1beta2 are converted to v1.

    Errors: msgspec.ValidationError at the first fault.
    """
    return decode(as_v1(document), kind)


def as_v1(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the fields of v1.

    Follows: v1.36, pkg/apis/resource/v1beta1/conversion.go; v1beta2 has the fields of v1.
    """
    if document.get("apiVersion") != BEFORE_V1:
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
