import pytest

from nodewright.model.kubernetes.eviction_thresholds import NodeCondition, Signal
from nodewright.model.reasons.eviction import (
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
from nodewright.model.reasons.reason import kubelet_text, sentence
from nodewright.model.values.quantity import Quantity

GIB = Quantity.parse("1Gi")
SHORT = NodeRanShort(
    resource="memory",
    signal=Signal.MEMORY_AVAILABLE,
    threshold=Quantity.parse("500Mi"),
    available=Quantity.parse("400Mi"),
    has_stats=True,
    containers=(
        OverRequest(name="app", usage=Quantity.parse("3Gi"), request=GIB),
        OverRequest(name="log", usage=GIB, request=Quantity.parse("0")),
    ),
)
UNKNOWN = NodeRanShort(
    resource="inodes",
    signal=Signal.NODEFS_INODES_FREE,
    threshold=Quantity.parse("50k"),
    available=Quantity.parse("7"),
    has_stats=False,
)
WHOLE = NodeRanShort(
    resource="memory",
    signal=Signal.ALLOCATABLE_MEMORY_AVAILABLE,
    threshold=GIB,
    available=Quantity.parse("1000Mi"),
    has_stats=True,
    pod=OverRequest(name="web", usage=GIB, request=Quantity.parse("4Gi")),
)
QUIET = NodeRanShort(
    resource="pids",
    signal=Signal.PID_AVAILABLE,
    threshold=Quantity.parse("100"),
    available=Quantity.parse("9"),
    has_stats=True,
)
TEXTS: list[tuple[EvictionReason, str, str]] = [
    (
        SHORT,
        (
            "The node was low on resource: memory. Threshold quantity: 500Mi, available: 400Mi. "
            "Container app was using 3Gi, request is 1Gi, has larger consumption of memory. "
            "Container log was using 1Gi, request is 0, has larger consumption of memory. "
        ),
        "memory.available is 400Mi, below 500Mi; app uses 3Gi and requests 1Gi, log uses 1Gi and requests none",
    ),
    (
        UNKNOWN,
        "The node was low on resource: inodes. Threshold quantity: 50k, available: 7. ",
        "nodefs.inodesFree is 7, below 50000; the pod's usage is unknown, so it ranks first",
    ),
    (
        WHOLE,
        (
            "The node was low on resource: memory. Threshold quantity: 1Gi, available: 1000Mi. "
            "Pod web was using 1Gi, request is 4Gi, has larger consumption of memory. "
        ),
        "allocatableMemory.available is 1000Mi, below 1Gi; web uses 1Gi and requests 4Gi",
    ),
    (
        QUIET,
        "The node was low on resource: pids. Threshold quantity: 100, available: 9. ",
        "pid.available is 9, below 100",
    ),
    (
        EmptyDirOverLimit(volume="cache", used_bytes=3 << 30, limit=GIB),
        'Usage of EmptyDir volume "cache" exceeds the limit "1Gi". ',
        "emptyDir cache holds 3Gi, more than its limit of 1Gi",
    ),
    (
        PodStorageOverLimit(used_bytes=3 << 30, limit=GIB),
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
        "the pod uses 3Gi of ephemeral storage, more than the 1Gi that the limits of its containers add up to",
    ),
    (
        ContainerStorageOverLimit(container="app", used_bytes=3 << 30, limit=GIB),
        'Container app exceeded its local ephemeral storage limit "1Gi". ',
        "container app uses 3Gi of ephemeral storage, more than its limit of 1Gi",
    ),
    (
        NodeUnderPressure(conditions=(NodeCondition.MEMORY_PRESSURE,), best_effort_only=True),
        "The node had condition: [MemoryPressure]. ",
        (
            "the node has MemoryPressure: best-effort pods are rejected unless they tolerate "
            "node.kubernetes.io/memory-pressure"
        ),
    ),
    (
        NodeUnderPressure(
            conditions=(NodeCondition.DISK_PRESSURE, NodeCondition.PID_PRESSURE), best_effort_only=False
        ),
        "The node had condition: [DiskPressure PIDPressure]. ",
        "the node has DiskPressure and PIDPressure: only critical pods are admitted",
    ),
    (
        VolumeUseMissing(pod="shop/web", volume="cache"),
        "the kubelet crashes: no usedBytes for volume cache of pod shop/web",
        "the kubelet crashes: volume cache of shop/web has no usedBytes in its stats",
    ),
    (
        SplitFilesystemsUnsupported(),
        "KubeletSeparateDiskGC is turned off but we still have a split filesystem",
        (
            "images and containers are on separate file systems, and the feature gate KubeletSeparateDiskGC is "
            "off: the kubelet evicts no pod under pressure"
        ),
    ),
]


@pytest.mark.parametrize(("reason", "kubelet", "plain"), TEXTS)
def test_eviction_facts_have_the_kubelets_message_and_a_sentence(
    reason: EvictionReason, kubelet: str, plain: str
) -> None:
    assert kubelet_text(reason) == ("Evicted", kubelet)
    assert sentence(reason) == plain


def test_an_event_has_annotations_about_the_containers_over_their_requests() -> None:
    assert SHORT.annotations() == {
        "offending_containers": "app,log",
        "offending_containers_usage": "3Gi,1Gi",
        "starved_resource": "memory",
    }
    assert WHOLE.annotations() == {
        "offending_pod": "web",
        "offending_pod_usage": "1Gi",
        "offending_containers": "",
        "offending_containers_usage": "",
        "starved_resource": "memory",
    }
    assert UNKNOWN.annotations() == {}
