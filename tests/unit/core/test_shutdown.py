"""Who ends when the machine goes down, in which order, and with how much time."""

from typing import Any

import pytest

from nodewright.ask import Node
from nodewright.core.shutdown import Period, ShutdownGroup, shutdown_groups, shutdown_periods
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_pod

CRITICAL = 2_000_000_000


def periods(**configuration: Any) -> tuple[Period, ...]:
    parts = Node.of(a_profile(**configuration)).config.parts
    return shutdown_periods(parts.kubelet, parts.gates)


def by_priority(*pairs: tuple[int, int]) -> dict[str, Any]:
    found = [{"priority": priority, "shutdownGracePeriodSeconds": seconds} for priority, seconds in pairs]
    return {"shutdownGracePeriodByPodPriority": found}


def shown(groups: tuple[ShutdownGroup, ...]) -> list[tuple[int, int, dict[str, int]]]:
    return [(one.priority, one.time_s, dict(one.graces_s)) for one in groups]


def test_without_configuration_the_kubelet_has_no_periods() -> None:
    assert periods() == ()


def test_two_periods_are_ordinary_and_critical_pods() -> None:
    found = periods(shutdownGracePeriod="30s", shutdownGracePeriodCriticalPods="10s")
    assert found == (Period(0, 20), Period(CRITICAL, 10))


def test_periods_by_priority_are_sorted() -> None:
    assert periods(**by_priority((1000, 60), (0, 30))) == (Period(0, 30), Period(1000, 60))


@pytest.mark.parametrize(
    ("priority", "group"),
    [(-5, 10), (10, 10), (11, 10), (99, 10), (100, 100), (5000, 100)],
)
def test_a_pod_is_in_the_last_group_that_is_not_above_it(priority: int, group: int) -> None:
    found = shutdown_groups((Period(10, 1), Period(100, 1)), [a_pod(priority=priority)])
    assert [one.priority for one in found] == [group]


def test_a_pod_has_no_longer_than_its_group_or_than_it_says() -> None:
    pods = [
        a_pod("short", terminationGracePeriodSeconds=5),
        a_pod("long", terminationGracePeriodSeconds=500),
        a_pod("usual"),
        a_pod("critical", priority=CRITICAL),
    ]
    found = shutdown_groups((Period(0, 20), Period(CRITICAL, 10)), pods)
    assert shown(found) == [
        (0, 20, {"short": 5, "long": 20, "usual": 20}),
        (CRITICAL, 10, {"critical": 10}),
    ]


def test_without_periods_pods_have_their_own_time_and_critical_ones_end_last() -> None:
    pods = [a_pod("critical", priority=CRITICAL), a_pod("a", terminationGracePeriodSeconds=5), a_pod("b")]
    assert shown(shutdown_groups((), pods)) == [(0, 30, {"a": 5, "b": 30}), (CRITICAL, 30, {"critical": 30})]
