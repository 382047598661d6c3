"""Whom the kernel's OOM killer chooses."""

import pytest

from nodewright.engine.core.requests.oom_adjust import (
    OOM_SCORE_ADJ_MIN,
    OOMCandidate,
    min_free_bytes,
    oom_victim,
)

GI = 1 << 30
CHOICES = """
    be 1000 0      gu -997 15     ->  be
    bu 900 2       bu2 900 3      ->  bu2
    bu 2 12        be 1000 0      ->  be
    bu 900 0       bu2 300 15     ->  bu2
    a 900 1        b 900 1        ->  a
    never -1000 15 gu -997 1      ->  gu
"""


@pytest.mark.parametrize("line", CHOICES.strip().splitlines())
def test_points_are_pages_and_thousandths_of_all_pages(line: str) -> None:
    first, score, used, second, score2, used2, _, chosen = line.split()
    processes = [
        OOMCandidate(pod=name, oom_score_adj=int(adj), used_bytes=int(amount) * GI)
        for name, adj, amount in ((first, score, used), (second, score2, used2))
    ]
    oom_candidate = oom_victim(processes, 16 * GI)
    assert oom_candidate is not None
    assert oom_candidate.pod == chosen


def test_there_may_be_nobody() -> None:
    assert oom_victim([], GI) is None
    assert oom_victim([OOMCandidate(pod="init", oom_score_adj=OOM_SCORE_ADJ_MIN, used_bytes=GI)], GI) is None


@pytest.mark.parametrize(("memory", "kept"), [(1, 128 << 10), (4 * GI, 8 << 20), (1 << 44, 256 << 20)])
def test_the_kernel_keeps_the_root_of_memory_between_its_bounds(memory: int, kept: int) -> None:
    assert min_free_bytes(memory) == kept
