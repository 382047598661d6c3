"""An agent without a machine: everything that it uses is a fake, and time passes when it is told to."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Self

from nodewright.agent.decide import wake_at_ns
from nodewright.agent.images import ImageKeeper
from nodewright.agent.ledger import Memory
from nodewright.agent.loop import Loop
from nodewright.agent.outcome import Decided, Keeping, Stepped
from nodewright.agent.perform import Performer
from nodewright.agent.pressure import Pressure, Watched
from nodewright.agent.values import (
    Mind,
    PodRecord,
    PodsWanted,
    PodUnwanted,
    PodWanted,
    ReclaimNode,
    Rules,
    Seen,
    Source,
    Tell,
)
from nodewright.ask import Node
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.eviction import ADAPTIVE, EvictionPolicy
from nodewright.core.images import ImagePolicy
from nodewright.core.lifecycle import spec_hash
from nodewright.model.objects import Container, Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.running import PodFacts
from nodewright.node.state import NodeState
from nodewright.render.words import KubeletWords
from nodewright.testing.disks import SlowDisk
from nodewright.testing.nodes import a_profile
from nodewright.testing.pressure import FakeAlarms, FakeGauges, FakeStorage, at_once
from nodewright.testing.runtime import FakeCgroups, FakeClock, FakeRuntime, Script, settle
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerWish, ImageStore, SandboxWish


def running(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """The test as an ordinary one."""

    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class FakeComposer:
    """Wishes with nothing in them but what is asked for."""

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """A sandbox."""
        return SandboxWish(pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=f"/logs/{pod.uid}")

    async def container(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: tuple[ContainerSettings, tuple[File, ...]],
        facts: PodFacts,  # noqa: ARG002 - the port has it
    ) -> ContainerWish:
        """A container."""
        return ContainerWish(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            log_path=f"{container.name}/{attempt}.log",
            image=container.image,
            settings=settings[0],
            files=settings[1],
        )

    async def forget(self, pod: Pod) -> None:
        """There is nothing to forget."""


class FakeAsker:
    """Answers as it is told; every other question well."""

    def __init__(self) -> None:
        self.bad: set[str] = set()
        """Containers whose answers are bad, by name."""
        self.asked: list[tuple[str, str]] = []
        """The container's id and what was asked, in order."""
        self.hooked: list[str] = []
        """The ids of the containers whose hooks have run, well or not."""
        self.lets_hooks_run = asyncio.Event()
        """While it is not set, hooks take their time."""
        self.lets_hooks_run.set()

    async def ask(
        self,
        handler: Mapping[str, Any],
        container_id: str,
        address: str,  # noqa: ARG002 - the port has it
        timeout_s: float,  # noqa: ARG002 - the port has it
    ) -> tuple[bool, str]:
        """The answer."""
        self.asked.append((container_id, next(iter(handler), "")))
        is_bad = container_id.split("-", maxsplit=1)[0] in self.bad
        return not is_bad, "no" if is_bad else "yes"

    async def hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, who: str
    ) -> tuple[bool, str]:
        """Whether it has run."""
        await self.lets_hooks_run.wait()
        is_good, said = await self.ask(handler, container_id, address, timeout_s)
        self.hooked.append(container_id)
        return is_good, "" if is_good else f"{who}: {said}"


