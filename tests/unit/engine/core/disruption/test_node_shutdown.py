"""Graceful node shutdown: the order of termination and the grace periods."""

from typing import Any

import pytest

from nodewright.engine.core.disruption.node_shutdown import (
    ShutdownGroup,
    ShutdownPeriod,
    shutdown_groups,
    shutdown_periods,
)
from nodewright.predict.node import Node
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

CRITICAL = 2_000_000_000


def periods(**configuration: Any) -> tuple[ShutdownPeriod, ...]:
    parts = Node.from_profile(a_profile(**configuration)).config.parts
    return shutdown_periods(parts.kubelet, parts.gates)


def by_priority(*pairs: tuple[int, int]) -> dict[str, Any]:
    items = [{"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in pairs]
    return {"shutdownGracePeriodByPodPriority": items}


def group_rows(groups: tuple[ShutdownGroup, ...]) -> list[tuple[int, int, dict[str, int]]]:
    return [(group.priority, group.grace_period_s, dict(group.pod_grace_periods_s)) for group in groups]


def test_without_configuration_the_kubelet_has_no_periods() -> None:
    assert periods() == ()


def test_two_periods_are_ordinary_and_critical_pods() -> None:
    result = periods(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s")
    assert result == (ShutdownPeriod(0, 20), ShutdownPeriod(CRITICAL, 10))


def test_periods_by_priority_are_sorted() -> None:
    assert periods(**by_priority((1000, 60), (0, 30))) == (ShutdownPeriod(0, 30), ShutdownPeriod(1000, 60))


@pytest.mark.parametrize(
    ("priority", "group"),
    [(-5, 10), (10, 10), (11, 10), (99, 10), (100, 100), (5000, 100)],
)
def test_a_pod_is_in_the_last_group_that_is_not_above_it(priority: int, group: int) -> None:
    result = shutdown_groups((ShutdownPeriod(10, 1), ShutdownPeriod(100, 1)), [a_pod(priority=priority)])
    assert [shutdown_group.priority for shutdown_group in result] == [group]


def test_a_pods_grace_period_is_bounded_by_its_group() -> None:
    pods = [
        a_pod("short", terminationGracePeriodSeconds=5),
        a_pod("long", terminationGracePeriodSeconds=500),
        a_pod("usual"),
        a_pod("critical", priority=CRITICAL),
    ]
    result = shutdown_groups((ShutdownPeriod(0, 20), ShutdownPeriod(CRITICAL, 10)), pods)
    assert group_rows(result) == [
        (0, 20, {"short": 5, "long": 20, "usual": 20}),
        (CRITICAL, 10, {"critical": 10}),
    ]


def test_without_periods_pods_keep_their_grace_periods_and_critical_pods_end_last() -> None:
    pods = [a_pod("critical", priority=CRITICAL), a_pod("a", terminationGracePeriodSeconds=5), a_pod("b")]
    assert group_rows(shutdown_groups((), pods)) == [
        (0, 30, {"a": 5, "b": 30}),
        (CRITICAL, 30, {"critical": 30}),
    ]
