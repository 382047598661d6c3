"""Works carried out through the ports: one task a pod, in order; what came of them goes back as observations."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from nodewright.agent.device_values import AllocateDevices, AskPreference
from nodewright.agent.fitting import fitted
from nodewright.agent.handing import Handing
from nodewright.agent.hooks import HookError, asked, container_of, pre_stop
from nodewright.agent.patience import PatientRuntime
from nodewright.agent.starting import Composer, ConfigError, Means, Starts, ip_of
from nodewright.agent.timing import all_done, steady_ns, timed
from nodewright.agent.values import (
    GROUP_ERROR,
    KILL_ERROR,
    SANDBOX_ERROR,
    Asking,
    AskProbe,
    CancelWork,
    CleanPod,
    EndPod,
    Failure,
    PodDone,
    PodWork,
    Seen,
    SyncPod,
    Tell,
    TuneContainer,
    TuneFailed,
    TuneStart,
    WriteGroups,
)
from nodewright.core.cgroups.plan import Group, Level
from nodewright.core.lifecycle import LEAST_GRACE_S, KillReason, grace_period_s, waits_for
from nodewright.model.objects import Container, Pod
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.world.errors import WorldError
from nodewright.world.plugins.port import WillingPlugins
from nodewright.world.ports import Asker, Cgroups, Clock, ContainerRuntime

_LOOK_AGAIN_S = 5.0
_HOOK_SLACK_S = 1.0
"""A hook that is still busy when its time is up has not failed."""


class Performer:
    """Carries out works; ``report`` takes what came of them."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        cgroups: Cgroups,
        composer: Composer,
        asker: Asker,
        clock: Clock,
    ) -> None:
        self.runtime: ContainerRuntime = PatientRuntime(runtime, clock)
        self.cgroups, self.composer = cgroups, composer
        self.asker, self.clock = asker, clock
        self.report: Callable[[Seen], None] = lambda _: None
        self.tell: Callable[[Tell], None] = lambda _: None
        """Hears of what fails and changes nothing."""
        self.handing = Handing(WillingPlugins())
        """What is done about devices; as long as nobody says otherwise, plugins hand out everything."""
        self._is_closed = False
        self._pods: dict[str, asyncio.Task[None]] = {}
        self._starts: dict[str, Starts] = {}
        """The starts of each pod's last sync."""
        self._others: set[asyncio.Task[None]] = set()

    def give(self, work: PodWork | CancelWork | TuneContainer | TuneStart | Asking) -> None:
        """Begin with a work, or end one."""
        match work:
            case AllocateDevices() | SyncPod() | EndPod() | CleanPod():
                assert work.uid not in self._pods, work.uid
                self._starts.pop(work.uid, None)
                if isinstance(work, SyncPod):
                    means = Means(self.runtime, self.composer, self.asker, self.handing)
                    self._starts[work.uid] = Starts(work, means)
                self._pods[work.uid] = asyncio.create_task(self._pod_work(work))
            case CancelWork(uid):
                if uid in self._pods:
                    # Not before it has begun: what never began could not say that it has ended.
                    asyncio.get_running_loop().call_soon(self._pods[uid].cancel)
            case TuneContainer():
                self._begin(self._tune(work))
            case TuneStart():
                self._begin(self._tune_start(work))
            case AskProbe():
                self._begin(self._ask(work))
            case AskPreference():
                self._begin(self._prefer(work))

    def write_groups(self, work: WriteGroups) -> tuple[Failure, ...]:
        """The groups above those of pods, from the top down; what could not be written is told."""
        failures = []
        for group in work.groups:
            try:
                self.cgroups.ensure(group.path, group.files)
            except WorldError as error:
                failures.append(Failure(reason="CgroupNotWritten", message=str(error)))
        return tuple(failures)

    async def close(self) -> None:
        """Stop all works where they are; what runs goes on running."""
        self._is_closed = True
        tasks = [*self._pods.values(), *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, doing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(doing)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _pod_work(self, work: PodWork) -> None:
        failures: list[Failure] = []
        reason = SANDBOX_ERROR if isinstance(work, SyncPod) else KILL_ERROR
        is_cancelled, allocated = False, None
        try:
            if isinstance(work, AllocateDevices):
                allocated = await self.handing.allocate(work)
            else:
                await self._work(work, failures)
        except asyncio.CancelledError:
            if self._is_closed:
                raise
            is_cancelled = True
        except (ConfigError, WorldError, TimeoutError) as error:
            failures.append(Failure(reason=reason, message=str(error)))
        facts, asked_ns, was_cancelled = await self._seen_whatever_comes(work.uid)
        del self._pods[work.uid]
        self.report(
            PodDone(
                uid=work.uid,
                work=work,
                facts=facts,
                asked_ns=asked_ns,
                failures=tuple(failures),
                is_cancelled=is_cancelled or was_cancelled,
                allocated=allocated,
            )
        )
        self._tell_untold(work.uid)

    async def _work(self, work: SyncPod | EndPod | CleanPod, failures: list[Failure]) -> None:
        match work:
            case SyncPod():
                await self._sync(work, self._starts[work.uid], failures)
            case EndPod():
                await self._end(work)
            case CleanPod():
                await self._clean(work)

    async def _seen_whatever_comes(self, uid: str) -> tuple[PodFacts | None, int, bool]:
        """As `_seen`; whether the work was cancelled meanwhile comes last. Only our own end ends it."""
        is_cancelled, looking = False, asyncio.ensure_future(self._seen(uid))
        while not looking.done():
            try:
                await asyncio.wait((looking,))
            except asyncio.CancelledError:
                if self._is_closed:
                    looking.cancel()
                    raise
                is_cancelled = True
        return *looking.result(), is_cancelled

    async def _seen(self, uid: str) -> tuple[PodFacts | None, int]:
        """What the runtime says of a pod, as soon as it says anything: on less than that nothing is decided."""
        is_told = False
        while True:
            asked_ns = steady_ns(self.clock)
            try:
                return await self.runtime.pod(uid), asked_ns
            except (WorldError, TimeoutError) as error:
                if not is_told:
                    # Of this pod nothing else will be heard until the runtime answers.
                    self.tell(Tell(uid=uid, is_warning=True, reason="RuntimeUnavailable", message=str(error)))
                is_told = True
            await self.clock.sleep(_LOOK_AGAIN_S)

    # ------------------------------------------------------------ sync

    async def _sync(self, work: SyncPod, starts: Starts, failures: list[Failure]) -> None:
        """Groups, kills, sandbox, starts.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, SyncPod.
        """
        pod, plan = work.pod, work.plan
        group = _pod_group(work.groups)
        if work.is_resize:
            failures += await fitted(self.runtime, self.cgroups, group, work.tunes)
        elif group is not None:
            try:
                self.cgroups.ensure(group.path, group.files)
            except WorldError as error:
                failures.append(Failure(reason=GROUP_ERROR, message=str(error)))
                return
        facts = await self.runtime.pod(pod.uid) or _nothing(pod)
        if plan.ends:
            await self._stop_all(pod, facts, None)
        for kill in plan.kills:
            await self._stop(pod, kill.container, kill.reason, None)
        for one in plan.removes:
            await self._stop(pod, one, None, 0)
            await self.runtime.remove_container(one.id)
        sandbox_id = plan.sandbox_id
        if plan.sandbox_attempt is not None:
            path = group.path if group is not None else ""
            sandbox_id = await self._sandbox(work, path, facts)
            facts = await self.runtime.pod(pod.uid) or _nothing(pod)
        failures += await starts.run(sandbox_id, facts)

    async def _sandbox(self, work: SyncPod, path: str, facts: PodFacts) -> str:
        for old in facts.sandboxes:
            await self.runtime.stop_sandbox(old.id)
        assert work.plan.sandbox_attempt is not None
        return await self.runtime.run_sandbox(
            await self.composer.sandbox(work.pod, work.plan.sandbox_attempt, path)
        )

    # ------------------------------------------------------------ end

    async def _end(self, work: EndPod) -> None:
        """All containers in their order, the sandbox, the groups."""
        facts = await self.runtime.pod(work.uid)
        if facts is not None:
            await self._stop_all(work.pod, facts, work.grace_period_s)
            for sandbox in facts.sandboxes:
                await self.runtime.stop_sandbox(sandbox.id)
        self._remove_group(work.cgroup)

    async def _clean(self, work: CleanPod) -> None:
        facts = await self.runtime.pod(work.uid)
        for sandbox in facts.sandboxes if facts is not None else ():
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        self._remove_group(work.cgroup)
        await self.composer.forget(work.pod)

    def _remove_group(self, path: str) -> None:
        """Nothing is left in a pod's group, nor the group itself; empty: it has none."""
        if path:
            self.cgroups.kill(path)
            self.cgroups.remove(path)

    async def _stop_all(self, pod: Pod, facts: PodFacts, override_s: int | None) -> None:
        """All at once, except for sidecars, which wait for those that they serve.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainersWithSyncResult.
        """
        alive = (ContainerPhase.RUNNING, ContainerPhase.UNKNOWN, ContainerPhase.CREATED)
        running = {one.name: one for one in reversed(facts.containers) if one.phase in alive}
        waits = waits_for(pod, running.keys())
        ended = {name: asyncio.Event() for name in running}

        async def stop(one: ContainerFacts) -> None:
            try:
                before = [ended[name] for name in waits.get(one.name, ())]
                await self._stop(pod, one, None, override_s, before)
            finally:
                ended[one.name].set()

        await all_done(stop(one) for one in running.values())

    async def _stop(
        self,
        pod: Pod,
        facts: ContainerFacts,
        reason: KillReason | None,
        override_s: int | None,
        before: Iterable[asyncio.Event] = (),
    ) -> None:
        """One container: its hook, its turn, its end; all within its time.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainer.
        """
        container = container_of(pod, facts.name)
        left_s = float(grace_period_s(pod, container, reason, override_s))
        handler = (container.lifecycle or {}).get("preStop")
        if handler is not None and left_s > 0 and facts.phase is ContainerPhase.RUNNING:
            left_s -= await timed(self.clock, self._pre_stop(pod, container, facts, left_s), left_s)
        for event in before:
            if left_s > 0:
                left_s -= int(await timed(self.clock, event.wait(), left_s))
        await self.runtime.stop_container(facts.id, max(left_s, LEAST_GRACE_S))

    async def _pre_stop(
        self, pod: Pod, container: Container, facts: ContainerFacts, timeout_s: float
    ) -> None:
        try:
            found = await self.runtime.pod(pod.uid) or _nothing(pod)
            await pre_stop(self.asker, pod, container, facts.id, (ip_of(found), timeout_s + _HOOK_SLACK_S))
        except (HookError, WorldError):
            # A hook that fails does not keep its container from ending. What it said may be secret.
            self.tell(
                Tell(uid=pod.uid, is_warning=True, reason="FailedPreStopHook", message="PreStopHook failed")
            )

    # ------------------------------------------------------------ the rest

    async def _tune(self, work: TuneContainer) -> None:
        try:
            await self.runtime.update_container(work.container_id, work.settings, work.files)
        except (WorldError, TimeoutError):
            self.report(TuneFailed(uid=work.uid, container_id=work.container_id))

    async def _tune_start(self, work: TuneStart) -> None:
        """A container that is being started, or was until a moment ago."""
        if work.uid in self._starts:
            await self._starts[work.uid].retuned(work)
            if work.uid not in self._pods:
                self._tell_untold(work.uid)

    def _tell_untold(self, uid: str) -> None:
        """Say which containers could not be told, once their start is known to be over."""
        starts = self._starts.get(uid)
        while starts is not None and starts.untold:
            self.report(TuneFailed(uid=uid, container_id=starts.untold.pop()))

    async def _prefer(self, work: AskPreference) -> None:
        self.report(await self.handing.ask(work))

    async def _ask(self, work: AskProbe) -> None:
        self.report(await asked(self.asker, work, container_of(work.pod, work.container), self.clock))


def _pod_group(groups: Iterable[Group]) -> Group | None:
    return next((one for one in groups if one.level is Level.POD), None)


def _nothing(pod: Pod) -> PodFacts:
    return PodFacts(uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
