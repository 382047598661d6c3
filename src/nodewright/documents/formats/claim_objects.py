"""The objects of Dynamic Resource Allocation that are given, or that an API server has stored."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.claim_versions import BEFORE_V1, decode_claim_object
from nodewright.documents.formats.decode import decode_json, decoding_fault
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
                kind, is_v1 = kinds[named.kind], named.api_version != BEFORE_V1
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
