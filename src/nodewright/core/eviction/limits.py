"""Who uses more local storage than its own limits allow?"""

from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.ranking import disk_bytes
from nodewright.core.eviction.rules import Filesystems
from nodewright.model.eviction_reasons import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    LimitExceeded,
    PodStorageOverLimit,
)
from nodewright.model.usage import PodUse


def exceeded(claim: Claim, use: PodUse, filesystems: Filesystems) -> LimitExceeded | None:
    """The first limit on local storage that the pod is above; None: it keeps to all of them.

    Looked at are emptyDir volumes, then the pod as a whole, then its containers.

    Follows: v1.36, eviction/eviction_manager.go, localStorageEviction.
    """
    return _empty_dir(claim, use) or _pod(claim, use) or _container(claim, use, filesystems)


def unobserved_volume(use: PodUse) -> str | None:
    """The first volume whose use was not observed: looking at limits, the kubelet crashes over it.

    Follows: v1.36, eviction/eviction_manager.go, emptyDirLimitEviction.
    """
    for volume in use.volumes:
        if volume.used_bytes is None:
            return volume.name
    return None


def _empty_dir(claim: Claim, use: PodUse) -> EmptyDirOverLimit | None:
    if not claim.empty_dir_limits:
        return None
    used = {volume.name: disk_bytes(volume) for volume in use.volumes if volume.used_bytes is not None}
    for name, limit in claim.empty_dir_limits:
        if name in used and used[name] > limit.amount:
            return EmptyDirOverLimit(volume=name, used_bytes=used[name], limit=limit.quantity)
    return None


def _pod(claim: Claim, use: PodUse) -> PodStorageOverLimit | None:
    """As soon as one container has a limit, the sum of those that there are counts for all."""
    limit = claim.storage_limit
    if limit is None:
        return None
    used = disk_bytes(use.ephemeral_storage)
    return PodStorageOverLimit(used_bytes=used, limit=limit.quantity) if used > limit.amount else None


def _container(claim: Claim, use: PodUse, filesystems: Filesystems) -> ContainerStorageOverLimit | None:
    if not claim.container_storage_limits:
        return None
    for container in use.containers:
        limit = claim.container_storage_limits.get(container.name)
        if limit is None:
            continue
        used = disk_bytes(container.logs)
        if not filesystems.dedicated_image_fs:
            used += disk_bytes(container.rootfs)
        if used > limit.amount:
            return ContainerStorageOverLimit(container=container.name, used_bytes=used, limit=limit.quantity)
    return None
