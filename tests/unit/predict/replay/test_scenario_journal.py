"""The profile of a node with what its pods hold now."""

from tests.support.small_nodes import a_numa_pod
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import current_profile


def test_what_a_rejected_pod_still_holds_is_left_out() -> None:
    profile = a_profile(topologyManagerPolicy="none")
    node = Node.from_profile(profile)
    refused = node.admit(a_numa_pod("web", {"cpu": 8000, "memory": 16}, init=({"cpu": 1000, "memory": 16},)))
    assert not refused.admitted
    assert "uid-web" in refused.node.state.held.cpu.assignments
    profile_now = current_profile(profile, refused.node.state)
    assert profile_now.spec.allocations == ()
    assert Node.from_profile(profile_now).state.held.cpu == node.state.held.cpu
