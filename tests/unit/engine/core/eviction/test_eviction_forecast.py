"""Who goes until nobody has to, if nothing else changes."""

from typing import Any

import pytest

from nodewright.engine.core.eviction.eviction_policy import (
    EvictionForecast,
    eviction_forecast,
    usage_without_pod,
)
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState, NodeReclaim
from nodewright.engine.core.eviction.eviction_thresholds import EvictionConfig, NodeFilesystems
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, parse_thresholds
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_pod_usage, a_reading

GIB = 1 << 30


def rules(
    *, hard: str = "", soft: str = "", reclaim: str = "", signal: str = "memory.available"
) -> EvictionConfig:
    settings = EvictionSettings(
        hard={signal: hard} if hard else {},
        soft={signal: soft} if soft else {},
        soft_grace_period={signal: "25s"} if soft else {},
        minimum_reclaim={signal: reclaim} if reclaim else {},
    )
    return EvictionConfig(thresholds=parse_thresholds(settings).thresholds, max_pod_grace_period_s=60)


def forecast_of(
    eviction_config: EvictionConfig,
    usage: StatsSummary,
    *claims: ActivePod,
    after: StatsSummary | None = None,
    disks: NodeFilesystems | None = None,
) -> EvictionForecast:
    filesystems = disks or NodeFilesystems()
    observation = EvictionObservation(usage=usage, active_pods=claims, filesystems=filesystems)
    return eviction_forecast(
        eviction_config, observation, EvictionState().with_filesystems(eviction_config, filesystems), after
    )


def claims(*names: str, **pod: Any) -> list[ActivePod]:
    return [ActivePod.of(a_pod(name, **pod)) for name in names]


def story(found: EvictionForecast) -> list[tuple[str, int, int | None]]:
    return [(eviction.eviction.active_pod.uid, eviction.at_s, eviction.freed) for eviction in found.evictions]


def test_pods_go_one_a_pass_until_minimum_reclaim_is_reached() -> None:
    usage = a_reading(
        a_pod_usage("a", "3Gi"), a_pod_usage("b", "2Gi"), a_pod_usage("c", "1Gi"), memory="1Gi/16Gi"
    )
    forecast = forecast_of(rules(hard="2Gi"), usage, *claims("a", "b", "c"))
    assert story(forecast) == [("a", 0, 3 * GIB)]
    assert forecast.is_relieved
    more = forecast_of(rules(hard="2Gi", reclaim="3Gi"), usage, *claims("a", "b", "c"))
    assert story(more) == [("a", 0, 3 * GIB), ("b", 1, 2 * GIB)]
    assert (str(more.evictions[-1].available_after), more.is_relieved) == ("6Gi", True)


def test_a_soft_threshold_waits_for_the_pass_after_its_grace_period() -> None:
    usage = a_reading(a_pod_usage("a", "3Gi"), memory="1Gi/16Gi", at_s=100)
    forecast = forecast_of(rules(soft="2Gi"), usage, *claims("a"))
    assert story(forecast) == [("a", 30, 3 * GIB)]
    assert forecast.first_pass.evictions == ()
    assert forecast.first_acting_pass.target is not None


def test_critical_pods_stay_and_the_node_is_not_relieved() -> None:
    usage = a_reading(a_pod_usage("a", "3Gi"), a_pod_usage("b", "1Gi"), memory="1Gi/16Gi")
    critical = ActivePod.of(a_pod("a", priority=2_000_000_000))
    forecast = forecast_of(rules(hard="5Gi"), usage, critical, *claims("b"))
    assert story(forecast) == [("b", 0, GIB)]
    assert not forecast.is_relieved


def test_a_pod_of_which_nothing_is_known_frees_nothing() -> None:
    forecast = forecast_of(
        rules(hard="2Gi"), a_reading(a_pod_usage("b", "3Gi"), memory="1Gi/16Gi"), *claims("a", "b")
    )
    assert story(forecast) == [("a", 0, 0), ("b", 1, 3 * GIB)]


