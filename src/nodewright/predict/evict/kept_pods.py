"""Why pods that exceed a limit on local storage are not evicted for it."""

from collections.abc import Iterator

from nodewright.engine.core.eviction.eviction_manager import exceeded_limit
from nodewright.engine.core.eviction.eviction_ranking import stats_by_uid
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.node.previews import NodeEvictionForecast


def kept_pods(forecast: NodeEvictionForecast) -> Iterator[str]:
    """A sentence for each such pod.

    Follows: v1.36, eviction/eviction_manager.go, localStorageEviction, containerEphemeralStorageLimitEviction, evictPod.
    """
    evicted = {eviction.eviction.active_pod.uid for eviction in forecast.outlook.evictions}
    stats = stats_by_uid(forecast.usage)
    for active_pod in forecast.claims:
        pod_stats = stats.get(active_pod.uid)
        # As if all file systems were one, so that everything that the containers write counts.
        excess = exceeded_limit(active_pod, pod_stats, NodeFilesystems()) if pod_stats else None
        if excess is None or active_pod.uid in evicted:
            continue
        if not forecast.config.eviction.local_storage_isolation:
            why = "`localStorageCapacityIsolation` is false, so the kubelet does not enforce limits on local storage"
        elif active_pod.is_critical:
            why = "it is critical, so the kubelet does not evict it"
        elif forecast.filesystems.dedicated_image_fs:
            why = "what containers write is on the image file system, and only their logs count there"
        else:
            continue
        yield f"{active_pod.pod.full_name} stays, though {excess.sentence()}: {why}."
