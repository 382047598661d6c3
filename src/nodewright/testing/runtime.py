"""A container runtime, a tree of cgroups and a clock without a machine: they keep what they are told and do as a script says."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import asdict, replace

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.running import COMPLETED, ERROR, ContainerFacts, ContainerPhase, PodFacts, SandboxFacts
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock, ContainerUsage, ContainerWish, Executed, RuntimeFacts, SandboxWish

SIGKILLED, SIGTERMED = 137, 143


class FakeClock:
    """Time that passes when it is told to, and for those who sleep."""

    def __init__(self, now_ns: int = 1_800_000_000 * 10**9) -> None:
        self._start_ns = now_ns
        self._passed_ns = 0
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        """Nanoseconds since 1970."""
        return self._start_ns + self._passed_ns

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._passed_ns / 10**9

    async def sleep(self, seconds: float) -> None:
        """Come back once so much time was told to pass."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        waker = asyncio.get_running_loop().create_future()
        sleeper = (self._passed_ns + round(seconds * 10**9), waker)
        self._sleepers.append(sleeper)
        try:
            await waker
        except asyncio.CancelledError:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
            raise

    def jump(self, seconds: float) -> None:
        """The time of day changes, and nothing else."""
        self._start_ns += round(seconds * 10**9)

    async def advance(self, seconds: float) -> None:
        """So much time passes; who wakes up meanwhile does so in order."""
        end_ns = self._passed_ns + round(seconds * 10**9)
        while due := sorted((at, n) for n, (at, _) in enumerate(self._sleepers) if at <= end_ns):
            at, number = due[0]
            self._passed_ns = max(self._passed_ns, at)
            _, waker = self._sleepers.pop(number)
            if not waker.done():
                waker.set_result(None)
            await settle()
        self._passed_ns = end_ns
        await settle()


