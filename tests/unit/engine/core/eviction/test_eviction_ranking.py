from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.eviction.eviction_ranking import (
    ActivePod,
    fs_stats_to_measure,
    ranked_pods,
    stats_by_uid,
)
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.requests.effective_resources import NEWEST_REQUEST_RULES
from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import PodStats, StatsSummary
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

ONE = NodeFilesystems()
IMAGES_APART = NodeFilesystems(dedicated_image_fs=True)
SPLIT = NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True)


def order(
    claims: list[ActivePod],
    reading: StatsSummary,
    signal: Signal = Signal.MEMORY_AVAILABLE,
    filesystems: NodeFilesystems = ONE,
) -> str:
    """The names of the pods, first out first."""
    ranked = ranked_pods(signal, filesystems, claims, stats_by_uid(reading))
    return " ".join(eviction_candidate.active_pod.pod.metadata.name for eviction_candidate in ranked)


def test_the_class_of_service_does_not_decide_who_goes() -> None:
    """The widespread text says: best-effort pods first, then burstable ones, guaranteed ones last.

    What counts is use over request, then priority, then how far over. So a burstable pod goes before a
    best-effort one of higher priority, and a guaranteed pod before a burstable one, if both keep to their
    requests and the guaranteed one has the lower priority.
    """
    besteffort = a_pod("besteffort", priority=1000)
    burstable = a_pod("burstable", "memory=1Gi", priority=0)
    frugal = a_pod("frugal", "memory=4Gi", priority=1000)
    guaranteed = a_guaranteed_pod("guaranteed", "1/4Gi", priority=0)
    classes = [qos_class(pod) for pod in (besteffort, burstable, frugal, guaranteed)]
    assert classes == [
        QOSClass.BEST_EFFORT,
        QOSClass.BURSTABLE,
        QOSClass.BURSTABLE,
        QOSClass.GUARANTEED,
    ]
    reading = a_reading(
        a_pod_usage("besteffort", "100Mi"),
        a_pod_usage("burstable", "2Gi"),
        a_pod_usage("frugal", "3Gi"),
        a_pod_usage("guaranteed", "1Gi"),
    )
    claims = [ActivePod.of(pod) for pod in (besteffort, burstable, frugal, guaranteed)]
    assert order(claims, reading) == "burstable besteffort guaranteed frugal"


MEMORY = """
    pods                                               order
    a:1Gi/2Gi/0    b:1Gi/1Gi/0                         a b
    a:1Gi/2Gi/5    b:-/1Gi/0                           b a
    a:1Gi/2Gi/5    b:2Gi/1Gi/0                         a b
    a:1Gi/2Gi/0    b:1Gi/3Gi/0                         b a
    a:1Gi/2Gi/0    b:5Gi/7Gi/0                         b a
    a:1Gi/900Mi/0  b:2Gi/1Gi/0                         a b
    a:1Gi/-/9      b:-/9Gi/0                           a b
    a:1Gi/-/9      b:1Gi/-/0                           b a
    a:1Gi/1Gi/0    b:1Gi/1Gi/0                         a b
    a:1Gi/-/0      b:1Gi/-/0                           a b
    a:400m/0/0     b:-/0/0                             b a
    a:400m/1/0     b:1/1/5                             a b
"""


@pytest.mark.parametrize("line", MEMORY.strip().splitlines()[1:])
def test_memory_goes_by_stats_excess_priority_and_how_far_over(line: str) -> None:
    """Each pod is request/use/priority; `-` is no request, or no stats."""
    *pods, first, second = line.split()
    claims, uses = [], []
    for text in pods:
        name, _, rest = text.partition(":")
        request, used, priority = rest.split("/")
        result = "" if request == "-" else f"memory={request}"
        claims.append(ActivePod.of(a_pod(name, result, priority=int(priority))))
        uses += [] if used == "-" else [a_pod_usage(name, used)]
    assert order(claims, a_reading(*uses)) == f"{first} {second}"


PROCESSES = """
    a:10/0   b:20/0   b a
    a:10/0   b:20/5   a b
    a:-/0    b:20/0   a b
    a:-/5    b:20/0   b a
    a:9/0    b:9/0    a b
    a:-/0    b:-/0    a b
"""


@pytest.mark.parametrize("line", PROCESSES.strip().splitlines())
def test_processes_go_by_priority_stats_and_their_number(line: str) -> None:
    """Each pod is processes/priority; `-` is no stats."""
    *pods, first, second = line.split()
    claims, uses = [], []
    for text in pods:
        name, _, rest = text.partition(":")
        used, priority = rest.split("/")
        claims.append(ActivePod.of(a_pod(name, priority=int(priority))))
        uses += [] if used == "-" else [a_pod_usage(name, processes=int(used))]
    assert order(claims, a_reading(*uses), Signal.PID_AVAILABLE) == f"{first} {second}"


PARTS = """
    nodefs.available        one      logs rootfs volumes
    imagefs.inodesFree      one      logs rootfs volumes
    nodefs.available        images   logs volumes
    nodefs.inodesFree       images   logs volumes
    imagefs.available       images   rootfs
    containerfs.inodesFree  images   rootfs
    nodefs.inodesFree       split    logs rootfs volumes
    containerfs.available   split    logs rootfs volumes
    imagefs.available       split
    imagefs.inodesFree      split
"""


@pytest.mark.parametrize("line", PARTS.strip().splitlines())
def test_what_counts_on_a_disk_depends_on_the_file_systems(line: str) -> None:
    signal, name, *parts = line.split()
    filesystems = {"one": ONE, "images": IMAGES_APART, "split": SPLIT}[name]
    assert sorted(fs_stats_to_measure(Signal(signal), filesystems)) == parts


