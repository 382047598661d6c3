"""A node through a script of events."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.scenario import ScenarioEvent
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_run import EventOutcome, replay
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod


def node(**kubelet: Any) -> NodeState:
    return Node.from_profile(a_profile(numa=1, cpus=4, **{**STATIC_CPUS, **kubelet})).state


def run(*events: Mapping[str, Any]) -> list[EventOutcome]:
    return list(replay(node(), [ScenarioEvent(**event) for event in events]))


WEB = a_guaranteed_pod("web", "2/1Gi")
DB = a_guaranteed_pod("db", "2/1Gi")
CRITICAL = a_guaranteed_pod("critical", "2/1Gi", priority=2_000_001_000)


def test_removed_pods_free_resources() -> None:
    web, refused, removed, db = run({"add": WEB}, {"add": DB}, {"remove": "web"}, {"add": DB})
    assert [event_outcome.decision for event_outcome in (web, refused, removed, db)] == [
        "admitted",
        "refused",
        None,
        "admitted",
    ]
    assert web.placement == db.placement is not None
    assert refused.placement is removed.placement is None
    assert list(db.final_state.pods) == ["db"]


@pytest.mark.parametrize("name", ["web", "default/web"])
def test_pods_are_removed_by_uid_or_by_name(name: str) -> None:
    assert not run({"add": WEB}, {"remove": name})[-1].final_state.pods


def test_removing_an_unknown_pod_and_adding_an_existing_one_have_no_effect() -> None:
    nobody, first, again = run({"remove": "nobody"}, {"add": WEB}, {"add": WEB})
    assert (nobody.pod, nobody.was_present, nobody.actions) == (None, False, ())
    assert (again.was_present, again.decision, again.actions) == (True, None, ())
    assert again.final_state is first.final_state


def test_found_pods_are_counted_and_not_judged() -> None:
    (big,) = run({"found": a_pod("big", {"cpu": "100"})})
    assert big.decision is None
    assert list(big.final_state.pods) == ["big"]


def test_a_victim_that_could_not_be_killed_still_counts() -> None:
    old = a_pod("old", {"cpu": "3"})
    _, critical, failed = run({"add": old}, {"add": CRITICAL}, {"kill_failed": "default/old"})
    assert list(critical.final_state.pods) == ["critical"]
    assert list(failed.final_state.pods) == ["critical", "old"]
    (unknown,) = run({"kill_failed": "nobody"})
    assert unknown.pod is None
