"""What the agent knows, sees and does: values. The lists of observations and of works are closed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from nodewright.agent import device_values as devices
from nodewright.agent.words import Words
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.cgroups.plan import Group
from nodewright.core.eviction import EvictionState, NodeReclaim, Observation
from nodewright.core.lifecycle import (
    NO_RESIZE,
    BackOff,
    BackOffRule,
    Health,
    Override,
    PodPlan,
    Probe,
    ProbeKind,
    ProbeState,
    Resizing,
)
from nodewright.core.memory.state import MemoryState
from nodewright.model.objects import Pod, PodStatus, Waiting
from nodewright.model.reasons import Reason
from nodewright.model.running import PodFacts
from nodewright.node.state import NodeState


class Now(NamedTuple):
    """A moment on both clocks.

    Units: nanoseconds; since 1970, where it may jump, and since some moment, where it does not.
    """

    wall_ns: int
    steady_ns: int


class Source(StrEnum):
    """Where a pod comes from."""

    FILE = "file"
    """A directory of manifests, as the kubelet's static pods."""
    HTTP = "http"
    """A URL, likewise."""
    WORKLOAD = "workload"
    """A directory of ordinary pods."""
    API = "api"
    """Somebody who asked the agent."""

    @property
    def is_static(self) -> bool:
        """Whether its pods are the kubelet's static pods, and so critical."""
        return self in (Source.FILE, Source.HTTP)


class Stage(StrEnum):
    """How far a pod has come."""

    ALLOCATING = "allocating"
    """It is admitted and holds its devices; their plugins are told so, and may still refuse."""
    WAITING = "waiting"
    """It is admitted, and others have to be gone before it starts."""
    ACTIVE = "active"
    ENDING = "ending"
    ENDED = "ended"
    """Nothing of it runs, and nothing will."""
    REFUSED = "refused"


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as the agent knows it.

    Units: moments in nanoseconds on the steady clock; grace_period_s in seconds.
    """

    pod: Pod
    source: Source
    stage: Stage
    memory: MemoryState
    """Who held which memory when the pod had just been decided on."""
    because: tuple[Reason, ...] = ()
    """Why it was taken, or not."""
    is_wanted: bool = True
    """Whether its source still has it."""
    facts: PodFacts | None = None
    """What the runtime said of it last."""
    asked_ns: int = 0
    """When it was asked for that."""
    status: PodStatus = PodStatus()
    override: Override | None = None
    grace_period_s: int | None = None
    """How long its containers have when it ends; None: as the pod says."""
    waits_for: frozenset[str] = frozenset()
    """The uids of those that have to be gone before it starts."""
    late_at_ns: int | None = None
    """The node ends it: from when on that has taken longer than a runtime may take."""
    makes_way: bool = False
    """It was preempted: the node has given its room to somebody else."""
    cgroup: str = ""
    """Where its group is, if nobody knows what the pod was; empty: where the node puts it."""
    back_offs: Mapping[str, BackOff] = {}
    held_back: Mapping[str, Waiting] = {}
    """Why containers could not be started, by name."""
    probes: Mapping[tuple[str, ProbeKind], ProbeState] = {}
    asks_at_ns: Mapping[tuple[str, ProbeKind], int] = {}
    """When each probe is to ask next."""
    is_busy: bool = False
    """Work for it is under way; what it comes to will be told."""
    is_clean: bool = False
    """Its groups are gone."""
    retry_at_ns: int | None = None
    """Something failed: until then nothing is tried again."""
    look_at_ns: int | None = None
    """When a container may start again that has to wait, or when the pod's time is up."""
    told: Mapping[str, tuple[File, ...]] = {}
    """What the group of each container was set to last, by the container's id."""
    has_started: bool = False
    """Whether all its main containers have run."""
    resizing: Resizing = NO_RESIZE
    written_as: str = ""
    """The uid of the file that it was resized by; empty: its own."""
    hooks: Mapping[str, int] = {}
    """By name the attempts at containers whose postStart hook is not known to have come back."""
    starting: Mapping[str, tuple[File, ...]] = {}
    """What the groups of the containers are set to that the work under way starts, by name."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What stays as it is while the agent runs."""

    words: Words
    back_off: BackOffRule = BackOffRule()
    host_ip: str = ""
    retry_ns: int = 10 * 10**9
    """How long to wait after something failed."""
    started_ns: int = 0
    """When the agent began, since 1970: what ran before is adopted."""


class Mind(msgspec.Struct, frozen=True, kw_only=True):
    """All that the agent knows."""

    node: NodeState
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[Source, Pod], ...] = ()
    """Pods that come once one of the same name, of an older content, is gone, or once a plugin has answered."""
    asked: Mapping[str, devices.Asked] = {}
    """Of those, by uid, the ones for which plugins are asked."""
    eviction: EvictionState = EvictionState()
    evictions: int = 0
    """How many pods have been evicted."""
    leaving: Mapping[str, int] = {}
    """Evicted pods that have not ended yet, by uid: until when nobody else goes in their stead (steady clock)."""
    groups: tuple[Group, ...] = ()
    """The groups above those of pods, as they were written last."""
    takes_no_pods: str = ""
    """Why no pod is taken any more; empty: they are."""
    unheard: frozenset[Source] = frozenset()
    """Sources that have not said yet which pods they have; until they have, no pod is taken for nobody's."""
    orphans: Mapping[str, PodFacts] = {}
    """By uid pods that run, and nobody here knows why."""


# ---------------------------------------------------------------- what is seen


class PodsWanted(msgspec.Struct, frozen=True):
    """All pods that a source has now."""

    source: Source
    pods: tuple[Pod, ...]


class PodWanted(msgspec.Struct, frozen=True):
    """Somebody asks for a pod."""

    source: Source
    pod: Pod