async def settle(turns: int = 200) -> None:
    """Let everything run that can run now."""
    for _ in range(turns):
        await asyncio.sleep(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a container does once it is started."""

    runs_for_s: float | None = None
    """None: until it is stopped."""
    exit_code: int = 0
    ignores_sigterm: bool = False
    commands: Mapping[tuple[str, ...], Executed] = field(default_factory=dict)
    """What commands in it give; any other one succeeds and says nothing."""


@dataclass(slots=True)
class _Held:
    """A container of the fake."""

    facts: ContainerFacts
    wish: ContainerWish
    settings: ContainerSettings
    files: tuple[File, ...]


class FakeRuntime:
    """Runs nothing and says that it does.

    ``scripts`` are by the container's name. ``done`` lists every operation in order; `fail` makes the next one of a
    kind fail. Only operations that change something are listed.
    """

    def __init__(self, clock: Clock, scripts: Mapping[str, Script] | None = None) -> None:
        self.clock = clock
        self.scripts = dict(scripts or {})
        self.done: list[tuple[str, str]] = []
        self.containers: dict[str, _Held] = {}
        self.sandboxes: dict[str, tuple[SandboxFacts, SandboxWish]] = {}
        self._failing: defaultdict[str, list[str]] = defaultdict(list)
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()

    def fail(self, operation: str, error: str) -> None:
        """The next operation of this name fails so."""
        self._failing[operation].append(error)

    async def facts(self) -> RuntimeFacts:
        """A runtime without images."""
        self._perhaps_fail("facts", "")
        return RuntimeFacts(name="fake", version="0", has_images=False, has_events=True)

    async def pods(self) -> tuple[PodFacts, ...]:
        """All that it was told to hold."""
        self._perhaps_fail("pods", "")
        uids = dict.fromkeys(wish.pod.uid for _, wish in self.sandboxes.values())
        return tuple(found for uid in uids if (found := self._pod(uid)) is not None)

    async def pod(self, uid: str) -> PodFacts | None:
        """What it was told to hold of one pod."""
        self._perhaps_fail("pod", uid)
        return self._pod(uid)

    async def run_sandbox(self, wish: SandboxWish) -> str:
        """A sandbox that is ready; the same one for the same attempt."""
        id_ = f"sandbox-{wish.pod.uid}-{wish.attempt}"
        self._operation("run_sandbox", id_)
        if id_ not in self.sandboxes:
            facts = SandboxFacts(id=id_, attempt=wish.attempt, created_ns=self.clock.now_ns())
            self.sandboxes[id_] = (facts, wish)
        self._changed.put_nowait(wish.pod.uid)
        return id_

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Nothing in it runs any more."""
        self._operation("stop_sandbox", sandbox_id)
        for held in [one for one in self.containers.values() if one.facts.sandbox_id == sandbox_id]:
            self._end(held.facts.id, SIGKILLED)
        if sandbox_id in self.sandboxes:
            facts, wish = self.sandboxes[sandbox_id]
            self.sandboxes[sandbox_id] = (replace(facts, is_ready=False), wish)
            self._changed.put_nowait(wish.pod.uid)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """It is gone with its containers."""
        self._operation("remove_sandbox", sandbox_id)
        for id_ in [one.facts.id for one in self.containers.values() if one.facts.sandbox_id == sandbox_id]:
            del self.containers[id_]
        self.sandboxes.pop(sandbox_id, None)

    async def create_container(self, sandbox_id: str, wish: ContainerWish) -> str:
        """A container that can be started; the same one for the same attempt."""
        id_ = f"{wish.container.name}-{wish.pod.uid}-{wish.attempt}"
        self._operation("create_container", id_)
        if sandbox_id not in self.sandboxes:
            raise WorldError("create container in", sandbox_id, "no such sandbox")
        if id_ not in self.containers:
            facts = ContainerFacts(
                id=id_,
                name=wish.container.name,
                attempt=wish.attempt,
                phase=ContainerPhase.CREATED,
                sandbox_id=sandbox_id,
                spec_hash=wish.spec_hash,
                image=wish.image,
                created_ns=self.clock.now_ns(),
                log_path=wish.log_path,
                cgroup=f"{self.sandboxes[sandbox_id][1].cgroup_parent}/{id_}",
            )
            self.containers[id_] = _Held(facts, wish, wish.settings, wish.files)
        return id_

    async def start_container(self, container_id: str) -> None:
        """Its script begins."""
        self._operation("start_container", container_id)
        held = self._held("start container", container_id)
        if held.facts.phase is not ContainerPhase.CREATED:
            return
        held.facts = replace(
            held.facts, phase=ContainerPhase.RUNNING, started_ns=self.clock.now_ns(), reason="", message=""
        )
        script = self._script(held)
        if script.runs_for_s is not None:
            end = self._run_out(container_id, script.runs_for_s, script.exit_code)
            self._running.add(asyncio.get_running_loop().create_task(end))
        self._changed.put_nowait(held.wish.pod.uid)

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """It ends at once, unless it ignores being asked to: then when the time is up."""
        self._operation("stop_container", container_id)
        held = self.containers.get(container_id)
        if held is None or held.facts.phase is not ContainerPhase.RUNNING:
            return
        if self._script(held).ignores_sigterm:
            await self.clock.sleep(grace_period_s)
            self._end(container_id, SIGKILLED)
        else:
            self._end(container_id, SIGTERMED)

    async def remove_container(self, container_id: str) -> None:
        """It is gone."""
        self._operation("remove_container", container_id)
        self.containers.pop(container_id, None)

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[File, ...]
    ) -> None:
        """It has other settings; what these say nothing of stays."""
        self._operation("update_container", container_id)
        held = self._held("update container", container_id)
        said = {name: value for name, value in asdict(settings).items() if value not in (None, ())}
        held.settings = replace(held.settings, **said)
        held.files = tuple({one.name: one for one in (*held.files, *files)}.values())

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> Executed:
        """What its script says that the command gives."""
        self._operation("execute", container_id)
        held = self._held("execute in container", container_id)
        if held.facts.phase is not ContainerPhase.RUNNING:
            raise WorldError("execute in container", container_id, "it does not run")
        if command[:1] == ("sleep",):
            await self.clock.sleep(timeout_s)
            raise TimeoutError
        return self._script(held).commands.get(command, Executed(0))

    async def reopen_log(self, container_id: str) -> None:
        """There is no log."""
        self._operation("reopen_log", container_id)

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """Nothing is used."""
        return {
            id_: ContainerUsage(at_ns=self.clock.now_ns(), cpu_ns=0, memory_bytes=0, working_set_bytes=0)
            for id_, held in self.containers.items()
            if held.facts.phase is ContainerPhase.RUNNING
        }

    async def changes(self) -> AsyncIterator[str]:
        """The uids of pods in which something changed."""
        while True:
            yield await self._changed.get()

    async def close(self) -> None:
        """Nothing is let go of."""

    def end(self, container_id: str, exit_code: int, reason: str = "") -> None:
        """A container ends by itself."""
        self._end(container_id, exit_code, reason)

    def lose_sandbox(self, sandbox_id: str) -> None:
        """A sandbox dies with all that runs in it."""
        facts, wish = self.sandboxes[sandbox_id]
        self.sandboxes[sandbox_id] = (replace(facts, is_ready=False), wish)
        for held in [one for one in self.containers.values() if one.facts.sandbox_id == sandbox_id]:
            self._end(held.facts.id, SIGKILLED)
        self._changed.put_nowait(wish.pod.uid)

    async def _run_out(self, container_id: str, after_s: float, exit_code: int) -> None:
        await self.clock.sleep(after_s)
        self._end(container_id, exit_code)

    def _end(self, container_id: str, exit_code: int, reason: str = "") -> None:
        held = self.containers.get(container_id)
        if held is None or held.facts.phase is not ContainerPhase.RUNNING:
            return
        held.facts = replace(
            held.facts,
            phase=ContainerPhase.EXITED,
            exit_code=exit_code,
            reason=reason or (ERROR if exit_code else COMPLETED),
            finished_ns=self.clock.now_ns(),
        )
        self._changed.put_nowait(held.wish.pod.uid)

    def _pod(self, uid: str) -> PodFacts | None:
        sandboxes = [(facts, wish) for facts, wish in self.sandboxes.values() if wish.pod.uid == uid]
        if not sandboxes:
            return None
        metadata = sandboxes[-1][1].pod.metadata
        mine = [held.facts for held in self.containers.values() if held.wish.pod.uid == uid]
        return PodFacts(
            uid=uid,
            namespace=metadata.namespace,
            name=metadata.name,
            sandboxes=tuple(facts for facts, _ in reversed(sandboxes)),
            containers=tuple(sorted(mine, key=lambda one: -one.attempt)),
        )

    def _script(self, held: _Held) -> Script:
        return self.scripts.get(held.facts.name, Script())

    def _held(self, operation: str, container_id: str) -> _Held:
        if container_id not in self.containers:
            raise WorldError(operation, container_id, "no such container")
        return self.containers[container_id]

    def _operation(self, name: str, place: str) -> None:
        self.done.append((name, place))
        self._perhaps_fail(name, place)

    def _perhaps_fail(self, name: str, place: str) -> None:
        if self._failing[name]:
            raise WorldError(name.replace("_", " "), place, self._failing[name].pop(0))


