"""One iteration of the agent's loop: the state while it changes, the effects collected so far, and the result."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from nodewright.agent.decide.record_status import record_status, status_before_restart
from nodewright.agent.decide.resource_updates import cgroups_of_borrowers, node_level_cgroups, with_updates
from nodewright.agent.state.agent_state import (
    AgentConstants,
    AgentState,
    ClockReading,
    IndexedPods,
    PodRecord,
    PodSource,
    PodStage,
    PreferenceQuery,
)
from nodewright.agent.state.effects import Effect, WriteCgroups
from nodewright.engine.core.cgroups.cgroup_plan import PlannedCgroup
from nodewright.engine.core.eviction.eviction_state import Eviction
from nodewright.engine.node.actions import GetPreferredAllocation
from nodewright.engine.node.events import NodeEvent, PodRemoved, ReservationsObserved
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import NodeStep, Step, step
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant


class StateChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What must be persisted, atomically, before the effects run."""

    node: NodeState
    """The node's new state."""
    node_steps: tuple[NodeStep, ...] = ()
    """The steps that led to it, for the journal."""
    pods: Mapping[str, PodRecord | None] = {}
    """The changed pods by uid; None: the record is deleted."""
    deferred: tuple[tuple[PodSource, Pod], ...] | None = None
    """The deferred pods; None: unchanged."""
    have_allocations_changed: bool = False
    """Whether the allocation of CPUs, memory or devices has changed."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to persist."""
        return not (
            self.node_steps or self.pods or self.have_allocations_changed or self.deferred is not None
        )

    def merged_with(self, later: "StateChanges") -> "StateChanges":
        """These changes followed by later ones, as one."""
        return StateChanges(
            node=later.node,
            node_steps=(*self.node_steps, *later.node_steps),
            pods={**self.pods, **later.pods},
            deferred=self.deferred if later.deferred is None else later.deferred,
            have_allocations_changed=self.have_allocations_changed or later.have_allocations_changed,
        )


