"""The causes of an eviction: a limit on local storage that the pod exceeds, or a shortage on the node."""

from nodewright.engine.core.eviction.eviction_ranking import ActivePod, disk_bytes
from nodewright.engine.core.eviction.eviction_thresholds import (
    NodeFilesystems,
    SignalObservation,
    threshold_amount,
)
from nodewright.engine.core.requests.effective_resources import pod_level_resources_set
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES, Threshold
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import EPHEMERAL_STORAGE, MEMORY
from nodewright.model.kubernetes.stats_summary import ContainerStats, PodStats
from nodewright.model.reasons.eviction import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    LimitExceeded,
    NodeRanShort,
    OverRequest,
    PodStorageOverLimit,
)
from nodewright.model.values.quantity import ZERO, Quantity, QuantityFormat
from nodewright.model.values.units import wrap_int64


def exceeded_limit(
    active_pod: ActivePod, pod_stats: PodStats, filesystems: NodeFilesystems
) -> LimitExceeded | None:
    """The first limit on local storage that the pod exceeds; None: it exceeds none.

    The order is emptyDir volumes, the pod as a whole, its containers.

    Follows: v1.36, eviction/eviction_manager.go, localStorageEviction.
    """
    return (
        _empty_dir(active_pod, pod_stats)
        or _pod(active_pod, pod_stats)
        or _container(active_pod, pod_stats, filesystems)
    )


def unobserved_volume(pod_stats: PodStats) -> str | None:
    """The first volume without observed usage, at which the kubelet crashes when it checks limits; None: there is none.

    Follows: v1.36, eviction/eviction_manager.go, emptyDirLimitEviction.
    """
    for volume in pod_stats.volumes:
        if volume.used_bytes is None:
            return volume.name
    return None


def _empty_dir(active_pod: ActivePod, pod_stats: PodStats) -> EmptyDirOverLimit | None:
    if not active_pod.empty_dir_limits:
        return None
    used = {volume.name: disk_bytes(volume) for volume in pod_stats.volumes if volume.used_bytes is not None}
    for name, limit in active_pod.empty_dir_limits:
        if name in used and used[name] > limit.amount:
            return EmptyDirOverLimit(volume=name, used_bytes=used[name], limit=limit.quantity)
    return None


def _pod(active_pod: ActivePod, pod_stats: PodStats) -> PodStorageOverLimit | None:
    """If any container has a limit, the sum of all limits applies to the pod."""
    limit = active_pod.storage_limit
    if limit is None:
        return None
    used = disk_bytes(pod_stats.ephemeral_storage)
    return PodStorageOverLimit(used_bytes=used, limit=limit.quantity) if used > limit.amount else None


def _container(
    active_pod: ActivePod, pod_stats: PodStats, filesystems: NodeFilesystems
) -> ContainerStorageOverLimit | None:
    if not active_pod.container_storage_limits:
        return None
    for container in pod_stats.containers:
        limit = active_pod.container_storage_limits.get(container.name)
        if limit is None:
            continue
        used = disk_bytes(container.logs)
        if not filesystems.dedicated_image_fs:
            used += disk_bytes(container.rootfs)
        if used > limit.amount:
            return ContainerStorageOverLimit(container=container.name, used_bytes=used, limit=limit.quantity)
    return None


def node_shortage(
    threshold: Threshold,
    observed: SignalObservation,
    active_pod: ActivePod,
    pod_stats: PodStats | None,
    *,
    pod_level: bool = True,
) -> NodeRanShort:
    """Why the pod is evicted: the threshold, and the containers that pod_stats more than they request.

    ``pod_level``: the message names usage and request of the pod level.

    Follows: v1.36, eviction/helpers.go, evictionMessage, getThresholdMetInfo.
    """
    resource = SIGNAL_RESOURCES[threshold.signal]
    has_stats = pod_stats is not None
    return NodeRanShort(
        resource=resource,
        signal=threshold.signal,
        threshold=threshold_amount(threshold, observed.capacity),
        available=observed.available,
        has_stats=has_stats,
        pod=_whole_pod(active_pod.pod, pod_stats)
        if pod_stats is not None and pod_level and resource == MEMORY
        else None,
        containers=tuple(_over_request(active_pod.pod, pod_stats, resource)) if pod_stats is not None else (),
    )


def _whole_pod(pod: Pod, pod_stats: PodStats) -> OverRequest | None:
    """The pod's usage and its pod-level request, even if it uses less."""
    if pod.spec.resources is None or not pod_level_resources_set(pod) or pod_stats.memory is None:
        return None
    request = pod.spec.resources.requests.get(MEMORY)
    if request is None:
        return None
    return OverRequest(
        name=pod.metadata.name, usage=_quantity(pod_stats.memory.working_set_bytes or 0), request=request
    )


def _over_request(pod: Pod, pod_stats: PodStats, resource: str) -> list[OverRequest]:
    requests = {
        container.name: container.resources.requests.get(resource, ZERO)
        # Of containers with the same name the first counts, init containers last.
        for container in reversed((*pod.spec.containers, *pod.spec.init_containers))
    }
    over = []
    for container in pod_stats.containers:
        request = requests.get(container.name)
        usage = _container_usage(container, resource)
        if request is not None and usage is not None and usage.compare(request) > 0:
            over.append(OverRequest(name=container.name, usage=usage, request=request))
    return over


def _container_usage(container: ContainerStats, resource: str) -> Quantity | None:
    """A container's usage of memory or disk; None: not fully observed, or not reported for this resource."""
    if resource == MEMORY:
        memory = container.memory
        if memory is None or memory.working_set_bytes is None:
            return None
        return _quantity(memory.working_set_bytes)
    rootfs, logs = container.rootfs, container.logs
    if resource != EPHEMERAL_STORAGE or rootfs is None or logs is None:
        return None
    if rootfs.used_bytes is None or logs.used_bytes is None:
        return None
    return _quantity(rootfs.used_bytes + logs.used_bytes)


def _quantity(count: int) -> Quantity:
    return Quantity.of(wrap_int64(count), QuantityFormat.BINARY_SI)
