import re
import sys
from random import Random

import pytest
from msgspec.structs import replace

from nodewright.engine.core.preemption.optimal import Cover, CoverItem, smallest_cover, smallest_preemption
from nodewright.engine.node.step import Decision
from nodewright.model.errors import HostError
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.preemption_report import PreemptionEntry, cheapest_cover, preemption_text
from nodewright.predict.node import Node
from nodewright.testing.objects import a_pod
from nodewright.version import install_command

CRITICAL = a_pod("critical", {"cpu": "500m"}, priority=2_000_000_000)


def entry(*pods: Pod) -> PreemptionEntry:
    """A critical pod is added to a node with one CPU and these pods."""
    machine = MachineInfo(num_cores=1, num_physical_cores=1, num_sockets=1, memory_capacity=8 << 30)
    node = Node.from_profile(NodeProfile(spec=NodeProfileSpec(machine_info=machine, pods=pods)))
    return PreemptionEntry(preview=node.preview(CRITICAL))


def test_only_the_nearest_candidates_are_shown_without_wide() -> None:
    preview = entry(*(a_pod(f"web-{number}", {"cpu": "125m"}) for number in range(8)))
    short, wide = preemption_text([preview]), preemption_text([preview], wide=True)
    assert "and 3 more (-o wide)" in short
    assert "more (-o wide)" not in wide
    # Among equal candidates the last is picked; the picked one is printed first.
    assert short.splitlines()[10].split()[-3:] == ["default/web-7", "0.5625", "picked"]


def test_one_candidate_is_counted_in_the_singular() -> None:
    assert "preempts 1 of 1 candidate" in preemption_text([entry(a_pod("web", {"cpu": "900m"}))])


def test_an_optimal_choice_is_not_shown_twice() -> None:
    preview = entry(a_pod("web", {"cpu": "900m"}, priority=7))
    assert preview.preview.step.victims is not None
    output = preemption_text([replace(preview, optimum=smallest_preemption(preview.preview.step.victims))])
    assert "no smaller choice than the kubelet's found (proved)" in output
    assert "CHOICE" not in output
    assert preview.preview.step.decision is Decision.ADMITTED


def test_without_candidates_no_table_is_shown() -> None:
    output = preemption_text([entry(a_pod("web", {"cpu": "900m"}, priority=2_000_000_000))])
    assert "preempts no pod: the node has no pod that it may preempt" in output
    assert "CANDIDATE" not in output


def a_cover(random: Random, items: int) -> Cover:
    contributions = [tuple(random.randint(0, 900) for _ in range(2)) for _ in range(items)]
    needs = tuple(sum(row[at] for row in contributions) // 2 for at in range(2))
    return Cover(
        needs=needs,
        items=tuple(
            CoverItem(random.randint(0, 2), (min(cpu, needs[0]), min(memory, needs[1])), (cpu << 20, memory))
            for cpu, memory in contributions
        ),
        needs_of_sizes=(0, 1),
    )


@pytest.mark.parametrize("seed", range(5))
def test_highs_and_the_search_find_sets_of_equal_cost(seed: int) -> None:
    cover = a_cover(Random(seed), 14)
    picked = cheapest_cover(cover)
    assert picked is not None
    assert cover.covers(picked)
    assert cover.cost(picked) == cover.cost(smallest_cover(cover, cover.indices, budget=100_000).picked)


def test_amounts_that_floats_cannot_hold_have_no_result() -> None:
    assert (
        cheapest_cover(Cover((1,), (CoverItem(0, (1,), (2**60 + 1,)), CoverItem(0, (1,), (2,))), (None,)))
        is None
    )


def test_needs_that_no_set_covers_have_no_result() -> None:
    assert cheapest_cover(Cover((2,), (CoverItem(0, (1,), (1,)),), (0,))) is None


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(HostError, match=re.escape(install_command("exact"))):
        cheapest_cover(Cover((1,), (CoverItem(0, (1,), (1,)),), (0,)))
