"""One observation of a node: what is used of its memory, disks, inodes and processes, by whom.

The shape is that of the kubelet's Summary API (`/stats/summary`), so that a summary decodes as it is.
A figure that is None was not observed; that is not the same as nothing used.

Follows: v1.36, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go.
"""

from typing import Annotated, TypeAlias

import msgspec

from nodewright.values.instant import Instant

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""Bytes or pieces; never negative, up to 64 bits."""


class StallShares(msgspec.Struct, frozen=True):
    """How much of the time somebody (`some`), or everybody (`full`), waited.

    Units: averages over so many seconds in percent; total in microseconds.
    """

    total: Count = 0
    avg10: float = 0
    avg60: float = 0
    avg300: float = 0


class Stalls(msgspec.Struct, frozen=True):
    """Pressure as the kernel measures it (PSI)."""

    some: StallShares = StallShares()
    full: StallShares = StallShares()


class CPUUse(msgspec.Struct, frozen=True, rename="camel"):
    """CPU time of the node, a pod or a container. Eviction does not look at it.

    Units: nanoseconds of CPU time, in a second of late and in all.
    """

    time: Instant | None = None
    usage_nano_cores: Count | None = None
    usage_core_nano_seconds: Count | None = None
    psi: Stalls | None = None


class MemoryUse(msgspec.Struct, frozen=True, rename="camel"):
    """Memory of the node, a pod or a container. The working set is what cannot be given back at once."""

    time: Instant | None = None
    available_bytes: Count | None = None
    usage_bytes: Count | None = None
    working_set_bytes: Count | None = None
    rss_bytes: Count | None = None
    psi: Stalls | None = None


class SwapUse(msgspec.Struct, frozen=True, rename="camel"):
    """Swap of the node, a pod or a container. Eviction does not look at it."""

    time: Instant | None = None
    swap_available_bytes: Count | None = None
    swap_usage_bytes: Count | None = None


class IOUse(msgspec.Struct, frozen=True, rename="camel"):
    """Input and output: how much was waited for it."""

    time: Instant | None = None
    psi: Stalls | None = None


class InterfaceUse(msgspec.Struct, frozen=True, rename="camel"):
    """What went through a network interface.

    Units: bytes; packets with errors.
    """

    name: str = ""
    rx_bytes: Count | None = None
    rx_errors: Count | None = None
    tx_bytes: Count | None = None
    tx_errors: Count | None = None


class NetworkUse(InterfaceUse, frozen=True, rename="camel"):
    """The interface that leads out, and all that there are."""

    time: Instant | None = None
    interfaces: tuple[InterfaceUse, ...] = ()


class FilesystemUse(msgspec.Struct, frozen=True, rename="camel"):
    """A file system, or what something holds of one."""

    time: Instant | None = None
    available_bytes: Count | None = None
    capacity_bytes: Count | None = None
    used_bytes: Count | None = None
    inodes: Count | None = None
    inodes_free: Count | None = None
    inodes_used: Count | None = None


class VolumeUse(FilesystemUse, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str = ""


class ContainerUse(msgspec.Struct, frozen=True, rename="camel"):
    """A container: its memory, its writable layer, its logs. Also a cgroup of the system, such as `pods`."""

    name: str = ""
    memory: MemoryUse | None = None
    rootfs: FilesystemUse | None = None
    logs: FilesystemUse | None = None
    start_time: Instant | None = None
    cpu: CPUUse | None = None
    swap: SwapUse | None = None
    io: IOUse | None = None


class ProcessUse(msgspec.Struct, frozen=True):
    """The processes of a pod."""

    process_count: Count | None = None


class PodReference(msgspec.Struct, frozen=True):
    """Which pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodUse(msgspec.Struct, frozen=True, rename="camel"):
    """A pod and its containers."""

    pod_ref: PodReference = PodReference()
    containers: tuple[ContainerUse, ...] = ()
    memory: MemoryUse | None = None
    volumes: tuple[VolumeUse, ...] = msgspec.field(default=(), name="volume")
    ephemeral_storage: FilesystemUse | None = msgspec.field(default=None, name="ephemeral-storage")
    processes: ProcessUse | None = msgspec.field(default=None, name="process_stats")
    swap: SwapUse | None = None
    start_time: Instant | None = None
    cpu: CPUUse | None = None
    io: IOUse | None = None


class RuntimeUse(msgspec.Struct, frozen=True, rename="camel"):
    """Where the container runtime keeps images and writable layers."""

    image_fs: FilesystemUse | None = None
    container_fs: FilesystemUse | None = None


class ProcessLimit(msgspec.Struct, frozen=True):
    """How many processes the node may have, and has."""

    time: Instant | None = None
    max_pid: int | None = msgspec.field(default=None, name="maxpid")
    running: int | None = msgspec.field(default=None, name="curproc")


class NodeUse(msgspec.Struct, frozen=True, rename="camel"):
    """The node as a whole."""

    node_name: str = ""
    system_containers: tuple[ContainerUse, ...] = ()
    memory: MemoryUse | None = None
    fs: FilesystemUse | None = None
    runtime: RuntimeUse | None = None
    rlimit: ProcessLimit | None = None
    swap: SwapUse | None = None
    io: IOUse | None = None
    start_time: Instant | None = None
    cpu: CPUUse | None = None
    network: NetworkUse | None = None


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    """The node and its pods, as one reading found them."""

    node: NodeUse = NodeUse()
    pods: tuple[PodUse, ...] = ()
