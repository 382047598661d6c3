"""What the agent knows: its state, a record of each pod, and an index of what is due."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from nodewright.agent.rules.pod_actions import BackOff, BackOffRule
from nodewright.agent.rules.pod_status import NO_RESIZE, PodResizeStatus, StatusOverride
from nodewright.agent.rules.probe_state import ProbeKind, ProbeState
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile, PlannedCgroup
from nodewright.engine.core.claims.device_health import ResourceStatus
from nodewright.engine.core.devices.device_state import DevicePluginError
from nodewright.engine.core.eviction.eviction_state import EvictionState
from nodewright.engine.core.lending.predictors import Predictor
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.objects import ContainerStateWaiting, Pod, PodStatus
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
    RuntimeSandboxStatus,
)
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
    claim_health: Mapping[str, tuple[ResourceStatus, ...]] = {}
    """By container name the devices of its claims with their health."""

    @property
    def containers(self) -> tuple[RuntimeContainerStatus, ...]:
        """What the runtime reported of its containers."""
        return self.runtime_status.containers if self.runtime_status is not None else ()

    @property
    def sandboxes(self) -> tuple[RuntimeSandboxStatus, ...]:
        """What the runtime reported of its sandboxes."""
        return self.runtime_status.sandboxes if self.runtime_status is not None else ()

    def running_container(self, name: str) -> RuntimeContainerStatus | None:
        """The newest attempt of a container, if it runs."""
        newest = self.runtime_status.newest_attempt(name) if self.runtime_status is not None else None
        return newest if newest is not None and newest.phase is ContainerPhase.RUNNING else None


class PreferenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The preferred-allocation queries of a pod that waits for its admission."""

    answers: Mapping[tuple[str, str], tuple[str, ...] | DevicePluginError] = {}
    """The plugins' answers, by container and resource."""
    is_pending: bool = True
    """Whether an answer is outstanding."""


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

    back_off: BackOffRule
    host_ip: str = ""
    retry_ns: int = 10 * 10**9
    """Delay before a failed operation is repeated."""
    started_ns: int = 0
    """When the agent started, since 1970: pods that ran before are adopted."""
    predictor: Predictor | None = None
    """Decides what is lent to BestEffort pods; None: nothing is."""

    @classmethod
    def of(cls, config: NodeConfig, started_ns: int, host_ip: str = "") -> "AgentConstants":
        """The settings of a node."""
        back_off = BackOffRule.of(config.parts.kubelet, config.parts.gates)
        predictor = config.parts.policies.predictor
        return cls(back_off=back_off, started_ns=started_ns, host_ip=host_ip, predictor=predictor)


