"""One observation of a node and its pods: usage of memory, disks, inodes and processes.

The structure is that of the kubelet's Summary API (`/stats/summary`), so that a summary decodes unchanged.
A value of None was not observed, which differs from 0.

Follows: v1.36, staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go.
"""

from typing import Annotated, TypeAlias

import msgspec

from nodewright.model.values.instant import Instant

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
"""Bytes or pieces; never negative, up to 64 bits."""


class PSIData(msgspec.Struct, frozen=True):
    """The share of time in which some, or all, tasks were stalled.

    Units: averages over 10, 60 and 300 seconds in percent; total in microseconds.
    """

    total: Count = 0
    avg10: float = 0
    avg60: float = 0
    avg300: float = 0


class PSIStats(msgspec.Struct, frozen=True):
    """Pressure stall information (PSI) of the kernel."""

    some: PSIData = PSIData()
    full: PSIData = PSIData()


class CPUStats(msgspec.Struct, frozen=True, rename="camel"):
    """CPU time of the node, a pod or a container. Eviction ignores it.

    Units: nanoseconds of CPU time, in the last second and in total.
    """

    time: Instant | None = None
    usage_nano_cores: Count | None = None
    usage_core_nano_seconds: Count | None = None
    psi: PSIStats | None = None


class MemoryStats(msgspec.Struct, frozen=True, rename="camel"):
    """Memory of the node, a pod or a container. The working set is what cannot be reclaimed immediately."""

    time: Instant | None = None
    available_bytes: Count | None = None
    usage_bytes: Count | None = None
    working_set_bytes: Count | None = None
    rss_bytes: Count | None = None
    page_faults: Count | None = None
    major_page_faults: Count | None = None
    psi: PSIStats | None = None


class SwapStats(msgspec.Struct, frozen=True, rename="camel"):
    """Swap of the node, a pod or a container. Eviction ignores it."""

    time: Instant | None = None
    swap_available_bytes: Count | None = None
    swap_usage_bytes: Count | None = None


class IOStats(msgspec.Struct, frozen=True, rename="camel"):
    """Pressure of input and output."""

    time: Instant | None = None
    psi: PSIStats | None = None


class InterfaceStats(msgspec.Struct, frozen=True, rename="camel"):
    """Traffic of a network interface.

    Units: bytes; packets with errors.
    """

    name: str = ""
    rx_bytes: Count | None = None
    rx_errors: Count | None = None
    tx_bytes: Count | None = None
    tx_errors: Count | None = None


class NetworkStats(InterfaceStats, frozen=True, rename="camel"):
    """The default interface, and all interfaces."""

    time: Instant | None = None
    interfaces: tuple[InterfaceStats, ...] = ()


class FsStats(msgspec.Struct, frozen=True, rename="camel"):
    """A file system, or the part of one that an object uses."""

    time: Instant | None = None
    available_bytes: Count | None = None
    capacity_bytes: Count | None = None
    used_bytes: Count | None = None
    inodes: Count | None = None
    inodes_free: Count | None = None
    inodes_used: Count | None = None


class VolumeStats(FsStats, frozen=True, rename="camel"):
    """A volume of a pod."""

    name: str = ""


class ContainerStats(msgspec.Struct, frozen=True, rename="camel"):
    """A container: its memory, writable layer and logs; also a system cgroup such as `pods`."""

    name: str = ""
    memory: MemoryStats | None = None
    rootfs: FsStats | None = None
    logs: FsStats | None = None
    start_time: Instant | None = None
    cpu: CPUStats | None = None
    swap: SwapStats | None = None
    io: IOStats | None = None


class ProcessStats(msgspec.Struct, frozen=True):
    """The processes of a pod."""

    process_count: Count | None = None


class PodReference(msgspec.Struct, frozen=True):
    """The identity of a pod."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodStats(msgspec.Struct, frozen=True, rename="camel"):
    """A pod and its containers."""

    pod_ref: PodReference = PodReference()
    containers: tuple[ContainerStats, ...] = ()
    memory: MemoryStats | None = None
    volumes: tuple[VolumeStats, ...] = msgspec.field(default=(), name="volume")
    ephemeral_storage: FsStats | None = msgspec.field(default=None, name="ephemeral-storage")
    processes: ProcessStats | None = msgspec.field(default=None, name="process_stats")
    swap: SwapStats | None = None
    start_time: Instant | None = None
    cpu: CPUStats | None = None
    io: IOStats | None = None


class RuntimeStats(msgspec.Struct, frozen=True, rename="camel"):
    """The file systems of images and writable layers."""

    image_fs: FsStats | None = None
    container_fs: FsStats | None = None


class RlimitStats(msgspec.Struct, frozen=True):
    """The maximum and current number of processes."""

    time: Instant | None = None
    max_pid: int | None = msgspec.field(default=None, name="maxpid")
    running: int | None = msgspec.field(default=None, name="curproc")


class NodeStats(msgspec.Struct, frozen=True, rename="camel"):
    """The node as a whole."""

    node_name: str = ""
    system_containers: tuple[ContainerStats, ...] = ()
    memory: MemoryStats | None = None
    fs: FsStats | None = None
    runtime: RuntimeStats | None = None
    rlimit: RlimitStats | None = None
    swap: SwapStats | None = None
    io: IOStats | None = None
    start_time: Instant | None = None
    cpu: CPUStats | None = None
    network: NetworkStats | None = None

    @property
    def image_fs(self) -> FsStats | None:
        """The file system of images: the runtime's, or the node's own."""
        return self.runtime.image_fs if self.runtime is not None else self.fs


class StatsSummary(msgspec.Struct, frozen=True, rename="camel"):
    """The node and its pods in one observation."""

    node: NodeStats = NodeStats()
    pods: tuple[PodStats, ...] = ()
