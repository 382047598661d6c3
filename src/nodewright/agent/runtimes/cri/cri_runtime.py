"""Pods, images and streams of a container runtime, through CRI v1."""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from msgspec.structs import asdict

from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import (
    AttachStreamRequest,
    ContainerConfig,
    Credentials,
    ExecResult,
    ExecStreamRequest,
    ImageFsStats,
    PodSandboxConfig,
    PortForwardStreamRequest,
    RuntimeFacts,
    StoredImage,
    StreamRequest,
)
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri import channel as calls
from nodewright.agent.runtimes.cri import configs, pleg, status
from nodewright.agent.runtimes.cri.channel import (
    CRIChannel,
    DeadlineExceededError,
    NotFoundError,
)
from nodewright.agent.runtimes.cri.status import detect_runtime_facts, sandbox_image
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.runtime_status import (
    ERROR,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)

_NAME_RESERVED = "is reserved for"
"""In containerd's and CRI-O's errors for a name that another call is creating."""
_RESERVED_TIMEOUT_S, _EXECUTE_MARGIN_S = 10.0, 5.0
_ROOT_USER = (0, "")
_SIGKILLED, _OOM_EVENT_S, _RECENT_NS = 137, 0.1, 10**9
"""containerd handles the end of a container and the event that it ran out of memory in either order."""

FindId = Callable[[], Awaitable[str | None]]


