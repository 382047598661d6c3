"""The protocols between the agent and a machine; each has a real implementation and a fake.

Operations raise `HostError`, which names the operation, the place and the system's error. Each operation may be
repeated after it failed or was interrupted. None of them decides anything.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

import msgspec

from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.kubernetes.stats_summary import NodeStats, PodStats


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Name, version and capabilities of a container runtime, as the runtime reports them."""

    name: str
    version: str
    has_events: bool
    """Whether the runtime sends events; otherwise it must be polled."""
    cgroup_driver: str = ""
    """Empty: the runtime does not report it."""
    unimplemented_calls: tuple[str, ...] = ()
    """CRI calls that the runtime does not implement; most are optional."""
    limitations: tuple[str, ...] = ()
    """Features that the runtime or the machine lacks and that the agent cannot replace; shown to the user."""


class RuntimeHandler(msgspec.Struct, frozen=True, kw_only=True):
    """A handler of a container runtime, which a RuntimeClass can name; the default one has no name."""

    name: str
    has_recursive_read_only_mounts: bool = False
    has_user_namespaces: bool = False


class RuntimeHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a container runtime reports of itself at a moment."""

    errors: tuple[str, ...] = ()
    """Why pods cannot run; empty: they can."""
    handlers: tuple[RuntimeHandler, ...] = ()
    has_supplemental_groups_policy: bool | None = None
    """None: the runtime does not say."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the host that is mounted into a container."""

    host_path: str
    container_path: str
    is_read_only: bool = False
    propagation: str = ""
    """As in a pod's volumeMounts; empty: None."""


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the host in a container."""

    host_path: str
    container_path: str
    permissions: str = "rwm"


class PodSandboxConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a pod sandbox."""

    pod: Pod
    attempt: int
    cgroup_parent: str
    """The pod's cgroup, as a path from the root of the hierarchy in the driver's naming. It exists already."""
    log_directory: str
    hostname: str = ""
    resolv_conf: str = ""
    """The content of resolv.conf; empty: the runtime's default."""
    settings: ContainerSettings = ContainerSettings()


class ContainerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a container, with all references resolved."""

    pod: Pod
    container: Container
    attempt: int
    spec_hash: str
    command: tuple[str, ...] = ()
    """With variables expanded; empty: the image's command."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    working_dir: str = ""
    log_path: str
    """Relative to the log directory of the sandbox: `NAME/ATTEMPT.log`."""
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceSpec, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    image: str = ""
    settings: ContainerSettings
    """The values for the cgroup, for runtimes that take resource amounts."""
    cgroup_files: tuple[CgroupFile, ...]
    """The same values as cgroup files, for runtimes that write them."""
    stop_signal: str = ""
    """The stop signal in Kubernetes' notation; empty: the default of the runtime or the image."""
    target_id: str = ""
    """The container whose processes this one sees; empty: only its own."""


class ExecResult(msgspec.Struct, frozen=True):
    """The result of a command in a container."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ContainerRuntime(Protocol):
    """Runs containers, which outlive the agent.

    Sandboxes and containers carry the pod's uid, namespace and name, so that a restarted agent finds them. Creating
    the same attempt twice returns the existing one.
    """

    async def facts(self) -> RuntimeFacts:
        """Name, version and capabilities of the runtime; also checks that it responds."""

    async def pods(self) -> tuple[RuntimePodStatus, ...]:
        """All pods of this agent in the runtime, including terminated ones."""

    async def pod(self, uid: str) -> RuntimePodStatus | None:
        """One pod; None if the runtime has nothing of it."""

    async def run_sandbox(self, config: PodSandboxConfig) -> str:
        """Starts a sandbox; returns its id when it is ready."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stops a sandbox and its containers; not an error if it is stopped already or does not exist."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox and its containers; not an error if it does not exist."""

    async def create_container(self, sandbox_id: str, config: ContainerConfig) -> str:
        """Creates a container; returns its id when it is ready to be started."""

    async def start_container(self, container_id: str) -> None:
        """Starts a container."""

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """Sends the stop signal, then SIGKILL after the grace period; not an error if it has terminated already."""

    async def remove_container(self, container_id: str) -> None:
        """Removes a container and its cgroup, but not its log; not an error if it does not exist."""

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[CgroupFile, ...]
    ) -> None:
        """Changes the resources of a created or running container."""

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> ExecResult:
        """Runs a command in a container.

        Errors: TimeoutError if it does not terminate in time; it is killed then.
        """

    async def reopen_log(self, container_id: str) -> None:
        """Opens a new log file under the old name, after the log was renamed."""

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """The usage of each running container, by its id."""

    def changes(self) -> AsyncIterator[str]:
        """The uid of each pod that changes, as events arrive; empty: any pod may have changed."""

    async def close(self) -> None:
        """Closes the connection; containers keep running."""


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image in the image store."""

    id: str
    size_bytes: int
    is_pinned: bool = False
    """Whether the runtime itself needs the image, so that it must not be removed."""
    tags: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    """Its names by digest."""