def disk_use(signal: Signal, filesystems: NodeFilesystems, use: PodStats, volumes: list[Any]) -> int:
    (candidate,) = ranked_pods(signal, filesystems, [ActivePod.of(a_pod("a", volumes=volumes))], {"a": use})
    return candidate.usage


def test_a_pods_disk_is_its_layers_its_logs_and_its_local_volumes() -> None:
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "ram", "emptyDir": {"medium": "Memory"}},
        {"name": "host", "hostPath": {"path": "/data"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "keys", "secret": {"secretName": "keys"}},
        {"name": "unused", "emptyDir": {}},
    ]
    use = a_pod_usage(
        "a",
        rootfs="1/2",
        logs="10/20",
        scratch="100/200",
        ram="1k/2k",
        host="10k/20k",
        settings="100k/200k",
        keys="1M/2M",
    )
    assert disk_use(Signal.NODEFS_AVAILABLE, ONE, use, volumes) == 110_111
    assert disk_use(Signal.NODEFS_INODES_FREE, ONE, use, volumes) == 220_222
    assert disk_use(Signal.NODEFS_AVAILABLE, IMAGES_APART, use, volumes) == 110_110
    assert disk_use(Signal.IMAGEFS_AVAILABLE, IMAGES_APART, use, volumes) == 1
    assert disk_use(Signal.IMAGEFS_AVAILABLE, SPLIT, use, volumes) == 0


def test_what_was_not_observed_of_a_pod_counts_as_nothing() -> None:
    assert disk_use(Signal.NODEFS_AVAILABLE, ONE, a_pod_usage("a"), []) == 0
    assert disk_use(Signal.NODEFS_INODES_FREE, ONE, PodStats(), []) == 0
    assert order([ActivePod.of(a_pod("a"))], StatsSummary(pods=(PodStats(),))) == "a"
    (memory,) = ranked_pods(Signal.MEMORY_AVAILABLE, ONE, [ActivePod.of(a_pod("a"))], {"a": PodStats()})
    (pids,) = ranked_pods(Signal.PID_AVAILABLE, ONE, [ActivePod.of(a_pod("a"))], {"a": PodStats()})
    assert (memory.usage, pids.usage) == (0, 0)


def test_disk_goes_by_what_is_requested_of_ephemeral_storage() -> None:
    above, below = (ActivePod.of(a_pod(name, "ephemeral-storage=5Gi")) for name in ("above", "below"))
    without, unknown = ActivePod.of(a_pod("without", priority=1)), ActivePod.of(a_pod("unknown", priority=9))
    reading = a_reading(
        a_pod_usage("above", rootfs="6Gi"),
        a_pod_usage("below", rootfs="4Gi"),
        a_pod_usage("without", rootfs="1Gi"),
    )
    claims = [below, without, above, unknown]
    assert order(claims, reading, Signal.NODEFS_AVAILABLE) == "unknown above without below"


def test_of_inodes_the_bytes_that_a_pod_requests_are_taken_off() -> None:
    asks = ActivePod.of(a_pod("asks", "ephemeral-storage=1Gi"))
    reading = a_reading(a_pod_usage("asks", rootfs="0/900"), a_pod_usage("none", rootfs="0/5"))
    claims = [asks, ActivePod.of(a_pod("none"))]
    assert order(claims, reading, Signal.NODEFS_INODES_FREE) == "none asks"
    candidate = ranked_pods(Signal.NODEFS_INODES_FREE, ONE, claims, stats_by_uid(reading))[1]
    assert (candidate.request, candidate.exceeds_request, candidate.excess) == (0, True, 900 - 2**30)


def test_of_volumes_of_one_name_the_first_counts_and_of_entries_of_a_pod_the_last() -> None:
    use = a_pod_usage("a", data="5")
    twice = PodStats(volumes=(*use.volumes, *a_pod_usage("a", data="7").volumes))
    assert disk_use(Signal.NODEFS_AVAILABLE, ONE, twice, [{"name": "data", "emptyDir": {}}]) == 5
    assert (
        stats_by_uid(StatsSummary(pods=(a_pod_usage("a", "1"), a_pod_usage("a", "2"))))["a"].memory
        == a_pod_usage("a", "2").memory
    )


CLAIMS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({}, {"memory": 1024, "ephemeral-storage": 0}),
    ({"overhead": {"memory": "1Ki", "ephemeral-storage": "1Ki"}}, {"memory": 2048, "ephemeral-storage": 0}),
    ({"resources": {"requests": {"cpu": "1"}}}, {"memory": 0, "ephemeral-storage": 0}),
    ({"resources": {"requests": {"memory": "5Ki"}}}, {"memory": 5120, "ephemeral-storage": 0}),
]


@pytest.mark.parametrize(("spec", "requests"), CLAIMS)
def test_a_pod_level_hides_what_containers_request_and_overhead_counts_on_top_of_something(
    spec: dict[str, Any], requests: dict[str, int]
) -> None:
    result = ActivePod.of(a_pod("a", "memory=1Ki", **spec)).requests
    assert result == {**requests, "inodes": 0}


def test_without_the_gate_a_pod_level_lies_over_the_containers_requests() -> None:
    pod = a_pod("a", "memory=1Ki ephemeral-storage=2Ki", resources={"requests": {"memory": "5Ki"}})
    assert ActivePod.of(pod, replace(NEWEST_REQUEST_RULES, pod_level=False)).requests == {
        "memory": 5120,
        "ephemeral-storage": 2048,
        "inodes": 0,
    }
