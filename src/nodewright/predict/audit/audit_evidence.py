"""The evidence that an audit compares, and its result, as values."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.core.cgroups.cgroup_comparison import FileTexts
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_plan import PlannedCgroup
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.devices.device_state import PodDevices
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.kubernetes.node_profile import MemoryBlock
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_resources_api import AllocatableResources, PodResources
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.model.values.idset import CPUSet, NUMASet


class EvidenceSource(StrEnum):
    """A source of facts about a node. Reports list sources in this order."""

    STATE = "state"
    """The state files of the kubelet or the agent: its state after the next start."""
    RESOURCES = "podResources"
    """PodResources: its current state."""
    CGROUPS = "cgroups"
    """The cgroup files: what the kernel enforces."""
    PODS = "pods"
    """The API's pods: the specs."""
    KUBELET = "kubelet"
    """The pods that the kubelet of a cluster's node reports."""
    NODE = "node"
    """The Node object of a cluster."""
    CONFIGURATION = "configuration"
    """What follows from the machine and the kubelet's configuration alone."""
    DATA = "data"
    """The member `data` of a state file: what kubelets since 1.37 read."""
    OLDER_MEMBERS = "olderMembers"
    """The other members of a state file: what kubelets before 1.37 read."""


class FileParts(msgspec.Struct, frozen=True, kw_only=True):
    """A state file of which older kubelets read something else than newer ones."""

    file: StateFile
    data: str
    """The entries that differ, or why the file is refused."""
    older: str


class StateFileEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the state files. None: the file is missing or unreadable."""

    cpu: CPUState | None = None
    memory: MemoryState | None = None
    devices: PodDevices | None = None
    parts: tuple[FileParts, ...] = ()


class CgroupEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The content of cgroup files."""

    rules: CgroupConfig
    texts: Mapping[str, FileTexts | None]
    """By the path of each expected cgroup; None: it does not exist."""
    uids: frozenset[str] | None = None
    """The uids of the pods that have cgroups; None: not determined."""
    uncopied: tuple[str, ...] = ()
    """The paths of expected cgroups that a copy of the tree does not have, with none beside them: a gap, not a fact."""


class AuditEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """All evidence about a node. None: the source was not specified or not readable."""

    config: NodeConfig
    state_files: StateFileEvidence | None = None
    pod_resources: tuple[PodResources, ...] | None = None
    allocatable: AllocatableResources | None = None
    cgroups: CgroupEvidence | None = None
    pods: tuple[Pod, ...] | None = None
    ended_uids: frozenset[str] = frozenset()
    """The uids of terminated pods in the API."""


class Presence(StrEnum):
    """Whether a pod or cgroup exists in a source, and in which state."""

    PRESENT = "there"
    RUNNING = "running"
    ENDED = "ended"
    MISSING = "missing"


class ResourceCount(msgspec.Struct, frozen=True):
    """A number of CPUs or devices, without their ids."""

    number: int


class MemorySizes(msgspec.Struct, frozen=True):
    """Memory by kind, on any NUMA node.

    Units: bytes.
    """

    by_kind: Mapping[str, int]


class MemoryBlockSet(msgspec.Struct, frozen=True):
    """Memory by kind and NUMA nodes."""

    blocks: tuple[MemoryBlock, ...]


class DeviceIdSet(msgspec.Struct, frozen=True):
    """Devices by id."""

    ids: frozenset[str]


class SourceText(msgspec.Struct, frozen=True):
    """The content of a file or a field, actual or expected."""

    text: str


EvidenceValue: TypeAlias = (
    CPUSet | NUMASet | ResourceCount | MemorySizes | MemoryBlockSet | DeviceIdSet | SourceText | Presence
)


