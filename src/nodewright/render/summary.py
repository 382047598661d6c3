"""Readings of a node as the kubelet tells them: the Summary API's document, and `/metrics/resource`."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.usage import ContainerUse, CPUUse, MemoryUse, NodeUse, PodUse, SwapUse, Usage
from nodewright.render.exposition import Family, Kind, Sample, exposed
from nodewright.values.instant import Instant

_OF_CONTAINER, _OF_POD = ("container", "pod", "namespace"), ("pod", "namespace")


def summary_document(usage: Usage) -> dict[str, Any]:
    """The Summary API's document; what was not observed is left out.

    Follows: v1.36, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go, Summary.
    """
    document: dict[str, Any] = _document(usage)
    return {"node": document["node"], "pods": document.get("pods", [])}


def cpu_and_memory(usage: Usage) -> Usage:
    """The reading without all but CPU, memory and swap.

    Follows: v1.36, kubelet/server/stats/summary.go, GetCPUAndMemoryStats.
    """
    node = usage.node
    return Usage(
        node=NodeUse(
            node_name=node.node_name,
            system_containers=node.system_containers,
            start_time=node.start_time,
            cpu=node.cpu,
            memory=node.memory,
            swap=node.swap,
        ),
        pods=tuple(
            PodUse(
                pod_ref=pod.pod_ref,
                start_time=pod.start_time,
                cpu=pod.cpu,
                memory=pod.memory,
                swap=pod.swap,
                containers=tuple(replace(one, rootfs=None, logs=None, io=None) for one in pod.containers),
            )
            for pod in usage.pods
        ),
    )


def resource_metrics(usage: Usage | None) -> str:
    """`/metrics/resource`: what metrics-server and autoscalers read; None: there is no reading.

    Follows: v1.36, kubelet/metrics/collectors/resource_metrics.go: names, labels, moments, and what is left out.
    """
    parts = [exposed(family, found) for family, found in _readings(usage)] if usage is not None else []
    failed = [Sample((), usage is None)]
    about = "1 where the reading failed, 0 otherwise."
    parts += [
        exposed(Family("resource_scrape_error", Kind.GAUGE, about), failed),
        exposed(
            Family("scrape_error", Kind.GAUGE, f"The old name of resource_scrape_error: {about}"), failed
        ),
    ]
    return "".join(parts)


_Found: TypeAlias = tuple[Family, list[Sample]]


def _readings(usage: Usage) -> Iterator[_Found]:
    node, containers = [((), usage.node)], list(_containers(usage))
    pods = [((one.pod_ref.name, one.pod_ref.namespace), one) for one in usage.pods]
    yield _family("container_cpu_usage_seconds_total", _OF_CONTAINER), _cpu_time(containers)
    yield _family("container_memory_working_set_bytes", _OF_CONTAINER), _working_sets(containers)
    about = Family(
        "container_start_time_seconds", Kind.GAUGE, "When containers were started, since 1970.", _OF_CONTAINER
    )
    started = [(labels, one.start_time) for labels, one in containers]
    yield (
        about,
        [
            Sample(labels, at.nanoseconds / 10**9)
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
"""Labels, and a NodeUse, PodUse or ContainerUse."""


def _containers(usage: Usage) -> Iterator[tuple[tuple[str, ...], ContainerUse]]:
    for pod in usage.pods:
        for one in pod.containers:
            yield (one.name, pod.pod_ref.name, pod.pod_ref.namespace), one


def _family(name: str, labels: tuple[str, ...]) -> Family:
    who, _, what = name.partition("_")
    abouts = {
        "cpu_usage_seconds_total": f"CPU time that the {who} has used, in seconds of one CPU.",
        "memory_working_set_bytes": f"Memory of the {who} that cannot be given back at once.",
        "swap_usage_bytes": f"Memory of the {who} that is swapped out.",
        "swap_limit_bytes": f"How much memory of the {who} may be swapped out.",
    }
    return Family(name, Kind.COUNTER if name.endswith("_total") else Kind.GAUGE, abouts[what], labels)


def _cpu_time(parts: _Parts) -> list[Sample]:
    found: list[Sample] = []
    for labels, one in parts:
        use: CPUUse | None = one.cpu
        if use is not None and use.usage_core_nano_seconds is not None:
            found.append(Sample(labels, use.usage_core_nano_seconds / 10**9, _ms(use.time)))
    return found


def _working_sets(parts: _Parts) -> list[Sample]:
    found: list[Sample] = []
    for labels, one in parts:
        use: MemoryUse | None = one.memory
        if use is not None and use.working_set_bytes is not None:
            found.append(Sample(labels, use.working_set_bytes, _ms(use.time)))
    return found


def _swapped(parts: _Parts) -> list[Sample]:
    found: list[Sample] = []
    for labels, one in parts:
        use: SwapUse | None = one.swap
        if use is not None and use.swap_usage_bytes is not None:
            found.append(Sample(labels, use.swap_usage_bytes, _ms(use.time)))
    return found


def _swap_limits(parts: _Parts) -> Iterator[Sample]:
    for labels, one in parts:
        use: SwapUse | None = one.swap
        if use is not None and use.swap_available_bytes is not None:
            yield Sample(labels, use.swap_available_bytes + (use.swap_usage_bytes or 0), _ms(use.time))


def _ms(at: Instant | None) -> int | None:
    return None if at is None else at.nanoseconds // 10**6


def _document(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _document(held)
            for field in msgspec.structs.fields(type(value))
            if (held := getattr(value, field.name)) is not None and held != ()
        }
    if isinstance(value, tuple):
        return [_document(one) for one in value]
    return str(value.whole_second) if isinstance(value, Instant) else value
