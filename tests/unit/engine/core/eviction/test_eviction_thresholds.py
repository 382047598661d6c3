import pytest

from nodewright.engine.core.config.complete_config import defaulted
from nodewright.engine.core.eviction.eviction_thresholds import (
    EvictionConfig,
    NodeFilesystems,
    watched_thresholds,
)
from nodewright.model.kubernetes.eviction_thresholds import EvictionSettings, Threshold, parse_thresholds
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.releases.feature_gates import DEFAULT_GATES
from nodewright.model.values.duration import Duration

ONE = NodeFilesystems()
IMAGES_APART = NodeFilesystems(dedicated_image_fs=True)
SPLIT = NodeFilesystems(dedicated_image_fs=True, dedicated_container_fs=True)
ODD = NodeFilesystems(dedicated_container_fs=True)


def thresholds(*statements: str) -> tuple[Threshold, ...]:
    """`nodefs.available<1Gi` is hard, `nodefs.available<1Gi 30s` is soft."""
    hard, soft, periods = {}, {}, {}
    for statement in statements:
        text, _, period = statement.partition(" ")
        signal, _, value = text.partition("<")
        if period:
            soft[signal], periods[signal] = value, period
        else:
            hard[signal] = value
    return parse_thresholds(EvictionSettings(hard=hard, soft=soft, soft_grace_period=periods)).thresholds


def threshold_texts(found: tuple[Threshold, ...]) -> list[str]:
    """The thresholds as they were written above."""
    return [
        f"{threshold.signal}<{threshold.value.text}{'' if threshold.is_hard else f' {threshold.grace_period}'}"
        for threshold in found
    ]


CONTAINERFS = [
    (ONE, ["nodefs.available<1Gi"], ["containerfs.available<1Gi"]),
    (ONE, ["nodefs.inodesFree<5%"], ["containerfs.inodesFree<5%"]),
    (ONE, ["imagefs.available<1Gi"], []),
    (SPLIT, ["nodefs.available<1Gi", "imagefs.available<2Gi"], ["containerfs.available<1Gi"]),
    (IMAGES_APART, ["nodefs.available<1Gi", "imagefs.available<2Gi"], ["containerfs.available<2Gi"]),
    (IMAGES_APART, ["imagefs.inodesFree<9 30s"], ["containerfs.inodesFree<9 30s"]),
    (ODD, ["nodefs.available<1Gi", "imagefs.available<2Gi"], []),
]


@pytest.mark.parametrize(("filesystems", "written", "derived"), CONTAINERFS)
def test_containerfs_goes_by_the_thresholds_of_the_disk_that_it_is_on(
    filesystems: NodeFilesystems, written: list[str], derived: list[str]
) -> None:
    result = watched_thresholds(thresholds(*written), filesystems)
    assert threshold_texts(result.thresholds)[result.first_pass_count :] == derived
    assert result.first_pass_count == len(written)


def test_what_was_written_for_containerfs_is_overwritten_in_its_place() -> None:
    written = thresholds("containerfs.available<9Gi", "nodefs.available<1Gi")
    result = watched_thresholds(written, ONE)
    assert threshold_texts(result.thresholds) == ["containerfs.available<1Gi", "nodefs.available<1Gi"]
    assert result.first_pass_count == 2


def test_what_was_written_for_containerfs_falls_away_where_there_is_nothing_to_copy() -> None:
    assert watched_thresholds(thresholds("containerfs.available<9Gi"), ONE).thresholds == ()
    assert threshold_texts(watched_thresholds(thresholds("containerfs.available<9Gi"), ODD).thresholds) == [
        "containerfs.available<9Gi"
    ]


def test_a_soft_threshold_without_a_grace_period_takes_the_place_of_the_hard_one() -> None:
    result = watched_thresholds(thresholds("nodefs.available<1Gi", "nodefs.available<2Gi 0s"), ONE)
    assert threshold_texts(result.thresholds) == [
        "nodefs.available<1Gi",
        "nodefs.available<2Gi",
        "containerfs.available<2Gi",
    ]


def test_equal_percentages_are_one_threshold_and_equal_amounts_are_two() -> None:
    percentages = thresholds("memory.available<5%", "memory.available<5% 0s")
    amounts = thresholds("memory.available<1Gi", "memory.available<1Gi 0s")
    assert len(watched_thresholds(percentages, ONE).thresholds) == 1
    assert len(watched_thresholds(amounts, ONE).thresholds) == 2


def test_a_configuration_makes_rules() -> None:
    config = defaulted(
        KubeletConfiguration(
            eviction_hard={"memory.available": "1Gi"},
            eviction_soft={"nodefs.available": "10%"},
            eviction_soft_grace_period={"nodefs.available": "1m"},
            eviction_max_pod_grace_period=60,
            local_storage_capacity_isolation=False,
        ),
        DEFAULT_GATES,
    )
    rules = EvictionConfig.of(config, DEFAULT_GATES)
    assert threshold_texts(rules.thresholds) == [
        "memory.available<1Gi",
        "nodefs.available<10% 1m0s",
        "allocatableMemory.available<1Gi",
    ]
    assert rules.pressure_transition_period == Duration.seconds(300)
    assert rules.max_pod_grace_period_s == 60
    assert not rules.local_storage_isolation
    assert rules.separate_disk_gc
    assert rules.follows_defects
    assert not rules.without_defects().follows_defects
