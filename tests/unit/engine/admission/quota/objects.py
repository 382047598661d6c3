"""Quotas and the objects that they count, in a short notation."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import (
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceQuota,
    Service,
)
from nodewright.model.kubernetes.objects import ResourceList
from nodewright.model.values.instant import Instant
from nodewright.testing.objects import amounts

NOW = Instant.parse("2026-01-31T12:00:00Z")


def a_quota(
    hard: str, used: str | None = None, name: str = "quota", *, scopes: str = "", terms: tuple[str, ...] = ()
) -> ResourceQuota:
    """A quota whose status is up to date; without `used` nothing is in use yet."""
    limits = texts(amounts(hard))
    in_use = dict.fromkeys(limits, "0") if used is None else texts(amounts(used))
    spec: dict[str, Any] = {"hard": limits, "scopes": scopes.split()}
    if terms:
        spec["scopeSelector"] = {"matchExpressions": [a_term(term) for term in terms]}
    document = {"metadata": {"name": name}, "spec": spec, "status": {"hard": limits, "used": in_use}}
    return decode(document, ResourceQuota)


def a_term(words: str) -> dict[str, Any]:
    """`PriorityClass In low,high`: a scope, an operator, values."""
    scope, operator, *values = words.split()
    term: dict[str, Any] = {"scopeName": scope, "operator": operator}
    return {**term, "values": values[0].split(",")} if values else term


def a_service(type_: str = "ClusterIP", *node_ports: int, version: str = "", **spec: Any) -> Service:
    """A Service with a port for each node port; 0 is one that it does not have yet."""
    document = {
        "metadata": {"name": "svc", "resourceVersion": version},
        "spec": {"type": type_, "ports": [{"nodePort": port} for port in node_ports], **spec},
    }
    return decode(document, Service)


def a_volume_claim(
    storage: str | None = "1Gi",
    *,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> PersistentVolumeClaim:
    """A claim to a volume."""
    requests = {} if storage is None else {"storage": storage}
    document = {
        "metadata": {"name": "data", **(metadata or {})},
        "spec": {"resources": {"requests": requests}, **spec},
        "status": dict(status or {}),
    }
    return decode(document, PersistentVolumeClaim)


def a_device_claim(*requests: str, **metadata: Any) -> ResourceClaim:
    """A claim to devices: `2 gpu`, `All gpu`, or `2 gpu|1 big`, the first of them that can be had."""
    document = {
        "metadata": {"name": "claim", **metadata},
        "spec": {"devices": {"requests": [_request(words) for words in requests]}},
    }
    return decode(document, ResourceClaim)


def _request(words: str) -> dict[str, Any]:
    asks = [_ask(each) for each in words.split("|")]
    return {"exactly": asks[0]} if len(asks) == 1 else {"firstAvailable": asks}


def _ask(words: str) -> dict[str, Any]:
    count, name = words.split()
    if count.isdecimal():
        return {"deviceClassName": name, "allocationMode": "ExactCount", "count": int(count)}
    return {"deviceClassName": name, "allocationMode": count}


def texts(listed: ResourceList) -> dict[str, str]:
    """The amounts as text."""
    return {name: str(amount) for name, amount in listed.items()}


def short(listed: ResourceList) -> str:
    """The amounts in one line, without those that are zero."""
    shown = (f"{name}={amount}" for name, amount in sorted(listed.items()) if not amount.is_zero())
    return " ".join(shown) or "-"