def test_what_the_node_gives_back_can_be_enough_or_a_beginning() -> None:
    disk = rules(hard="10Gi", signal="nodefs.available")
    short = a_reading(a_pod_usage("a", rootfs="4Gi/10", logs="1Gi/1"), nodefs="5Gi/100Gi")
    enough = forecast_of(disk, short, *claims("a"), after=a_reading(nodefs="20Gi/100Gi"))
    assert (story(enough), enough.is_relieved) == ([], True)
    assert enough.first_acting_pass.reclaimed == (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
    later = a_reading(a_pod_usage("a", rootfs="4Gi/10", logs="1Gi/1"), nodefs="7Gi/100Gi")
    begun = forecast_of(disk, short, *claims("a"), after=later)
    assert story(begun)[0][:2] == ("a", 0)
    assert str(begun.evictions[0].available_after) == "12Gi"


def test_a_limit_of_its_own_frees_nothing_that_was_asked_for() -> None:
    volumes = [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}]
    usage = a_reading(a_pod_usage("a", data="2Gi/1"), nodefs="50Gi/100Gi")
    forecast = forecast_of(
        rules(hard="10Gi", signal="nodefs.available"), usage, *claims("a", volumes=volumes)
    )
    assert story(forecast) == [("a", 0, None)]
    assert forecast.evictions[0].available_after is None
    assert forecast.final_observation.usage is not None
    assert forecast.final_observation.usage.node.fs is not None
    assert forecast.final_observation.usage.node.fs.available_bytes == 52 * GIB


def test_a_crash_ends_the_outlook() -> None:
    usage = a_reading(a_pod_usage("a", data=""), memory="1Gi/16Gi")
    forecast = forecast_of(rules(hard="2Gi"), usage, *claims("a", volumes=[{"name": "data", "emptyDir": {}}]))
    assert forecast.last_pass.stopped is not None
    assert not forecast.is_relieved


@pytest.mark.parametrize(
    ("disks", "nodefs", "imagefs", "containerfs"),
    [
        (NodeFilesystems(), 57, 57, 57),
        (NodeFilesystems(dedicated_image_fs=True), 53, 54, 54),
        (NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True), 57, 50, 57),
    ],
)
def test_a_pod_gives_back_to_each_disk_what_it_has_there(
    disks: NodeFilesystems, nodefs: int, imagefs: int, containerfs: int
) -> None:
    (claim,) = claims("a", volumes=[{"name": "data", "emptyDir": {}}])
    usage = a_reading(a_pod_usage("a", rootfs="4Gi/40", logs="1Gi/10", data="2Gi/20"))
    left = usage_without_pod(usage, claim, disks).node
    assert left.fs is not None
    assert left.runtime is not None
    assert left.runtime.image_fs is not None
    assert left.runtime.container_fs is not None
    seen = (
        left.fs.available_bytes,
        left.runtime.image_fs.available_bytes,
        left.runtime.container_fs.available_bytes,
    )
    assert [(number or 0) // GIB for number in seen] == [nodefs, imagefs, containerfs]


def test_nothing_more_is_left_than_there_is_and_what_was_not_observed_stays_so() -> None:
    (claim,) = claims("a")
    usage = a_reading(
        a_pod_usage("a", "9Gi", rootfs="90Gi/600000", processes=99_999),
        memory="1Gi/4Gi", allocatable="", imagefs="", imagefs_inodes="", pids="1/10",
    )  # fmt: skip
    left = usage_without_pod(usage, claim, NodeFilesystems()).node
    assert left.memory is not None
    assert (left.memory.available_bytes, left.memory.working_set_bytes) == (4 * GIB, 0)
    assert left.fs is not None
    assert (left.fs.available_bytes, left.fs.inodes_free) == (100 * GIB, 1_000_000)
    assert left.rlimit is not None
    assert left.rlimit.running == 0
    assert left.runtime is not None
    assert left.runtime.image_fs is None
    assert (
        usage_without_pod(StatsSummary(pods=(a_pod_usage("a", "1Gi"),)), claim, NodeFilesystems())
        == StatsSummary()
    )
    half = a_reading(a_pod_usage("a", "1Gi", rootfs="1Gi"), nodefs="", memory="")
    assert usage_without_pod(half, claim, NodeFilesystems()).node.fs is not None
