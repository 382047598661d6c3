"""What the agent asks of a machine: one protocol a part, which the real part and a fake fulfil alike.

Operations raise `WorldError`, which names the operation, the place and what the system said; each of them may be
repeated after one that failed or was cut off. None of them decides anything.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import msgspec

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.eviction import Filesystems
from nodewright.model.objects import Container, Pod
from nodewright.model.running import PodFacts
from nodewright.model.usage import NodeUse, PodUse


class RuntimeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Which runtime it is and what it can do, found out by asking."""

    name: str
    version: str
    has_images: bool
    """Whether containers run from images; else from the machine's own files."""
    has_events: bool
    """Whether it tells of changes at once; else it has to be asked now and then."""
    writes_logs: bool = True
    cgroup_driver: str = ""
    """Empty: it does not say."""
    missing: tuple[str, ...] = ()
    """Calls that it does not implement; most can be done without."""
    lacks: tuple[str, ...] = ()
    """What it cannot do, or the machine does not allow, and nobody makes up for: people have to know."""


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the machine inside a container."""

    host_path: str
    container_path: str
    is_read_only: bool = False
    propagation: str = ""
    """As in a pod's volumeMounts; empty: None."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the machine inside a container."""

    host_path: str
    container_path: str
    permissions: str = "rwm"


class SandboxWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod's containers are to be held together by."""

    pod: Pod
    attempt: int
    cgroup_parent: str
    """The group of the pod, from the root of the tree, as the driver names it. It is there already."""
    log_directory: str
    hostname: str = ""
    resolv_conf: str = ""
    """The text of its resolv.conf; empty: the runtime's own choice."""
    settings: ContainerSettings = ContainerSettings()