class CRIRuntime:
    """The pods of ``owner`` in the runtime behind ``channel``, which may also run pods of others.

    ``handlers`` gives the runtime handler of each RuntimeClass; seccomp profiles are below ``seccomp_root``.
    """

    def __init__(
        self,
        channel: CRIChannel,
        *,
        owner: str = "nodewright",
        handlers: Callable[[], Mapping[str, str]] = dict,
        seccomp_root: str = "/var/lib/kubelet/seccomp",
    ) -> None:
        self._channel, self._owner, self._seccomp_root = channel, owner, seccomp_root
        self._handlers = handlers
        self._detected_facts: RuntimeFacts | None = None
        self._ended_containers: dict[str, RuntimeContainerStatus] = {}
        """Status of ended containers, by id: it never changes."""
        self._cgroups: dict[str, str] = {}
        self.on_relist: Callable[[float, float, float | None], None] = pleg.ignore_relist

    async def facts(self) -> RuntimeFacts:
        """The runtime's facts, and which calls it does not implement; detected once for each of its releases.

        Errors: HostError; also where its CRI version is not v1.
        """
        response = await self._channel.call(calls.VERSION, cri.VersionRequest(), "")
        if response.runtime_api_version not in ("v1", "v1.0.0", "1.0.0"):
            raise HostError(
                "Version", self._channel.endpoint, f"CRI v1 is needed, not {response.runtime_api_version!r}"
            )
        known = self._detected_facts
        if known is not None and (known.name, known.version) == (
            response.runtime_name,
            response.runtime_version,
        ):
            return known
        self._detected_facts = await detect_runtime_facts(self._channel, response)
        return self._detected_facts

    async def pods(self) -> tuple[RuntimePodStatus, ...]:
        """All pods of this owner."""
        sandboxes = await self._sandboxes({})
        containers = await self._containers({})
        self._forget_removed(container.id for container in containers)
        by_uid: dict[str, list[cri.PodSandbox]] = {}
        for sandbox in sandboxes:
            by_uid.setdefault(sandbox.metadata.uid, []).append(sandbox)
        pods = (self._pod(pod_sandboxes, containers) for pod_sandboxes in by_uid.values())
        return tuple(await asyncio.gather(*pods))

    async def pod(self, uid: str) -> RuntimePodStatus | None:
        """One pod; None: no such pod."""
        sandboxes, containers = await asyncio.gather(
            self._sandboxes({configs.POD_UID: uid}), self._containers({configs.POD_UID: uid})
        )
        return await self._pod(sandboxes, containers) if sandboxes else None

    async def run_sandbox(self, config: PodSandboxConfig) -> str:
        """Creates a sandbox; one of the same attempt that is not ready is removed first."""
        pod = config.pod
        handler = self._runtime_handler(pod)
        pod_config = configs.sandbox_config(config, self._owner)

        async def find() -> str | None:
            for sandbox in await self._sandboxes({configs.POD_UID: pod.uid}):
                if sandbox.metadata.attempt != config.attempt:
                    continue
                if sandbox.state == cri.SANDBOX_READY:
                    return sandbox.id
                await self.stop_sandbox(sandbox.id)
                await self.remove_sandbox(sandbox.id)
            return None

        async def run() -> str:
            request = cri.RunPodSandboxRequest(config=pod_config, runtime_handler=handler)
            return (await self._channel.call(calls.RUN_POD_SANDBOX, request, pod.full_name)).pod_sandbox_id

        return await _find_or_create(find, run)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stops a sandbox with its containers, and releases its network."""
        with contextlib.suppress(NotFoundError):
            await self._channel.call(
                calls.STOP_POD_SANDBOX, cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id), sandbox_id
            )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox with its containers."""
        with contextlib.suppress(NotFoundError):
            await self._channel.call(
                calls.REMOVE_POD_SANDBOX, cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id), sandbox_id
            )

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        """Creates a container."""
        listed = await self._channel.call(
            calls.LIST_POD_SANDBOX,
            cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=sandbox_id)),
            sandbox_id,
        )
        if not listed.items:
            raise NotFoundError("create container in", sandbox_id, "no such sandbox")
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=configs.container_config(
                config, await self._image_user(config.image or config.container.image), self._seccomp_root
            ),
            sandbox_config=configs.existing_sandbox_config(config.pod, listed.items[0], self._owner),
        )

        async def find() -> str | None:
            for container in await self._containers({configs.POD_UID: config.pod.uid}):
                if (container.metadata.name, container.metadata.attempt) == (
                    config.container.name,
                    config.attempt,
                ):
                    return container.id
            return None

        async def create() -> str:
            place = f"{config.pod.full_name}/{config.container.name}"
            return (await self._channel.call(calls.CREATE_CONTAINER, request, place)).container_id

        return await _find_or_create(find, create)

    async def start_container(self, container_id: str) -> None:
        """Starts a container, unless it has already started."""
        response = await self._status(container_id)
        if response.status.state == cri.CONTAINER_CREATED:
            await self._channel.call(
                calls.START_CONTAINER, cri.StartContainerRequest(container_id=container_id), container_id
            )

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Stops a container."""
        request = cri.StopContainerRequest(container_id=container_id, timeout=math.ceil(grace_period_s))
        with contextlib.suppress(NotFoundError):
            await self._channel.call(
                calls.STOP_CONTAINER, request, container_id, limit_s=grace_period_s + calls.CHANGE_TIMEOUT_S
            )

    async def remove_container(self, container_id: str) -> None:
        """Removes a container and its cgroup."""
        with contextlib.suppress(NotFoundError):
            await self._channel.call(
                calls.REMOVE_CONTAINER, cri.RemoveContainerRequest(container_id=container_id), container_id
            )

    async def update_container(
        self,
        container_id: str,
        settings: ContainerSettings,
        files: tuple[CgroupFile, ...],  # noqa: ARG002 - the runtime writes the files itself, from the settings
    ) -> None:
        """Changes the resources of a running container."""
        request = cri.UpdateContainerResourcesRequest(
            container_id=container_id, linux=configs.linux_container_resources(settings)
        )
        await self._channel.call(calls.UPDATE_CONTAINER_RESOURCES, request, container_id)

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """The result of a command in the container."""
        request = cri.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=max(1, math.ceil(timeout_s))
        )
        try:
            response = await self._channel.call(
                calls.EXEC_SYNC, request, container_id, limit_s=timeout_s + _EXECUTE_MARGIN_S
            )
        except DeadlineExceededError as error:
            raise TimeoutError(error.error) from error
        return ExecResult(response.exit_code, response.stdout, response.stderr)

    async def reopen_log(self, container_id: str) -> None:
        """Has the runtime continue the log in a new file."""
        await self._channel.call(
            calls.REOPEN_CONTAINER_LOG, cri.ReopenContainerLogRequest(container_id=container_id), container_id
        )

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """The usage of each running container of this owner."""
        sandboxes = {sandbox.id for sandbox in await self._sandboxes({})}
        ours = {
            container.id
            for container in await self._containers({})
            if container.pod_sandbox_id in sandboxes and container.state == cri.CONTAINER_RUNNING
        }
        response = await self._channel.call(calls.LIST_CONTAINER_STATS, cri.ListContainerStatsRequest(), "")
        return {
            stat.attributes.id: status.usage_of(stat) for stat in response.stats if stat.attributes.id in ours
        }

    async def changes(self) -> AsyncIterator[str]:
        """The uid of each pod in which something changed."""
        facts = await self.facts()
        news = pleg.ContainerEventSource.CONTAINERD if facts.has_events else pleg.ContainerEventSource.NONE
        if calls.GET_CONTAINER_EVENTS.name not in facts.unimplemented_calls:
            news = pleg.ContainerEventSource.CRI
        generator = pleg.PodLifecycleEventGenerator(self._channel, self._relist, news)
        generator.on_relist = self.on_relist
        async for uid in generator.changes():
            yield uid

    async def close(self) -> None:
        """Closes the connection."""
        await self._channel.close()

    def _runtime_handler(self, pod: Pod) -> str:
        """The runtime handler of the pod's RuntimeClass; empty: the default handler.

        Follows: v1.36, kubelet/runtimeclass/runtimeclass_manager.go, LookupRuntimeHandler.
        """
        name = pod.spec.runtime_class_name
        if not name:
            return ""
        handler = self._handlers().get(name)
        if handler is None:
            message = f'runtimeclass.node.k8s.io "{name}" not found'
            raise HostError("create sandbox for pod", pod.full_name, message)
        return handler

    # ------------------------------------------------------------ lists

    async def _relist(self) -> Mapping[str, list[pleg.RelistedState]]:
        """The states of all sandboxes and containers of each pod of this owner."""
        sandboxes, containers = await asyncio.gather(self._sandboxes({}), self._containers({}))
        uids = {sandbox.id: sandbox.metadata.uid for sandbox in sandboxes}
        states_by_uid: dict[str, list[pleg.RelistedState]] = {uid: [] for uid in uids.values()}
        for sandbox in sandboxes:
            state = pleg.RelistedState(sandbox.id, sandbox.state, sandbox.state == cri.SANDBOX_READY)
            states_by_uid[sandbox.metadata.uid].append(state)
        for container in containers:
            if container.pod_sandbox_id in uids:
                state = pleg.RelistedState(
                    container.id, container.state, container.state == cri.CONTAINER_RUNNING
                )
                states_by_uid[uids[container.pod_sandbox_id]].append(state)
        self._forget_removed(container.id for container in containers)
        return {uid: sorted(states) for uid, states in states_by_uid.items()}

    async def _sandboxes(self, labels: dict[str, str]) -> list[cri.PodSandbox]:
        """Sandboxes of this owner with these labels, newest first."""
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=labels))
        response = await self._channel.call(calls.LIST_POD_SANDBOX, request, "")
        ours = [item for item in response.items if item.annotations.get(configs.OWNER) == self._owner]
        return sorted(ours, key=lambda our: (-our.metadata.attempt, -our.created_at, our.id))

    async def _containers(self, labels: dict[str, str]) -> list[cri.Container]:
        """Containers with these labels, of any owner."""
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=labels))
        return list((await self._channel.call(calls.LIST_CONTAINERS, request, "")).containers)

    async def _pod(
        self, sandboxes: list[cri.PodSandbox], containers: list[cri.Container]
    ) -> RuntimePodStatus:
        by_id = {sandbox.id: sandbox for sandbox in sandboxes}
        pod_containers = [container for container in containers if container.pod_sandbox_id in by_id]
        sandbox_statuses, listed_statuses = await asyncio.gather(
            asyncio.gather(*(self._sandbox_status(sandbox.id) for sandbox in sandboxes)),
            asyncio.gather(
                *(
                    self._container_status(container, by_id[container.pod_sandbox_id])
                    for container in pod_containers
                )
            ),
        )
        container_statuses = sorted(
            (container for container in listed_statuses if container is not None),
            key=lambda container: (container.name, -container.attempt, -container.created_ns),
        )
        metadata = sandboxes[0].metadata
        return RuntimePodStatus(
            uid=metadata.uid,
            namespace=metadata.namespace,
            name=metadata.name,
            sandboxes=tuple(
                status.sandbox_facts(sandbox, sandbox_status)
                for sandbox, sandbox_status in zip(sandboxes, sandbox_statuses, strict=True)
            ),
            containers=tuple(container_statuses),
        )

    async def _sandbox_status(self, sandbox_id: str) -> cri.PodSandboxStatus | None:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        try:
            return (await self._channel.call(calls.POD_SANDBOX_STATUS, request, sandbox_id)).status
        except NotFoundError:
            return None

    async def _container_status(
        self, listed: cri.Container, sandbox: cri.PodSandbox
    ) -> RuntimeContainerStatus | None:
        """The status of one container; None: it was removed meanwhile."""
        if listed.id in self._ended_containers:
            return self._ended_containers[listed.id]
        container_status = await self._read_container_status(listed, sandbox)
        if container_status is not None and _may_be_oom_killed(container_status):
            await asyncio.sleep(_OOM_EVENT_S)
            container_status = await self._read_container_status(listed, sandbox)
        if container_status is None or container_status.phase is not ContainerPhase.EXITED:
            return container_status
        if not _may_be_oom_killed(container_status):
            self._ended_containers[listed.id] = container_status
        return container_status

    async def _read_container_status(
        self, listed: cri.Container, sandbox: cri.PodSandbox
    ) -> RuntimeContainerStatus | None:
        try:
            response = await self._status(listed.id, verbose=listed.id not in self._cgroups)
        except NotFoundError:
            return None
        if listed.id not in self._cgroups:
            parent = sandbox.annotations[configs.CGROUP_PARENT]
            self._cgroups[listed.id] = status.cgroup_of(response.info, parent)
        return status.container_facts(response.status, sandbox, self._cgroups[listed.id])

    async def _status(self, container_id: str, *, verbose: bool = False) -> cri.ContainerStatusResponse:
        request = cri.ContainerStatusRequest(container_id=container_id, verbose=verbose)
        return await self._channel.call(calls.CONTAINER_STATUS, request, container_id)

    def _forget_removed(self, container_ids: Iterable[str]) -> None:
        """Drops what is cached of removed containers."""
        ids = set(container_ids)
        for cache in (self._ended_containers, self._cgroups):
            for removed_id in cache.keys() - ids:
                del cache[removed_id]

    async def _image_user(self, reference: str) -> tuple[int | None, str]:
        """The user of an image: by number, or by name.

        Follows: v1.36, kubelet/kuberuntime/helpers.go, getImageUser.
        """
        image = await image_status(self._channel, reference)
        if image is not None and image.HasField("uid"):
            return image.uid.value, ""
        return (None, image.username) if image is not None and image.username else _ROOT_USER


def _may_be_oom_killed(container: RuntimeContainerStatus) -> bool:
    """Whether the runtime may not know yet that a container has ended because its memory was used up."""
    has_just_ended = time.time_ns() - container.finished_ns < _RECENT_NS
    return container.reason == ERROR and container.exit_code == _SIGKILLED and has_just_ended


async def _find_or_create(find: FindId, create: Callable[[], Awaitable[str]]) -> str:
    """The id of the existing object, or of a new one; never creates two.

    A call that a previous agent was interrupted in goes on in the runtime for a moment, and reserves the name.
    """
    now_s = asyncio.get_running_loop().time
    until_s = now_s() + _RESERVED_TIMEOUT_S
    while True:
        existing_id = await find()
        if existing_id is not None:
            return existing_id
        try:
            return await create()
        except HostError as error:
            if _NAME_RESERVED not in error.error or now_s() > until_s:
                raise
        await asyncio.sleep(0.1)


# ---------------------------------------------------------------- images


class CRIImageStore:
    """The image store of a container runtime."""

    def __init__(self, channel: CRIChannel) -> None:
        self._channel = channel

    async def image_id(self, image: str) -> str | None:
        """The id of an image; None: it does not exist."""
        image_found = await image_status(self._channel, image)
        return image_found.id if image_found is not None else None

    async def image_size(self, image: str) -> int:
        """The size of an image in bytes; 0: it does not exist."""
        stored = await image_status(self._channel, image)
        return stored.size if stored is not None else 0

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        """Pulls an image; its id."""
        request = cri.PullImageRequest(image=cri.ImageSpec(image=image))
        if credentials is not None:
            request.auth.username, request.auth.password = credentials.username, credentials.password
        return (await self._channel.call(calls.PULL_IMAGE, request, image)).image_ref

    async def images(self) -> tuple[StoredImage, ...]:
        """All images; the sandbox image counts as pinned, which not all runtime releases report."""
        response = await self._channel.call(calls.LIST_IMAGES, cri.ListImagesRequest(), "")
        status = await self._channel.call(calls.STATUS, cri.StatusRequest(verbose=True), "")
        sandbox_image_name = sandbox_image(status.info)
        return tuple(
            StoredImage(
                id=image.id,
                size_bytes=image.size,
                is_pinned=image.pinned or sandbox_image_name in (*image.repo_tags, *image.repo_digests),
                tags=tuple(image.repo_tags),
                digests=tuple(image.repo_digests),
            )
            for image in response.images
        )

    async def in_use(self) -> frozenset[str]:
        """The ids of images that containers of any owner use."""
        response = await self._channel.call(calls.LIST_CONTAINERS, cri.ListContainersRequest(), "")
        return frozenset(container.image_id or container.image_ref for container in response.containers)

    async def remove(self, image_id: str) -> None:
        """Removes an image; no error if it does not exist."""
        try:
            await self._channel.call(
                calls.REMOVE_IMAGE, cri.RemoveImageRequest(image=cri.ImageSpec(image=image_id)), image_id
            )
        except NotFoundError:
            return

    async def image_fs_path(self) -> str:
        """A path in the image file system.

        Errors: HostError where the runtime does not name it.
        """
        response = await self._channel.call(calls.IMAGE_FS_INFO, cri.ImageFsInfoRequest(), "")
        if not response.image_filesystems:
            raise HostError("ImageFsInfo", self._channel.endpoint, "the runtime names no image file system")
        path: str = response.image_filesystems[0].fs_id.mountpoint
        return path

    async def image_fs_stats(self) -> ImageFsStats:
        """Capacity and free space of the image file system.

        Errors: as for `image_fs_path`; HostError where it cannot be read.
        """
        path = await self.image_fs_path()
        with host_errors("statvfs", path):
            file_system = os.statvfs(path)
        return ImageFsStats(
            capacity_bytes=file_system.f_blocks * file_system.f_frsize,
            available_bytes=file_system.f_bavail * file_system.f_frsize,
        )


async def image_status(channel: CRIChannel, image: str) -> cri.Image | None:
    """The runtime's status of an image; None: it does not exist."""
    request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
    try:
        response = await channel.call(calls.IMAGE_STATUS, request, image)
    except NotFoundError:
        return None
    return response.image if response.HasField("image") and response.image.id else None


