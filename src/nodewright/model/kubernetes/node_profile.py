"""NodeProfile: one document with everything that a kubelet's decisions depend on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, ResourceList, Taint
from nodewright.model.patterns import lazy_pattern
from nodewright.model.releases.release_table import NEWEST
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity

API_VERSION = "nodewright.dev/v1alpha1"


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """A device as its plugin lists it; no `numa_nodes`: it has no topology."""

    id: str
    """The id that the plugin gives it."""
    numa_nodes: tuple[int, ...] | None = None
    """Its NUMA nodes; absent: the plugin reports no topology."""
    healthy: bool = True
    """Whether it can be allocated."""


class MemoryBlock(msgspec.Struct, frozen=True, rename="camel"):
    """Memory or huge pages that a container holds.

    Units: size in bytes.
    """

    numa_nodes: tuple[int, ...]
    """The NUMA nodes that it is on."""
    type: str
    """`memory`, or `hugepages-2Mi` and the like."""
    size: int
    """In bytes."""


class ContainerAllocation(msgspec.Struct, frozen=True, rename="camel"):
    """What a container of a running pod holds; without `cpus`: it runs in the shared pool."""

    pod: str
    """Its uid, or namespace/name."""
    container: str = ""
    """Empty: what the pod holds as a whole, by the gate PodLevelResourceManagers; its containers divide it."""
    cpus: str | None = None
    """The exclusive CPUs, e.g. `1-3,8`; absent: the shared pool."""
    memory: tuple[MemoryBlock, ...] = ()
    """Memory and huge pages that the memory manager assigned."""
    devices: dict[str, tuple[str, ...]] = {}
    """The ids of devices, by resource."""


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
    CPU_DECISIONS = "cpuDecisions"
    """Which CPUs containers get: something other than the kubelet decides it."""


class UnknownNodePart(msgspec.Struct, frozen=True, rename="camel"):
    """A part of the node that is only assumed; what depends on it is not judged."""

    part: str
    """One of `NodePart`."""
    names: tuple[str, ...] = ()
    """The resources, or the pods as namespace/name; empty for other parts."""
    because: str = ""
    """Why it is not known."""


class ReadSource(msgspec.Struct, frozen=True, rename="camel"):
    """A source from which the capture of a node in a cluster has read it, or could not."""

    name: str
    """E.g. `Node`, `/configz of the kubelet`."""
    time: str = ""
    """The time that it describes, in UTC; empty: it could not be read."""
    error: str = ""
    """Why it could not be read."""
    assumed: str = ""
    """What is assumed instead."""


class PodAllocations(msgspec.Struct, frozen=True):
    """What pods hold, by uid and container name; pod-level allocations have an empty container name."""

    cpus: Mapping[str, Mapping[str, CPUSet]] = {}
    memory: Mapping[str, Mapping[str, tuple[MemoryBlock, ...]]] = {}
    devices: Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]] = {}


class PolicyNames(msgspec.Struct, frozen=True, rename="camel"):
    """Names of custom policies that replace the kubelet's; empty: the kubelet's own."""

    topology: str = ""
    """The topology policy."""
    cpu_picker: str = ""
    """The algorithm that chooses CPUs."""
    eviction: str = ""
    """How often usage is checked."""
    predictor: str = ""
    """What an agent lends to BestEffort pods: NAME, or NAME:PERCENT with another margin; empty: nothing."""


class BorrowerCeilings(msgspec.Struct, frozen=True, rename="camel"):
    """What BestEffort pods may use together on a node that lends."""

    cpu: Quantity
    memory: Quantity
    owed: Quantity | None = None
    """Memory that they hold beyond that; absent: none."""


class ImageFS(msgspec.Struct, frozen=True, rename="camel"):
    """The image file system, if it is not the root file system.

    Units: bytes.
    """

    capacity_bytes: int = 0
    """Its size."""
    inodes: int = 0
    """Number of its inodes; 0: unknown."""


class NodeProfileSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The content of a node profile.

    Units: root_fs_capacity, swap_bytes, page_size_bytes in bytes.
    """

    machine_info: MachineInfo = MachineInfo()
    """CPUs, NUMA nodes, caches, memory and huge pages, with cAdvisor's names."""
    kubernetes_version: str = NEWEST.name
    """The release of the kubelet."""
    root_fs_capacity: int = 0
    """Size of the kubelet's root file system, the node's `ephemeral-storage`."""
    kubelet_configuration: dict[str, Any] = {}
    """The KubeletConfiguration as written; absent fields have the release's defaults."""
    devices: dict[str, tuple[Device, ...]] = {}
    """The devices that plugins list, by resource."""
    gone_devices: dict[str, tuple[str, ...]] = {}
    """Devices, by resource, that pods hold and no plugin lists any longer."""
    extended_resources: ResourceList = {}
    """Extended resources of the node's capacity that no device plugin provides, e.g. licences."""
    allocatable: ResourceList = {}
    """Amounts that the Node object reports as allocatable and that differ from what machine and configuration give.

    Admission compares with them; a kubelet that starts with another configuration reports its own.
    """
    preferred_allocation: dict[str, str] = {}
    """Which devices a plugin prefers, by resource: `lowest`, `highest`, `absent` (it has no preference) or `asked`."""
    labels: dict[str, str] = {}
    """The labels of the node."""
    taints: tuple[Taint, ...] = ()
    """The taints of the node; those that conditions imply are added."""
    conditions: tuple[NodeCondition, ...] = ()
    """Pressure conditions in the node's status; each implies a taint."""
    borrowers: BorrowerCeilings | None = None
    """What BestEffort pods are limited to; absent: the node lends nothing."""
    pods: tuple[Pod, ...] = ()
    """The pods that run on the node, in the order of their admission."""
    allocations: tuple[ContainerAllocation, ...] | None = None
    """What the pods hold; absent: what replaying their admission gives."""
    cgroup_version: int = 2
    """1 or 2."""
    swap_bytes: int = 0
    """Swap space of the machine."""
    page_size_bytes: int = 4096
    """Size of a page of memory."""
    pid_max: int = 0
    """The kernel's pid_max; 0: unknown."""
    image_fs: ImageFS | None = None
    """The image file system; absent: images are on the root file system."""
    app_armor: bool | None = None
    """Whether the kernel enforces AppArmor profiles; absent: unknown."""
    kubelet_defects: str = "follow"
    """Whether known defects of the kubelet are followed (`follow`) or avoided (`avoid`)."""
    policies: PolicyNames = PolicyNames()
    """Custom policies; they are not part of the kubelet's configuration, which has no such names."""
    not_judged: tuple[UnknownNodePart, ...] = ()
    """The parts that are assumed because the capture could not read them."""
    sources: tuple[ReadSource, ...] = ()
    """What a node of a cluster was read from; empty for other nodes."""


