"""What the eviction manager remembers, sees and does: values."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.core.eviction.claims import Claim
from nodewright.core.eviction.ranking import Candidate
from nodewright.core.eviction.rules import EvictionRules, Filesystems, watched
from nodewright.core.eviction.signals import Observations, Observed
from nodewright.model.eviction_reasons import (
    LimitExceeded,
    NodeRanShort,
    SplitFilesystemsUnsupported,
    VolumeUseMissing,
)
from nodewright.model.pressure import RESOURCES, NodeCondition
from nodewright.model.resource_names import EPHEMERAL_STORAGE, INODES
from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import Usage
from nodewright.values.duration import Duration
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity


class EvictionState(msgspec.Struct, frozen=True, kw_only=True):
    """What the manager carries from one pass to the next; of a kubelet that has just started, nothing.

    Units: times in nanoseconds on the caller's clock.
    """

    filesystems: Filesystems | None = None
    """As the first pass found them; they are not looked at again."""
    can_rank: bool = True
    """False: it met file systems that it does not support, and ends no pod for pressure."""
    thresholds: tuple[Threshold, ...] = ()
    """All that are watched; the numbers below are places in it."""
    first_met_ns: Mapping[int, int] = {}
    """Since when each threshold is met without a break."""
    due: tuple[int, ...] = ()
    """The thresholds that were met beyond their grace period; they stay until minimum reclaim is reached."""
    last_seen_ns: Mapping[NodeCondition, int] = {}
    conditions: tuple[NodeCondition, ...] = ()
    """What the node says of itself, in the order of `NodeCondition`."""
    measured: Mapping[Signal, Instant | None] = {}
    """When what was last seen of each signal was measured."""

    @property
    def thresholds_met(self) -> tuple[Threshold, ...]:
        """The thresholds that are carried over to the next pass."""
        return tuple(self.thresholds[place] for place in self.due)

    def knowing(self, rules: EvictionRules, filesystems: Filesystems) -> "EvictionState":
        """The state once the file systems are known, and with them the thresholds that are watched.

        Follows: v1.36, eviction/eviction_manager.go, synchronize.
        """
        if filesystems.dedicated_container_fs and not rules.separate_disk_gc:
            return replace(self, filesystems=filesystems, thresholds=rules.thresholds, can_rank=False)
        return replace(
            self, filesystems=filesystems, thresholds=watched(rules.thresholds, filesystems).thresholds
        )


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass has before it."""

    usage: Usage | None
    """The reading; None: it failed, and the pass does nothing."""
    claims: tuple[Claim, ...]
    """The active pods, in the kubelet's order."""
    filesystems: Filesystems = Filesystems()
    """What the container runtime says of them now."""


class NodeReclaim(StrEnum):
    """What a node can give back without ending pods."""

    CONTAINERS = "containers"
    """Dead containers."""
    IMAGES = "images"
    """Images that nobody uses."""


class Met(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold that is met, or is held until minimum reclaim is reached."""

    threshold: Threshold
    amount: Quantity
    """What the threshold comes to."""
    observed: Observed
    waited: Duration
    """For how long it has been met."""
    is_held: bool
    """The signal is back above the threshold, but less than minimum reclaim above it."""
    is_due: bool
    """Its grace period is over."""
    is_fresh: bool
    """It was measured after the last pass; what was not, triggers nothing."""


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that is to be ended, and why. Its status becomes Failed, reason Evicted.

    Units: grace_period_s in seconds.
    """

    claim: Claim
    grace_period_s: int
    because: NodeRanShort | LimitExceeded

    @property
    def is_disruption(self) -> bool:
        """Whether the pod gets the condition DisruptionTarget."""
        return isinstance(self.because, NodeRanShort)


Stop: TypeAlias = VolumeUseMissing | SplitFilesystemsUnsupported


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """A pass as far as it needs no second reading: do `evictions` and `reclaim`, read again, then `relieve`."""

    state: EvictionState
    observation: Observation
    observed: Observations = {}
    met: tuple[Met, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """For limits on local storage; where there are any, that is all that the pass does."""
    choices: tuple[Threshold, ...] = ()
    """The thresholds of which the kubelet takes up one."""
    target: Threshold | None = None
    """The one taken up here: the first of them."""
    stopped: Stop | None = None
    """What ended the pass early."""

    @property
    def reclaim(self) -> tuple[NodeReclaim, ...]:
        """What the node is to give back first, in this order."""
        filesystems = self.state.filesystems
        if self.target is None or filesystems is None or not self.state.can_rank:
            return ()
        return reclaimable(self.target.signal, filesystems)

    def instead(self, threshold: Threshold) -> "Situation":
        """The same pass, if another of the choices is taken up."""
        return replace(self, target=threshold)


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A whole pass: what it did and why."""

    state: EvictionState
    met: tuple[Met, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """In this order; at most one of them for pressure."""
    target: Threshold | None = None
    """The threshold that was taken up; None: nothing was short, or limits came first."""
    others: tuple[Threshold, ...] = ()
    """Thresholds that the kubelet might have taken up in its place: which one, is random there."""
    reclaimed: tuple[NodeReclaim, ...] = ()
    """What the node was to give back first."""
    was_enough: bool = False
    """Whether no threshold was met any more after that, minimum reclaim included."""
    ranking: tuple[Candidate, ...] = ()
    """All active pods in the order in which they would go; empty where nobody had to."""
    stopped: Stop | None = None

    @property
    def spared(self) -> tuple[Candidate, ...]:
        """The critical pods that were passed over."""
        gone = {one.claim.uid for one in self.evictions}
        found = []
        for candidate in self.ranking:
            if candidate.claim.uid in gone:
                break
            found.append(candidate)
        return tuple(found)


def reclaimable(signal: Signal, filesystems: Filesystems) -> tuple[NodeReclaim, ...]:
    """What the node gives back before pods have to go for the signal.

    Follows: v1.36, eviction/helpers.go, buildSignalToNodeReclaimFuncs.

    >>> reclaimable(Signal.NODEFS_AVAILABLE, Filesystems(dedicated_image_fs=True))
    ()
    >>> [one.value for one in reclaimable(Signal.IMAGEFS_INODES_FREE, Filesystems())]
    ['containers', 'images']
    """
    if RESOURCES[signal] not in (EPHEMERAL_STORAGE, INODES):
        return ()
    is_nodefs = signal in (Signal.NODEFS_AVAILABLE, Signal.NODEFS_INODES_FREE)
    is_imagefs = signal in (Signal.IMAGEFS_AVAILABLE, Signal.IMAGEFS_INODES_FREE)
    if filesystems.are_split:
        return (NodeReclaim.IMAGES,) if is_imagefs else (NodeReclaim.CONTAINERS,)
    if filesystems.keep_images_and_layers_apart and is_nodefs:
        return ()
    return (NodeReclaim.CONTAINERS, NodeReclaim.IMAGES)
