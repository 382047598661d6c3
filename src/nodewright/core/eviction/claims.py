"""What eviction has to know of a pod, worked out once: its requests, limits, priority and local volumes."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import msgspec

from nodewright.core.requests import (
    RequestOptions,
    is_critical,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
)
from nodewright.model.objects import Pod
from nodewright.model.resource_names import EPHEMERAL_STORAGE, INODES, MEMORY
from nodewright.values.quantity import Quantity

Amount: TypeAlias = int | Fraction
"""An exact amount; a fraction only where somebody requests a part of a byte, as in `memory: 400m`."""

_CONTAINERS = RequestOptions(exclude_overhead=True)
_POD_LEVEL = RequestOptions(exclude_overhead=True, skip_container_level_resources=True)
_LOCAL_SOURCES = ("hostPath", "gitRepo", "configMap")


class Limit(NamedTuple):
    """A limit as it was written, and exactly."""

    quantity: Quantity
    amount: Amount

    @classmethod
    def of(cls, quantity: Quantity) -> "Limit":
        """The limit that an amount makes."""
        return cls(quantity, exact_amount(quantity))


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as eviction sees it.

    Units: bytes, inodes in pieces.
    """

    pod: Pod
    uid: str
    priority: int = 0
    critical: bool = False
    """Whether it is never ended: static, a mirror, or of critical priority."""
    requests: Mapping[str, Amount] = {}
    """Of memory, ephemeral-storage and inodes; 0 where nothing is requested."""
    local_volumes: tuple[str, ...] = ()
    """The volumes whose content counts as the pod's own."""
    empty_dir_limits: tuple[tuple[str, Limit], ...] = ()
    """Volumes with a `sizeLimit` above zero, in order."""
    storage_limit: Limit | None = None
    """Of all containers together; None: none of them has one."""
    container_storage_limits: Mapping[str, Limit] = {}

    @classmethod
    def of(cls, pod: Pod, *, pod_level_resources: bool = True) -> "Claim":
        """The claim that a pod makes; ``pod_level_resources`` is the gate.

        Errors: QuantityError where a `sizeLimit` is no amount.
        """
        limits = {
            container.name: Limit.of(limit)
            for container in pod.spec.containers
            if (limit := container.resources.limits.get(EPHEMERAL_STORAGE)) is not None and limit.value() != 0
        }
        total = pod_limits(pod).get(EPHEMERAL_STORAGE)
        return cls(
            pod=pod,
            uid=pod.uid,
            priority=pod.spec.priority or 0,
            critical=is_critical(pod),
            requests=_requests(pod, pod_level_resources=pod_level_resources),
            local_volumes=tuple(str(one.get("name", "")) for one in pod.spec.volumes if _is_local(one)),
            empty_dir_limits=tuple(_empty_dir_limits(pod)),
            storage_limit=None if total is None else Limit.of(total),
            container_storage_limits=limits,
        )


def _requests(pod: Pod, *, pod_level_resources: bool) -> dict[str, Amount]:
    """The requests that ranking goes by; a pod level takes the place of all container requests.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, GetResourceRequestQuantity.
    """
    options = _POD_LEVEL if pod_level_resources and pod_level_resources_set(pod) else _CONTAINERS
    total = pod_requests(pod, options)
    found: dict[str, Amount] = {}
    for name in (MEMORY, EPHEMERAL_STORAGE, INODES):
        requested = total.get(name)
        overhead = pod.spec.overhead.get(name)
        if requested is not None and not requested.is_zero() and overhead is not None:
            requested += overhead
        found[name] = 0 if requested is None else exact_amount(requested)
    return found


def exact_amount(quantity: Quantity) -> Amount:
    """The amount as a whole number, or as a fraction where it is none."""
    exact = quantity.exact()
    return exact.numerator if exact.denominator == 1 else exact


def _is_local(volume: Mapping[str, Any]) -> bool:
    """Whether what the volume holds lies on a disk of the node and goes with the pod.

    Follows: v1.36, eviction/helpers.go, localVolumeNames; pkg/volume/util/util.go, IsLocalEphemeralVolume.
    """
    if any(volume.get(source) is not None for source in _LOCAL_SOURCES):
        return True
    empty_dir = volume.get("emptyDir")
    return empty_dir is not None and not empty_dir.get("medium")


def _empty_dir_limits(pod: Pod) -> list[tuple[str, Limit]]:
    found = []
    for volume in pod.spec.volumes:
        written = (volume.get("emptyDir") or {}).get("sizeLimit")
        if written is None:
            continue
        limit = Quantity.parse(str(written).strip())
        if limit.sign() > 0:
            found.append((str(volume.get("name", "")), Limit.of(limit)))
    return found
