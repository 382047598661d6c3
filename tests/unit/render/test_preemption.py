from dataclasses import replace

from nodewright.ask import Node
from nodewright.core.preemption import optimum
from nodewright.model.machine import MachineInfo
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.node.step import Decision
from nodewright.render.preemption import Entry, preemption_text
from nodewright.testing.objects import a_pod

CRITICAL = a_pod("critical", {"cpu": "500m"}, priority=2_000_000_000)


def entry(*pods: Pod) -> Entry:
    """The arrival of a critical pod on a node of one CPU with these pods."""
    machine = MachineInfo(num_cores=1, num_physical_cores=1, num_sockets=1, memory_capacity=8 << 30)
    node = Node.of(NodeProfile(spec=NodeProfileSpec(machine_info=machine, pods=pods)))
    return Entry(preview=node.preview(CRITICAL))


def test_only_the_nearest_candidates_are_shown_unless_all_are_asked_for() -> None:
    found = entry(*(a_pod(f"web-{number}", {"cpu": "125m"}) for number in range(8)))
    short, wide = preemption_text([found]), preemption_text([found], wide=True)
    assert "and 3 more (-o wide)" in short
    assert "more (-o wide)" not in wide
    # The last of equals is picked, and stands first.
    assert short.splitlines()[10].split()[-3:] == ["default/web-7", "0.5625", "picked"]


def test_one_candidate_is_one() -> None:
    assert "1 of 1 candidate must make way" in preemption_text([entry(a_pod("web", {"cpu": "900m"}))])


def test_a_choice_that_cannot_be_bettered_is_not_told_twice() -> None:
    found = entry(a_pod("web", {"cpu": "900m"}, priority=7))
    assert found.preview.step.victims is not None
    told = preemption_text([replace(found, optimum=optimum(found.preview.step.victims))])
    assert "no choice is known to be smaller than the kubelet's (proved)" in told
    assert "CHOICE" not in told
    assert found.preview.step.decision is Decision.ADMITTED


def test_where_there_is_nobody_to_push_out_no_table_is_shown() -> None:
    told = preemption_text([entry(a_pod("web", {"cpu": "900m"}, priority=2_000_000_000))])
    assert "and 0 candidates together cannot free enough" in told
    assert "CANDIDATE" not in told
