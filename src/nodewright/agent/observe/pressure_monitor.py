"""Watches the node's pressure, rarely while much is left and often near a threshold; reclaims node resources."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.resource_updates import pod_cgroup
from nodewright.agent.decide.termination import COUNTED_STAGES, pending_evictions
from nodewright.agent.host.eviction_readings import (
    DiskStorageStats,
    HostStatsProvider,
    KernelPressureNotifier,
    PodDirectories,
)
from nodewright.agent.host.ports import (
    THRESHOLD_NOTIFICATION,
    ContainerRuntime,
    EphemeralStorageStats,
    NodeStatsProvider,
    PressureNotifier,
)
from nodewright.agent.loop import AgentLoop
from nodewright.agent.pods.image_manager import ImageManager
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.agent.state.effects import ReclaimNodeResources
from nodewright.agent.state.observations import ClassMemory, LentMemoryObserved, NodeUsageObserved
from nodewright.cluster.tasks.supervision import BackgroundTask, error_text, run_supervised
from nodewright.cluster.tasks.timing import ThreadRunner, elapsed_s, monotonic_ns
from nodewright.documents.files.cgroup_files import CgroupManager, cgroup_memory
from nodewright.engine.core.cgroups.cgroup_names import QOSCgroupNames
from nodewright.engine.core.eviction.eviction_policy import (
    ADAPTIVE,
    MONITORING_INTERVAL_NS,
    NEAR_INTERVAL_NS,
    SECOND_NS,
    EvictionPolicy,
    ThresholdDistances,
    due_in_ns,
    threshold_distances,
)
from nodewright.engine.core.eviction.eviction_ranking import ActivePod
from nodewright.engine.core.eviction.eviction_state import EvictionObservation, EvictionState, NodeReclaim
from nodewright.engine.core.eviction.eviction_thresholds import (
    NodeFilesystems,
    signal_observations,
    watched_thresholds,
)
from nodewright.engine.node.eviction_pass import hidden_huge_pages
from nodewright.engine.node.node_cgroups import cgroup_rules, cgroup_tree
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.eviction_thresholds import (
    SIGNAL_CONDITIONS,
    NodeCondition,
    Signal,
    Threshold,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    ProcessStats,
    StatsSummary,
    SwapStats,
)
from nodewright.model.values.instant import Instant

STORAGE_PERIOD_S = 60.0
"""The kubelet's minimum interval between readings of the pods' files."""
STORAGE_TIME_DIVISOR = 100
"""Reading the pods' files takes at most this fraction of the time."""
DISK_PERIOD_S = 1.0
DECISION_TIMEOUT_NS = 5 * SECOND_NS
"""How long to wait for the loop's decision."""
ALARM_COOLDOWN_S = 0.01
"""Pause after a kernel notification, against floods of them."""
_PODS_SIGNAL = Signal.ALLOCATABLE_MEMORY_AVAILABLE


class MonitoredParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the machine that are watched."""

    gauges: NodeStatsProvider
    storage: EphemeralStorageStats | None = None
    alarms: PressureNotifier | None = None
    image_manager: ImageManager | None = None
    run_in_thread: ThreadRunner = asyncio.to_thread
    """Runs blocking functions beside the loop."""

    @classmethod
    def of_this_host(
        cls,
        config: NodeConfig,
        nodefs: Path,
        pod_directories: Callable[[Pod], PodDirectories],
        imagefs: Path | None = None,
        image_manager: ImageManager | None = None,
    ) -> Self:
        """The parts of this machine, for a node of this configuration.

        ``nodefs`` holds volumes and logs, ``pod_directories`` maps them to pods; ``imagefs`` holds images.
        """
        cgroup = pods_cgroup(config)
        return cls(
            gauges=HostStatsProvider(
                cgroup, nodefs=nodefs, imagefs=imagefs, huge_page_bytes=hidden_huge_pages(config)
            ),
            storage=DiskStorageStats(pod_directories),
            alarms=KernelPressureNotifier(cgroup),
            image_manager=image_manager,
        )


def pods_cgroup(config: NodeConfig) -> str:
    """The path of the cgroup of all pods."""
    return cgroup_tree(config).root.path(cgroup_rules(config).driver)


def class_memory(cgroups: CgroupManager, config: NodeConfig, now_ns: int) -> ClassMemory | None:
    """The working sets of the pods that lend and of those that borrow; None if their cgroups do not exist.

    Units: now_ns in nanoseconds on the monotonic clock.
    """
    tree, driver = cgroup_tree(config), config.parts.kubelet.cgroup_driver
    paths = (tree.root, QOSCgroupNames.for_root(tree.root).best_effort)
    pods, borrowers = (cgroup_memory(cgroups, name.path(driver)) for name in paths)
    if pods is None or borrowers is None:
        return None
    lenders_bytes = max(pods.working_set_bytes - borrowers.working_set_bytes, 0)
    return ClassMemory(at_ns=now_ns, lenders_bytes=lenders_bytes, borrowed_bytes=borrowers.working_set_bytes)


class PressureMonitor:
    """Observes the node for the loop, by a policy.

    A reading of what is left takes some microseconds. Only when it matters are the pods read, too, and a pass of the
    eviction manager requested with `NodeUsageObserved`.
    """

    def __init__(
        self, loop: AgentLoop, watched_parts: MonitoredParts, policy: EvictionPolicy = ADAPTIVE
    ) -> None:
        self._loop, self._parts, self._policy = loop, watched_parts, policy
        self._usage_reader = PodUsageReader(loop.effect_runner.cgroups)
        self.distance: ThresholdDistances | None = None
        self.reads, self.passes = 0, 0
        self.disks, self._filesystems = NodeStats(), NodeFilesystems()
        self.storage: dict[str, PodStats] = {}
        self._last_pass_ns: int | None = None
        """When a pass was last requested."""
        self._met_at_last_pass: frozenset[Threshold] = frozenset()
        """The thresholds met at that time."""
        self._evictions_at_last_pass = 0
        """The number of evictions at that time."""
        self._eviction_at_last_pass: EvictionState | None = None
        """The loop's eviction state at that time: while it is the same object, the loop has not answered yet."""
        self._is_reclaiming = False
        self._last_error = ""
        self._wake = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None

    @property
    def gauges(self) -> NodeStatsProvider:
        """The provider of the machine's own stats."""
        return self._parts.gauges

    async def run(self) -> None:
        """Watches until it is cancelled."""
        await self._read_disks()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self._start_watch(group, "read the disks", self._watch_disks)
                if self._parts.storage is not None:
                    storage = partial(self._watch_storage, self._parts.storage)
                    self._start_watch(group, "read the disk usage of pods", storage)
                if self._parts.alarms is not None:
                    alarms = partial(self._wait_for_notifications, self._parts.alarms)
                    self._start_watch(group, "wait for the kernel's notifications", alarms)
                while True:
                    await self._sleep(self.read_once())
        finally:
            self._group = None

    def _start_watch(
        self, group: asyncio.TaskGroup, name: str, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        record_event, clock = self._loop.subscriber.record, self._loop.clock
        group.create_task(run_supervised(BackgroundTask(name, run), record_event, clock))

    def reclaim(self, effect: ReclaimNodeResources) -> None:
        """Starts to reclaim node resources; the usage is read again afterwards."""
        if self._group is not None and not self._is_reclaiming:
            self._is_reclaiming = True
            self._group.create_task(self._reclaim(effect))

    def read_once(self) -> int:
        """Reads the node once; the time until the next reading.

        Units: nanoseconds.
        """
        self.reads += 1
        if not self._loop.has_observed_runtime:
            # The usage of all pods cannot be read before their cgroup exists; and while it is unknown which pods run, the
            # wrong pod might count as the one that uses most.
            return NEAR_INTERVAL_NS
        now_ns, state = monotonic_ns(self._loop.clock), self._loop.state
        try:
            node = self._node_stats()
        except HostError as error:
            self._warn_once(str(error))
            return MONITORING_INTERVAL_NS
        observed = signal_observations(self._policy.adjusted_usage(StatsSummary(node=node)))
        self.distance = threshold_distances(self._thresholds(), observed, now_ns, self.distance)
        is_called_back = self._watch_loans(state, now_ns)
        if pending_evictions(state.evicted_until_ns, state.pods, now_ns) or self._is_reclaiming:
            return SECOND_NS if self._policy.waits_for_cleanup else NEAR_INTERVAL_NS
        due_ns = due_in_ns(state.eviction, now_ns)
        if self._is_pass_due(now_ns, due_ns):
            self._request_pass(node, now_ns)
        if self._is_pending(now_ns) or is_called_back:
            return NEAR_INTERVAL_NS
        wait_ns = self.distance.wait_ns(self._policy, due_ns)
        if wait_ns > NEAR_INTERVAL_NS:
            # Near a threshold the next reading is as early; and setting a notification may wait for the kernel.
            self._arm_notifier(node)
        return wait_ns

    def _is_pass_due(self, now_ns: int, due_ns: int | None) -> bool:
        """Whether a pass of the eviction manager would find something new."""
        assert self.distance is not None
        if self._last_pass_ns is None or now_ns - self._last_pass_ns >= MONITORING_INTERVAL_NS:
            return True
        if (
            self._loop.state.evictions_total != self._evictions_at_last_pass
            or self.distance.met != self._met_at_last_pass
        ):
            return True
        return due_ns is not None and due_ns <= 0

    def _is_pending(self, now_ns: int) -> bool:
        """Whether a threshold is met and the loop has not answered yet."""
        assert self.distance is not None
        assert self._last_pass_ns is not None
        has_answered = self._loop.state.eviction is not self._eviction_at_last_pass
        return (
            bool(self.distance.met) and not has_answered and now_ns - self._last_pass_ns < DECISION_TIMEOUT_NS
        )

    def _request_pass(self, node: NodeStats, now_ns: int, *, is_after_reclaim: bool = False) -> None:
        """Requests a pass from the loop."""
        assert self.distance is not None
        self.passes += 1
        self._last_pass_ns, self._met_at_last_pass = now_ns, self.distance.met
        state, at = self._loop.state, Instant(now_ns)
        self._eviction_at_last_pass, self._evictions_at_last_pass = state.eviction, state.evictions_total
        counts = any(
            SIGNAL_CONDITIONS[threshold.signal] is NodeCondition.PID_PRESSURE
            for threshold in self.distance.met
        )
        pods = self._usage_reader.usage(state, at, self.storage, counts_processes=counts)
        observation = EvictionObservation(
            usage=self._policy.adjusted_usage(StatsSummary(node=node, pods=pods)),
            active_pods=self._usage_reader.active_pods(state, now_ns),
            filesystems=self._filesystems,
        )
        self._loop.observe(NodeUsageObserved(observation, is_after_reclaim))

    def _watch_loans(self, state: AgentState, now_ns: int) -> bool:
        """Has memory called back that the pods that lend have begun to use; whether any is to come back."""
        loans, config = state.node.loans, state.node.config
        memory = class_memory(self._loop.effect_runner.cgroups, config, now_ns) if loans is not None else None
        if loans is None or memory is None:
            return False
        is_needed = memory.lenders_bytes + loans.memory_bytes > config.resources.allocatable[MEMORY].value()
        if is_needed or (loans.owed_bytes and memory.borrowed_bytes <= loans.memory_bytes):
            self._loop.observe(LentMemoryObserved(memory))
        return is_needed or loans.owed_bytes > 0

    def _node_stats(self) -> NodeStats:
        """The machine's own stats, with disks as last read."""
        stats = self._parts.gauges.node_stats()
        return replace(stats, fs=self.disks.fs, runtime=self.disks.runtime)

    def _thresholds(self) -> tuple[Threshold, ...]:
        state = self._loop.state.eviction
        if state.filesystems is not None:
            return state.thresholds
        return watched_thresholds(
            self._loop.state.node.config.eviction.thresholds, self._filesystems
        ).thresholds

    def _arm_notifier(self, node: NodeStats) -> None:
        """Sets the kernel's notification at the nearest threshold of the memory of all pods."""
        if self._parts.alarms is None or self.distance is None:
            return
        margins = [
            headroom.margin
            for threshold, headroom in self.distance.headrooms.items()
            if threshold.signal is _PODS_SIGNAL
        ]
        above = [margin for margin in margins if margin >= 0]
        memory = next((container.memory for container in node.system_containers), None)
        used = None if memory is None else memory.usage_bytes or memory.working_set_bytes
        self._parts.alarms.set_threshold(_rounded(used + min(above)) if above and used is not None else None)

    # ------------------------------------------------------------ concurrent tasks

    async def _sleep(self, wait_ns: int) -> None:
        """Sleeps, or until `_wake` is set."""
        await elapsed_s(self._loop.clock, self._wake.wait(), wait_ns / SECOND_NS)
        self._wake.clear()

    async def _watch_disks(self) -> None:
        """Reads the disks beside the loop, so that a disk that does not answer blocks nothing."""
        while True:
            wait_s = self._disk_wait_ns() / SECOND_NS
            await self._loop.clock.sleep(max(wait_s, DISK_PERIOD_S))
            await self._read_disks()
            self._wake.set()

    def _disk_wait_ns(self) -> int:
        if self.distance is None:
            return MONITORING_INTERVAL_NS
        headrooms = {
            threshold: headroom
            for threshold, headroom in self.distance.headrooms.items()
            if SIGNAL_CONDITIONS[threshold.signal] is NodeCondition.DISK_PRESSURE
        }
        return ThresholdDistances(at_ns=0, headrooms=headrooms).wait_ns(self._policy)

    async def _read_disks(self) -> None:
        try:
            self.disks, self._filesystems = await self._parts.run_in_thread(
                self._parts.gauges.filesystem_stats
            )
        except HostError as error:
            self._warn_once(str(error))

    async def _watch_storage(self, storage: EphemeralStorageStats) -> None:
        """Reads the disk usage of pods, one pod after the other."""
        clock = self._loop.clock
        while True:
            started_s, stats = clock.monotonic_s(), dict[str, PodStats]()
            for uid, record in tuple(self._loop.state.pods.items()):
                try:
                    stats[uid] = await self._parts.run_in_thread(partial(storage.pod_usage, record.pod))
                except Exception as error:  # noqa: BLE001 - the other pods are read all the same
                    self._warn_once(f"{record.pod.full_name}: {error_text(error)}")
            self.storage = stats
            duration_s = clock.monotonic_s() - started_s
            await clock.sleep(max(STORAGE_PERIOD_S, duration_s * STORAGE_TIME_DIVISOR))

    async def _wait_for_notifications(self, notifier: PressureNotifier) -> None:
        """Wakes the watch on kernel notifications; the kubelet uses thresholds only, and only if configured."""
        kubelet = self._loop.state.node.config.parts.kubelet
        while True:
            name = await notifier.wait()
            if not self._policy.uses_memory_notifier or (
                name == THRESHOLD_NOTIFICATION and kubelet.kernel_memcg_notification
            ):
                self._wake.set()
            await self._loop.clock.sleep(ALARM_COOLDOWN_S)

    async def _reclaim(self, effect: ReclaimNodeResources) -> None:
        runtime, state = self._loop.effect_runner.runtime, self._loop.state
        try:
            failures = await reclaim_node_resources(
                effect.targets, runtime, self._parts.image_manager, state.pods
            )
            for failure in failures:
                self._warn_once(failure)
            await self._read_disks()
            now_ns, node = monotonic_ns(self._loop.clock), self._node_stats()
            observed = signal_observations(self._policy.adjusted_usage(StatsSummary(node=node)))
            self.distance = threshold_distances(self._thresholds(), observed, now_ns, self.distance)
            self._request_pass(node, now_ns, is_after_reclaim=True)
        except Exception as error:  # noqa: BLE001 - the next pass reclaims again
            self._warn_once(error_text(error))
        finally:
            self._is_reclaiming = False
            self._wake.set()

    def _warn_once(self, message: str) -> None:
        """Reports an error, once."""
        if message != self._last_error:
            self._last_error = message
            self._loop.subscriber.record(RecordEvent.warning("PressureNotSeen", message))


def _rounded(amount: int) -> int:
    """Rounded up to the next MiB, so that small changes of an idle node do not change the notification."""
    return -(-amount >> 20) << 20


# ---------------------------------------------------------------- usage of pods


class PodUsageReader:
    """Reads pods and their usage for a pass of the eviction manager."""

    def __init__(self, cgroups: CgroupManager) -> None:
        self._cgroups = cgroups
        self._cache: dict[str, tuple[PodRecord, ActivePod, str]] = {}
        """By uid the pod's requests and cgroup, with the record that they were made from."""

    def active_pods(self, state: AgentState, now_ns: int) -> tuple[ActivePod, ...]:
        """The pods that may be evicted; evicted pods that do not end in time are left out.

        Units: now_ns in nanoseconds on the monotonic clock.
        """
        left_out = pending_evictions(state.evicted_until_ns, state.pods, now_ns, is_overdue=True)
        self._cache = {uid: cached for uid, cached in self._cache.items() if uid in state.pods}
        return tuple(
            self._pod_entry(state, record)[1] for record in _active(state) if record.pod.uid not in left_out
        )

    def usage(
        self, state: AgentState, at: Instant, storage: Mapping[str, PodStats], *, counts_processes: bool
    ) -> tuple[PodStats, ...]:
        """Each pod's usage; ``storage`` is its disk usage as last read, by uid."""
        memory_usage = []
        for record in _active(state):
            if record.runtime_status is None:
                continue
            cgroup = self._pod_entry(state, record)[2]
            stats = self._pod_stats(record, cgroup, at, storage.get(record.pod.uid, PodStats()))
            if counts_processes and cgroup:
                stats = replace(stats, processes=ProcessStats(len(self._cgroups.processes(cgroup))))
            memory_usage.append(stats)
        return tuple(memory_usage)

    def _pod_entry(self, state: AgentState, record: PodRecord) -> tuple[PodRecord, ActivePod, str]:
        uid, config = record.pod.uid, state.node.config
        cached = self._cache.get(uid)
        if cached is None or cached[0].pod is not record.pod:
            claim = ActivePod.of(record.pod, config.requests)
            cgroup = record.cgroup or pod_cgroup(record.pod, config)
            cached = self._cache[uid] = (record, claim, cgroup)
        return cached

    def _pod_stats(self, record: PodRecord, cgroup: str, at: Instant, storage_stats: PodStats) -> PodStats:
        memory, swap = self._memory_stats(cgroup, at)
        meta = record.pod.metadata
        return replace(
            storage_stats,
            pod_ref=PodReference(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            memory=memory,
            swap=swap,
            containers=self._container_stats(record, storage_stats.containers, at),
        )

    def _container_stats(
        self, record: PodRecord, storage_stats: Iterable[ContainerStats], at: Instant
    ) -> tuple[ContainerStats, ...]:
        """Memory of the running containers, and disk usage of all containers."""
        by_name = {container.name: container for container in storage_stats}
        for container in record.containers:
            if container.phase is ContainerPhase.RUNNING and container.cgroup:
                stats = by_name.get(container.name, ContainerStats(name=container.name))
                by_name[container.name] = replace(stats, memory=self._memory_stats(container.cgroup, at)[0])
        return tuple(by_name.values())

    def _memory_stats(self, cgroup: str, at: Instant) -> tuple[MemoryStats | None, SwapStats | None]:
        memory_usage = cgroup_memory(self._cgroups, cgroup) if cgroup else None
        if memory_usage is None:
            return None, None
        memory = MemoryStats(
            time=at, usage_bytes=memory_usage.usage_bytes, working_set_bytes=memory_usage.working_set_bytes
        )
        # cgroup v1 has no file for swapped-out memory alone.
        has_swap = self._cgroups.version == 2 and memory_usage.swap_bytes is not None
        return memory, SwapStats(time=at, swap_usage_bytes=memory_usage.swap_bytes) if has_swap else None


def _active(state: AgentState) -> Iterable[PodRecord]:
    return (record for record in state.pods.values() if record.stage in COUNTED_STAGES)


# ---------------------------------------------------------------- reclaiming node resources


async def reclaim_node_resources(
    targets: tuple[NodeReclaim, ...],
    runtime: ContainerRuntime,
    image_manager: ImageManager | None,
    pods: Mapping[str, PodRecord],
) -> tuple[str, ...]:
    """Reclaims the targets; the failures."""
    failures: list[str] = []
    for target in targets:
        try:
            if target is NodeReclaim.CONTAINERS:
                await _remove_dead_containers(runtime, pods, failures)
            elif image_manager is not None:
                failures += (await image_manager.delete_unused_images()).failures
        except (HostError, TimeoutError) as error:
            failures.append(str(error))
    return tuple(failures)


def dead_containers(
    runtime_status: RuntimePodStatus, record: PodRecord | None
) -> tuple[RuntimeContainerStatus, ...]:
    """The containers of a pod that are no longer needed: of a pod that goes on, all ended ones but the newest of a name.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_gc.go, evictContainers, with the default MaxPerPodContainer.
    """
    idle = [
        container for container in runtime_status.containers if container.phase is not ContainerPhase.RUNNING
    ]
    if record is None or record.stage is PodStage.TERMINATED:
        return tuple(idle)
    newest = {container.name: container.id for container in reversed(idle)}
    # A container that was just created may be about to start.
    return tuple(
        container
        for container in idle
        if container.id != newest[container.name] and container.phase is not ContainerPhase.CREATED
    )


async def _remove_dead_containers(
    runtime: ContainerRuntime, pods: Mapping[str, PodRecord], failures: list[str]
) -> None:
    for runtime_status in await runtime.pods():
        record = pods.get(runtime_status.uid)
        if record is not None and record.has_running_effect:
            continue
        for container in dead_containers(runtime_status, record):
            try:
                await runtime.remove_container(container.id)
            except (HostError, TimeoutError) as error:
                failures.append(str(error))
