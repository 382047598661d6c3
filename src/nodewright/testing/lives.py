"""An agent that dies and is started again on what it left: the machine, its disk and its people stay."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from nodewright.agent.keeping import DEFERRED, PODS, Keeper, Setting
from nodewright.agent.kept import read_deferred_file, read_pod_file
from nodewright.agent.loop import Loop
from nodewright.agent.perform import Performer
from nodewright.agent.values import (
    PodRecord,
    PodsWanted,
    PodUnwanted,
    PodWanted,
    Rules,
    Source,
    UsageSeen,
)
from nodewright.ask import Node
from nodewright.core.eviction import Observation
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.running import ContainerPhase
from nodewright.model.usage import Usage
from nodewright.model.verdict import Refused
from nodewright.node.pressure import claims_of
from nodewright.render.journals import JournalScribe
from nodewright.render.words import KubeletWords
from nodewright.testing.agents import CarefulLoop, FakeAsker, FakeComposer, FakeEars
from nodewright.testing.disks import FakeDisk, SlowDisk
from nodewright.testing.faults import (
    ASKS_RUNTIME,
    CHANGES_CGROUPS,
    CHANGES_DISK,
    CHANGES_RUNTIME,
    Faults,
    Killed,
)
from nodewright.testing.runtime import FakeCgroups, FakeClock, FakeRuntime, Script, settle
from nodewright.values.idset import CPUSet
from nodewright.world.errors import WorldError
from nodewright.world.scenarios import this_release

LISTED = (Source.FILE, Source.WORKLOAD)


class Lives:
    """One machine and the agents on it, one after the other; ``faults`` are those of the first agents in turn."""

    def __init__(
        self,
        profile: NodeProfile,
        scripts: dict[str, Script],
        faults: Sequence[Faults] = (),
        downtime_s: float = 0,
    ) -> None:
        self.profile, self.downtime_s = profile, downtime_s
        self.clock = FakeClock()
        self.runtime = FakeRuntime(self.clock, scripts)
        self.cgroups, self.asker, self.disk, self.ears = (
            FakeCgroups(),
            FakeAsker(),
            FakeDisk(),
            FakeEars(),
        )
        self.node = Node.of(profile).state
        self.boot = "first"
        self.listed: dict[Source, dict[str, Pod]] = {source: {} for source in LISTED}
        """What directories hold."""
        self.asked: dict[str, Pod] = {}
        """What people want through the API, and ask for until it is kept."""
        self.unasked: dict[str, None] = {}
        """What they want no more, and say so until it is kept."""
        self.usage: Callable[[], Usage | None] = lambda: None
        """What the node uses now, if anybody looks."""
        self.pinned: dict[str, str] = {}
        """The CPUs that containers were started on, by id."""
        self.starts: Counter[tuple[str, str]] = Counter()
        self.agents = 0
        self.wrong: list[str] = []
        """What must not be."""
        self._second = 0
        self._faults = [*faults]
        self.now_faults = Faults()
        self._task: asyncio.Task[None] | None = None
        self._beside = SlowDisk(self.clock, 0)
        self.loop: Loop | None = None

    # ------------------------------------------------------------ time

    async def live(self, seconds: int) -> None:
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
        (found,) = await asyncio.gather(self._task, return_exceptions=True)
        if has_failed and not isinstance(found, Killed) and isinstance(found, BaseException):
            raise found
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
        self.now_faults = faults = self._faults.pop(0) if self._faults else Faults()
        self.agents += 1
        faults.after_each = self._check
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        disk = faults.watch(self.disk, CHANGES_DISK)
        promised = self._promised()
        try:
            start = Keeper.open(disk, self.node, self._setting())
        except (Killed, WorldError):
            # It has ended before it began; somebody starts it again.
            return
        if isinstance(start, Refused):
            self.wrong.append(f"does not start: {start.because}")
            return
        self.wrong += [
            f"{uid} is lost" for uid in promised - {*start.value.mind.pods, *_uids(start.value.mind.deferred)}
        ]
        self.wrong += [f"told at the start: {told}" for told in start.value.tells if told.is_warning]
        performer = Performer(
            faults.watch(self.runtime, (*CHANGES_RUNTIME, *ASKS_RUNTIME)),
            faults.watch(self.cgroups, CHANGES_CGROUPS),
            FakeComposer(),
            self.asker,
            self.clock,
        )
        rules = Rules(words=KubeletWords(), started_ns=self.clock.now_ns())
        self.loop = CarefulLoop(start.value.mind, performer, start.value.keeper, self.ears, self.clock, rules)
        self._beside = SlowDisk(self.clock, self.disk_s)
        self.loop.ledger.beside = self._beside
        for source, pods in self.listed.items():
            self.loop.see(PodsWanted(source, tuple(pods.values())))
        self._task = asyncio.create_task(self.loop.run())
        await settle()

    def _setting(self) -> Setting:
        return Setting(
            scribe=JournalScribe(self.profile, this_release()),
            words=KubeletWords(),
            boot=self.boot,
            path="/",
            unheard=frozenset(LISTED),
            most_journal_bytes=self.most_journal_bytes,
            most_log_bytes=self.most_log_bytes,
        )

    async def _say(self) -> None:
        """People who had no answer ask again; somebody looks at what the node uses."""
        if self.loop is None:
            return
        kept = self.kept()
        for uid, pod in self.asked.items():
            if uid not in kept and uid not in self.unasked and uid not in self._later():
                self.loop.see(PodWanted(Source.API, pod))
        for uid in self.unasked:
            if uid in self._later() or (uid in kept and kept[uid].is_wanted):
                self.loop.see(PodUnwanted(uid))
        usage = self.usage()
        if usage is not None:
            claims = claims_of(self.loop.mind.node)
            self.loop.see(UsageSeen(Observation(usage=usage, claims=claims)))
        await settle()

    def have(self, source: Source, *pods: Pod) -> None:
        """A directory holds these pods from now on."""
        self.listed[source] = {pod.uid: pod for pod in pods}
        if self.loop is not None:
            self.loop.see(PodsWanted(source, pods))

    def ask(self, *pods: Pod) -> None:
        """People want these pods."""
        self.asked |= {pod.uid: pod for pod in pods}

    def unask(self, *uids: str) -> None:
        """People do not want these pods any more."""
        self.unasked |= dict.fromkeys(uids)

    # ------------------------------------------------------------ what is, and what must not be

    def kept(self) -> dict[str, PodRecord]:
        """The pods that are kept, by uid."""
        records = (_record(self.disk.files[name]) for name in self.disk.names(PODS))
        return {record.pod.uid: record for record in records}

    def running(self) -> list[tuple[str, str, str]]:
        """Pod, container and CPUs of all that runs."""
        return [
            (held.wish.pod.uid, held.facts.name, _cpus(held.files))
            for held in self.runtime.containers.values()
            if held.facts.phase is ContainerPhase.RUNNING
        ]

    def _later(self) -> set[str]:
        content = self.disk.files.get(DEFERRED)
        return set() if content is None else _uids(read_deferred_file(content, ""))

    def _promised(self) -> set[str]:
        """What people were told that they have."""
        asked = self.asked.keys() - self.unasked.keys()
        return {uid for uid in asked if uid in self.kept() or uid in self._later()}

    def _check(self) -> None:
        """Nothing runs twice; CPUs of a pinned container are its alone, and stay as they are."""
        running = self.running()
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
        for record in self.loop.mind.pods.values() if self.loop is not None else ():
            hooked = {one.name for one in record.pod.spec.containers if "postStart" in (one.lifecycle or {})}
            self.wrong += [
                f"{one.container_id} is ready, and its hook has not run"
                for one in record.status.container_statuses
                if one.ready and one.name in hooked and not self._was_hooked(one.container_id)
            ]

    def _was_hooked(self, container_id: str) -> bool:
        return container_id.rpartition("/")[2] in self.asker.hooked

    def _check_shared(self) -> None:
        """Once all is done that was to be done, nobody runs on CPUs that are somebody's own."""
        running = self.running()
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
    """How long the disk takes for what is to be kept, while all else goes on."""
    jumps: Mapping[int, int] = MappingProxyType({})
    """By how much the time of day changes, by the second in which it does."""
    most_journal_bytes, most_log_bytes = 4_000, 20_000
    """So little that both are begun anew now and then."""
    failures: frozenset[int] = frozenset()
    """The seconds in which the power fails."""


@lru_cache(maxsize=256)
def _record(content: bytes) -> PodRecord:
    return read_pod_file(content, "")


def _cpus(files: Iterable[Any]) -> str:
    return next((str(one.value) for one in files if one.name == "cpuset.cpus"), "")


def _uids(deferred: Iterable[tuple[Source, Pod]]) -> set[str]:
    return {pod.uid for _, pod in deferred}


def named(pod: Pod, container: str) -> Pod:
    """The pod, its only container by this name: scripts of containers go by their names."""
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, name=container),)))