class PodUnwanted(msgspec.Struct, frozen=True):
    """Somebody wants a pod gone.

    Units: grace_period_s in seconds; None: the pod's own.
    """

    uid: str
    grace_period_s: int | None = None


class PodSeen(msgspec.Struct, frozen=True):
    """What the runtime says of a pod; None: nothing.

    Units: asked_ns in nanoseconds on the steady clock; answers may overtake one another.
    """

    uid: str
    facts: PodFacts | None
    asked_ns: int


class RuntimeSeen(msgspec.Struct, frozen=True):
    """All that the runtime holds: the agent has just begun, or was out of touch with it.

    Units: as of PodSeen.
    """

    pods: tuple[PodFacts, ...]
    asked_ns: int


SANDBOX_ERROR, KILL_ERROR, MOUNT_ERROR = "FailedCreatePodSandBox", "KillPodError", "FailedMount"
CREATE_ERROR, RUN_ERROR, HOOK_ERROR = "CreateContainerError", "RunContainerError", "PostStartHookError"
CONFIG_ERROR, GROUP_ERROR = "CreateContainerConfigError", "FailedCreatePodContainer"
"""Reasons of failures; those of images come with them."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be done for a pod."""

    reason: str
    """As a container's status has it: `RunContainerError`, `ErrImagePull`…"""
    message: str
    container: str = ""
    """Empty: it concerns the pod as a whole."""


class PodDone(msgspec.Struct, frozen=True, kw_only=True):
    """Work for a pod has come to an end.

    Units: as of PodSeen.
    """

    uid: str
    work: "PodWork"
    facts: PodFacts | None
    """What the runtime said of it afterwards."""
    asked_ns: int
    failures: tuple[Failure, ...] = ()
    is_cancelled: bool = False
    allocated: devices.Allocated | None = None
    """What came of AllocateDevices."""


class TuneFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A container was not told what it is to be held to; it may have ended."""

    uid: str
    container_id: str


class ProbeAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """A probe has come back, after so many seconds; no answer: it could not be asked."""

    uid: str
    container: str
    container_id: str
    probe: Probe
    answer: Health | None
    said: str = ""
    is_odd: bool = False
    """The answer is good, and people should know what was said nevertheless."""
    took_s: float = 0.0


class UsageSeen(msgspec.Struct, frozen=True):
    """What the node and its pods use."""

    observation: Observation
    is_after_reclaim: bool = False
    """The node has just given back what it can without ending pods."""


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The machine goes down, or the agent is asked to end its pods: these end now, each within so many seconds."""

    why: str
    override: Override
    grace_periods_s: Mapping[str, int]
    """By uid."""


class Ticked(msgspec.Struct, frozen=True):
    """Time has passed."""


OfPods: TypeAlias = PodsWanted | PodWanted | PodUnwanted | PodSeen | RuntimeSeen | PodDone | ProbeAnswered
Seen: TypeAlias = OfPods | TuneFailed | UsageSeen | devices.DeviceSeen | Drained | Ticked

# ---------------------------------------------------------------- what is done


class SyncPod(msgspec.Struct, frozen=True, kw_only=True):
    """Bring a pod to where its plan wants it: groups, kills, a sandbox, starts."""

    uid: str
    pod: Pod
    plan: PodPlan
    groups: tuple[Group, ...]
    """Of the pod and its containers."""
    settings: Mapping[str, ContainerSettings]
    attempts: Mapping[str, int]
    """The number of the attempt at each container that is to start."""
    tunes: tuple["TuneContainer", ...] = ()
    """Containers that run and are held to other settings, because the pod is resized."""
    is_resize: bool = False
    hooks: tuple[str, ...] = ()
    """Names of containers that run, and whose postStart hook was cut off: it is run once more, before all starts."""
    uses: tuple[devices.DeviceUse, ...] = ()
    """The devices that its containers hold."""


class EndPod(msgspec.Struct, frozen=True, kw_only=True):
    """End all that runs of a pod and take its groups away.

    Units: grace_period_s in seconds; None: as the pod says.
    """

    uid: str
    pod: Pod
    grace_period_s: int | None
    cgroup: str


class CleanPod(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is to be left of a pod: containers, sandboxes, volumes, logs."""

    uid: str
    pod: Pod
    cgroup: str


PodWork: TypeAlias = devices.AllocateDevices | SyncPod | EndPod | CleanPod


class CancelWork(msgspec.Struct, frozen=True):
    """Stop what is being done for a pod; it will be told as done, cancelled."""

    uid: str


class TuneContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container that runs is held to other settings."""

    uid: str
    container_id: str
    settings: ContainerSettings
    files: tuple[File, ...]


class TuneStart(msgspec.Struct, frozen=True, kw_only=True):
    """A container that the pod's work under way starts, or has just started, is held to other settings than that says."""

    uid: str
    container: str
    settings: ContainerSettings
    files: tuple[File, ...]


class WriteGroups(msgspec.Struct, frozen=True):
    """The groups above those of pods are to be so."""

    groups: tuple[Group, ...]


class AskProbe(msgspec.Struct, frozen=True, kw_only=True):
    """Find out how a container is."""

    uid: str
    pod: Pod
    container: str
    container_id: str
    probe: Probe
    pod_ip: str


class ReclaimNode(msgspec.Struct, frozen=True):
    """The node is to give back what it can without ending pods, and then to be looked at again."""

    what: tuple[NodeReclaim, ...]


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Something that people want to know of a pod, or of the node where there is none."""

    uid: str
    is_warning: bool
    reason: str
    message: str


Asking: TypeAlias = AskProbe | devices.AskPreference
Work: TypeAlias = PodWork | CancelWork | TuneContainer | TuneStart | WriteGroups | Asking | ReclaimNode | Tell
