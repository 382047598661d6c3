"""What eviction finds, in plain sentences."""

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
from nodewright.model.resource_names import EPHEMERAL_STORAGE
from nodewright.render.amounts import told_apart
from nodewright.values.quantity import Quantity


def eviction_sentence(reason: EvictionReason) -> str:
    """The reason in words, without a full stop."""
    match reason:
        case NodeUnderPressure():
            return _under_pressure(reason)
        case NodeRanShort():
            return _ran_short(reason)
        case EmptyDirOverLimit(volume=name, used_bytes=used, limit=limit):
            used_text, most = _told(used, limit)
            return f"emptyDir {name} holds {used_text}, more than its limit of {most}"
        case PodStorageOverLimit(used_bytes=used, limit=limit):
            used_text, most = _told(used, limit)
            return (
                f"the pod uses {used_text} of ephemeral storage, more than the {most} that the limits of its "
                "containers add up to"
            )
        case ContainerStorageOverLimit(container=name, used_bytes=used, limit=limit):
            used_text, most = _told(used, limit)
            return f"container {name} uses {used_text} of ephemeral storage, more than its limit of {most}"
        case VolumeUseMissing(pod=pod, volume=name):
            return f"the kubelet crashes: volume {name} of {pod} has no usedBytes among its stats"
        case SplitFilesystemsUnsupported():
            return (
                "images and containers are on file systems of their own, and the feature gate "
                "KubeletSeparateDiskGC is off: the kubelet ends no pod for pressure"
            )
        case _:
            assert_never(reason)


def _under_pressure(reason: NodeUnderPressure) -> str:
    names = " and ".join(reason.conditions)
    if reason.best_effort_only:
        (condition,) = reason.conditions
        return f"the node has {names}: best-effort pods are turned away, unless they tolerate {condition.taint.key}"
    return f"the node has {names}: only critical pods are taken"


def _ran_short(reason: NodeRanShort) -> str:
    name = reason.resource
    left, needed = told_apart(name, reason.available.value(), reason.threshold.value())
    short = f"{reason.signal} is {left}, below {needed}"
    if not reason.has_stats:
        return f"{short}; nothing is known of what the pod uses, so it goes first"
    over = [_over(one, name) for one in (*((reason.pod,) if reason.pod else ()), *reason.containers)]
    return f"{short}; {', '.join(over)}" if over else short


def _over(one: OverRequest, resource: str) -> str:
    uses, requests = told_apart(resource, one.usage.value(), one.request.value())
    return f"{one.name} uses {uses} and requests {requests if one.request.sign() else 'none'}"


def _told(used_bytes: int, limit: Quantity) -> list[str]:
    return told_apart(EPHEMERAL_STORAGE, used_bytes, limit.value())