class NodeProfile(msgspec.Struct, frozen=True, rename="camel"):
    """A node as a document."""

    metadata: ObjectMeta = ObjectMeta()
    """The node's name; annotations are not read."""
    spec: NodeProfileSpec = NodeProfileSpec()
    """The content."""
    api_version: str = API_VERSION
    """The version of this format."""
    kind: str = "NodeProfile"
    """Always NodeProfile."""


def kubelet_labels(name: str, architecture: str = "amd64") -> dict[str, str]:
    """The labels that a kubelet gives its node.

    Follows: v1.36, pkg/kubelet/kubelet_node_status.go, initialNode.
    """
    return {"kubernetes.io/hostname": name, **architecture_labels(architecture)}


def architecture_labels(architecture: str) -> dict[str, str]:
    """The node labels of the operating system and architecture."""
    return {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}


_POLICY = "(?P<policy>balloons|topology-aware|template)"
_DECIDERS = (
    ("NRI policy {}", lazy_pattern(rf"nri-resource-policy-{_POLICY}\b.*|(.*[./])?{_POLICY.replace('policy', 'name')}\.resource-policy\.nri\.io.*")),
    ("NRI policy {}", lazy_pattern(rf"([^/=]*\.)?nri(\.io)?/.*\b{_POLICY}\b.*")),
    ("an NRI resource policy", lazy_pattern(r"([^/=]*\.)?nri(\.io)?/.*|nri-resource-policy-.*")),
    ("CRI Resource Manager", lazy_pattern(r"([^/=]*\.)?cri-resource-manager\.intel\.com/.*|cri-resmgr(-.*)?")),
    ("Koordinator", lazy_pattern(r"([^/=]*\.)?koordinator\.sh/.*|koordlet(-.*)?")),
    ("Katalyst", lazy_pattern(r"([^/=]*\.)?katalyst\.kubewharf\.io/.*|katalyst-agent(-.*)?")),
    ("Crane", lazy_pattern(r"topology\.crane\.io/.*|crane-agent(-.*)?")),
    ("CMK", lazy_pattern(r"cmk\.intel\.com/.*")),
    ("the DRA driver dra.cpu", lazy_pattern(r"dra\.cpu(/.*)?|dracpu(-.*)?|dra-driver-cpu(-.*)?")),
)  # fmt: skip
"""What decides about CPUs beside the kubelet, by its annotations and labels (`name=value`) and the names of its pods."""
_ANY_DECIDER = lazy_pattern("nri|cri-res|koord|katalyst|crane|cmk|dra")
"""What all of their marks have: most names have none of it."""
_LABELS_OF_AGENTS = ("app.kubernetes.io/name", "app", "k8s-app", "koord-app", "katalyst-app")
_POD_MARKS = ("scheduling.koordinator.sh/resource-status", "katalyst.kubewharf.io/qos_level")
"""Annotations of pods on a node where such a system is; others are requests that every node ignores without it."""