class FakeCgroups:
    """A tree of cgroups that is a dictionary."""

    def __init__(self, version: int = 2) -> None:
        self.version = version
        self.lacks: set[str] = set()
        self.groups: dict[str, dict[str, str]] = {}
        self.members: dict[str, set[int]] = {}

    def ensure(self, path: str, files: tuple[File, ...]) -> None:
        """The group has these files."""
        self.groups.setdefault(path, {}).update({file.name: file.value for file in files})

    def texts(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """What files say."""
        group = self.groups.get(path)
        return None if group is None else {name: group[name] for name in names if name in group}

    def below(self, path: str) -> tuple[str, ...]:
        """The groups right below."""
        return tuple(sorted(one for one in self.groups if one.rpartition("/")[0] == path))

    def processes(self, path: str) -> tuple[int, ...]:
        """Who is in it and below."""
        inside = [pids for one, pids in self.members.items() if one == path or one.startswith(f"{path}/")]
        return tuple(sorted(pid for pids in inside for pid in pids))

    def kill(self, path: str) -> None:
        """Nobody is in it any more."""
        for one in [each for each in self.members if each == path or each.startswith(f"{path}/")]:
            del self.members[one]

    def remove(self, path: str) -> None:
        """It is gone, unless somebody is in it."""
        if self.processes(path):
            raise WorldError("remove cgroup", path, "device or resource busy")
        for one in [each for each in self.groups if each == path or each.startswith(f"{path}/")]:
            del self.groups[one]
