"""How devices of DRA drivers are: what drivers report, when a report is too old, and what a pod's status says of it."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.pod_claims import claim_name_of
from nodewright.engine.core.claims.prepared_claims import PreparedClaims, PreparedDevice
from nodewright.model.kubernetes.objects import Container, Pod

HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
DEFAULT_HEALTH_TIMEOUT_S = 30
"""How long a report counts whose driver names no time.

Follows: v1.36, pkg/kubelet/cm/dra/healthinfo.go, DefaultHealthTimeout.
"""
MAX_DEVICES = 16_384
"""Devices of a driver whose reports are kept."""
MAX_MESSAGE_LENGTH = 1024
"""Follows: v1.36, staging/src/k8s.io/api/core/v1/types.go, ResourceHealthMessageMaxLength."""


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver reports of a device.

    Units: seconds; ``reported_s`` on the monotonic clock.
    """

    pool: str
    device: str
    health: str = UNKNOWN
    message: str = ""
    timeout_s: int = DEFAULT_HEALTH_TIMEOUT_S
    reported_s: float = 0.0


DriverHealth: TypeAlias = Mapping[tuple[str, str], DeviceHealth]
"""The last report of each device of a driver, by pool and name."""


class ResourceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """A device in the status of a container."""

    resource_id: str = msgspec.field(name="resourceID")
    health: str
    message: str = ""


class ResourceStatus(msgspec.Struct, frozen=True):
    """The devices that a container has of a request of a claim."""

    name: str
    resources: tuple[ResourceHealth, ...]


def with_report(known: DriverHealth, report: Iterable[DeviceHealth], now_s: float) -> DriverHealth:
    """A driver's devices after it has reported those that it has now; the others stay until their reports are too old.

    Follows: v1.36, pkg/kubelet/cm/dra/healthinfo.go, updateHealthInfo; manager.go, buildDeviceHealth.
    Departs: keeps `MAX_DEVICES` of them, which bounds a driver that names others each time.
    """
    reported = {
        (each.pool, each.device): replace(
            each,
            message=_shortened(each.message),
            timeout_s=each.timeout_s if each.timeout_s > 0 else DEFAULT_HEALTH_TIMEOUT_S,
            reported_s=now_s,
        )
        for each in islice(report, MAX_DEVICES)
    }
    others = (
        (key, each) for key, each in known.items() if key not in reported and not _is_too_old(each, now_s)
    )
    return {**reported, **dict(islice(others, MAX_DEVICES - len(reported)))}


def _is_too_old(health: DeviceHealth, now_s: float) -> bool:
    return now_s - health.reported_s > health.timeout_s


def _shortened(message: str) -> str:
    content = message.encode()
    if len(content) <= MAX_MESSAGE_LENGTH:
        return message
    return content[: MAX_MESSAGE_LENGTH - 3].decode(errors="ignore") + "..."


def resource_statuses(
    pod: Pod,
    container: Container,
    claims: PreparedClaims,
    health: Mapping[str, DriverHealth],
    now_s: float,
    *,
    with_messages: bool,
) -> tuple[ResourceStatus, ...]:
    """The devices that the container has by its claims, with their health; ``health`` by driver.

    Follows: v1.36, pkg/kubelet/cm/dra/manager.go, UpdateAllocatedResourcesStatus, buildResourceHealth; healthinfo.go,
        getHealthInfo: not for extended resources.
    Departs: claims are in the order of the container, and drivers in that of the claim, where the kubelet walks maps.
    """
    entries = {str(entry.get("name", "")): entry for entry in pod.spec.resource_claims}
    statuses: dict[str, ResourceStatus] = {}
    for used in container.resources.claims:
        name, request = str(used.get("name", "")), str(used.get("request") or "")
        try:
            claim_name = claim_name_of(pod, entries[name])
        except (KeyError, ValueError):
            continue
        claim = claims.claims.get((pod.metadata.namespace, claim_name or ""))
        resources: dict[str, ResourceHealth] = {}
        for driver, devices in claim.drivers.items() if claim is not None else ():
            for device in _of_request(devices or (), request):
                each = health.get(driver, {}).get((device.pool, device.device))
                if each is None or _is_too_old(each, now_s):
                    each = DeviceHealth(pool=device.pool, device=device.device)
                id_ = next(iter(device.cdi_devices or ()), f"{driver}/{device.pool}/{device.device}")
                message = each.message if with_messages else ""
                resources.setdefault(
                    id_, ResourceHealth(resource_id=id_, health=each.health, message=message)
                )
        if resources:
            full_name = f"claim:{name}/{request}" if request else f"claim:{name}"
            statuses[full_name] = ResourceStatus(full_name, tuple(resources.values()))
    return tuple(statuses.values())


def _of_request(devices: Iterable[PreparedDevice], request: str) -> Iterator[PreparedDevice]:
    """The devices that serve a request, which may be one of several that were to choose from (`gpu/large`)."""
    base = request.partition("/")[0]
    return (each for each in devices if not request or not each.requests or base in each.requests)
