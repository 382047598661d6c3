"""Who goes first among 500 pods; an hour of a node with 110, pass by pass and played forward."""

from typing import Any

import pytest

from nodewright.engine.core.eviction.eviction_manager import synchronize
from nodewright.engine.core.eviction.eviction_order import rank_changes
from nodewright.engine.core.eviction.eviction_policy import POLICIES, eviction_forecast
from nodewright.engine.core.eviction.eviction_ranking import ActivePod, ranked_pods, stats_by_uid
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig, NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import (
    DEFAULT_EVICTION_HARD,
    EvictionSettings,
    Signal,
    parse_thresholds,
)
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.predict.timeline.pressure_simulation import simulated_timeline
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading, a_timeline_pod, a_timeline_setting

RULES = EvictionConfig(
    thresholds=parse_thresholds(EvictionSettings(hard=DEFAULT_EVICTION_HARD), for_pods=True).thresholds
)


def claims(count: int) -> tuple[ActivePod, ...]:
    return tuple(
        ActivePod.of(
            a_pod(
                f"pod-{at}",
                f"memory={at % 7}Gi ephemeral-storage={at % 3}Gi",
                priority=at % 5,
                volumes=[{"name": "cache", "emptyDir": {"sizeLimit": "100Gi"}}],
            )
        )
        for at in range(count)
    )


def reading(count: int, **signals: str) -> StatsSummary:
    return a_reading(
        *(
            a_pod_usage(
                f"pod-{at}",
                f"{at % 11}Gi",
                rootfs=f"{at % 13}Gi/9",
                logs="1Mi/2",
                cache="1Gi/3",
                processes=at,
            )
            for at in range(count)
        ),
        at_s=None,
        **signals,
    )


def test_rank_500_pods_by_memory(benchmark: Any) -> None:
    active, stats = claims(500), stats_by_uid(reading(500))
    result = benchmark(lambda: ranked_pods(Signal.MEMORY_AVAILABLE, NodeFilesystems(), active, stats))
    assert len(result) == 500


def test_rank_500_pods_by_disk(benchmark: Any) -> None:
    active, stats = claims(500), stats_by_uid(reading(500))
    result = benchmark(lambda: ranked_pods(Signal.NODEFS_AVAILABLE, NodeFilesystems(), active, stats))
    assert len(result) == 500


def test_a_forecast_over_500_pods_with_what_would_change_it(benchmark: Any) -> None:
    """One has to go; the changes that would spare it were each tried."""
    active, usage, disks = claims(500), reading(500, memory="50Mi/16Gi"), NodeFilesystems()
    observation = EvictionObservation(usage=usage, active_pods=active, filesystems=disks)
    state = EvictionState().with_filesystems(RULES, disks)

    def forecast_and_changes() -> tuple[int, int]:
        ahead = eviction_forecast(RULES, observation, state)
        changes = rank_changes(Signal.MEMORY_AVAILABLE, disks, active, stats_by_uid(usage))
        return len(ahead.evictions), len(changes)

    assert benchmark(forecast_and_changes) == (1, 2)


def test_an_hour_of_passes_over_110_pods(benchmark: Any) -> None:
    """360 passes; the last minutes are under pressure, and a pod goes in each of them."""
    active, calm, short = claims(110), reading(110), reading(110, memory="50Mi/16Gi")

    def hour() -> int:
        state, left, gone = EvictionState(), active, 0
        for number in range(360):
            usage = short if number >= 330 else calm
            done = synchronize(RULES, state, EvictionObservation(usage=usage, active_pods=left), number * 10)
            ended = {eviction.active_pod.uid for eviction in done.evictions}
            state, left, gone = (
                done.state,
                tuple(active_pod for active_pod in left if active_pod.uid not in ended),
                gone + len(ended),
            )
        return gone

    assert benchmark(hour) == 30


@pytest.mark.parametrize("name", POLICIES)
def test_an_hour_of_110_pods_played_forward(benchmark: Any, name: str) -> None:
    """Each grows by 32Ki a second, so that half of them go within the hour."""
    names = [f"pod-{at}" for at in range(110)]
    setting = a_timeline_setting(
        *(a_timeline_pod(one, "100Mi", f"{at % 7}Mi", priority=at % 5) for at, one in enumerate(names)),
        growth=dict.fromkeys(names, "32Ki"),
        hard="500Mi",
        memory="16Gi",
        seconds=3600,
    )
    run = benchmark(lambda: simulated_timeline(setting, POLICIES[name]))
    assert not run.is_lost
    assert len(run.evictions) > 20
