"""Who goes, one after the other, until nobody has to, if nothing else changes on the node."""

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.manager import synchronize
from nodewright.core.eviction.ranking import Part, disk_usage, parts_that_count
from nodewright.core.eviction.rules import EvictionRules, Filesystems
from nodewright.core.eviction.signals import PODS_CGROUP, observations
from nodewright.core.eviction.state import Eviction, EvictionState, Observation, Pass
from nodewright.model.thresholds import Signal
from nodewright.model.usage import FilesystemUse, MemoryUse, PodUse, Usage
from nodewright.values.quantity import Quantity

INTERVAL_S = 10
"""How often the manager goes over the node while it ends nobody.

Follows: v1.36, pkg/kubelet/kubelet.go, evictionMonitoringPeriod.
"""

CLEANED_UP_S = 1
"""The least time after which it goes on once it has ended a pod: it asks each second whether the pod is gone.

Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup.
"""


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is ended, and what that brings.

    Units: at_s in seconds from now, at the earliest: each pod ends as soon as it is told to; freed in bytes, or pieces of inodes and processes.
    """

    eviction: Eviction
    at_s: int
    taken_up: Signal | None
    """The signal that it is ended for; None: for a limit of its own."""
    freed: int | None
    """How much of that there is more afterwards; None: it is not ended for a signal."""
    left: Quantity | None
    """How much there is of it then."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What comes if usage stays as it is, and an ended pod gives back all that it was seen to use."""

    first: Pass
    """The pass that is made now."""
    deciding: Pass
    """The first pass that has to take something back; the first of all if none has."""
    departures: tuple[Departure, ...] = ()
    last: Pass
    """The pass after which nothing changes any more."""
    observation: Observation
    """What is left then."""

    @property
    def is_relieved(self) -> bool:
        """Whether no threshold is met in the end, minimum reclaim included."""
        return (not self.last.met and self.last.stopped is None) or self.last.was_enough


def outlook(
    rules: EvictionRules, observation: Observation, state: EvictionState, after: Usage | None = None
) -> Outlook:
    """The passes from now on, until one ends nobody and no grace period is running.

    ``after`` is the reading once the node has given back what it can; None: that changes nothing. An ended pod
    gives back its working set, files and processes as they were measured; a real one may share some of it.

    Follows: v1.36, eviction/eviction_manager.go, Start, synchronize.
    Departs: the kubelet waits up to 30 seconds for what is left of an ended pod; here it is gone at once.
    """
    at_s, departures = 0, list[Departure]()
    first = done = synchronize(rules, state, observation, at_s, after)
    deciding = None
    while True:
        if deciding is None and (done.evictions or done.target is not None):
            deciding = done
        if done.reclaimed and after is not None:
            observation = replace(observation, usage=after)
        for eviction in done.evictions:
            observation, departure = _after(observation, done, eviction, at_s)
            departures.append(departure)
        wait_s = CLEANED_UP_S if done.evictions else _until_due_s(done)
        if wait_s is None:
            break
        at_s += wait_s
        # What is read later is new, whenever the first reading was taken.
        done = synchronize(rules, replace(done.state, measured={}), observation, at_s, after)
    return Outlook(
        first=first,
        deciding=deciding or first,
        departures=tuple(departures),
        last=done,
        observation=observation,
    )


def _until_due_s(done: Pass) -> int | None:
    """When the next grace period is over, at a pass; None: none is running, or the manager has stopped."""
    if done.stopped is not None:
        return None
    waits = [
        (one.threshold.grace_period.nanoseconds - one.waited.nanoseconds) / 10**9
        for one in done.met
        if not one.is_due
    ]
    return -int(-min(waits) // INTERVAL_S) * INTERVAL_S if waits else None


def _after(
    observation: Observation, done: Pass, eviction: Eviction, at_s: int
) -> tuple[Observation, Departure]:
    """What is left once the pod is gone."""
    assert observation.usage is not None
    disks = done.state.filesystems or observation.filesystems
    usage = without_pod(observation.usage, eviction.claim, disks)
    left = replace(
        observation,
        usage=usage,
        claims=tuple(one for one in observation.claims if one.uid != eviction.claim.uid),
    )
    signal = done.target.signal if done.target is not None else None
    freed, available = None, None
    if signal is not None:
        available = observations(usage)[signal].available
        freed = available.value() - observations(observation.usage)[signal].available.value()
    return left, Departure(eviction=eviction, at_s=at_s, taken_up=signal, freed=freed, left=available)


def without_pod(usage: Usage, claim: Claim, filesystems: Filesystems) -> Usage:
    """The reading as it would be without the pod: all that it was seen to use is available."""
    use = next((one for one in reversed(usage.pods) if one.pod_ref.uid == claim.uid), None)
    if use is None:
        return usage
    node, memory = usage.node, (use.memory.working_set_bytes or 0) if use.memory else 0
    limit, processes = node.rlimit, (use.processes.process_count or 0) if use.processes else 0
    if limit is not None and limit.running is not None:
        limit = replace(limit, running=max(limit.running - processes, 0))
    runtime = node.runtime
    if runtime is not None:
        images = parts_that_count(Signal.IMAGEFS_AVAILABLE, filesystems)
        layers = parts_that_count(Signal.CONTAINERFS_AVAILABLE, filesystems)
        runtime = replace(
            runtime,
            image_fs=_roomier(runtime.image_fs, use, claim, images),
            container_fs=_roomier(runtime.container_fs, use, claim, layers),
        )
    return replace(
        usage,
        node=replace(
            node,
            memory=_with_memory(node.memory, memory),
            system_containers=tuple(
                replace(one, memory=_with_memory(one.memory, memory)) if one.name == PODS_CGROUP else one
                for one in node.system_containers
            ),
            fs=_roomier(node.fs, use, claim, parts_that_count(Signal.NODEFS_AVAILABLE, filesystems)),
            runtime=runtime,
            rlimit=limit,
        ),
        pods=tuple(one for one in usage.pods if one.pod_ref.uid != claim.uid),
    )


def _with_memory(memory: MemoryUse | None, freed: int) -> MemoryUse | None:
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return memory
    freed = min(freed, memory.working_set_bytes)
    return replace(
        memory,
        available_bytes=memory.available_bytes + freed,
        working_set_bytes=memory.working_set_bytes - freed,
    )


def _roomier(
    fs: FilesystemUse | None, use: PodUse, claim: Claim, parts: frozenset[Part]
) -> FilesystemUse | None:
    if fs is None:
        return None
    return replace(
        fs,
        available_bytes=_more(
            fs.available_bytes, disk_usage(claim, use, parts, inodes=False), fs.capacity_bytes
        ),
        inodes_free=_more(fs.inodes_free, disk_usage(claim, use, parts, inodes=True), fs.inodes),
    )


def _more(available: int | None, freed: int, capacity: int | None) -> int | None:
    if available is None:
        return None
    return available + freed if capacity is None else max(available, min(available + freed, capacity))
