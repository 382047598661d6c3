"""What a timeline starts from."""

import pytest
from msgspec.structs import replace

from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    StatsSummary,
)
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.timeline.timeline_model import (
    ContainerMemory,
    LinearAmount,
    TimelineSetup,
    timeline_setup,
)
from nodewright.predict.timeline.usage_forecast import Growth
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

GI = 1 << 30
SWAPPING = {
    "failSwapOn": False,
    "memorySwap": {"swapBehavior": "LimitedSwap"},
    "kubeReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
}


def node(**configuration: object) -> Node:
    spec = find_profile("vm-4").spec
    node_profile_spec: NodeProfileSpec = replace(spec, kubelet_configuration=configuration, swap_bytes=8 * GI)
    return Node.from_profile(NodeProfile(spec=node_profile_spec))


def begun(usage: StatsSummary, *growth: Growth, **configuration: object) -> TimelineSetup:
    pods = (
        a_pod("web", "memory=4Gi cpu=500m", "memory=6Gi", status={"startTime": "1970-01-01T00:00:05Z"}),
        a_pod("job", restartPolicy="Never"),
    )
    result = timeline_setup(node(**configuration).config, pods, usage, growth, duration_ns=1)
    assert result is not None
    return result


def test_limits_oom_scores_and_swap_are_those_of_the_containers_cgroups() -> None:
    setting = begun(a_reading(a_pod_usage("web", "2Gi"), at_s=65), **SWAPPING)
    web, job = setting.pods
    assert web.containers == (
        ContainerMemory(
            name="main",
            used_bytes=2 * GI,
            limit_bytes=6 * GI,
            swap_bytes=2 * GI,
            oom_score_adj=750,
            cpu_milli=500,
        ),
    )
    assert (web.limit_bytes, web.age_ns, web.has_stats) == (6 * GI, 60 * 10**9, True)
    assert (job.containers[0].oom_score_adj, job.containers[0].restarts, job.has_stats) == (
        1000,
        False,
        False,
    )
    assert (job.limit_bytes, job.age_ns) == (None, None)
    assert (setting.pods_limit_bytes, setting.swap_bytes) == (15 * GI, 8 * GI)
    assert {threshold.signal for threshold in setting.rules.thresholds} == {
        Signal.MEMORY_AVAILABLE,
        Signal.ALLOCATABLE_MEMORY_AVAILABLE,
    }
    assert (setting.enforces_pods, setting.is_notified) == (True, False)


def test_usage_of_no_pod_counts_outside_pods() -> None:
    # 8Gi are used, 7Gi of them in the group of all pods, 2Gi of those by a pod that is known.
    setting = begun(a_reading(a_pod_usage("web", "2Gi"), memory="8Gi/16Gi", allocatable="9Gi/16Gi"))
    assert (setting.memory_bytes, setting.system_bytes, setting.pods_other_bytes) == (16 * GI, GI, 5 * GI)


def test_growing_pods_have_stats() -> None:
    assert begun(a_reading(), Growth(at_ns=0, pod="job", container="main", rate=1)).pods[1].has_stats


def test_page_cache_and_pod_overhead_count() -> None:
    main = ContainerStats(name="main", memory=MemoryStats(working_set_bytes=2 * GI, rss_bytes=GI))
    use = PodStats(
        pod_ref=PodReference(uid="web"), containers=(main,), memory=MemoryStats(working_set_bytes=3 * GI)
    )
    (web, _) = begun(a_reading(use)).pods
    assert (web.containers[0].used_bytes, web.containers[0].file_bytes) == (3 * GI, GI)


def test_without_memory_stats_there_is_no_setup() -> None:
    for memory in (
        None,
        MemoryStats(available_bytes=0, working_set_bytes=0),
        MemoryStats(available_bytes=1),
        MemoryStats(working_set_bytes=1),
    ):
        usage = StatsSummary(node=NodeStats(memory=memory))
        assert timeline_setup(node().config, (), usage, duration_ns=1) is None


def test_an_age_needs_two_valid_times() -> None:
    odd = a_pod("web", status={"startTime": "yesterday"})
    usage = StatsSummary(
        node=NodeStats(memory=MemoryStats(time=Instant(0), available_bytes=1, working_set_bytes=1))
    )
    result = timeline_setup(node().config, (odd,), usage, duration_ns=1)
    assert result is not None
    assert result.pods[0].age_ns is None


SECOND = 10**9


def test_an_amount_has_past_and_future_values() -> None:
    line = LinearAmount(100)
    line.change(0, by_rate=10)
    line.change(5 * SECOND, by_nanobytes=-20 * SECOND, by_rate=-15)
    assert [line.bytes_at(at * SECOND) for at in (0, 2, 5, 6, 10)] == [100, 120, 130, 125, 105]
    assert line.breakpoints(10 * SECOND) == [
        (0, 100),
        (5 * SECOND, 150),
        (5 * SECOND, 130),
        (10 * SECOND, 105),
    ]
    assert line.breakpoints(3 * SECOND)[-1] == (3 * SECOND, 130)


@pytest.mark.parametrize(
    ("start", "rate", "limit", "reached_ns"),
    [
        (0, 3, 1, 333_333_334),
        (0, 1, 0, 0),
        (5, 0, 5, 0),
        (5, 0, 6, None),
        (5, -1, 6, None),
        (9, -1, 6, 0),
    ],
)
def test_a_limit_is_reached_in_the_first_nanosecond_that_has_it(
    start: int, rate: int, limit: int, reached_ns: int | None
) -> None:
    line = LinearAmount(start)
    line.change(0, by_rate=rate)
    assert line.reaches_ns(limit) == reached_ns
    if reached_ns:
        assert line.bytes_at(reached_ns - 1) < limit <= line.bytes_at(reached_ns)


def test_a_shrinking_amount_is_empty_at_some_time() -> None:
    line = LinearAmount(10)
    assert line.empties_ns() is None
    line.change(SECOND, by_rate=-4)
    assert line.empties_ns() == SECOND + 2_500_000_000