class Credentials(msgspec.Struct, frozen=True):
    """User name and password for a registry."""

    username: str
    password: str


class ImageFsStats(msgspec.Struct, frozen=True, kw_only=True):
    """Capacity and free space of the image file system."""

    capacity_bytes: int
    available_bytes: int


class ImageStore(Protocol):
    """Images of a runtime that has them."""

    async def image_id(self, image: str) -> str | None:
        """The id of an image; None if it is not in the store."""

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        """Pulls an image, anonymously if there are no credentials; returns its id."""

    async def image_size(self, image: str) -> int:
        """The size of an image in bytes; 0: it is not in the store, or its size is unknown."""

    async def images(self) -> tuple[StoredImage, ...]:
        """All images in the store."""

    async def in_use(self) -> frozenset[str]:
        """The ids of images that any container uses."""

    async def image_fs_path(self) -> str:
        """A path in the image file system."""

    async def image_fs_stats(self) -> ImageFsStats:
        """Capacity and free space of the image file system."""

    async def remove(self, image_id: str) -> None:
        """Removes an image; not an error if it does not exist."""


class NodeStatsProvider(Protocol):
    """Resource usage of the whole machine. Readings have the time of a monotonic clock, or none."""

    def node_stats(self) -> NodeStats:
        """Memory of the machine and of all pods, swap and processes; takes microseconds."""

    def filesystem_stats(self) -> tuple[NodeStats, NodeFilesystems]:
        """The file systems, and which are dedicated; blocks while a disk does not respond."""


class EphemeralStorageStats(Protocol):
    """Disk usage of pods. A measurement takes long if there are many files."""

    def pod_usage(self, pod: Pod) -> PodStats:
        """The usage of the pod's local volumes, and of its containers' logs and writable layers."""


THRESHOLD_NOTIFICATION = "threshold of pods"
"""The notification that the memory usage of all pods has reached the threshold."""


class PressureNotifier(Protocol):
    """Memory notifications of the kernel."""

    def set_threshold(self, threshold_bytes: int | None) -> None:
        """Requests a notification when all pods together use this much memory; None: no notification."""

    async def wait(self) -> str:
        """Waits for a notification; returns its name."""

    def close(self) -> None:
        """Stops listening."""


class ProbeWarning(str):
    """The output of a probe that succeeded with a warning."""

    __slots__ = ()


class Prober(Protocol):
    """Runs probes and lifecycle hooks."""

    async def probe(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        """Runs a probe; returns success and output. ``handler`` is `exec`, `httpGet`, `tcpSocket` or `grpc`.

        The output of a probe that succeeds with a warning is a `ProbeWarning`.

        Errors: HostError if the probe could not be run.
        """

    async def run_hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, container: str
    ) -> tuple[bool, str]:
        """Runs a hook; returns success, and the message after a failure. ``handler`` is `exec`, `httpGet` or `sleep`.

        ``container`` is the container's name in messages.
        """


STDOUT, STDERR = 1, 2
"""The numbers of output streams."""


class StandardStreams(msgspec.Struct, frozen=True, kw_only=True):
    """Which standard streams of a process a client uses; with a terminal, the errors are part of the output."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


class ExecStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of a new process in a container."""

    container_id: str
    command: tuple[str, ...]
    streams: StandardStreams


class AttachStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams of a container's first process."""

    container_id: str
    streams: StandardStreams


class PortForwardStreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Connections to ports of a sandbox."""

    sandbox_id: str
    ports: tuple[int, ...] = ()
    """Empty: each stream names its port."""


StreamRequest: TypeAlias = ExecStreamRequest | AttachStreamRequest | PortForwardStreamRequest


class StreamingServer(Protocol):
    """The server of a container runtime that joins clients with processes and ports of its containers."""

    async def streaming_url(self, request: StreamRequest) -> str:
        """The URL that serves these streams, to the one client that asks there soon.

        Errors: HostError.
        """


class ProcessSession(Protocol):
    """The streams of a process, for a runtime without a streaming server."""

    async def write(self, data: bytes) -> None:
        """Writes to the standard input, as fast as the process reads."""

    def close_stdin(self) -> None:
        """Ends the standard input."""

    def resize(self, width: int, height: int) -> None:
        """Sets the size of the terminal."""

    async def copy_output(self, send: Callable[[int, bytes], Awaitable[None]]) -> int:
        """Sends the output, by the number of its stream, until the process ends; returns the exit code."""


class ProcessStreams(Protocol):
    """The streams of the processes of a runtime without a streaming server."""

    def open(
        self, request: ExecStreamRequest | AttachStreamRequest
    ) -> AbstractAsyncContextManager[ProcessSession]:
        """The streams inside this context; a command that has not ended at its end is killed with all its children.

        Errors: HostError.
        """
