"""Pods run by a container runtime through CRI v1."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.model.objects import Pod
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri import seen, wishes
from nodewright.world.cri.channel import (
    CHANGE_S,
    CONTAINER,
    CREATE,
    EVENTS,
    EXECUTE,
    LIST,
    LIST_SANDBOXES,
    REMOVE,
    REMOVE_SANDBOX,
    REOPEN_LOG,
    RUN_SANDBOX,
    SANDBOX,
    START,
    STATS,
    STOP,
    STOP_SANDBOX,
    UPDATE,
    VERSION,
    Channel,
    NotThere,
    TooLate,
)
from nodewright.world.cri.images import image_status
from nodewright.world.cri.probing import probed
from nodewright.world.cri.watch import News, Watch
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerUsage, ContainerWish, Executed, RuntimeFacts, SandboxWish

_TAKEN = "is reserved for"
"""Said of a name by containerd and CRI-O while another call makes something of that name."""
_TAKEN_S, _EXECUTE_MORE_S = 10.0, 5.0
_ROOT_USER = (0, "")

Find = Callable[[], Awaitable[str | None]]


class CRIRuntime:
    """Pods of ``owner`` in the runtime behind ``channel``; it may run those of others beside.

    ``handlers`` tells the runtime's handler of each RuntimeClass; profiles of seccomp are below ``seccomp_root``.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        owner: str = "nodewright",
        handlers: Callable[[], Mapping[str, str]] = dict,
        seccomp_root: str = "/var/lib/kubelet/seccomp",
    ) -> None:
        self._channel, self._owner, self._seccomp_root = channel, owner, seccomp_root
        self._handlers = handlers
        self._probed: RuntimeFacts | None = None
        self._ended: dict[str, ContainerFacts] = {}
        """Containers that have ended, by id: they say the same for ever."""
        self._cgroups: dict[str, str] = {}

    async def facts(self) -> RuntimeFacts:
        """Which runtime it is, and which calls it lacks; these are tried once a release.

        Errors: WorldError; also where it speaks another CRI than v1.
        """
        told = await self._channel.ask(VERSION, cri.VersionRequest(), "")
        if told.runtime_api_version not in ("v1", "v1.0.0", "1.0.0"):
            raise WorldError(
                "Version", self._channel.endpoint, f"CRI v1 is needed, not {told.runtime_api_version!r}"
            )
        known = self._probed
        if known is not None and (known.name, known.version) == (told.runtime_name, told.runtime_version):
            return known
        self._probed = await probed(self._channel, told)
        return self._probed

    async def pods(self) -> tuple[PodFacts, ...]:
        """All pods that it holds for us."""
        sandboxes = await self._sandboxes({})
        containers = await self._containers({})
        self._forget(one.id for one in containers)
        uids = dict.fromkeys(one.metadata.uid for one in sandboxes)
        return tuple(
            await asyncio.gather(
                *(
                    self._pod([one for one in sandboxes if one.metadata.uid == uid], containers)
                    for uid in uids
                )
            )
        )

    async def pod(self, uid: str) -> PodFacts | None:
        """One pod."""
        sandboxes, containers = await asyncio.gather(
            self._sandboxes({wishes.POD_UID: uid}), self._containers({wishes.POD_UID: uid})
        )
        return await self._pod(sandboxes, containers) if sandboxes else None

    async def run_sandbox(self, wish: SandboxWish) -> str:
        """A sandbox that is ready; one of the same attempt that is not is taken away first."""
        pod = wish.pod
        handler = self._handler(pod)
        config = wishes.sandbox_config(wish, self._owner)

        async def find() -> str | None:
            for one in await self._sandboxes({wishes.POD_UID: pod.uid}):
                if one.metadata.attempt != wish.attempt:
                    continue
                if one.state == cri.SANDBOX_READY:
                    return one.id
                await self.stop_sandbox(one.id)
                await self.remove_sandbox(one.id)
            return None

        async def run() -> str:
            question = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
            return (await self._channel.ask(RUN_SANDBOX, question, pod.full_name)).pod_sandbox_id

        return await _once(find, run)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Nothing in it runs any more, and its network is given back."""
        with contextlib.suppress(NotThere):
            await self._channel.ask(
                STOP_SANDBOX, cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), sandbox_id
            )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """It is gone with its containers."""
        with contextlib.suppress(NotThere):
            await self._channel.ask(
                REMOVE_SANDBOX, cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), sandbox_id
            )

    async def create_container(self, sandbox_id: str, wish: ContainerWish) -> str:
        """A container that can be started."""
        listed = await self._channel.ask(
            LIST_SANDBOXES,
            cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=sandbox_id)),
            sandbox_id,
        )
        if not listed.items:
            raise NotThere("create container in", sandbox_id, "no such sandbox")
        told = listed.items[0]
        question = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=wishes.container_config(
                wish, await self._image_user(wish.image or wish.container.image), self._seccomp_root
            ),
            sandbox_config=wishes.sandbox_of(
                wish.pod,
                told.metadata.attempt,
                told.annotations[wishes.CGROUP],
                told.annotations[wishes.LOGS],
                self._owner,
            ),
        )

        async def find() -> str | None:
            for one in await self._containers({wishes.POD_UID: wish.pod.uid}):
                if (one.metadata.name, one.metadata.attempt) == (wish.container.name, wish.attempt):
                    return one.id
            return None

        async def create() -> str:
            place = f"{wish.pod.full_name}/{wish.container.name}"
            return (await self._channel.ask(CREATE, question, place)).container_id

        return await _once(find, create)

    async def start_container(self, container_id: str) -> None:
        """Its command runs; nothing happens where it did so before."""
        told = await self._status(container_id)
        if told.status.state == cri.CONTAINER_CREATED:
            await self._channel.ask(START, cri.StartContainerRequest(container_id=container_id), container_id)

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """It has ended."""
        question = cri.StopContainerRequest(container_id=container_id, timeout=math.ceil(grace_period_s))
        with contextlib.suppress(NotThere):
            await self._channel.ask(STOP, question, container_id, limit_s=grace_period_s + CHANGE_S)

    async def remove_container(self, container_id: str) -> None:
        """It is gone with its group."""
        with contextlib.suppress(NotThere):
            await self._channel.ask(
                REMOVE, cri.RemoveContainerRequest(container_id=container_id), container_id
            )

    async def update_container(
        self,
        container_id: str,
        settings: ContainerSettings,
        files: tuple[File, ...],  # noqa: ARG002 - the runtime writes them, of the amounts
    ) -> None:
        """A running container is held to other settings."""
        question = cri.UpdateContainerResourcesRequest(
            container_id=container_id, linux=wishes.resources(settings)
        )
        await self._channel.ask(UPDATE, question, container_id)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> Executed:
        """What a command inside the container gave."""
        question = cri.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=max(1, math.ceil(timeout_s))
        )
        try:
            done = await self._channel.ask(
                EXECUTE, question, container_id, limit_s=timeout_s + _EXECUTE_MORE_S
            )
        except TooLate as error:
            raise TimeoutError(error.error) from error
        return Executed(done.exit_code, done.stdout, done.stderr)

    async def reopen_log(self, container_id: str) -> None:
        """Its log goes on in a new file."""
        await self._channel.ask(
            REOPEN_LOG, cri.ReopenContainerLogRequest(container_id=container_id), container_id
        )

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """What each of our containers uses that run."""
        sandboxes = {one.id for one in await self._sandboxes({})}
        ours = {
            one.id
            for one in await self._containers({})
            if one.pod_sandbox_id in sandboxes and one.state == cri.CONTAINER_RUNNING
        }
        told = await self._channel.ask(STATS, cri.ListContainerStatsRequest(), "")
        return {one.attributes.id: seen.usage_of(one) for one in told.stats if one.attributes.id in ours}

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod in which something changed."""
        facts = await self.facts()
        news = News.CONTAINERD if facts.has_events else News.NOBODY
        if EVENTS.name not in facts.missing:
            news = News.CRI
        async for uid in Watch(self._channel, self._look, news).changes():
            yield uid

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    def _handler(self, pod: Pod) -> str:
        """What the runtime calls the pod's RuntimeClass; without one it takes its usual way.

        Follows: v1.36, kubelet/runtimeclass/runtimeclass_manager.go, LookupRuntimeHandler.
        """
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        found = self._handlers().get(name)
        if found is None:
            said = f'runtimeclass.node.k8s.io "{name}" not found'
            raise WorldError("create sandbox for pod", pod.full_name, said)
        return found

    # ------------------------------------------------------------ what there is

    async def _look(self) -> Mapping[str, object]:
        """The state of all that there is of each of our pods."""
        sandboxes, containers = await asyncio.gather(self._sandboxes({}), self._containers({}))
        uids = {one.id: one.metadata.uid for one in sandboxes}
        found: dict[str, list[tuple[str, int]]] = {uid: [] for uid in uids.values()}
        for sandbox in sandboxes:
            found[sandbox.metadata.uid].append((sandbox.id, sandbox.state))
        for one in containers:
            if one.pod_sandbox_id in uids:
                found[uids[one.pod_sandbox_id]].append((one.id, one.state))
        self._forget(one.id for one in containers)
        return {uid: sorted(states) for uid, states in found.items()}

    async def _sandboxes(self, labels: dict[str, str]) -> list[cri.PodSandbox]:
        """Our sandboxes with these labels, the newest first."""
        question = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=labels))
        told = await self._channel.ask(LIST_SANDBOXES, question, "")
        ours = [one for one in told.items if one.annotations.get(wishes.OWNER) == self._owner]
        return sorted(ours, key=lambda one: (-one.metadata.attempt, -one.created_at, one.id))

    async def _containers(self, labels: dict[str, str]) -> list[cri.Container]:
        """Containers with these labels, whosever they are."""
        question = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=labels))
        return list((await self._channel.ask(LIST, question, "")).containers)

    async def _pod(self, sandboxes: list[cri.PodSandbox], containers: list[cri.Container]) -> PodFacts:
        by_id = {one.id: one for one in sandboxes}
        mine = [one for one in containers if one.pod_sandbox_id in by_id]
        statuses, facts = await asyncio.gather(
            asyncio.gather(*(self._sandbox_status(one.id) for one in sandboxes)),
            asyncio.gather(*(self._facts(one, by_id[one.pod_sandbox_id]) for one in mine)),
        )
        there = sorted(
            (one for one in facts if one is not None),
            key=lambda one: (one.name, -one.attempt, -one.created_ns),
        )
        metadata = sandboxes[0].metadata
        return PodFacts(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            sandboxes=tuple(
                seen.sandbox_facts(one, status) for one, status in zip(sandboxes, statuses, strict=True)
            ),
            containers=tuple(there),
        )

    async def _sandbox_status(self, sandbox_id: str) -> cri.PodSandboxStatus | None:
        question = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        try:
            return (await self._channel.ask(SANDBOX, question, sandbox_id)).status
        except NotThere:
            return None

    async def _facts(self, listed: cri.Container, sandbox: cri.PodSandbox) -> ContainerFacts | None:
        """One container; None: it is gone meanwhile."""
        if listed.id in self._ended:
            return self._ended[listed.id]
        try:
            told = await self._status(listed.id, verbose=listed.id not in self._cgroups)
        except NotThere:
            return None
        if listed.id not in self._cgroups:
            parent = sandbox.annotations[wishes.CGROUP]
            self._cgroups[listed.id] = seen.cgroup_of(told.info, parent)
        facts = seen.container_facts(told.status, sandbox, self._cgroups[listed.id])
        if facts.phase is ContainerPhase.EXITED:
            self._ended[listed.id] = facts
        return facts

    async def _status(self, container_id: str, *, verbose: bool = False) -> cri.ContainerStatusResponse:
        question = cri.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self._channel.ask(CONTAINER, question, container_id)

    def _forget(self, there: Iterable[str]) -> None:
        """What is known of containers that are gone."""
        ids = set(there)
        for known in (self._ended, self._cgroups):
            for gone in known.keys() - ids:
                del known[gone]

    async def _image_user(self, image: str) -> tuple[int | None, str]:
        """As whom an image runs: by number, or by name.

        Follows: v1.36, kubelet/kuberuntime/helpers.go, getImageUser.
        """
        found = await image_status(self._channel, image)
        if found is not None and found.HasField("uid"):
            return found.uid.value, ""
        return (None, found.username) if found is not None and found.username else _ROOT_USER


async def _once(find: Find, make: Callable[[], Awaitable[str]]) -> str:
    """The id of what there is, or of what was made; never two of it.

    A call that was cut off by our end goes on in the runtime for a moment, and keeps the name meanwhile.
    """
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + _TAKEN_S
    while True:
        found = await find()
        if found is not None:
            return found
        try:
            return await make()
        except WorldError as error:
            if _TAKEN not in error.error or now_s() > until_s:
                raise
        await asyncio.sleep(0.1)
