"""NodeProfile: one document with everything that a kubelet's decisions depend on."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from nodewright.hardware.machine_info import MachineInfo
from nodewright.kubernetes.eviction_thresholds import NodeCondition
from nodewright.kubernetes.objects import ObjectMeta, Pod, ResourceList, Taint
from nodewright.values.idset import CPUSet

API_VERSION = "nodewright.dev/v1alpha1"


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A device as its plugin lists it; no `numa_nodes`: it has no topology."""

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
    """What a container of a running pod holds; without `cpus`: it runs in the shared pool."""

    pod: str
    """Its uid, or namespace/name."""
    container: str = ""
    """Empty: what the pod holds as a whole, by the gate PodLevelResourceManagers; its containers divide it."""
    cpus: str | None = None
    memory: tuple[MemoryBlock, ...] = ()
    devices: dict[str, tuple[str, ...]] = {}


class NodePart(StrEnum):
    """A part of a node that its profile may not know, though decisions can depend on it."""

    CONFIGURATION = "kubeletConfiguration"
    """The kubelet's configuration."""
    NUMA_NODES = "numaNodes"
    """The NUMA nodes and their CPUs and memory."""
    CPU_LAYOUT = "cpuLayout"
    """Which CPUs share a core, a cache and a socket."""
    CPUS = "cpus"
    """Which CPUs pods hold."""
    MEMORY = "memory"
    """On which NUMA nodes pods hold memory."""
    DEVICES = "devices"
    """The NUMA nodes of devices, and which devices pods hold."""
    PODS = "pods"
    """The specs of pods: the profile has placeholders for them."""


class UnknownNodePart(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the node that is only assumed; what depends on it is not judged."""

    part: str
    """One of `NodePart`."""
    names: tuple[str, ...] = ()
    """The resources, or the pods as namespace/name; empty for other parts."""
    because: str = ""
    """Why it is not known."""


class PodAllocations(msgspec.Struct, frozen=True):
    """What pods hold, by uid and container name; pod-level allocations have an empty container name."""

    cpus: Mapping[str, Mapping[str, CPUSet]] = {}
    memory: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]] = {}
    devices: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]] = {}


class PolicyNames(msgspec.Struct, frozen=True, rename="camel"):
    """Names of custom policies that replace the kubelet's; empty: the kubelet's own."""

    topology: str = ""
    cpu_picker: str = ""
    eviction: str = ""


class ImageFS(msgspec.Struct, frozen=True, rename="camel"):
    """The image file system, if it is not the root file system.

    Units: bytes.
    """

    capacity_bytes: int = 0
    inodes: int = 0


class NodeProfileSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The content of a node profile.

    Units: root_fs_capacity, swap_bytes, page_size_bytes in bytes.
    """

    machine_info: MachineInfo = MachineInfo()
    kubernetes_version: str = "1.36"
    root_fs_capacity: int = 0
    kubelet_configuration: dict[str, Any] = {}
    devices: dict[str, tuple[Device, ...]] = {}
    gone_devices: dict[str, tuple[str, ...]] = {}
    """Devices, by resource, that pods hold and no plugin lists any longer."""
    extended_resources: ResourceList = {}
    """Extended resources of the node's capacity that no device plugin provides, e.g. licences."""
    allocatable: ResourceList = {}
    """Amounts that the Node object reports as allocatable and that differ from what machine and configuration give.

    Admission compares with them; a kubelet that starts with another configuration reports its own.
    """
    preferred_allocation: dict[str, str] = {}
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    conditions: tuple[NodeCondition, ...] = ()
    """Pressure conditions in the node's status; each implies a taint."""
    pods: tuple[Pod, ...] = ()
    allocations: tuple[ContainerAllocation, ...] | None = None
    cgroup_version: int = 2
    swap_bytes: int = 0
    page_size_bytes: int = 4096
    pid_max: int = 0
    image_fs: ImageFS | None = None
    kubelet_defects: str = "follow"
    policies: PolicyNames = PolicyNames()
    """They are not part of the kubelet's configuration, which has no such names."""
    not_judged: tuple[UnknownNodePart, ...] = ()
    """The parts that are assumed because the capture could not read them."""


class NodeProfile(msgspec.Struct, frozen=True, rename="camel"):
    """A node as a document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeProfileSpec = NodeProfileSpec()
    api_version: str = API_VERSION
    kind: str = "NodeProfile"


def kubelet_labels(name: str, architecture: str = "amd64") -> dict[str, str]:
    """The labels that a kubelet gives its node.

    Follows: v1.36, pkg/kubelet/kubelet_node_status.go, initialNode.
    """
    return {"kubernetes.io/hostname": name, **architecture_labels(architecture)}


def architecture_labels(architecture: str) -> dict[str, str]:
    """The node labels of the operating system and architecture."""
    return {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
