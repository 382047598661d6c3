"""What is compared, and what comes out: values."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.core.cgroups.compare import Texts
from nodewright.core.cgroups.plan import Group
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.cpu.state import CPUState
from nodewright.core.devices.state import Held
from nodewright.core.memory.state import MemoryState
from nodewright.model.objects import Pod
from nodewright.model.pod_resources import AllocatableResources, PodResources
from nodewright.model.profile import MemoryBlock
from nodewright.node.config import NodeConfig
from nodewright.values.idset import CPUSet, NUMASet


class Source(StrEnum):
    """Who says something about a node. They are told in this order."""

    STATE = "state"
    """The state files of the kubelet or the agent: what is true after its next start."""
    RESOURCES = "podResources"
    """PodResources: what it takes for true now."""
    CGROUPS = "cgroups"
    """The cgroup files: what the kernel holds containers to."""
    PODS = "pods"
    """The API's pods: what was asked for."""
    CONFIGURATION = "configuration"
    """The machine and the kubelet's configuration, as far as they decide by themselves."""


class StateTold(msgspec.Struct, frozen=True, kw_only=True):
    """What state files say. None: the file is not there, or cannot be read."""

    cpu: CPUState | None = None
    memory: MemoryState | None = None
    devices: Held | None = None


class GroupsTold(msgspec.Struct, frozen=True, kw_only=True):
    """What cgroup files say."""

    rules: CgroupRules
    texts: Mapping[str, Texts | None]
    """By the path of each group that was looked for; None: it is not there."""
    uids: frozenset[str] | None = None
    """The uids of the pods that have groups; None: nobody looked."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a node. None: that source was not asked, or did not answer."""

    config: NodeConfig
    state: StateTold | None = None
    resources: tuple[PodResources, ...] | None = None
    allocatable: AllocatableResources | None = None
    groups: GroupsTold | None = None
    pods: tuple[Pod, ...] | None = None
    ended: frozenset[str] = frozenset()
    """The uids of pods that the API has, and that have ended."""


class Standing(StrEnum):
    """How something is there."""

    THERE = "there"
    RUNNING = "running"
    ENDED = "ended"
    MISSING = "missing"


class Count(msgspec.Struct, frozen=True):
    """So many, whichever they are."""

    number: int


class Sizes(msgspec.Struct, frozen=True):
    """Memory by kind, wherever it is.

    Units: bytes.
    """

    by_kind: Mapping[str, int]


class Blocks(msgspec.Struct, frozen=True):
    """Memory by kind and NUMA nodes."""

    blocks: tuple[MemoryBlock, ...]


class Ids(msgspec.Struct, frozen=True):
    """Devices by name."""

    ids: frozenset[str]


class Text(msgspec.Struct, frozen=True):
    """What a file says, or should say."""

    text: str


Value: TypeAlias = CPUSet | NUMASet | Count | Sizes | Blocks | Ids | Text | Standing


class Kind(StrEnum):
    """What two sources can disagree about."""

    CPUS = "cpus"
    """Which CPUs a container has for itself, or runs on."""
    MEMORY = "memory"
    """Which memory a container has for itself, or may take."""
    DEVICES = "devices"
    """Which devices a container has."""
    TWICE = "twice"
    """CPUs or devices that several containers have for themselves."""
    POOL = "pool"
    """The CPUs that containers share."""
    ALLOCATABLE = "allocatable"
    """What containers can have for themselves."""
    HOLDER = "holder"
    """Something is held for a pod that is not there."""
    LISTED = "listed"
    """Whether a pod is there."""
    GROUP = "group"
    """Whether there is a cgroup."""
    FILE = "file"
    """What a cgroup file says."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that sources disagree about."""

    kind: Kind
    pod: str
    """Namespace and name, or the uid where nobody tells these; empty: it is one of the node."""
    container: str = ""
    """Empty: it is one of the pod as a whole."""
    field: str
    """What it is: `cpus`, `memory`, a resource, the name of a cgroup file."""
    said: Mapping[Source, Value]
    """What each source says that says anything of it."""
    odd: Source | None = None
    """The only one that stands against all others; None: nobody can tell."""
    path: str = ""
    """Of the cgroup."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was not compared."""

    what: "GapKind"
    names: tuple[str, ...] = ()
    """Pods, containers or files that it concerns; none: all of them."""
    because: str = ""
    """What the source itself said, or nothing."""
    source: Source | None = None


class GapKind(StrEnum):
    """Why something was not compared."""

    NOT_ASKED = "notAsked"
    """Nobody named the source."""
    NOT_READ = "notRead"
    """It was named, and could not be read; `because` says why."""
    NAMES_UNKNOWN = "namesUnknown"
    """State files know pods by uid, PodResources by name, and no pods were given that have both."""
    GROUP_UNTOLD = "groupUntold"
    """The group of a container cannot be found: its pod's status has no id of it."""
    FILES_LACKING = "filesLacking"
    """This machine has no such cgroup files."""
    NO_OWN = "noOwn"
    """The policies give nothing away, so that nobody says who runs where."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What came out."""

    findings: tuple[Finding, ...]
    passing: tuple[Finding, ...]
    """What goes by itself: things held for pods that are gone, which are taken back when the next pod comes."""
    gaps: tuple[Gap, ...]
    compared: int
    """How many facts two sources or more speak of."""


class ToRead(msgspec.Struct, frozen=True, kw_only=True):
    """The groups whose files are to be read for an audit."""

    groups: tuple[Group, ...]
    untold: tuple[str, ...]
    """Containers whose groups cannot be told."""