class DiscrepancyKind(StrEnum):
    """The kinds of facts about which sources can disagree."""

    CPUS = "cpus"
    """A container's exclusive CPUs, or those that it runs on."""
    MEMORY = "memory"
    """A container's exclusive memory, or the NUMA nodes that it may use."""
    DEVICES = "devices"
    """A container's devices."""
    DOUBLE_ALLOCATION = "twice"
    """CPUs or devices that several containers hold as exclusive."""
    SHARED_POOL = "pool"
    """The shared CPU pool."""
    REQUESTS = "requests"
    """What a pod requests."""
    ALLOCATABLE = "allocatable"
    """The resources that containers can have exclusively."""
    STALE_ALLOCATION = "holder"
    """An allocation to a pod that does not exist."""
    POD_PRESENCE = "listed"
    """Whether a pod exists."""
    CGROUP_PRESENCE = "group"
    """Whether a cgroup exists."""
    CGROUP_FILE = "file"
    """The content of a cgroup file."""
    STATE_FILE_PARTS = "parts"
    """The two parts of a state file."""


class Discrepancy(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that sources disagree about."""

    kind: DiscrepancyKind
    pod: str
    """Namespace and name, or the uid if these are unknown; empty: the discrepancy concerns the node."""
    container: str = ""
    """Empty: it concerns the pod as a whole."""
    field: str
    """`cpus`, `memory`, a resource, or the name of a cgroup file."""
    values: Mapping[EvidenceSource, EvidenceValue]
    """The value in each source that has one."""
    outlier: EvidenceSource | None = None
    """The only source that disagrees with all others; None: undecidable."""
    cgroup_path: str = ""
    """Path of the cgroup, if the discrepancy concerns one."""


def pod_presence(name: str, source: EvidenceSource, in_source: Presence, in_api: Presence) -> Discrepancy:
    """A pod that only the API or only another source has."""
    values = {source: in_source, EvidenceSource.PODS: in_api}
    return Discrepancy(kind=DiscrepancyKind.POD_PRESENCE, pod=name, field="pod", values=values)


def allocatable_discrepancy(field: str, values: Mapping[EvidenceSource, EvidenceValue]) -> Discrepancy:
    """A difference between an allocatable amount and the configuration."""
    return Discrepancy(kind=DiscrepancyKind.ALLOCATABLE, pod="", field=field, values=values)


class AuditGap(Report, frozen=True, kw_only=True):
    """Something that was not compared."""

    reason: "UncomparedReason"
    source: EvidenceSource | UnsetType = UNSET
    names: tuple[str, ...] | UnsetType = UNSET
    """The pods, containers or files concerned; absent: all of them."""
    because: str | UnsetType = UNSET
    """The error of the source."""


class UncomparedReason(StrEnum):
    """Why something was not compared."""

    NOT_GIVEN = "notAsked"
    """The source was not specified."""
    NOT_READ = "notRead"
    """The source was specified but could not be read; see `detail`."""
    NAMES_UNKNOWN = "namesUnknown"
    """State files have pods by uid, PodResources by name, and no list of pods connects them."""
    CGROUP_UNKNOWN = "groupUntold"
    """The cgroup of a container is unknown: its pod's status has no container id."""
    FILES_MISSING = "filesLacking"
    """This machine does not have these cgroup files."""
    NOT_COPIED = "notCopied"
    """The copy of the cgroup tree does not have these cgroups, nor others beside them."""
    NO_EXCLUSIVE_RESOURCES = "noOwn"
    """The policies allocate nothing exclusively, so there is no placement to compare."""


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit."""

    discrepancies: tuple[Discrepancy, ...]
    transient: tuple[Discrepancy, ...]
    """Allocations to removed pods, which the kubelet releases when it admits the next pod."""
    uncompared: tuple[AuditGap, ...]
    compared_count: int
    """The number of facts that at least two sources have."""


class CgroupsToRead(msgspec.Struct, frozen=True, kw_only=True):
    """The cgroups whose files an audit reads."""

    groups: tuple[PlannedCgroup, ...]
    unresolved: tuple[str, ...]
    """Containers with unknown cgroups."""
