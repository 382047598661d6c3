"""A pod that grows by 512 MiB a second is ended before the kernel has to: the real command, on this machine."""

import os
from pathlib import Path

import pytest
from tests.support.command_race import run_races
from tests.support.eviction_race import DisturbedError, ThresholdScope, reading_cost, unavailable_reason

ROUNDS = 3
WITHIN_MS = 100
pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _has_all_it_needs() -> None:
    if lacks := unavailable_reason():
        pytest.skip(lacks)


@pytest.mark.parametrize("where", list(ThresholdScope))
def test_a_growing_pod_is_evicted_in_time(tmp_path: Path, where: ThresholdScope) -> None:
    try:
        rounds = run_races(tmp_path, where, ROUNDS)
    except DisturbedError:
        pytest.skip(
            "others on this machine take so much time that nothing can be measured; make soak measures alone"
        )
    assert [(race_result.reason, race_result.oom_kills) for race_result in rounds] == [
        ("Evicted", 0)
    ] * ROUNDS
    # The worst of many rounds is measured where nothing else runs: `make soak`.
    assert min(race_result.signalled_ms for race_result in rounds) < WITHIN_MS
    assert not list(Path("/sys/fs/cgroup").glob(f"*/nodewright-race-{os.getpid()}"))


def test_by_the_kubelets_policy_it_is_evicted_late(tmp_path: Path) -> None:
    (late,) = run_races(tmp_path, ThresholdScope.NODE, 1, policy="kubelet")
    assert late.signalled_ms > 10 * WITHIN_MS


def test_a_look_is_cheap(tmp_path: Path) -> None:
    # At 20 looks a second less than half a percent of a CPU.
    assert reading_cost(tmp_path) < 250
