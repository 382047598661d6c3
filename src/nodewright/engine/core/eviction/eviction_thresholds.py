"""Eviction thresholds: the configuration, the thresholds on a node's file systems, and which of them are met."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace as with_changes

from nodewright.model.kubernetes.eviction_thresholds import (
    Signal,
    Threshold,
    parse_thresholds,
)
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration, eviction_settings
from nodewright.model.kubernetes.stats_summary import FsStats, MemoryStats, RlimitStats, StatsSummary
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.duration import Duration
from nodewright.model.values.instant import ZERO_TIME, Instant
from nodewright.model.values.quantity import Quantity, QuantityFormat, wrap_int64


class NodeFilesystems(msgspec.Struct, frozen=True, kw_only=True):
    """The file systems of a node that are separate from the kubelet's (nodefs)."""

    dedicated_image_fs: bool = False
    """Images are on a separate file system."""
    dedicated_container_fs: bool = False
    """Writable layers are not on the images' file system."""

    @property
    def is_image_fs_split(self) -> bool:
        """Whether only images are separate, and writable layers are on nodefs."""
        return self.dedicated_image_fs and self.dedicated_container_fs

    @property
    def images_and_layers_share_fs(self) -> bool:
        """Whether images and writable layers share a separate file system."""
        return self.dedicated_image_fs and not self.dedicated_container_fs


class EvictionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The eviction settings of a kubelet."""

    thresholds: tuple[Threshold, ...] = ()
    pressure_transition_period: Duration = Duration.seconds(300)
    """The time for which a condition remains after its last cause; zero: it is never reported."""
    max_pod_grace_period_s: int = 0
    local_storage_isolation: bool = True
    """Whether limits on local storage are enforced."""
    names_pod_level: bool = True
    """Whether messages name usage and request of the pod level."""
    overwrites_grace_period: bool = False
    """The gate AllowOverwriteTerminationGracePeriodSeconds: pods' own grace periods do not count."""
    separate_disk_gc: bool = True
    """The gate KubeletSeparateDiskGC."""
    follows_defects: bool = True
    """Whether a crash of the kubelet is predicted, or avoided."""

    @classmethod
    def of(cls, config: KubeletConfiguration, gates: FeatureGates) -> "EvictionConfig":
        """The settings in a valid, defaulted configuration.

        Follows: v1.36, pkg/kubelet/kubelet.go, NewMainKubelet.
        """
        for_pods = "pods" in (config.enforce_node_allocatable or ())
        return cls(
            thresholds=parse_thresholds(eviction_settings(config), for_pods=for_pods).thresholds,
            pressure_transition_period=config.eviction_pressure_transition_period,
            max_pod_grace_period_s=config.eviction_max_pod_grace_period,
            local_storage_isolation=config.local_storage_capacity_isolation,
            names_pod_level=gates["PodLevelResources"] and gates.rules.eviction_names_pod_level,
            overwrites_grace_period=gates["AllowOverwriteTerminationGracePeriodSeconds"],
            separate_disk_gc=gates["KubeletSeparateDiskGC"],
        )

    def without_defects(self) -> "EvictionConfig":
        """The settings for a manager without the kubelet's crashes."""
        return with_changes(self, follows_defects=False)


class WatchedThresholds(NamedTuple):
    """The watched thresholds; their indexes never change."""

    thresholds: tuple[Threshold, ...]
    first_pass_count: int
    """The number of thresholds in the first pass, without those that are derived in it."""


def watched_thresholds(configured: tuple[Threshold, ...], filesystems: NodeFilesystems) -> WatchedThresholds:
    """The configured thresholds with those of containerfs, which are copied from nodefs or imagefs.

    Thresholds configured for containerfs are overwritten, or dropped if there is nothing to copy.

    Follows: v1.36, eviction/helpers.go, UpdateContainerFsThresholds.
    """
    if filesystems.dedicated_container_fs and not filesystems.dedicated_image_fs:
        return _deduplicated(configured, ())
    source = "imagefs" if filesystems.images_and_layers_share_fs else "nodefs"
    kept: list[Threshold | None] = list(configured)
    derived: list[Threshold] = []
    for what in ("available", "inodesFree"):
        target = Signal(f"containerfs.{what}")
        for hard in (True, False):
            original = _last(configured, Signal(f"{source}.{what}"), hard=hard)
            copy = None if original is None else _renamed(configured[original], target)
            index = _last(configured, target, hard=hard)
            if index is not None:
                kept[index] = copy
            elif copy is not None:
                derived.append(copy)
    return _deduplicated((threshold for threshold in kept if threshold is not None), derived)


