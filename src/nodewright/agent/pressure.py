"""Looks at what is left of the node, seldom while there is much and often near a threshold, and tells the loop."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from nodewright.agent.images import ImageKeeper
from nodewright.agent.loop import Loop
from nodewright.agent.readings import PodReadings
from nodewright.agent.reclaim import reclaim
from nodewright.agent.relief import still_leaving
from nodewright.agent.timing import Beside, steady_ns
from nodewright.agent.values import ReclaimNode, Tell, UsageSeen
from nodewright.core.eviction import (
    ADAPTIVE,
    Distance,
    EvictionPolicy,
    EvictionState,
    Filesystems,
    Observation,
    distance,
    due_in_ns,
    observations,
    watched,
)
from nodewright.core.eviction.policy import MONITORING_INTERVAL_NS, NEAR_NS, SECOND_NS
from nodewright.model.objects import Pod
from nodewright.model.pressure import CONDITIONS, NodeCondition
from nodewright.model.thresholds import Signal, Threshold
from nodewright.model.usage import NodeUse, PodUse, Usage
from nodewright.node.cgroups import cgroup_rules, cgroup_tree
from nodewright.node.config import NodeConfig
from nodewright.values.instant import Instant
from nodewright.world.alarms import KernelAlarms
from nodewright.world.errors import WorldError
from nodewright.world.gauges import MachineGauges
from nodewright.world.local_storage import DiskStorage, PodPlaces
from nodewright.world.ports import THRESHOLD, Alarms, Gauges, LocalStorage

STORAGE_PERIOD_S = 60.0
"""How long it is at least from one look at the pods' files to the next, as for the kubelet."""
STORAGE_SHARE = 100
"""Looking at files takes at most one of so many parts of the time."""
DISK_PERIOD_S = 1.0
PENDING_NS = 5 * SECOND_NS
"""How long the loop is waited for."""
ALARM_REST_S = 0.01
"""After an alarm none is listened to for so long: there may be a flood of them."""
_OF_PODS = Signal.ALLOCATABLE_MEMORY_AVAILABLE


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the machine that are watched."""

    gauges: Gauges
    storage: LocalStorage | None = None
    alarms: Alarms | None = None
    images: ImageKeeper | None = None
    beside: Beside = asyncio.to_thread
    """Does what may take long, while the loop goes on."""

    @classmethod
    def here(
        cls,
        config: NodeConfig,
        nodefs: Path,
        places: Callable[[Pod], PodPlaces],
        imagefs: Path | None = None,
        images: ImageKeeper | None = None,
    ) -> Self:
        """The parts of the machine that we run on, for a node of this configuration.

        ``nodefs`` is where pods keep volumes and logs, ``places`` what of it is whose; ``imagefs`` where images are.
        """
        group = pods_group(config)
        return cls(
            gauges=MachineGauges(group, nodefs=nodefs, imagefs=imagefs),
            storage=DiskStorage(places),
            alarms=KernelAlarms(group),
            images=images,
        )


def pods_group(config: NodeConfig) -> str:
    """The group of all pods, from the root of the tree."""
    return cgroup_tree(config).root.path(cgroup_rules(config).driver)


class Pressure:
    """Observes the node for the loop, by a policy.

    A look reads what is left, which takes some microseconds. Only when that makes a difference the pods are read, too,
    and a pass of the eviction manager is made: that is what `UsageSeen` asks for.
    """

    def __init__(self, loop: Loop, watched_parts: Watched, policy: EvictionPolicy = ADAPTIVE) -> None:
        self._loop, self._parts, self._policy = loop, watched_parts, policy
        self._readings = PodReadings(loop.performer.cgroups)
        self.distance: Distance | None = None
        self.looks, self.passes = 0, 0
        self._disks, self._filesystems = NodeUse(), Filesystems()
        self._storage: dict[str, PodUse] = {}
        self._passed_ns: int | None = None
        """When a pass was last asked for."""
        self._seen_met: frozenset[Threshold] = frozenset()
        """What was met then."""
        self._evictions = 0
        """How many there had been when a pass was last asked for."""
        self._asked: EvictionState | None = None
        """What the loop knew then: while it knows no more, it has not come to it yet."""
        self._is_reclaiming = False
        self._told = ""
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    @property
    def gauges(self) -> Gauges:
        """What of the machine as a whole is left."""
        return self._parts.gauges

    @property
    def disks(self) -> NodeUse:
        """The file systems as they were last seen."""
        return self._disks

    @property
    def storage(self) -> Mapping[str, PodUse]:
        """By uid what pods hold on disks, as it was last seen."""
        return self._storage

    async def run(self) -> None:
        """Look, until it is cancelled."""
        await self._read_disks()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._watch_disks())
                if self._parts.storage is not None:
                    group.create_task(self._watch_storage(self._parts.storage))
                if self._parts.alarms is not None:
                    group.create_task(self._listen(self._parts.alarms))
                while True:
                    await self._pause(self.look())
        finally:
            self._group = None

    def reclaim(self, work: ReclaimNode) -> None:
        """Have the node give something back, and look at it again."""
        if self._group is not None and not self._is_reclaiming:
            self._is_reclaiming = True
            self._group.create_task(self._reclaim(work))

    def look(self) -> int:
        """Look once; how long the next look can wait.

        Units: nanoseconds.
        """
        self.looks += 1
        if not self._loop.has_begun:
            # What all pods use cannot be seen before their group is there; and of pods of which it is not known yet
            # what runs, any might be taken for the one that uses most.
            return NEAR_NS
        now_ns, mind = steady_ns(self._loop.clock), self._loop.mind
        try:
            node = self._node()
        except WorldError as error:
            self._complain(str(error))
            return MONITORING_INTERVAL_NS
        observed = observations(self._policy.seen(Usage(node=node)))
        self.distance = distance(self._thresholds(), observed, now_ns, self.distance)
        self._arm(node)
        if still_leaving(mind.leaving, mind.pods, now_ns) or self._is_reclaiming:
            return SECOND_NS if self._policy.waits_for_cleanup else NEAR_NS
        due_ns = due_in_ns(mind.eviction, now_ns)
        if self._is_pass_due(now_ns, due_ns):
            self._pass(node, now_ns)
        if self._is_pending(now_ns):
            return NEAR_NS
        return self.distance.wait_ns(self._policy, due_ns)

    def _is_pass_due(self, now_ns: int, due_ns: int | None) -> bool:
        """Whether a pass of the eviction manager would find something new."""
        assert self.distance is not None
        if self._passed_ns is None or now_ns - self._passed_ns >= MONITORING_INTERVAL_NS:
            return True
        if self._loop.mind.evictions != self._evictions or self.distance.met != self._seen_met:
            return True
        return due_ns is not None and due_ns <= 0

    def _is_pending(self, now_ns: int) -> bool:
        """Whether something is met, and the loop has not said yet what comes of it."""
        assert self.distance is not None
        assert self._passed_ns is not None
        has_answered = self._loop.mind.eviction is not self._asked
        return bool(self.distance.met) and not has_answered and now_ns - self._passed_ns < PENDING_NS

    def _pass(self, node: NodeUse, now_ns: int, *, is_after_reclaim: bool = False) -> None:
        """Ask the loop for a pass."""
        assert self.distance is not None
        self.passes += 1
        self._passed_ns, self._seen_met = now_ns, self.distance.met
        mind, at = self._loop.mind, Instant(now_ns)
        self._asked, self._evictions = mind.eviction, mind.evictions
        counts = any(CONDITIONS[one.signal] is NodeCondition.PID_PRESSURE for one in self.distance.met)
        pods = self._readings.uses(mind, at, self._storage, counts_processes=counts)
        observation = Observation(
            usage=self._policy.seen(Usage(node=node, pods=pods)),
            claims=self._readings.claims(mind, now_ns),
            filesystems=self._filesystems,
        )
        self._loop.see(UsageSeen(observation, is_after_reclaim))

    def _node(self) -> NodeUse:
        """What is left, with disks as they were last seen."""
        found = self._parts.gauges.now()
        return replace(found, fs=self._disks.fs, runtime=self._disks.runtime)

    def _thresholds(self) -> tuple[Threshold, ...]:
        state = self._loop.mind.eviction
        if state.filesystems is not None:
            return state.thresholds
        return watched(self._loop.mind.node.config.eviction.thresholds, self._filesystems).thresholds

    def _arm(self, node: NodeUse) -> None:
        """Have the kernel tell when all pods use as much as leaves the nearest of their thresholds."""
        if self._parts.alarms is None or self.distance is None:
            return
        left = [room.left for one, room in self.distance.rooms.items() if one.signal is _OF_PODS]
        above = [one for one in left if one >= 0]
        memory = next((one.memory for one in node.system_containers), None)
        used = None if memory is None else memory.usage_bytes or memory.working_set_bytes
        self._parts.alarms.arm(_rounded(used + min(above)) if above and used is not None else None)

    # ------------------------------------------------------------ beside the looks

    async def _pause(self, wait_ns: int) -> None:
        """Wait so long, or until something is new."""
        timer = asyncio.ensure_future(self._loop.clock.sleep(wait_ns / SECOND_NS))
        waker = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({timer, waker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waker.cancel()
        self._wake.clear()

    async def _watch_disks(self) -> None:
        """Look at the disks beside the loop: one that does not answer holds up nobody."""
        while True:
            wait_s = self._disk_wait_ns() / SECOND_NS
            await self._loop.clock.sleep(max(wait_s, DISK_PERIOD_S))
            await self._read_disks()
            self._wake.set()

    def _disk_wait_ns(self) -> int:
        if self.distance is None:
            return MONITORING_INTERVAL_NS
        rooms = {
            one: room
            for one, room in self.distance.rooms.items()
            if CONDITIONS[one.signal] is NodeCondition.DISK_PRESSURE
        }
        return Distance(at_ns=0, rooms=rooms).wait_ns(self._policy)

    async def _read_disks(self) -> None:
        try:
            self._disks, self._filesystems = await self._parts.beside(self._parts.gauges.disks)
        except WorldError as error:
            self._complain(str(error))

    async def _watch_storage(self, storage: LocalStorage) -> None:
        """Look at the pods' files, one pod after the other."""
        clock = self._loop.clock
        while True:
            began_s, found = clock.monotonic_s(), dict[str, PodUse]()
            for uid, record in tuple(self._loop.mind.pods.items()):
                found[uid] = await self._parts.beside(partial(storage.of, record.pod))
            self._storage = found
            took_s = clock.monotonic_s() - began_s
            await clock.sleep(max(STORAGE_PERIOD_S, took_s * STORAGE_SHARE))

    async def _listen(self, alarms: Alarms) -> None:
        """Look at once when the kernel tells something. The kubelet listens to thresholds, and only if told to."""
        kubelet = self._loop.mind.node.config.parts.kubelet
        while True:
            name = await alarms.ring()
            if not self._policy.is_notified or (name == THRESHOLD and kubelet.kernel_memcg_notification):
                self._wake.set()
            await self._loop.clock.sleep(ALARM_REST_S)

    async def _reclaim(self, work: ReclaimNode) -> None:
        runtime, mind = self._loop.performer.runtime, self._loop.mind
        try:
            for told in await reclaim(work.what, runtime, self._parts.images, mind.pods):
                self._complain(told)
            await self._read_disks()
            now_ns, node = steady_ns(self._loop.clock), self._node()
            observed = observations(self._policy.seen(Usage(node=node)))
            self.distance = distance(self._thresholds(), observed, now_ns, self.distance)
            self._pass(node, now_ns, is_after_reclaim=True)
        except WorldError as error:
            self._complain(str(error))
        finally:
            self._is_reclaiming = False
            self._wake.set()

    def _complain(self, message: str) -> None:
        """Say what went wrong, once."""
        if message != self._told:
            self._told = message
            self._loop.ears.tell(Tell(uid="", is_warning=True, reason="PressureNotSeen", message=message))


def _rounded(amount: int) -> int:
    """So that small changes of what is idle do not make another threshold of it: up to the next MiB."""
    return -(-amount >> 20) << 20
