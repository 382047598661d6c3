"""The usage of a node in the kubelet's formats: the Summary API's document, and `/metrics/resource`."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.documents.output.exposition import MetricFamily, MetricSample, MetricType, family_text
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    CPUStats,
    MemoryStats,
    NodeStats,
    PodStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant

_OF_CONTAINER, _OF_POD = ("container", "pod", "namespace"), ("pod", "namespace")


def summary_document(usage: StatsSummary) -> dict[str, Any]:
    """The Summary API's document, without fields that were not observed and pods without containers.

    Follows: v1.36, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go, Summary: `containers` is always there;
        kubelet/stats/cri_stats_provider.go, listPodStatsPartiallyFromCRI: a pod is listed from its first container on.
    """
    return {
        "node": _document(usage.node),
        "pods": [_document(pod) for pod in usage.pods if pod.containers],
    }


def cpu_and_memory(usage: StatsSummary) -> StatsSummary:
    """The usage of CPU, memory and swap only.

    Follows: v1.36, kubelet/server/stats/summary.go, GetCPUAndMemoryStats.
    """
    node = usage.node
    return StatsSummary(
        node=NodeStats(
            node_name=node.node_name,
            system_containers=node.system_containers,
            start_time=node.start_time,
            cpu=node.cpu,
            memory=node.memory,
            swap=node.swap,
        ),
        pods=tuple(
            PodStats(
                pod_ref=pod.pod_ref,
                start_time=pod.start_time,
                cpu=pod.cpu,
                memory=pod.memory,
                swap=pod.swap,
                containers=tuple(
                    replace(container, rootfs=None, logs=None, io=None) for container in pod.containers
                ),
            )
            for pod in usage.pods
        ),
    )


def resource_metrics(usage: StatsSummary | None) -> str:
    """`/metrics/resource`, which metrics-server and autoscalers read; None: the reading failed.

    Follows: v1.36, kubelet/metrics/collectors/resource_metrics.go: names, labels, timestamps and omissions.
    """
    parts = []
    if usage is not None:
        parts = [family_text(family, samples) for family, samples in _resource_samples(usage)]
    failed = [MetricSample((), usage is None)]
    help_text = "1 if the reading failed, 0 otherwise."
    parts += [
        family_text(MetricFamily("resource_scrape_error", MetricType.GAUGE, help_text), failed),
        family_text(
            MetricFamily(
                "scrape_error", MetricType.GAUGE, f"Deprecated name of resource_scrape_error: {help_text}"
            ),
            failed,
        ),
    ]
    return "".join(parts)


_FamilySamples: TypeAlias = tuple[MetricFamily, list[MetricSample]]


def _resource_samples(usage: StatsSummary) -> Iterator[_FamilySamples]:
    node, containers = [((), usage.node)], list(_containers(usage))
    pods = [((pod.pod_ref.name, pod.pod_ref.namespace), pod) for pod in usage.pods]
    yield _family("container_cpu_usage_seconds_total", _OF_CONTAINER), _cpu_time(containers)
    yield _family("container_memory_working_set_bytes", _OF_CONTAINER), _working_sets(containers)
    start_times = MetricFamily(
        "container_start_time_seconds",
        MetricType.GAUGE,
        "Start time of containers since 1970.",
        _OF_CONTAINER,
    )
    started = [(labels, container.start_time) for labels, container in containers]
    yield (
        start_times,
        [
            MetricSample(labels, at.nanoseconds / 10**9)
            for labels, at in started
            if at is not None and at.nanoseconds >= 10**9
        ],
    )
    yield _family("container_swap_limit_bytes", _OF_CONTAINER), list(_swap_limits(containers))
    yield _family("container_swap_usage_bytes", _OF_CONTAINER), _swapped(containers)
    yield _family("node_cpu_usage_seconds_total", ()), _cpu_time(node)
    yield _family("node_memory_working_set_bytes", ()), _working_sets(node)
    yield _family("node_swap_usage_bytes", ()), _swapped(node)
    yield _family("pod_cpu_usage_seconds_total", _OF_POD), _cpu_time(pods)
    yield _family("pod_memory_working_set_bytes", _OF_POD), _working_sets(pods)
    yield _family("pod_swap_usage_bytes", _OF_POD), _swapped(pods)


_Parts: TypeAlias = Sequence[tuple[tuple[str, ...], Any]]
"""Labels, and a NodeStats, PodStats or ContainerStats."""


def _containers(usage: StatsSummary) -> Iterator[tuple[tuple[str, ...], ContainerStats]]:
    for pod in usage.pods:
        for container in pod.containers:
            yield (container.name, pod.pod_ref.name, pod.pod_ref.namespace), container


def _family(name: str, labels: tuple[str, ...]) -> MetricFamily:
    subject, _, quantity = name.partition("_")
    help_texts = {
        "cpu_usage_seconds_total": f"CPU time used by the {subject}, in seconds of one CPU.",
        "memory_working_set_bytes": f"Working set of the {subject}.",
        "swap_usage_bytes": f"Swap usage of the {subject}.",
        "swap_limit_bytes": f"Swap limit of the {subject}.",
    }
    return MetricFamily(
        name,
        MetricType.COUNTER if name.endswith("_total") else MetricType.GAUGE,
        help_texts[quantity],
        labels,
    )


def _cpu_time(parts: _Parts) -> list[MetricSample]:
    samples: list[MetricSample] = []
    for labels, stats in parts:
        usage: CPUStats | None = stats.cpu
        if usage is not None and usage.usage_core_nano_seconds is not None:
            samples.append(MetricSample(labels, usage.usage_core_nano_seconds / 10**9, _ms(usage.time)))
    return samples


def _working_sets(parts: _Parts) -> list[MetricSample]:
    samples: list[MetricSample] = []
    for labels, stats in parts:
        usage: MemoryStats | None = stats.memory
        if usage is not None and usage.working_set_bytes is not None:
            samples.append(MetricSample(labels, usage.working_set_bytes, _ms(usage.time)))
    return samples


def _swapped(parts: _Parts) -> list[MetricSample]:
    samples: list[MetricSample] = []
    for labels, stats in parts:
        usage: SwapStats | None = stats.swap
        if usage is not None and usage.swap_usage_bytes is not None:
            samples.append(MetricSample(labels, usage.swap_usage_bytes, _ms(usage.time)))
    return samples


def _swap_limits(parts: _Parts) -> Iterator[MetricSample]:
    for labels, stats in parts:
        usage: SwapStats | None = stats.swap
        if usage is not None and usage.swap_available_bytes is not None:
            yield MetricSample(
                labels, usage.swap_available_bytes + (usage.swap_usage_bytes or 0), _ms(usage.time)
            )


def _ms(instant: Instant | None) -> int | None:
    return None if instant is None else instant.nanoseconds // 10**6


def _document(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _document(field_value)
            for field in msgspec.structs.fields(type(value))
            if (field_value := getattr(value, field.name)) is not None and field_value != ()
        }
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    return str(value.whole_second) if isinstance(value, Instant) else value
