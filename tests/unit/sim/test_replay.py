"""A node through a script of events."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodewright.ask import Node
from nodewright.model.scenario import ScenarioEvent
from nodewright.node.state import NodeState
from nodewright.sim.happened import Happened
from nodewright.sim.replay import replay
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def node(**kubelet: Any) -> NodeState:
    return Node.of(a_profile(numa=1, cpus=4, **{**STATIC_CPUS, **kubelet})).state


def run(*events: Mapping[str, Any]) -> list[Happened]:
    return list(replay(node(), [ScenarioEvent(**event) for event in events]))


WEB = a_guaranteed_pod("web", "2/1Gi")
DB = a_guaranteed_pod("db", "2/1Gi")
CRITICAL = a_guaranteed_pod("critical", "2/1Gi", priority=2_000_001_000)


def test_what_is_removed_makes_room() -> None:
    web, refused, removed, db = run({"add": WEB}, {"add": DB}, {"remove": "web"}, {"add": DB})
    assert [one.decision for one in (web, refused, removed, db)] == ["admitted", "refused", None, "admitted"]
    assert web.placement == db.placement is not None
    assert refused.placement is removed.placement is None
    assert list(db.after.pods) == ["db"]


@pytest.mark.parametrize("name", ["web", "default/web"])
def test_pods_go_by_uid_or_by_name(name: str) -> None:
    assert not run({"add": WEB}, {"remove": name})[-1].after.pods


def test_what_is_not_there_cannot_go_and_what_is_there_does_not_come_again() -> None:
    nobody, first, again = run({"remove": "nobody"}, {"add": WEB}, {"add": WEB})
    assert (nobody.pod, nobody.was_there, nobody.actions) == (None, False, ())
    assert (again.was_there, again.decision, again.actions) == (True, None, ())
    assert again.after is first.after


def test_found_pods_are_counted_and_not_judged() -> None:
    (big,) = run({"found": a_pod("big", {"cpu": "100"})})
    assert big.decision is None
    assert list(big.after.pods) == ["big"]


def test_a_victim_that_would_not_go_counts_on() -> None:
    old = a_pod("old", {"cpu": "3"})
    _, critical, failed = run({"add": old}, {"add": CRITICAL}, {"kill_failed": "default/old"})
    assert list(critical.after.pods) == ["critical"]
    assert list(failed.after.pods) == ["critical", "old"]
    (unknown,) = run({"kill_failed": "nobody"})
    assert unknown.pod is None
