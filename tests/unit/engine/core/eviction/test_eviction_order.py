"""Why one pod goes before another, and what lets another go first."""

from itertools import pairwise

import pytest

from nodewright.engine.core.eviction.eviction_order import RankKey, deciding_key, rank_changes
from nodewright.engine.core.eviction.eviction_ranking import ActivePod, ranked_pods, stats_by_uid
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

MEMORY, DISK, PIDS = Signal.MEMORY_AVAILABLE, Signal.NODEFS_AVAILABLE, Signal.PID_AVAILABLE
GIB = 1 << 30


def pod(line: str) -> ActivePod:
    name, request, priority = line.split()
    return ActivePod.of(
        a_pod(name, request.replace(";", " ") if request != "-" else "", priority=int(priority))
    )


KEYS = """
    a - 0             | b - 0            | a 1Gi       | stats
    a memory=1Gi 9    | b memory=1Gi 0   | a 2Gi b 1Gi | exceeds
    a memory=1Gi 0    | b memory=1Gi 9   | a 2Gi b 9Gi | priority
    a memory=1Gi 0    | b memory=1Gi 0   | a 3Gi b 2Gi | over
    a memory=1Gi 0    | b memory=1Gi 0   | a 2Gi b 2Gi | place
"""


@pytest.mark.parametrize("line", KEYS.strip().splitlines())
def test_the_first_key_in_which_two_differ_decides(line: str) -> None:
    one, other, uses, key = (cell.strip() for cell in line.split("|"))
    words = uses.split()
    stats = stats_by_uid(
        a_reading(*(a_pod_usage(*pair) for pair in zip(words[::2], words[1::2], strict=True)))
    )
    first, second = ranked_pods(MEMORY, NodeFilesystems(), [pod(one), pod(other)], stats)
    assert deciding_key(MEMORY, first, second) == key


def test_of_processes_priority_comes_before_all() -> None:
    stats = stats_by_uid(
        a_reading(a_pod_usage("a", processes=5), a_pod_usage("b", processes=9), a_pod_usage("c", processes=9))
    )
    claims = [pod("a - 0"), pod("b - 1"), pod("c - 1"), pod("d - 1")]
    ranked = ranked_pods(PIDS, NodeFilesystems(), claims, stats)
    assert [eviction_candidate.active_pod.uid for eviction_candidate in ranked] == ["a", "d", "b", "c"]
    keys = [deciding_key(PIDS, *pair) for pair in pairwise(ranked)]
    assert keys == [RankKey.PRIORITY, RankKey.STATS, RankKey.LIST_ORDER]


def changes(signal: Signal, *pods: ActivePod, **uses: str) -> list[tuple[str, str, int, int | None]]:
    stats = stats_by_uid(a_reading(*(a_pod_usage(name, text) for name, text in uses.items())))
    result = rank_changes(signal, NodeFilesystems(), pods, stats)
    return [
        (rank_change.next_pod.uid, rank_change.resource, rank_change.request_increase, rank_change.priority)
        for rank_change in result
    ]


def test_a_request_as_large_as_the_use_saves_a_pod_of_lower_priority() -> None:
    rows = changes(MEMORY, pod("web memory=1Gi 0"), pod("queue - 1000"), web="2Gi", queue="100Mi")
    assert rows == [("queue", "memory", GIB, None), ("queue", "", 0, 1001)]


def test_it_is_enough_to_be_less_far_over_than_another_of_equal_priority() -> None:
    rows = changes(MEMORY, pod("a memory=1Gi 0"), pod("b memory=1Gi 0"), a="3Gi", b="2Gi")
    # With as much over as the other, the list decides, and `a` stands before `b`.
    assert rows == [("b", "memory", GIB + 1, None), ("b", "", 0, 1)]


def test_where_one_pod_exceeds_alone_no_priority_saves_it() -> None:
    rows = changes(MEMORY, pod("a memory=1Gi 5"), pod("b memory=2Gi 0"), a="3Gi", b="1Gi")
    assert rows == [("b", "memory", 2 * GIB, None)]


def test_where_neither_helps_alone_both_do() -> None:
    rows = changes(MEMORY, pod("a memory=1Gi 0"), pod("b memory=1Gi 5"), a="3Gi", b="1Gi")
    assert rows == [("b", "memory", 2 * GIB, 6)]


def test_nobody_can_have_a_priority_above_those_of_users() -> None:
    assert changes(MEMORY, pod("a memory=1Gi 0"), pod("b memory=1Gi 1000000001"), a="3Gi", b="1Gi") == []
    stats = stats_by_uid(a_reading(a_pod_usage("a", processes=5), a_pod_usage("b", processes=1)))
    assert rank_changes(PIDS, NodeFilesystems(), [pod("a - 0"), pod("b - 1000000001")], stats) == ()


def test_a_pod_without_stats_is_saved_by_no_request_and_processes_know_none() -> None:
    assert changes(MEMORY, pod("a memory=1Gi 0"), pod("b - 0"), b="1Gi") == []
    stats = stats_by_uid(a_reading(a_pod_usage("a", processes=5), a_pod_usage("b", processes=1)))
    (rank_change,) = rank_changes(PIDS, NodeFilesystems(), [pod("a - 0"), pod("b - 3")], stats)
    assert (rank_change.next_pod.uid, rank_change.priority) == ("b", 4)


def test_only_those_that_can_go_count() -> None:
    critical = ActivePod.of(a_pod("critical", priority=2_000_000_000))
    assert changes(MEMORY, pod("a - 0"), critical, a="1Gi", critical="9Gi") == []
    assert changes(DISK) == []


def test_for_inodes_bytes_are_requested() -> None:
    stats = stats_by_uid(a_reading(a_pod_usage("a", rootfs="0/500"), a_pod_usage("b", rootfs="0/400")))
    result = rank_changes(Signal.NODEFS_INODES_FREE, NodeFilesystems(), [pod("a - 0"), pod("b - 0")], stats)
    assert (result[0].resource, result[0].request_increase) == ("ephemeral-storage", 101)