class FakeMemory:
    """Keeps what is to be kept, unless the disk is full."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.node: NodeState | None = None
        self.stepped: list[Stepped] = []
        self.is_full = False

    def keep(self, keeping: Keeping) -> None:
        """Remember it, all or nothing."""
        if self.is_full:
            raise WorldError("write", "memory", "no space left on device")
        self.stepped += keeping.stepped
        for uid, record in keeping.pods.items():
            if record is None:
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = record
        self.node = keeping.node


class CarefulLoop(Loop):
    """Sees to it that nobody wakes up for what is past."""

    def turn(self, seen: Seen) -> bool:
        """Decide as any other."""
        is_urgent = super().turn(seen)
        moment = wake_at_ns(self.mind)
        assert moment is None or moment > self.clock.monotonic_s() * 10**9, (
            "it would wake up at once, for ever"
        )
        return is_urgent


class FakeEars:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[Tell] = []
        self.reclaims: list[ReclaimNode] = []
        self.on_reclaim: Callable[[ReclaimNode], None] = lambda _: None

    def tell(self, told: Tell) -> None:
        """Something happened."""
        self.told.append(told)

    def decided(self, decided: Decided) -> None:
        """The mind has changed."""
        self.told += [work for work in decided.works if isinstance(work, Tell)]

    def reclaim(self, work: ReclaimNode) -> None:
        """The node is to give something back."""
        self.reclaims.append(work)
        self.on_reclaim(work)


class AgentBench:
    """An agent on a made-up node, for `async with`."""

    def __init__(
        self,
        profile: NodeProfile | None = None,
        unheard: Collection[Source] = (),
        clock: FakeClock | None = None,
        **scripts: Script,
    ) -> None:
        self.clock = clock or FakeClock()
        self.runtime = FakeRuntime(self.clock, scripts)
        self.cgroups, self.asker = FakeCgroups(), FakeAsker()
        self.memory, self.ears = FakeMemory(), FakeEars()
        self.keeper: Memory = self.memory
        self.node = Node.of(profile or a_profile()).state
        self.loop = self._loop(Mind(node=self.node, unheard=frozenset(unheard)))
        self.gauges, self.storage, self.alarms = FakeGauges(), FakeStorage(), FakeAlarms()
        self.pressure: Pressure | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._disk: SlowDisk | None = None

    def begin(self, mind: Mind, memory: Memory) -> None:
        """Have the agent begin with this, before it runs."""
        self.keeper = memory
        self.loop = self._loop(mind)

    def slow_disk(self, seconds: float) -> None:
        """From now on the disk takes so long for what is to be kept."""
        self._disk = SlowDisk(self.clock, seconds)
        self.loop.ledger.beside = self._disk

    def use(self, runtime: FakeRuntime, cgroups: FakeCgroups) -> None:
        """Go on with what an earlier agent has left, before this one begins."""
        runtime.clock = self.clock
        self.runtime, self.cgroups = runtime, cgroups
        self.loop = self._loop(self.loop.mind)

    async def want(self, *pods: Pod, source: Source = Source.API) -> None:
        """Ask for pods, and let happen what can at once."""
        for pod in pods:
            self.loop.see(PodWanted(source, pod))
        await settle()

    async def have(self, *pods: Pod, source: Source = Source.WORKLOAD) -> None:
        """A source has these pods and no others."""
        self.loop.see(PodsWanted(source, pods))
        await settle()

    async def drop(self, uid: str, grace_period_s: int | None = None) -> None:
        """Ask for a pod to go."""
        self.loop.see(PodUnwanted(uid, grace_period_s))
        await settle()

    async def watch(self, policy: EvictionPolicy = ADAPTIVE, images: ImageStore | None = None) -> Pressure:
        """Begin to look at the pressure that the gauges show."""
        policy_of_images = ImagePolicy(min_age_ns=0)
        keeper = None
        if images is not None:
            keeper = ImageKeeper(images, self.clock, self.ears.tell, policy=policy_of_images)
        parts = Watched(
            gauges=self.gauges, storage=self.storage, alarms=self.alarms, images=keeper, beside=at_once
        )
        self.pressure = Pressure(self.loop, parts, policy)
        self.ears.on_reclaim = self.pressure.reclaim
        self._tasks.append(asyncio.create_task(self.pressure.run()))
        await settle()
        return self.pressure

    def record(self, uid: str) -> PodRecord:
        """What the agent knows of a pod."""
        return self.loop.mind.pods[uid]

    def phase(self, uid: str) -> str:
        """The phase of a pod; empty: it is not there."""
        record = self.loop.mind.pods.get(uid)
        return record.status.phase if record is not None else ""

    def operations(self) -> list[str]:
        """What the runtime was told to do, in short."""
        return [f"{name} {place}" for name, place in self.runtime.done]

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self.loop.run()))
        await settle()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._disk is not None:
            self._disk.hurry.set()
        failed = [task for task in self._tasks if task.done()]
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for task in failed:
            task.result()

    def _loop(self, mind: Mind) -> Loop:
        performer = Performer(self.runtime, self.cgroups, FakeComposer(), self.asker, self.clock)
        rules = Rules(words=KubeletWords(), started_ns=self.clock.now_ns())
        loop = CarefulLoop(mind, performer, self.keeper, self.ears, self.clock, rules)
        loop.ledger.beside = at_once
        return loop
