"""The kubelet's own texts about eviction: of statuses, of events, and the annotations of events."""

from typing import assert_never

from nodewright.model.eviction_reasons import (
    ContainerStorageOverLimit,
    EmptyDirOverLimit,
    EvictionReason,
    NodeRanShort,
    NodeUnderPressure,
    OverRequest,
    PodStorageOverLimit,
    SplitFilesystemsUnsupported,
    VolumeUseMissing,
)
from nodewright.values.golang import quoted

EVICTED = "Evicted"
"""The reason in the status of a pod that was ended or refused for pressure, and that of the event about it."""
THRESHOLD_MET = "EvictionThresholdMet"
"""The reason of the event about a node that takes something back."""


def eviction_message(reason: EvictionReason) -> str:
    """The message in the pod's status; of what stops the eviction manager, the error.

    Follows: v1.36, eviction/helpers.go, evictionMessage; eviction/eviction_manager.go, localStorageEviction.
    Departs: a kubelet that crashes says nothing that would be a message.
    """
    match reason:
        case NodeUnderPressure(conditions=conditions):
            return f"The node had condition: [{' '.join(conditions)}]. "
        case NodeRanShort():
            return _ran_short(reason)
        case EmptyDirOverLimit(volume=name, limit=limit):
            return f"Usage of EmptyDir volume {quoted(name)} exceeds the limit {quoted(str(limit))}. "
        case PodStorageOverLimit(limit=limit):
            return f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        case ContainerStorageOverLimit(container=name, limit=limit):
            return f"Container {name} exceeded its local ephemeral storage limit {quoted(str(limit))}. "
        case VolumeUseMissing(pod=pod, volume=name):
            return f"the kubelet crashes: no usedBytes for volume {name} of pod {pod}"
        case SplitFilesystemsUnsupported():
            return "KubeletSeparateDiskGC is turned off but we still have a split filesystem"
        case _:
            assert_never(reason)


def annotations(reason: NodeRanShort) -> dict[str, str]:
    """The annotations of the event about a pod that is ended for pressure; none where nothing is known of it.

    Follows: v1.36, eviction/helpers.go, evictionMessage.
    """
    if not reason.has_stats:
        return {}
    found = {}
    if reason.pod is not None:
        found["offending_pod"] = reason.pod.name
        found["offending_pod_usage"] = str(reason.pod.usage)
    found["offending_containers"] = ",".join(one.name for one in reason.containers)
    found["offending_containers_usage"] = ",".join(str(one.usage) for one in reason.containers)
    found["starved_resource"] = reason.resource
    return found


def threshold_met_message(resource: str) -> str:
    """The message of the event about the node, before anything is taken back.

    Follows: v1.36, eviction/eviction_manager.go, synchronize.

    >>> threshold_met_message("memory")
    'Attempting to reclaim memory'
    """
    return f"Attempting to reclaim {resource}"


def _ran_short(reason: NodeRanShort) -> str:
    parts = [
        f"The node was low on resource: {reason.resource}. ",
        f"Threshold quantity: {reason.threshold}, available: {reason.available}. ",
    ]
    if reason.pod is not None:
        parts.append(_consumption("Pod", reason.pod, reason.resource))
    parts += [_consumption("Container", one, reason.resource) for one in reason.containers]
    return "".join(parts)


def _consumption(kind: str, one: OverRequest, resource: str) -> str:
    return (
        f"{kind} {one.name} was using {one.usage}, request is {one.request}, "
        f"has larger consumption of {resource}. "
    )
