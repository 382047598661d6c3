"""What the agent knows: its state, with a record of each pod."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from nodewright.agent.rules.pod_actions import BackOff, BackOffRule
from nodewright.agent.rules.pod_status import NO_RESIZE, PodResizeStatus, StatusOverride
from nodewright.agent.rules.probe_state import ProbeKind, ProbeState
from nodewright.agent.state import observations as device_observations
from nodewright.agent.state.agent_state import StatusText
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, PlannedCgroup
from nodewright.engine.core.eviction.eviction_state import EvictionState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.objects import ContainerStateWaiting, Pod, PodStatus
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.reasons.reason import Reason


class ClockReading(NamedTuple):
    """A moment on both clocks.

    Units: nanoseconds; `wall_ns` since 1970, may jump; `monotonic_ns` since an arbitrary moment, never jumps.
    """

    wall_ns: int
    monotonic_ns: int


class PodSource(StrEnum):
    """The source that a pod was read from."""

    FILE = "file"
    """A directory of manifests: the kubelet's static pods."""
    HTTP = "http"
    """A URL of manifests: also static pods."""
    WORKLOAD = "workload"
    """A directory of ordinary pods."""
    API = "api"
    """A request to the agent's API."""
    CLUSTER = "cluster"
    """The API server of a cluster that the node has joined."""

    @property
    def is_static_pod_source(self) -> bool:
        """Whether its pods are the kubelet's static pods, and therefore critical."""
        return self in (PodSource.FILE, PodSource.HTTP)


class PodStage(StrEnum):
    """The stage of a pod's life that the agent has reached."""

    ALLOCATING = "allocating"
    """Admitted and holding devices; a device plugin may still refuse to allocate them."""
    WAITING = "waiting"
    """Admitted; starts once the pods in `waits_for` have ended."""
    ACTIVE = "active"
    TERMINATING = "ending"
    TERMINATED = "ended"
    """No container runs, and none will be started."""
    REJECTED = "refused"


class PodRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent knows of a pod.

    Units: moments in nanoseconds on the monotonic clock; grace_period_s in seconds.
    """

    pod: Pod
    source: PodSource
    stage: PodStage
    memory: MemoryState
    """The memory manager's state right after the decision about this pod."""
    because: tuple[Reason, ...] = ()
    """Why the pod was admitted or rejected."""
    is_in_source: bool = True
    """Whether its source still lists it, as a pod that is not deleted."""
    has_api_object: bool = True
    """For a pod of a cluster: whether the API server's last list had it, deleted or not. Not persisted."""
    is_cleaned_up: bool = False
    """For a pod of a cluster: whether nothing of it is left on this machine, so that its object may be deleted."""
    runtime_status: RuntimePodStatus | None = None
    """The last status that the runtime reported."""
    observed_at_ns: int = 0
    """When that status was requested."""
    status: PodStatus = PodStatus()
    status_override: StatusOverride | None = None
    grace_period_s: int | None = None
    """Grace period of its termination; None: the pod spec's."""
    waits_for: frozenset[str] = frozenset()
    """The uids of pods that must end before this pod starts."""
    kill_deadline_ns: int | None = None
    """While the node terminates the pod: the moment from which the termination is overdue."""
    is_preempted: bool = False
    """Whether it was preempted, so that another pod already uses its resources."""
    cgroup: str = ""
    """Path of its cgroup when its spec is unknown; empty: the path follows from the spec."""
    back_offs: Mapping[str, BackOff] = {}
    container_waiting: Mapping[str, ContainerStateWaiting] = {}
    """Why containers could not be started, by container name."""
    probes: Mapping[tuple[str, ProbeKind], ProbeState] = {}
    next_probe_at_ns: Mapping[tuple[str, ProbeKind], int] = {}
    """When each probe runs next."""
    has_running_effect: bool = False
    """Whether an effect for the pod is running; PodEffectCompleted reports its end."""
    is_cgroup_removed: bool = False
    """Whether its cgroups are removed."""
    retry_at_ns: int | None = None
    """After a failure: the moment of the next attempt."""
    next_sync_at_ns: int | None = None
    """The earliest moment at which a back-off or the pod's active deadline ends."""
    applied_resources: Mapping[str, tuple[CgroupFile, ...]] = {}
    """The values last written to each container's cgroup, by container id."""
    has_started: bool = False
    """Whether all its main containers have run."""
    resizing: PodResizeStatus = NO_RESIZE
    manifest_uid: str = ""
    """The uid of the manifest that resized it; empty: its own."""
    pending_post_start_hooks: Mapping[str, int] = {}
    """By container name the attempts for which a postStart hook is not known to have completed."""
    starting_resources: Mapping[str, tuple[CgroupFile, ...]] = {}
    """By container name the cgroup values that the running effect uses for the containers that it starts."""


class PodIndex(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the records of pods, so that a decision does not go through all of them."""

    pods: Mapping[str, PodRecord]
    """The records that it was made from."""
    moments_ns: Mapping[str, int | None]
    """By uid the pods that something is due for, and when (monotonic clock); None: at every decision only."""
    uids_by_name: Mapping[str, tuple[str, ...]]
    """The uids by namespace and name, older records first."""


class AgentConstants(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are constant while the agent runs."""

    status_text: StatusText
    back_off: BackOffRule = BackOffRule()
    host_ip: str = ""
    retry_ns: int = 10 * 10**9
    """Delay before a failed operation is repeated."""
    started_ns: int = 0
    """When the agent started, since 1970: pods that ran before are adopted."""


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the agent knows."""

    node: NodeState
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[PodSource, Pod], ...] = ()
    """Pods to admit later: once an older pod of the same name has ended, or a device plugin has answered."""
    preference_queries: Mapping[str, device_observations.PreferenceQuery] = {}
    """By uid the deferred pods for which device plugins are asked for a preferred allocation."""
    eviction: EvictionState = EvictionState()
    evictions_total: int = 0
    """Number of pods evicted so far."""
    evicted_until_ns: Mapping[str, int] = {}
    """By uid the evicted pods that have not ended: until when no further pod is evicted (monotonic clock)."""
    node_cgroups: tuple[PlannedCgroup, ...] = ()
    """The cgroups above the pods' own, as last written."""
    shutdown_reason: str = ""
    """Why no pod is admitted any more; empty: pods are admitted."""
    unready_sources: frozenset[PodSource] = frozenset()
    """Sources that have not listed their pods yet; until they have, no running pod counts as an orphan."""
    waiting_pods: Mapping[PodSource, tuple[Pod, ...]] = {}
    """The rest of long lists of pods, by source: some are applied in each decision, so that none takes long."""
    index: PodIndex | None = None
    """The index of `pods`, as `pod_index` keeps it; None, or one of other pods: it is made again."""
    orphans: Mapping[str, RuntimePodStatus] = {}
    """By uid the running pods that no source lists."""
