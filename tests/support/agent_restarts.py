"""An agent that dies and is started again on what it left: the machine, its disk and its people stay."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace
from tests.support.agent_bench import CheckedLoop, FakeConfigBuilder, FakeEventRecorder, FakeProber
from tests.support.disks import FakeDisk, SlowDisk
from tests.support.fake_clock import FakeClock, settle
from tests.support.fault_injection import (
    CHANGES_CGROUPS,
    CHANGES_DISK,
    CHANGES_RUNTIME,
    READS_RUNTIME,
    AgentKilled,
    FaultInjector,
)

from nodewright.agent.loop import AgentLoop
from nodewright.agent.pods.effect_runner import EffectRunner
from nodewright.agent.runtimes.simulated import ContainerScript, FakeCgroups, FakeRuntime
from nodewright.agent.state.agent_state import AgentConstants, PodRecord, PodSource
from nodewright.agent.state.observations import (
    NodeUsageObserved,
    PodApplied,
    PodDeletionRequested,
    SourcePodsListed,
)
from nodewright.agent.store.agent_store import AgentStore, StoreSettings
from nodewright.agent.store.store_files import DEFERRED, PODS, read_deferred_file, read_pod_file
from nodewright.cluster.tasks.supervision import STATE_NOT_SAVED
from nodewright.documents.profiles.scenario_files import journal_header
from nodewright.engine.core.eviction.eviction_state import EvictionObservation
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.eviction_pass import eviction_claims
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.model.kubernetes.stats_summary import StatsSummary
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.idset import CPUSet
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import JournalEncoder

LISTED_DEVICES = (PodSource.FILE, PodSource.WORKLOAD)


class AgentRestarts:
    """One machine and the agents on it, one after the other; ``faults`` are those of the first agents in turn."""

    def __init__(
        self,
        profile: NodeProfile,
        scripts: dict[str, ContainerScript],
        faults: Sequence[FaultInjector] = (),
        downtime_s: float = 0,
    ) -> None:
        self.profile, self.downtime_s = profile, downtime_s
        self.clock = FakeClock()
        self.runtime = FakeRuntime(self.clock, scripts)
        self.cgroups, self.prober, self.disk, self.event_recorder = (
            FakeCgroups(),
            FakeProber(),
            FakeDisk(),
            FakeEventRecorder(),
        )
        self.node = Node.from_profile(profile).state
        self.boot = "first"
        self.listed: dict[PodSource, dict[str, Pod]] = {source: {} for source in LISTED_DEVICES}
        """What directories hold."""
        self.asked: dict[str, Pod] = {}
        """What people want through the API, and ask for until it is kept."""
        self.unasked: dict[str, None] = {}
        """What they want no more, and say so until it is kept."""
        self.usage: Callable[[], StatsSummary | None] = lambda: None
        """What the node uses now, if anybody looks."""
        self.pinned: dict[str, str] = {}
        """The CPUs that containers were started on, by id."""
        self.starts: Counter[tuple[str, str]] = Counter()
        self.agents = 0
        self.wrong: list[str] = []
        """What must not be."""
        self._second = 0
        self._faults = [*faults]
        self.now_faults = FaultInjector()
        self._task: asyncio.Task[None] | None = None
        self._beside = SlowDisk(self.clock, 0)
        self.loop: AgentLoop | None = None

    # ------------------------------------------------------------ time

    async def run_for(self, seconds: int) -> None:
        """So much time passes; an agent that has died is started again after a while."""
        for _ in range(seconds):
            self.clock.jump(self.jumps.get(self._second, 0))
            if self._second in self.failures:
                await self.reboot()
            self._second += 1
            if self._task is None:
                await self._start()
            await self._say()
            await self.clock.advance(1)
            if self.now_faults.is_dead or (self._task is not None and self._task.done()):
                await self.stop()
                await self.clock.advance(self.downtime_s)
            elif self._task is not None and self.is_careful:
                self._check_shared()

    async def stop(self) -> None:
        """No agent runs any more."""
        if self._task is None:
            return
        self.now_faults.is_dead = True
        self._beside.hurry.set()
        has_failed = self._task.done()
        self._task.cancel()
        (base_exception,) = await asyncio.gather(self._task, return_exceptions=True)
        if (
            has_failed
            and not isinstance(base_exception, AgentKilled)
            and isinstance(base_exception, BaseException)
        ):
            raise base_exception
        await settle()
        self._task = self.loop = None

    async def reboot(self) -> None:
        """The power fails: nothing runs any more, and what was not synced is lost."""
        await self.stop()
        self.boot += "'"
        self.runtime.containers.clear()
        self.runtime.sandboxes.clear()
        self.cgroups.groups.clear()
        self.pinned.clear()
        self.disk.lose_power()

    async def _start(self) -> None:
        self.now_faults = faults = self._faults.pop(0) if self._faults else FaultInjector()
        self.agents += 1
        faults.after_each = self._check
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        disk = faults.wrap(self.disk, CHANGES_DISK)
        promised = self._promised()
        try:
            start = AgentStore.open(disk, self.node, self._setting())
        except (AgentKilled, HostError):
            # It has ended before it began; somebody starts it again.
            return
        if isinstance(start, Refused):
            self.wrong.append(f"does not start: {start.because}")
            return
        self.wrong += [
            f"{uid} is lost"
            for uid in promised - {*start.value.state.pods, *_uids(start.value.state.deferred)}
        ]
        self.wrong += [
            f"warning at the start: {event}"
            for event in start.value.events
            # A disk that the test makes fail is reported; nothing else may be.
            if event.is_warning and not (event.reason == STATE_NOT_SAVED and faults.place)
        ]
        effect_runner = EffectRunner(
            faults.wrap(self.runtime, (*CHANGES_RUNTIME, *READS_RUNTIME)),
            faults.wrap(self.cgroups, CHANGES_CGROUPS),
            FakeConfigBuilder(),
            self.prober,
            self.clock,
        )
        constants = AgentConstants.of(start.value.state.node.config, self.clock.now_ns())
        self.loop = CheckedLoop(
            start.value.state, effect_runner, start.value.store, self.event_recorder, self.clock, constants
        )
        self._beside = SlowDisk(self.clock, self.disk_s)
        self.loop.write_queue.run_in_thread = self._beside
        for source, pods in self.listed.items():
            self.loop.observe(SourcePodsListed(source, tuple(pods.values())))
        self._task = asyncio.create_task(self.loop.run())
        await settle()

    def _setting(self) -> StoreSettings:
        return StoreSettings(
            journal_encoder=JournalEncoder(self.profile, journal_header()),
            boot_id=self.boot,
            path="/",
            unready_sources=frozenset(LISTED_DEVICES),
            max_journal_bytes=self.most_journal_bytes,
            max_log_bytes=self.most_log_bytes,
        )

    async def _say(self) -> None:
        """Repeats unanswered requests, and reads the node's usage."""
        if self.loop is None:
            return
        kept = self.stored_pods()
        for uid, pod in self.asked.items():
            if uid not in kept and uid not in self.unasked and uid not in self._later():
                self.loop.observe(PodApplied(PodSource.API, pod))
        for uid in self.unasked:
            if uid in self._later() or (uid in kept and kept[uid].is_in_source):
                self.loop.observe(PodDeletionRequested(uid))
        usage = self.usage()
        if usage is not None:
            claims = eviction_claims(self.loop.state.node)
            self.loop.observe(NodeUsageObserved(EvictionObservation(usage=usage, active_pods=claims)))
        await settle()

    def set_source_pods(self, source: PodSource, *pods: Pod) -> None:
        """A directory holds these pods from now on."""
        self.listed[source] = {pod.uid: pod for pod in pods}
        if self.loop is not None:
            self.loop.observe(SourcePodsListed(source, pods))

    def request_pods(self, *pods: Pod) -> None:
        """People want these pods."""
        self.asked |= {pod.uid: pod for pod in pods}

    def delete_pods(self, *uids: str) -> None:
        """People do not want these pods any more."""
        self.unasked |= dict.fromkeys(uids)

    # ------------------------------------------------------------ what is, and what must not be

    def stored_pods(self) -> dict[str, PodRecord]:
        """The pods that are kept, by uid."""
        records = (_record(self.disk.files[name]) for name in self.disk.names(PODS))
        return {record.pod.uid: record for record in records}

    def running_containers(self) -> list[tuple[str, str, str]]:
        """Pod, container and CPUs of all that runs."""
        return [
            (held.config.pod.uid, held.status.name, _cpus(held.cgroup_files))
            for held in self.runtime.containers.values()
            if held.status.phase is ContainerPhase.RUNNING
        ]

    def _later(self) -> set[str]:
        content = self.disk.files.get(DEFERRED)
        return set() if content is None else _uids(read_deferred_file(content, ""))

    def _promised(self) -> set[str]:
        """The pods that clients were told exist."""
        texts = self.asked.keys() - self.unasked.keys()
        return {uid for uid in texts if uid in self.stored_pods() or uid in self._later()}

    def _check(self) -> None:
        """Nothing runs twice; CPUs of a pinned container are its alone, and stay as they are."""
        running = self.running_containers()
        self._check_hooks()
        twice = Counter((uid, name) for uid, name, _ in running)
        self.wrong += [
            f"{uid} {name} runs {count} times" for (uid, name), count in twice.items() if count > 1
        ]
        own = {uid: CPUSet.parse(cpus) for uid, _, cpus in running if uid in self.pinned_uids}
        for uid, cpus in own.items():
            before = self.pinned.setdefault(uid, str(cpus))
            if before != str(cpus):
                self.wrong.append(f"{uid} had the CPUs {before} and has {cpus}")
            shared_by = [other for other, theirs in own.items() if other != uid and theirs & cpus]
            self.wrong += [f"{other} and {uid} have {cpus} for themselves" for other in shared_by]

    def _check_hooks(self) -> None:
        """A container that runs as part of a pod that is ready has had its hook."""
        for record in self.loop.state.pods.values() if self.loop is not None else ():
            hooked = {
                container.name
                for container in record.pod.spec.containers
                if "postStart" in (container.lifecycle or {})
            }
            self.wrong += [
                f"{status.container_id} is ready, and its hook has not run"
                for status in record.status.container_statuses
                if status.ready and status.name in hooked and not self._was_hooked(status.container_id)
            ]

    def _was_hooked(self, container_id: str) -> bool:
        return container_id.rpartition("/")[2] in self.prober.completed_hooks

    def _check_shared(self) -> None:
        """Checks that, in the final state, no container runs on another container's exclusive CPUs."""
        running = self.running_containers()
        own = {uid: CPUSet.parse(cpus) for uid, _, cpus in running if uid in self.pinned_uids}
        self.wrong += [
            f"{uid} {name} runs on {text}, {owner} has {cpus} for itself"
            for uid, name, text in running
            for owner, cpus in own.items()
            if uid != owner and text and CPUSet.parse(text) & cpus
        ]

    pinned_uids: frozenset[str] = frozenset()
    """Pods that have CPUs of their own."""
    is_careful = True
    """Whether containers learn of CPUs at once; not where a runtime fails to tell them."""
    disk_s = 0.0
    """The delays of disk writes, during which the loop continues."""
    jumps: Mapping[int, int] = MappingProxyType({})
    """By how much the time of day changes, by the second in which it does."""
    most_journal_bytes, most_log_bytes = 4_000, 20_000
    """Limits so small that both files are rotated now and then."""
    failures: frozenset[int] = frozenset()
    """The seconds in which the power fails."""


@lru_cache(maxsize=256)
def _record(content: bytes) -> PodRecord:
    return read_pod_file(content, "")


def _cpus(files: Iterable[Any]) -> str:
    return next((str(file.value) for file in files if file.name == "cpuset.cpus"), "")


def _uids(deferred: Iterable[tuple[PodSource, Pod]]) -> set[str]:
    return {pod.uid for _, pod in deferred}


def with_container_name(pod: Pod, container: str) -> Pod:
    """The pod, its only container by this name: scripts of containers go by their names."""
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, name=container),)))


def stored_part(record: PodRecord) -> PodRecord:
    """The record without what is not persisted."""
    return replace(
        record,
        memory=MemoryState(),
        runtime_status=None,
        observed_at_ns=0,
        probes={},
        next_probe_at_ns={},
        has_running_effect=False,
        retry_at_ns=None,
        next_sync_at_ns=None,
        kill_deadline_ns=None,
        applied_resources={},
        starting_resources={},
        has_api_object=True,
    )