class LoanReturn(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that borrowers held beyond a ceiling that fell, until they held no more than it.

    Units: bytes; nanoseconds on the monotonic clock.
    """

    amount_bytes: int
    """The most that they owed."""
    since_ns: int
    duration_ns: int | None = None
    """None: it has not come back yet."""


class LendingState(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent remembers of lending, beside the node's loans.

    Units: as of `PodUsage`.
    """

    cpu_predictor: Mapping[str, Any] = {}
    memory_predictor: Mapping[str, Any] = {}
    """The predictor's states by pod; under an empty uid that of the node as a whole."""
    borrowed: Mapping[str, tuple[int | None, int | None]] = {}
    """By uid of a BestEffort pod its CPU and memory at the last sample."""
    last_return: LoanReturn | None = None
    returns_total: int = 0


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the agent knows."""

    node: NodeState
    pods: Mapping[str, PodRecord] = {}
    deferred: tuple[tuple[PodSource, Pod], ...] = ()
    """Pods to admit later: once an older pod of the same name has ended, or a device plugin has answered."""
    preference_queries: Mapping[str, PreferenceQuery] = {}
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
    lending: LendingState = LendingState()


# ---------------------------------------------------------------- index


class IndexedPods:
    """The records of an iteration by uid, and their index, which every change keeps up to date.

    With 10,000 pods, of which nothing is due for most, it takes long to ask each one in every decision.
    """

    def __init__(self, state: AgentState) -> None:
        self._pods = dict(state.pods)
        self.pods: Mapping[str, PodRecord] = self._pods
        index = pod_index(state)
        self._moments_ns, self._uids_by_name = dict(index.moments_ns), dict(index.uids_by_name)

    def put(self, record: PodRecord) -> None:
        """Adds a record, or replaces it."""
        uid = record.pod.uid
        before = self._pods.get(uid)
        self._pods[uid] = record
        _note_moment(self._moments_ns, record)
        if before is not None and before.pod is not record.pod:
            if before.pod.full_name == record.pod.full_name:
                return
            self._drop_name(before)
        if before is None or before.pod is not record.pod:
            _add_name(self._uids_by_name, record)

    def delete(self, uid: str) -> PodRecord:
        """Removes and returns a record."""
        record = self._pods.pop(uid)
        self._moments_ns.pop(uid, None)
        self._drop_name(record)
        return record

    def named(self, full_name: str) -> list[PodRecord]:
        """The records of pods with this namespace and name."""
        return [self._pods[uid] for uid in self._uids_by_name.get(full_name, ())]

    def due_uids(self, now_ns: int) -> set[str]:
        """The pods that must be synced although nothing about them was observed.

        Units: nanoseconds on the monotonic clock.
        """
        return {
            uid
            for uid, moment_ns in self._moments_ns.items()
            if (moment_ns is not None and moment_ns <= now_ns) or self._pods[uid].stage is PodStage.WAITING
        }

    def index(self) -> PodIndex:
        """The index as it is now."""
        return PodIndex(pods=self._pods, moments_ns=self._moments_ns, uids_by_name=self._uids_by_name)

    def _drop_name(self, record: PodRecord) -> None:
        name = record.pod.full_name
        uids = tuple(uid for uid in self._uids_by_name[name] if uid != record.pod.uid)
        if uids:
            self._uids_by_name[name] = uids
        else:
            del self._uids_by_name[name]


def pod_index(state: AgentState) -> PodIndex:
    """The index of the state's pods, made where the state has none of exactly these."""
    if state.index is not None and state.index.pods is state.pods:
        return state.index
    moments_ns: dict[str, int | None] = {}
    uids_by_name: dict[str, tuple[str, ...]] = {}
    for record in state.pods.values():
        _note_moment(moments_ns, record)
        _add_name(uids_by_name, record)
    return PodIndex(pods=state.pods, moments_ns=moments_ns, uids_by_name=uids_by_name)


def next_due_ns(state: AgentState) -> int | None:
    """When the next decision is due without an observation; None: never.

    Units: nanoseconds on the monotonic clock.
    """
    moments_ns = pod_index(state).moments_ns.values()
    return min((moment_ns for moment_ns in moments_ns if moment_ns is not None), default=None)


def _note_moment(moments_ns: dict[str, int | None], record: PodRecord) -> None:
    moment_ns = _next_moment_ns(record)
    if moment_ns is not None or record.stage is PodStage.WAITING:
        moments_ns[record.pod.uid] = moment_ns
    else:
        moments_ns.pop(record.pod.uid, None)


def _add_name(uids_by_name: dict[str, tuple[str, ...]], record: PodRecord) -> None:
    name = record.pod.full_name
    uids_by_name[name] = (*uids_by_name.get(name, ()), record.pod.uid)


def _next_moment_ns(record: PodRecord) -> int | None:
    """When something is due for the pod; None: never."""
    moment_ns = record.kill_deadline_ns
    others = () if record.has_running_effect else (record.next_sync_at_ns, record.retry_at_ns)
    for other in others:
        if other is not None and (moment_ns is None or other < moment_ns):
            moment_ns = other
    if record.next_probe_at_ns and record.stage in (PodStage.ACTIVE, PodStage.TERMINATING):
        probe = min(record.next_probe_at_ns.values())
        moment_ns = probe if moment_ns is None else min(moment_ns, probe)
    return moment_ns