# ---------------------------------------------------------------- streams


class CRIStreamingServer:
    """The streaming server of the runtime behind ``channel``."""

    def __init__(self, channel: CRIChannel) -> None:
        self._channel = channel

    async def streaming_url(self, request: StreamRequest) -> str:
        """The URL for these streams; it is valid for a minute.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, GetExec, GetAttach; kuberuntime_sandbox.go,
            GetPortForward.
        Errors: HostError.
        """
        url = await self._requested_url(request)
        if not url.startswith(("http://", "https://")):
            raise HostError("open streams at", self._channel.endpoint, f"the runtime returns no URL: {url!r}")
        return url

    async def _requested_url(self, request: StreamRequest) -> str:
        match request:
            case ExecStreamRequest(container_id=container_id, command=command, streams=streams):
                exec_request = cri.ExecRequest(container_id=container_id, cmd=command, **asdict(streams))
                return (await self._channel.call(calls.EXEC, exec_request, container_id)).url
            case AttachStreamRequest(container_id=container_id, streams=streams):
                attach_request = cri.AttachRequest(container_id=container_id, **asdict(streams))
                return (await self._channel.call(calls.ATTACH, attach_request, container_id)).url
            case PortForwardStreamRequest(sandbox_id=sandbox_id, ports=ports):
                forward_request = cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
                return (await self._channel.call(calls.PORT_FORWARD, forward_request, sandbox_id)).url