class IterationResult(msgspec.Struct, frozen=True):
    """What one observation led to."""

    state: AgentState
    changes: StateChanges
    effects: tuple[Effect, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    """Pods evicted because the node is under pressure, and why."""


class Iteration:
    """The agent's state while an observation is processed.

    It owns every change: other modules read its attributes and call its methods. Readers outside `decide` see the new
    state only once `finish` returns it.
    """

    def __init__(self, state: AgentState, now: ClockReading, constants: AgentConstants) -> None:
        self.state_before, self.now, self.constants = state, now, constants
        self.node, self.eviction, self.deferred = state.node, state.eviction, state.deferred
        self.shutdown_reason, self.unready_sources = state.shutdown_reason, state.unready_sources
        self._indexed = IndexedPods(state)
        self.pods = self._indexed.pods
        self.preference_queries = dict(state.preference_queries)
        """What device plugins were asked for deferred pods, and their answers."""
        self.evicted_until_ns, self._evictions_total = dict(state.evicted_until_ns), state.evictions_total
        self._waiting_pods = dict(state.waiting_pods)
        self.waiting_pods: Mapping[PodSource, tuple[Pod, ...]] = self._waiting_pods
        self.lending = state.lending
        self.orphans = dict(state.orphans)
        """The running pods that no source lists."""
        self._effects: list[Effect] = []
        self._new_evictions: list[Eviction] = []
        self.node_steps: list[NodeStep] = []
        self._changed_records: dict[str, PodRecord | None] = {}
        """Records of which a persistent field has changed, by uid; None: deleted."""
        self._changed_uids: set[str] = set()
        self._uids_to_update: set[str] = set()

    # ------------------------------------------------------------ the node

    def step(self, event: NodeEvent) -> Step:
        """Applies an event to the node."""
        node_step = step(self.node, event)
        self.node = node_step.state
        # A step that asks a device plugin for its preference is repeated with the answer; only that one is journalled.
        # Reservations are observed all the time; those that change nothing are not journalled.
        is_query = any(isinstance(action, GetPreferredAllocation) for action in node_step.actions)
        if not is_query and (node_step.actions or not isinstance(event, ReservationsObserved)):
            self.node_steps.append(NodeStep(event, node_step))
        return node_step

    def set_node_labels(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> None:
        """Admits pods by these labels and taints from now on.

        The journal has none of it: a journal of a node whose labels change replays with those of its start.
        """
        config = self.node.config
        facts = replace(config.facts, labels=labels, taints=taints)
        if facts != config.facts:
            self.node = replace(self.node, config=config.with_facts(facts, config.managers))

    def add_eviction(self, eviction: Eviction, wait_until_ns: int) -> None:
        """Counts an eviction; until then no further pod is evicted while this one terminates.

        Units: nanoseconds on the monotonic clock.
        """
        self._evictions_total += 1
        self._new_evictions.append(eviction)
        self.evicted_until_ns[eviction.active_pod.uid] = wait_until_ns

    # ------------------------------------------------------------ effects

    def add_effects(self, *effects: Effect) -> None:
        """Adds effects, which run in this order."""
        self._effects += effects

    def record_event(
        self, uid: str, reason: str, message: str, *, warning: bool = False, container: str = ""
    ) -> None:
        """Adds an event about a pod or one of its containers; an empty uid: about the node."""
        event = RecordEvent(uid=uid, is_warning=warning, reason=reason, message=message, container=container)
        self.add_effects(event)

    # ------------------------------------------------------------ pods

    def put_record(self, record: PodRecord) -> PodRecord:
        """Stores a record with an up-to-date status, and marks it for persistence if a persistent field changed."""
        record_before = self.pods.get(record.pod.uid)
        record = replace(record, status=record_status(record, Instant(self.now.wall_ns), self.constants))
        self._indexed.put(record)
        self._changed_uids.add(record.pod.uid)
        if record_before is None or _persistent_fields(record_before) != _persistent_fields(record):
            self._changed_records[record.pod.uid] = record
        return record

    def uids_to_sync(self) -> list[str]:
        """The pods that were observed or decided on in this iteration, or that something is due for."""
        uids = self._changed_uids | self._indexed.due_uids(self.now.monotonic_ns)
        return [uid for uid in self.pods if uid in uids] if uids else []

    def update_resources_of(self, uid: str) -> None:
        """Updates the pod's containers at the end of the iteration: allocations may have changed since their start."""
        self._uids_to_update.add(uid)

    def delete_record(self, uid: str) -> None:
        """Deletes the record of a pod of which nothing is left."""
        record = self._indexed.delete(uid)
        if record.stage is PodStage.REJECTED:
            # A pod of the same uid may be added again; the journal needs the removal in between.
            self.step(PodRemoved(uid))
        self._changed_records[uid] = None

    def records_named(self, full_name: str) -> list[PodRecord]:
        """The records of pods with this namespace and name."""
        return self._indexed.named(full_name)

    def postpone(self, uid: str) -> None:
        """Puts off all that is due for a pod, as after a failure."""
        if uid in self.pods:
            self._indexed.put(
                replace(
                    self.pods[uid],
                    retry_at_ns=self.now.monotonic_ns + self.constants.retry_ns,
                    next_sync_at_ns=None,
                    kill_deadline_ns=None,
                    next_probe_at_ns={},
                )
            )

    # ------------------------------------------------------------ pods that are not admitted yet

    def set_waiting_pods(self, source: PodSource, pods: tuple[Pod, ...]) -> None:
        """Replaces the pods of a source that are still to be applied; it is ready once there are none."""
        self._waiting_pods[source] = pods
        if not pods:
            del self._waiting_pods[source]
            if source in self.unready_sources:
                self.unready_sources -= {source}
                self._resume_pods(source)

    def _resume_pods(self, source: PodSource) -> None:
        """Has the pods of a source looked at, which may have waited for its first list."""
        for uid, record in tuple(self.pods.items()) if source is PodSource.CLUSTER else ():
            if record.source is source:
                self._indexed.put(replace(record, retry_at_ns=None))
                self._changed_uids.add(uid)

    def defer(self, source: PodSource, pod: Pod) -> None:
        """Keeps a pod for a later admission."""
        self.deferred = (*self.deferred, (source, pod))

    def keep_deferred(self, is_kept: Callable[[PodSource, Pod], bool]) -> None:
        """Drops the deferred pods that need no admission any more."""
        self.deferred = tuple(entry for entry in self.deferred if is_kept(*entry))

    def keep_status_of_restart(self, record: PodRecord) -> None:
        """Gives the statuses of an ended pod's containers to the same pod, if that waits to start again."""
        status = status_before_restart(record.status)
        self.deferred = tuple(
            (source, replace(pod, status=status) if pod.uid == record.pod.uid else pod)
            for source, pod in self.deferred
        )

    def take_deferred(self) -> tuple[tuple[PodSource, Pod], ...]:
        """Removes and returns all deferred pods."""
        deferred, self.deferred = self.deferred, ()
        return deferred

    def take_preference_query(self, uid: str) -> PreferenceQuery:
        """Removes and returns a pod's query; a new one if there is none."""
        return self.preference_queries.pop(uid, PreferenceQuery())

    # ------------------------------------------------------------ the end

    def finish(self) -> IterationResult:
        """Ends the iteration: updates containers and cgroups that the changes affect, and returns the result."""
        # The next decision would drop stale allocations anyway; dropped here, they are free in this iteration's result.
        self.node = self.node.without_stale()
        before = self.state_before
        allocations_changed = self.node.held is not before.node.held
        cgroups = before.node_cgroups
        loans_changed = self.node.loans is not before.node.loans
        if self.node.pods is not before.node.pods or allocations_changed or loans_changed or not cgroups:
            cgroups = node_level_cgroups(self.node)
            if cgroups != before.node_cgroups:
                self._effects.insert(0, WriteCgroups(cgroups))
        if loans_changed and before.node.loans is None:
            self._effects.append(WriteCgroups(tuple(cgroups_of_borrowers(self.node, self.pods.values()))))
        held, held_before = self.node.held, before.node.held
        if allocations_changed and (held.cpu != held_before.cpu or held.memory != held_before.memory):
            self._update_containers(self.pods)
        elif self._uids_to_update:
            self._update_containers(self._uids_to_update)
        changes = StateChanges(
            node=self.node,
            node_steps=tuple(self.node_steps),
            pods=self._changed_records,
            deferred=self.deferred if self.deferred != before.deferred else None,
            have_allocations_changed=allocations_changed,
        )
        return IterationResult(
            self._state(cgroups), changes, tuple(self._effects), tuple(self._new_evictions)
        )

    def _update_containers(self, uids: Iterable[str]) -> None:
        updates: list[Effect] = []
        for uid in tuple(uids):
            record = self.pods.get(uid)
            if record is not None and record.stage is PodStage.ACTIVE and uid in self.node.pods:
                updated, pod_updates = with_updates(self.node, record)
                self._indexed.put(updated)
                updates += pod_updates
        # Containers that lose CPUs or memory are updated before any container starts on them.
        self._effects[0:0] = updates

    def _state(self, cgroups: tuple[PlannedCgroup, ...]) -> AgentState:
        deferred_uids = [pod.uid for _, pod in self.deferred]
        return AgentState(
            node=self.node,
            pods=self.pods,
            deferred=self.deferred,
            preference_queries={
                uid: self.preference_queries[uid] for uid in deferred_uids if uid in self.preference_queries
            },
            eviction=self.eviction,
            evictions_total=self._evictions_total,
            evicted_until_ns={
                uid: until_ns for uid, until_ns in self.evicted_until_ns.items() if self._is_ending(uid)
            },
            node_cgroups=cgroups,
            shutdown_reason=self.shutdown_reason,
            unready_sources=self.unready_sources,
            waiting_pods=self._waiting_pods,
            index=self._indexed.index(),
            orphans=self.orphans,
            lending=self.lending,
        )

    def _is_ending(self, uid: str) -> bool:
        return uid in self.pods and self.pods[uid].stage is PodStage.TERMINATING


_persistent_fields = attrgetter(
    *("pod", "stage", "status", "status_override", "grace_period_s", "is_in_source", "is_cleaned_up"),
    *("waits_for", "is_preempted", "back_offs", "has_started", "resizing", "manifest_uid"),
    "pending_post_start_hooks",
)
"""The fields of a record that are persisted: few that change often."""