def cpu_decider(labels: Mapping[str, str], pods: Iterable[Pod] = ()) -> str:
    """What decides about the CPUs of a node beside its kubelet; empty: nothing that is known.

    ``labels``: those of the node, and its annotations. ``pods``: those on the node, among which its agent may be.
    Follows: nri-plugins v0.14, deployment/helm, pkg/agent; koordinator v1.8, apis/extension; katalyst-api v0.5,
        pkg/consts; the documentation of the others.

    >>> cpu_decider({"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}), cpu_decider({"kubernetes.io/os": "linux"})
    ('Koordinator', '')
    """
    written = (f"{name}={value}" for name, value in labels.items())
    marks = [mark for mark in (*written, *_pod_marks(pods)) if _ANY_DECIDER.search(mark)]
    for decider, pattern in _DECIDERS:
        for mark in marks:
            if match := pattern.fullmatch(mark):
                return decider.format(*filter(None, match.groupdict().values()))
    return ""


_NRI_POLICIES = {
    "BalloonsPolicy": "balloons",
    "TopologyAwarePolicy": "topology-aware",
    "TemplatePolicy": "template",
}


def is_nri_policy(value: Mapping[str, Any]) -> bool:
    """Whether an object configures an NRI resource policy."""
    is_named = isinstance(value.get("metadata"), dict) and str(value.get("kind")) in _NRI_POLICIES
    return is_named and str(value.get("apiVersion")).startswith("config.nri/")


def nri_decider(policies: Sequence[Mapping[str, Any]], node: str, labels: Mapping[str, str]) -> str:
    """The NRI policy that decides about the CPUs of a node, by the objects that configure policies; empty: none.

    Follows: nri-plugins v0.14, pkg/agent/agent.go: the node's own object, otherwise that of its group or the default one.
    """
    group = labels.get("config.nri/group")
    for name in (f"node.{node}", f"group.{group}" if group else "default"):
        kinds = {policy["kind"] for policy in policies if policy["metadata"].get("name") == name}
        if kinds:
            return f"NRI policy {' or '.join(sorted(_NRI_POLICIES[kind] for kind in kinds))}"
    return ""


def _pod_marks(pods: Iterable[Pod]) -> Iterator[str]:
    for pod in pods:
        meta = pod.metadata
        yield meta.name
        yield from (meta.labels[name] for name in _LABELS_OF_AGENTS if name in meta.labels)
        yield from (f"{name}=" for name in _POD_MARKS if name in meta.annotations)


def with_cpu_decider(
    spec: NodeProfileSpec, annotations: Mapping[str, str], decider: str = ""
) -> NodeProfileSpec:
    """The node with what decides about its CPUs among the parts that are not judged, if that is not its kubelet alone.

    ``decider``: it, if it is known; otherwise the node's labels, annotations and pods tell.
    """
    decider = decider or cpu_decider({**spec.labels, **annotations}, spec.pods)
    others = tuple(part for part in spec.not_judged if part.part != NodePart.CPU_DECISIONS)
    if decider:
        because = f"CPUs on this node are decided by {decider}"
        others = (*others, UnknownNodePart(part=NodePart.CPU_DECISIONS, because=because))
    return spec if others == spec.not_judged else msgspec.structs.replace(spec, not_judged=others)