def _last(thresholds: tuple[Threshold, ...], signal: Signal, *, hard: bool) -> int | None:
    """The index of the last threshold on the signal; a soft one without a grace period counts as hard."""
    return next(
        (
            index
            for index in reversed(range(len(thresholds)))
            if thresholds[index].signal is signal and thresholds[index].is_hard is hard
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


def _deduplicated(first: Iterable[Threshold], later: Iterable[Threshold]) -> WatchedThresholds:
    """Equal percentages are one threshold; equal amounts are two, since the kubelet compares their addresses."""
    unique: list[Threshold] = []

    def is_new(threshold: Threshold) -> bool:
        has_no_pointer = threshold.value.quantity is None and threshold.min_reclaim is None
        if has_no_pointer and threshold in unique:
            return False
        unique.append(threshold)
        return True

    before = [threshold for threshold in first if is_new(threshold)]
    after = [threshold for threshold in later if is_new(threshold)]
    return WatchedThresholds((*before, *after), len(before))


PODS_CGROUP = "pods"
"""The name of the cgroup of all pods in a stats summary."""


class SignalObservation(msgspec.Struct, frozen=True):
    """The available amount and the capacity of a signal's resource."""

    available: Quantity
    capacity: Quantity
    measured_at: Instant | None = None
    """The time of measurement; None: unknown, so it always counts as new."""


SignalObservations = Mapping[Signal, SignalObservation]
"""The observations by signal; a signal without one meets no threshold."""


def signal_observations(usage: StatsSummary) -> dict[Signal, SignalObservation]:
    """The observation of each signal in a stats summary.

    Follows: v1.36, eviction/helpers.go, makeSignalObservations; helpers_others.go.
    """
    node = usage.node
    pods = next(
        (container.memory for container in node.system_containers if container.name == PODS_CGROUP), None
    )
    runtime = node.runtime
    observations = {
        Signal.MEMORY_AVAILABLE: _memory(node.memory),
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: _memory(pods),
        Signal.NODEFS_AVAILABLE: _bytes(node.fs),
        Signal.NODEFS_INODES_FREE: _inodes(node.fs),
        Signal.PID_AVAILABLE: _processes(node.rlimit),
    }
    if runtime is not None:
        observations[Signal.IMAGEFS_AVAILABLE] = _bytes(runtime.image_fs)
        observations[Signal.IMAGEFS_INODES_FREE] = _inodes(runtime.image_fs)
        observations[Signal.CONTAINERFS_AVAILABLE] = _bytes(runtime.container_fs)
        observations[Signal.CONTAINERFS_INODES_FREE] = _inodes(runtime.container_fs)
    return {signal: observed for signal, observed in observations.items() if observed is not None}


def threshold_amount(threshold: Threshold, capacity: Quantity, *, reclaimed: bool = False) -> Quantity:
    """The amount below which the threshold is met; with ``reclaimed``, the amount including minimum reclaim."""
    amount = threshold.value.of(capacity)
    if reclaimed and threshold.min_reclaim is not None:
        return amount + threshold.min_reclaim.of(capacity)
    return amount


def thresholds_met(
    thresholds: tuple[Threshold, ...],
    indices: Iterable[int],
    observed: SignalObservations,
    *,
    reclaimed: bool = False,
) -> list[int]:
    """The indices of the met thresholds among these; with ``reclaimed``, including minimum reclaim.

    Follows: v1.36, eviction/helpers.go, thresholdsMet.
    """
    met = []
    for index in indices:
        threshold = thresholds[index]
        observation = observed.get(threshold.signal)
        if observation is None:
            continue
        if (
            threshold_amount(threshold, observation.capacity, reclaimed=reclaimed).compare(
                observation.available
            )
            > 0
        ):
            met.append(index)
    return met


def _memory(memory: MemoryStats | None) -> SignalObservation | None:
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return None
    return _observed(
        memory.available_bytes,
        memory.available_bytes + memory.working_set_bytes,
        memory.time,
        QuantityFormat.BINARY_SI,
    )


def _bytes(fs: FsStats | None) -> SignalObservation | None:
    if fs is None or fs.available_bytes is None or fs.capacity_bytes is None:
        return None
    return _observed(fs.available_bytes, fs.capacity_bytes, fs.time, QuantityFormat.BINARY_SI)


def _inodes(fs: FsStats | None) -> SignalObservation | None:
    if fs is None or fs.inodes_free is None or fs.inodes is None:
        return None
    return _observed(fs.inodes_free, fs.inodes, fs.time, QuantityFormat.DECIMAL_SI)


def _processes(limit: RlimitStats | None) -> SignalObservation | None:
    if limit is None or limit.max_pid is None or limit.running is None:
        return None
    return _observed(limit.max_pid - limit.running, limit.max_pid, limit.time, QuantityFormat.DECIMAL_SI)


def _observed(available: int, capacity: int, at: Instant | None, fmt: QuantityFormat) -> SignalObservation:
    # The kubelet converts unsigned numbers to signed ones.
    return SignalObservation(
        Quantity.of(wrap_int64(available), fmt),
        Quantity.of(wrap_int64(capacity), fmt),
        None if at == ZERO_TIME else at,
    )
