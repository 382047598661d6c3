"""What is observed of each signal, and which thresholds that meets."""

from collections.abc import Iterable, Mapping

import msgspec

from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import FilesystemUse, MemoryUse, ProcessLimit, Usage
from nodewright.values.instant import ZERO_TIME, Instant
from nodewright.values.quantity import Format, Quantity
from nodewright.values.units import wrap_int64

PODS_CGROUP = "pods"
"""The name under which a summary lists the cgroup of all pods."""


class Observed(msgspec.Struct, frozen=True):
    """What is left of what a signal watches, and how much there is in all."""

    available: Quantity
    capacity: Quantity
    at: Instant | None = None
    """When it was measured; None: nobody says, so it counts as new each time."""


Observations = Mapping[Signal, Observed]
"""By signal; what was not observed is not in it, and meets nothing."""


def observations(usage: Usage) -> dict[Signal, Observed]:
    """What the reading says of each signal.

    Follows: v1.36, eviction/helpers.go, makeSignalObservations; helpers_others.go.
    """
    node = usage.node
    pods = next((one.memory for one in node.system_containers if one.name == PODS_CGROUP), None)
    runtime = node.runtime
    found = {
        Signal.MEMORY_AVAILABLE: _memory(node.memory),
        Signal.ALLOCATABLE_MEMORY_AVAILABLE: _memory(pods),
        Signal.NODEFS_AVAILABLE: _bytes(node.fs),
        Signal.NODEFS_INODES_FREE: _inodes(node.fs),
        Signal.PID_AVAILABLE: _processes(node.rlimit),
    }
    if runtime is not None:
        found[Signal.IMAGEFS_AVAILABLE] = _bytes(runtime.image_fs)
        found[Signal.IMAGEFS_INODES_FREE] = _inodes(runtime.image_fs)
        found[Signal.CONTAINERFS_AVAILABLE] = _bytes(runtime.container_fs)
        found[Signal.CONTAINERFS_INODES_FREE] = _inodes(runtime.container_fs)
    return {signal: observed for signal, observed in found.items() if observed is not None}


def target(threshold: Threshold, capacity: Quantity, *, reclaimed: bool = False) -> Quantity:
    """Below what amount the threshold is met; with ``reclaimed``, what must be reached until it is no more."""
    amount = threshold.value.of(capacity)
    if reclaimed and threshold.min_reclaim is not None:
        return amount + threshold.min_reclaim.of(capacity)
    return amount


def places_met(
    thresholds: tuple[Threshold, ...],
    places: Iterable[int],
    observed: Observations,
    *,
    reclaimed: bool = False,
) -> list[int]:
    """Which of the thresholds at these places are met; with ``reclaimed``, minimum reclaim counts, too.

    Follows: v1.36, eviction/helpers.go, thresholdsMet.
    """
    found = []
    for place in places:
        threshold = thresholds[place]
        here = observed.get(threshold.signal)
        if here is None:
            continue
        if target(threshold, here.capacity, reclaimed=reclaimed).compare(here.available) > 0:
            found.append(place)
    return found


def _memory(memory: MemoryUse | None) -> Observed | None:
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return None
    return _observed(
        memory.available_bytes,
        memory.available_bytes + memory.working_set_bytes,
        memory.time,
        Format.BINARY_SI,
    )


def _bytes(fs: FilesystemUse | None) -> Observed | None:
    if fs is None or fs.available_bytes is None or fs.capacity_bytes is None:
        return None
    return _observed(fs.available_bytes, fs.capacity_bytes, fs.time, Format.BINARY_SI)


def _inodes(fs: FilesystemUse | None) -> Observed | None:
    if fs is None or fs.inodes_free is None or fs.inodes is None:
        return None
    return _observed(fs.inodes_free, fs.inodes, fs.time, Format.DECIMAL_SI)


def _processes(limit: ProcessLimit | None) -> Observed | None:
    if limit is None or limit.max_pid is None or limit.running is None:
        return None
    return _observed(limit.max_pid - limit.running, limit.max_pid, limit.time, Format.DECIMAL_SI)


def _observed(available: int, capacity: int, at: Instant | None, fmt: Format) -> Observed:
    # The kubelet puts unsigned numbers into signed ones.
    return Observed(
        Quantity.of(wrap_int64(available), fmt),
        Quantity.of(wrap_int64(capacity), fmt),
        None if at == ZERO_TIME else at,
    )
