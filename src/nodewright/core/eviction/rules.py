"""When eviction begins, and how: the kubelet's settings, and what they come to on a node's file systems."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace as with_changes

from nodewright.model.gates import FeatureGates
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.thresholds import EvictionSettings, Signal, Threshold, parse_thresholds
from nodewright.values.duration import Duration


class Filesystems(msgspec.Struct, frozen=True, kw_only=True):
    """Which file systems a node keeps apart from the one of the kubelet (nodefs)."""

    dedicated_image_fs: bool = False
    """Images are on a file system of their own."""
    dedicated_container_fs: bool = False
    """Writable layers are not on that of the images."""

    @property
    def are_split(self) -> bool:
        """Whether images alone are kept apart, and writable layers are on nodefs."""
        return self.dedicated_image_fs and self.dedicated_container_fs

    @property
    def keep_images_and_layers_apart(self) -> bool:
        """Whether images and writable layers are together on a file system of their own."""
        return self.dedicated_image_fs and not self.dedicated_container_fs


class EvictionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet was told about eviction."""

    thresholds: tuple[Threshold, ...] = ()
    transition_period: Duration = Duration.seconds(300)
    """How long a condition stays after what caused it was last seen; zero: it is never shown at all."""
    max_pod_grace_period_s: int = 0
    local_storage_isolation: bool = True
    """Whether limits on local storage are kept."""
    pod_level_resources: bool = True
    """The gate PodLevelResources."""
    separate_disk_gc: bool = True
    """The gate KubeletSeparateDiskGC."""
    follows_defects: bool = True
    """Whether a crash of the kubelet is predicted, or avoided."""

    @classmethod
    def of(cls, config: KubeletConfiguration, gates: FeatureGates) -> "EvictionRules":
        """The rules that a valid, defaulted configuration makes.

        Follows: v1.36, pkg/kubelet/kubelet.go, NewMainKubelet.
        """
        settings = EvictionSettings(
            hard=config.eviction_hard,
            soft=config.eviction_soft,
            soft_grace_period=config.eviction_soft_grace_period,
            minimum_reclaim=config.eviction_minimum_reclaim,
        )
        for_pods = "pods" in (config.enforce_node_allocatable or ())
        return cls(
            thresholds=parse_thresholds(settings, for_pods=for_pods).thresholds,
            transition_period=config.eviction_pressure_transition_period,
            max_pod_grace_period_s=config.eviction_max_pod_grace_period,
            local_storage_isolation=config.local_storage_capacity_isolation,
            pod_level_resources=gates["PodLevelResources"],
            separate_disk_gc=gates["KubeletSeparateDiskGC"],
        )

    def avoiding_defects(self) -> "EvictionRules":
        """The rules for a manager that does not crash where the kubelet does."""
        return with_changes(self, follows_defects=False)


class Watched(NamedTuple):
    """The thresholds that are watched; each keeps its place in the tuple for good."""

    thresholds: tuple[Threshold, ...]
    in_first_pass: int
    """How many of them the very first pass looks at; those that were derived in it come later."""


def watched(configured: tuple[Threshold, ...], filesystems: Filesystems) -> Watched:
    """The configured thresholds with those of containerfs, which are copies of nodefs's or imagefs's.

    What was configured for containerfs is overwritten, or falls away where there is nothing to copy.

    Follows: v1.36, eviction/helpers.go, UpdateContainerFsThresholds.
    """
    if filesystems.dedicated_container_fs and not filesystems.dedicated_image_fs:
        return _as_the_kubelet_tells_them_apart(configured, ())
    source = "imagefs" if filesystems.keep_images_and_layers_apart else "nodefs"
    kept: list[Threshold | None] = list(configured)
    derived: list[Threshold] = []
    for what in ("available", "inodesFree"):
        target = Signal(f"containerfs.{what}")
        for hard in (True, False):
            original = _last(configured, Signal(f"{source}.{what}"), hard=hard)
            copy = None if original is None else _renamed(configured[original], target)
            place = _last(configured, target, hard=hard)
            if place is not None:
                kept[place] = copy
            elif copy is not None:
                derived.append(copy)
    return _as_the_kubelet_tells_them_apart((one for one in kept if one is not None), derived)


def _last(thresholds: tuple[Threshold, ...], signal: Signal, *, hard: bool) -> int | None:
    """The place of the last threshold on the signal; a soft one without a grace period passes for hard."""
    return next(
        (
            place
            for place in reversed(range(len(thresholds)))
            if thresholds[place].signal is signal and thresholds[place].is_hard is hard
        ),
        None,
    )


def _renamed(threshold: Threshold, signal: Signal) -> Threshold:
    return Threshold(
        signal=signal,
        value=threshold.value,
        grace_period=threshold.grace_period,
        min_reclaim=threshold.min_reclaim,
    )


def _as_the_kubelet_tells_them_apart(first: Iterable[Threshold], later: Iterable[Threshold]) -> Watched:
    """Equal percentages are one threshold; equal amounts are two, since the kubelet compares their addresses."""
    seen: list[Threshold] = []

    def is_new(one: Threshold) -> bool:
        is_a_value = one.value.quantity is None and one.min_reclaim is None
        if is_a_value and one in seen:
            return False
        seen.append(one)
        return True

    before = [one for one in first if is_new(one)]
    after = [one for one in later if is_new(one)]
    return Watched((*before, *after), len(before))
