"""What each decision asks about all pods, kept beside them: which are due, and which have a name."""

from collections.abc import Mapping

from nodewright.agent.state.agent_state import AgentState, PodIndex, PodRecord, PodStage


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
