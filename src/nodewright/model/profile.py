"""NodeProfile: everything about a node that its kubelet's decisions depend on, as one document."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ObjectMeta, Pod, ResourceList, Taint
from nodewright.model.pressure import NodeCondition
from nodewright.values.idset import CPUSet

API_VERSION = "nodewright.dev/v1alpha1"


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A device as its plugin announces it; None NUMA nodes: it has no topology."""

    id: str
    numa_nodes: tuple[int, ...] | None = None
    healthy: bool = True


class MemoryBlock(msgspec.Struct, frozen=True, rename="camel"):
    """Memory or huge pages that a container holds.

    Units: size in bytes.
    """

    numa_nodes: tuple[int, ...]
    type: str
    size: int


class ContainerAllocation(msgspec.Struct, frozen=True, rename="camel"):
    """What a container of a running pod really holds; absent CPUs: it runs in the shared pool."""

    pod: str
    """Its uid, or namespace and name with a slash between."""
    container: str = ""
    """Empty: what the pod holds as a whole, by the gate PodLevelResourceManagers; its containers divide it."""
    cpus: str | None = None
    memory: tuple[MemoryBlock, ...] = ()
    devices: dict[str, tuple[str, ...]] = {}


class Part(StrEnum):
    """A part of a node that its description may not know, though decisions can depend on it."""

    CONFIGURATION = "kubeletConfiguration"
    """What the kubelet is configured to."""
    NUMA_NODES = "numaNodes"
    """How many NUMA nodes there are, and what each has."""
    CPU_LAYOUT = "cpuLayout"
    """Which CPUs share a core, a cache and a socket."""
    CPUS = "cpus"
    """Which CPUs pods hold."""
    MEMORY = "memory"
    """Of which NUMA nodes pods hold memory."""
    DEVICES = "devices"
    """Of which NUMA nodes devices are, and which of them pods hold."""
    PODS = "pods"
    """What pods are beside what they hold: stand-ins are there for them."""


class NotKnown(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the node that is only assumed; what a decision owes to it is not judged."""

    part: str
    """One of `Part`."""
    names: tuple[str, ...] = ()
    """The resources, or the pods by namespace and name; for other parts none."""
    because: str = ""
    """Why it is not known."""


class Kept(msgspec.Struct, frozen=True):
    """What pods hold, by their uid and the container; what a pod holds as a whole is under an empty name."""

    cpus: Mapping[str, Mapping[str, CPUSet]] = {}
    memory: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]] = {}
    devices: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]] = {}


class PolicyNames(msgspec.Struct, frozen=True, rename="camel"):
    """Policies that decide in the kubelet's place, by name; empty: the kubelet's own."""

    topology: str = ""
    cpu_picker: str = ""
    eviction: str = ""


class ImageFS(msgspec.Struct, frozen=True, rename="camel"):
    """The file system of images, where it is not the root one.

    Units: bytes.
    """

    capacity_bytes: int = 0
    inodes: int = 0


class NodeProfileSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The description itself.

    Units: root_fs_capacity, swap_bytes, page_size_bytes in bytes.
    """

    machine_info: MachineInfo = MachineInfo()
    kubernetes_version: str = "1.36"
    root_fs_capacity: int = 0
    kubelet_configuration: dict[str, Any] = {}
    devices: dict[str, tuple[Device, ...]] = {}
    gone_devices: dict[str, tuple[str, ...]] = {}
    """By resource the devices that pods hold though no plugin lists them any more."""
    extended_resources: ResourceList = {}
    """What somebody else than a device plugin put into the node's capacity, e.g. licences."""
    preferred_allocation: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    """What runs short, as the node says itself; each gives it a taint besides."""
    pods: tuple[Pod, ...] = ()
    allocations: tuple[ContainerAllocation, ...] | None = None
    cgroup_version: int = 2
    swap_bytes: int = 0
    page_size_bytes: int = 4096
    pid_max: int = 0
    image_fs: ImageFS | None = None
    kubelet_defects: str = "follow"
    policies: PolicyNames = PolicyNames()
    """They are no part of a kubelet's configuration: the kubelet knows no such names."""
    not_judged: tuple[NotKnown, ...] = ()
    """The parts of all this that are assumed, as whoever captured it could not know better."""


class NodeProfile(msgspec.Struct, frozen=True, rename="camel"):
    """A node as a document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeProfileSpec = NodeProfileSpec()
    api_version: str = API_VERSION
    kind: str = "NodeProfile"
