from typing import Any

import pytest

from nodewright.engine.core.eviction.eviction_manager import node_shortage
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_thresholds import SignalObservation
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, parse_thresholds
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    FsStats,
    MemoryStats,
    PodReference,
    PodStats,
)
from nodewright.model.reasons.eviction import NodeRanShort, OverRequest
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage

OBSERVED = SignalObservation(
    Quantity.of(5, QuantityFormat.BINARY_SI), Quantity.of(1 << 20, QuantityFormat.BINARY_SI)
)


def shortage_of(signal: str, pod: Pod, use: PodStats | None, *, pod_level: bool = True) -> NodeRanShort:
    (threshold,) = parse_thresholds(EvictionSettings(hard={signal: "50%"})).thresholds
    return node_shortage(threshold, OBSERVED, ActivePod.of(pod), use, pod_level=pod_level)


def over(*texts: str) -> tuple[OverRequest, ...]:
    return tuple(
        OverRequest(name=name, usage=Quantity.parse(usage), request=Quantity.parse(request))
        for name, usage, request in (text.split() for text in texts)
    )


def test_the_threshold_and_what_is_left_are_told() -> None:
    node_ran_short = shortage_of("memory.available", a_pod("a"), None)
    assert (str(node_ran_short.threshold), str(node_ran_short.available)) == ("512Ki", "5")
    assert (node_ran_short.resource, node_ran_short.has_stats, node_ran_short.containers) == (
        "memory",
        False,
        (),
    )


def test_containers_above_their_request_are_told_in_the_order_of_the_stats() -> None:
    containers = [
        {"name": name, "resources": {"requests": {"memory": request}}}
        for name, request in (("a", "1Gi"), ("b", "2Gi"))
    ]
    pod = a_pod("web", containers=containers, initContainers=[{"name": "init"}, {"name": "b"}])
    uses = tuple(
        ContainerStats(name=name, memory=MemoryStats(working_set_bytes=3 << 30))
        for name in ("init", "b", "x", "a")
    )
    node_ran_short = shortage_of("memory.available", pod, PodStats(containers=uses))
    assert node_ran_short.containers == over("init 3Gi 0", "b 3Gi 2Gi", "a 3Gi 1Gi")


KEEPING = [
    ("memory.available", a_pod_usage("a", "1Gi")),
    ("memory.available", PodStats(containers=(ContainerStats(name="main"),))),
    ("memory.available", PodStats(containers=(ContainerStats(name="main", memory=MemoryStats()),))),
    ("nodefs.available", a_pod_usage("a", rootfs="9Gi")),
    ("nodefs.available", a_pod_usage("a", logs="9Gi")),
    ("nodefs.available", a_pod_usage("a", rootfs="512Mi", logs="512Mi")),
    (
        "nodefs.available",
        PodStats(containers=(ContainerStats(name="main", rootfs=FsStats(), logs=FsStats()),)),
    ),
    ("nodefs.inodesFree", a_pod_usage("a", rootfs="9Gi/9", logs="9Gi/9")),
    ("pid.available", a_pod_usage("a", "9Gi", processes=9)),
]


@pytest.mark.parametrize(("signal", "use"), KEEPING)
def test_nothing_is_told_of_a_container_that_keeps_to_its_request_or_was_not_observed_in_full(
    signal: str, use: PodStats
) -> None:
    node_ran_short = shortage_of(signal, a_pod("a", "memory=1Gi ephemeral-storage=1Gi"), use)
    assert node_ran_short.has_stats
    assert (node_ran_short.pod, node_ran_short.containers) == (None, ())


def test_of_the_disk_layer_and_logs_count_together() -> None:
    node_ran_short = shortage_of(
        "nodefs.available", a_pod("a", "ephemeral-storage=1Gi"), a_pod_usage("a", rootfs="1Gi", logs="1")
    )
    assert node_ran_short.containers == over("main 1073741825 1Gi")


def test_a_pod_level_request_is_told_even_if_the_pod_keeps_to_it() -> None:
    spec: dict[str, Any] = {"resources": {"requests": {"memory": "4Gi"}}}
    pod, use = a_pod("a", **spec), a_pod_usage("a", "1Gi")
    assert shortage_of("memory.available", pod, use).pod == over("a 1Gi 4Gi")[0]
    assert shortage_of("nodefs.available", pod, use).pod is None
    assert shortage_of("memory.available", pod, use, pod_level=False).pod is None
    assert shortage_of("memory.available", pod, PodStats(pod_ref=PodReference(uid="a"))).pod is None
    unknown = PodStats(memory=MemoryStats())
    assert shortage_of("memory.available", pod, unknown).pod == over("a 0 4Gi")[0]


@pytest.mark.parametrize("resources", [{}, {"requests": {"cpu": "1"}}])
def test_a_pod_level_without_memory_is_not_told(resources: dict[str, Any]) -> None:
    assert (
        shortage_of("memory.available", a_pod("a", resources=resources), a_pod_usage("a", "1Gi")).pod is None
    )
