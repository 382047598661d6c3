"""`/metrics/resource`, as metrics-server reads it: field by field, by its own rules."""

import re
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from nodewright.agent.observe.summary import resource_metrics
from nodewright.documents.output.exposition import CONTENT_TYPE
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    CPUStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant

AT_MS = 1_795_297_804_179
AT = Instant(AT_MS * 10**6 + 999_999)
STARTED = Instant(1_795_297_799_345_602_000)


class Point(NamedTuple):
    """What metrics-server keeps of a node or a container."""

    started_ns: int = 0
    at_ns: int = 0
    cpu_ns: int = 0
    memory_bytes: int = 0
    swap_bytes: int = 0


NODE_FIELDS = {
    "node_cpu_usage_seconds_total": "cpu_ns",
    "node_memory_working_set_bytes": "memory_bytes",
    "node_swap_usage_bytes": "swap_bytes",
}
CONTAINER_FIELDS = {
    "container_cpu_usage_seconds_total": "cpu_ns",
    "container_memory_working_set_bytes": "memory_bytes",
    "container_swap_usage_bytes": "swap_bytes",
    "container_start_time_seconds": "started_ns",
}
SERIES = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)(?: (?P<at>\d+))?")


def as_metrics_server_reads(
    text: str,
) -> tuple[Point | None, dict[tuple[str, str], dict[str, Point]]]:
    """The node, and containers by namespace, pod and name.

    Follows: kubernetes-sigs/metrics-server v0.8, pkg/scraper/client/resource/decode.go, decodeBatch: a node without
        time, CPU time or memory is left out, and so is a pod one of whose containers is without CPU time or memory.
    """
    node, pods = Point(), dict[tuple[str, str], dict[str, Point]]()
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = SERIES.fullmatch(line)
        assert match is not None, line
        name, value = match["name"], float(match["value"])
        amount = int(value * 1e9) if "seconds" in name else int(value)
        when = {"at_ns": int(match["at"]) * 10**6} if match["at"] else {}
        if name in NODE_FIELDS:
            node = node._replace(**{NODE_FIELDS[name]: amount}, **when)
        elif name in CONTAINER_FIELDS:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match["labels"]))
            pod = pods.setdefault((labels["namespace"], labels["pod"]), {})
            point = pod.get(labels["container"], Point())
            when = {} if name.startswith("container_start") else when
            pod[labels["container"]] = point._replace(**{CONTAINER_FIELDS[name]: amount}, **when)
    whole = {
        key: points
        for key, points in pods.items()
        if all(point.cpu_ns and point.memory_bytes for point in points.values())
    }
    return (node if node.at_ns and node.cpu_ns and node.memory_bytes else None), whole


def a_container(name: str, cpu_ns: int = 7_081_423, memory: int = 708_608) -> ContainerStats:
    return ContainerStats(
        name=name,
        start_time=STARTED,
        cpu=CPUStats(time=AT, usage_core_nano_seconds=cpu_ns),
        memory=MemoryStats(time=AT, working_set_bytes=memory),
        swap=SwapStats(time=AT, swap_usage_bytes=4096, swap_available_bytes=1 << 20),
    )


def a_usage(*containers: ContainerStats) -> StatsSummary:
    pod = PodStats(
        pod_ref=PodReference(name="web", namespace="default", uid="u"),
        containers=containers,
        cpu=CPUStats(time=AT, usage_core_nano_seconds=10**9),
        memory=MemoryStats(time=AT, working_set_bytes=1 << 20),
        swap=SwapStats(time=AT, swap_usage_bytes=4096),
    )
    node = NodeStats(
        cpu=CPUStats(time=AT, usage_core_nano_seconds=123_456_789_000),
        memory=MemoryStats(time=AT, working_set_bytes=4_887_498_752),
        swap=SwapStats(time=AT, swap_usage_bytes=0),
    )
    return StatsSummary(node=node, pods=(pod,))


def test_metrics_server_reads_every_field() -> None:
    node, pods = as_metrics_server_reads(
        resource_metrics(a_usage(a_container("main"), a_container("side", 5, 6)))
    )
    at_ns = AT_MS * 10**6
    assert node == Point(at_ns=at_ns, cpu_ns=123_456_789_000, memory_bytes=4_887_498_752)
    containers = pods["default", "web"]
    assert containers["side"].cpu_ns == 5
    started_ns = containers["main"].started_ns
    assert containers["main"]._replace(started_ns=0) == Point(
        at_ns=at_ns, cpu_ns=7_081_423, memory_bytes=708_608, swap_bytes=4096
    )
    assert abs(started_ns - STARTED.nanoseconds) < 10**6


def test_missing_values_are_omitted() -> None:
    usage = a_usage(
        a_container("main"), ContainerStats(name="new", start_time=Instant(0), memory=MemoryStats(time=AT))
    )
    text = resource_metrics(usage)
    assert 'container="new"' not in text
    node, pods = as_metrics_server_reads(text)
    assert node is not None
    assert list(pods["default", "web"]) == ["main"]
    assert as_metrics_server_reads(resource_metrics(StatsSummary())) == (None, {})


def test_a_failed_reading_is_reported() -> None:
    assert [line for line in resource_metrics(None).splitlines() if not line.startswith("#")] == [
        "resource_scrape_error 1",
        "scrape_error 1",
    ]
    assert "\nresource_scrape_error 0\n" in resource_metrics(a_usage())


def test_names_types_and_labels_are_the_kubelets() -> None:
    families = {
        family.name: family
        for family in text_string_to_metric_families(resource_metrics(a_usage(a_container("main"))))
    }
    of_container, of_pod = {"container", "pod", "namespace"}, {"pod", "namespace"}
    expected = {
        "container_cpu_usage_seconds": ("counter", of_container),
        "container_memory_working_set_bytes": ("gauge", of_container),
        "container_start_time_seconds": ("gauge", of_container),
        "container_swap_limit_bytes": ("gauge", of_container),
        "container_swap_usage_bytes": ("gauge", of_container),
        "node_cpu_usage_seconds": ("counter", set[str]()),
        "node_memory_working_set_bytes": ("gauge", set[str]()),
        "node_swap_usage_bytes": ("gauge", set[str]()),
        "pod_cpu_usage_seconds": ("counter", of_pod),
        "pod_memory_working_set_bytes": ("gauge", of_pod),
        "pod_swap_usage_bytes": ("gauge", of_pod),
        "resource_scrape_error": ("gauge", set[str]()),
        "scrape_error": ("gauge", set[str]()),
    }
    assert {name: (one.type, set(one.samples[0].labels)) for name, one in families.items()} == expected
    assert families["container_swap_limit_bytes"].samples[0].value == (1 << 20) + 4096
    # The start is told as of now, all else as of when it was read.
    times = {name: one.samples[0].timestamp for name, one in families.items()}
    assert times["container_start_time_seconds"] is None
    assert times["node_cpu_usage_seconds"] == AT_MS / 1000
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"