class ContainerWish(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is to be; everything is resolved, nothing is left to look up."""

    pod: Pod
    container: Container
    attempt: int
    spec_hash: str
    command: tuple[str, ...] = ()
    """With variables expanded; empty: what the image says."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    working_dir: str = ""
    log_path: str
    """Relative to the log directory of the sandbox: `NAME/ATTEMPT.log`."""
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    image: str = ""
    settings: ContainerSettings
    """What the group is to be set to, for runtimes that take amounts."""
    files: tuple[File, ...]
    """The same as files of the group, for runtimes that write them."""
    stop_signal: str = ""
    """What it is asked to end with, as Kubernetes names signals; empty: what the runtime or the image says."""


class Executed(msgspec.Struct, frozen=True):
    """What came of a command in a container."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses at a moment. None: not known.

    Units: nanoseconds since 1970; nanoseconds of CPU time; bytes; pieces.
    """

    at_ns: int
    cpu_ns: int | None = None
    memory_bytes: int | None = None
    working_set_bytes: int | None = None
    rss_bytes: int | None = None
    swap_bytes: int | None = None
    processes: int | None = None
    rootfs_bytes: int | None = None
    rootfs_inodes: int | None = None
    logs_bytes: int | None = None


class ContainerRuntime(Protocol):
    """Runs containers, and goes on doing so while nobody looks: what it holds outlives the agent.

    Everything that it made carries the pod's uid, namespace and name, so that it is found again. Creating the same
    attempt twice gives the one that is there.
    """

    async def facts(self) -> RuntimeFacts:
        """Which runtime it is; also the way to find out whether it answers at all."""

    async def pods(self) -> tuple[PodFacts, ...]:
        """All pods that it holds for us, those that have ended too."""

    async def pod(self, uid: str) -> PodFacts | None:
        """One pod; None: it holds nothing of it."""

    async def run_sandbox(self, wish: SandboxWish) -> str:
        """The id of a sandbox that is ready."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Nothing in it runs any more; not an error if it was stopped already or is not there."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """It is gone with its containers; not an error if it is not there."""

    async def create_container(self, sandbox_id: str, wish: ContainerWish) -> str:
        """The id of a container that is ready to be started."""

    async def start_container(self, container_id: str) -> None:
        """Its command runs."""

    async def stop_container(self, container_id: str, grace_period_s: float) -> None:
        """It has ended: asked to, then made to when the time is up. Not an error if it has ended already."""

    async def remove_container(self, container_id: str) -> None:
        """It is gone with its group; its log stays. Not an error if it is not there."""

    async def update_container(
        self, container_id: str, settings: ContainerSettings, files: tuple[File, ...]
    ) -> None:
        """A container that runs, or was created and will, is held to other settings."""

    async def execute(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> Executed:
        """What a command inside the container gave.

        Errors: TimeoutError when it did not end in time; it has been killed then.
        """

    async def reopen_log(self, container_id: str) -> None:
        """Its log was renamed: it goes on in a new file of the old name."""

    async def usage(self) -> Mapping[str, ContainerUsage]:
        """What each running container uses, by its id."""

    def changes(self) -> AsyncIterator[str]:
        """The uid of each pod in which something changed, when it did; empty: anything may have changed."""

    async def close(self) -> None:
        """Let go of it. What it runs goes on."""


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is there."""

    id: str
    size_bytes: int
    is_pinned: bool = False
    """The runtime itself needs it."""
    tags: tuple[str, ...] = ()


class Credentials(msgspec.Struct, frozen=True):
    """Who fetches an image."""

    username: str
    password: str


class ImageRoom(msgspec.Struct, frozen=True, kw_only=True):
    """How full the file system of images is."""

    capacity_bytes: int
    available_bytes: int


class ImageStore(Protocol):
    """Images of a runtime that has them."""

    async def image_id(self, image: str) -> str | None:
        """The id of an image that is there; None: it is not."""

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        """The id of an image that was fetched; without credentials by nobody in particular."""

    async def images(self) -> tuple[StoredImage, ...]:
        """All images that are there."""

    async def in_use(self) -> frozenset[str]:
        """The ids of images that containers are made of, whosever they are."""

    async def place(self) -> str:
        """A path in the file system of images."""

    async def room(self) -> ImageRoom:
        """How full the file system of images is."""

    async def remove(self, image_id: str) -> None:
        """It is gone; not an error if it was not there."""


class Cgroups(Protocol):
    """The tree of cgroups below a root of our own; paths are from the root of the whole tree, as drivers name them."""

    version: int
    lacks: set[str]
    """Controllers and files that were to be written and that the machine does not have."""

    def ensure(self, path: str, files: tuple[File, ...]) -> None:
        """The group is there with these files written; what they say already is not written again."""

    def texts(self, path: str, names: tuple[str, ...]) -> Mapping[str, str] | None:
        """What files of a group say; None: there is no such group."""

    def below(self, path: str) -> tuple[str, ...]:
        """The paths of the groups right below it."""

    def processes(self, path: str) -> tuple[int, ...]:
        """The ids of the processes in it and below."""

    def kill(self, path: str) -> None:
        """Every process in it and below has been sent SIGKILL, those too that they forked meanwhile."""

    def remove(self, path: str) -> None:
        """It and all below it are gone; not an error if it was not there, but one if processes are left."""


class Gauges(Protocol):
    """What of the machine as a whole is left. Readings are dated by a clock that does not jump, or not at all."""

    def now(self) -> NodeUse:
        """Memory of the machine and of all pods, swap, processes: read at once, in some microseconds."""

    def disks(self) -> tuple[NodeUse, Filesystems]:
        """The file systems, and which are kept apart; a disk that does not answer holds it up."""


class LocalStorage(Protocol):
    """What pods hold on the machine's disks. Looking takes long where there are many files."""

    def of(self, pod: Pod) -> PodUse:
        """The pod's local volumes, and the logs and writable layers of its containers."""


THRESHOLD = "threshold of pods"
"""The alarm that tells that pods use as much as was said."""


class Alarms(Protocol):
    """What the kernel tells of memory by itself."""

    def arm(self, threshold_bytes: int | None) -> None:
        """Ring when all pods use so much memory; None: do not."""

    async def ring(self) -> str:
        """Come back when something was told: which alarm it was."""

    def close(self) -> None:
        """Listen no more."""


class Caution(str):
    """What a probe says whose answer is good, though something about it is odd."""

    __slots__ = ()


class Asker(Protocol):
    """Asks containers what probes and hooks ask."""

    async def ask(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float
    ) -> tuple[bool, str]:
        """Whether a probe's answer is good, and what was said; ``handler`` is `exec`, `httpGet`, `tcpSocket` or `grpc`.

        What people should know of though the answer is good is said as a `Caution`.

        Errors: WorldError where it could not be asked at all.
        """

    async def hook(
        self, handler: Mapping[str, Any], container_id: str, address: str, timeout_s: float, who: str
    ) -> tuple[bool, str]:
        """Whether a hook has run, and what is said if it has not; ``handler`` is `exec`, `httpGet` or `sleep`.

        ``who`` is the container as messages name it.
        """


class Disk(Protocol):
    """A directory of our own: files by their path inside it. Nobody else uses it while we do."""

    def read(self, name: str) -> bytes | None:
        """What a file holds; None: there is none."""

    def names(self, folder: str = "") -> tuple[str, ...]:
        """The paths of the files right in a folder, sorted; none where there is no such folder."""

    def write(self, name: str, content: bytes) -> None:
        """The file holds this, as a whole; cut off half-way, it holds what it held."""

    def put(self, name: str, at: int, content: bytes) -> None:
        """The file holds this from that byte on, and nothing behind it."""

    def rename(self, name: str, to: str) -> None:
        """The file has another name; not an error if it is not there."""

    def remove(self, name: str) -> None:
        """The file is gone; not an error if it was not there."""

    def sync(self, name: str = "") -> None:
        """What was done to a file outlives a power failure; without a name: everything that was done."""


class Clock(Protocol):
    """Time, of two kinds."""

    def now_ns(self) -> int:
        """Nanoseconds since 1970; may jump."""

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes backwards."""

    async def sleep(self, seconds: float) -> None:
        """Come back after so long."""
