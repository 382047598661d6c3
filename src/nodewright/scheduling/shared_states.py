"""Node states without names, shared by all nodes alike, with their verdicts about pods."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.engine import Node
from nodewright.engine.node_from_profile import state_with_pods
from nodewright.kubernetes.node_profile import NodePart, NodeProfile, NodeProfileSpec
from nodewright.kubernetes.objects import ContainerState, ContainerStatus, ObjectMeta, Pod, PodStatus
from nodewright.node.events import PodAdded
from nodewright.node.node_config import NO_CUSTOM_POLICIES
from nodewright.node.node_state import NodeState, pod_as_stored
from nodewright.node.placement_cost import NO_COST, NUMALayout, PlacementCost
from nodewright.node.step import Decision, Step, step
from nodewright.reasons.reason import Reason
from nodewright.reasons.texts import kubelet_text, sentence
from nodewright.scheduling.pod_queries import PodQuery, digest_of, shape_of

MAX_STATES, MAX_VERDICTS = 20_000, 400_000
_NODE = "node"


class NodeVerdict(NamedTuple):
    """What a node makes of a pod, without the names of either."""

    decision: Decision
    reason: str = ""
    """The kubelet's reason, e.g. `TopologyAffinityError`; empty unless the pod is refused."""
    message: str = ""
    """The kubelet's message."""
    sentence: str = ""
    """Our sentence: the facts that decided, or what is not judged."""
    is_unresolvable: bool = False
    """Whether the node refuses the pod also without all pods that it may preempt."""
    cost: PlacementCost = NO_COST
    preempts: bool = False
    """Whether the kubelet admits the pod only by killing others."""

    @property
    def text(self) -> str:
        """The refusal in one line, for the scheduler's event."""
        return f"{self.reason}: {self.sentence or self.message}" if self.reason else self.sentence


class VerdictCounts:
    """How often verdicts were computed and taken from memory."""

    def __init__(self) -> None:
        self.computed = self.shared = 0


class SharedState:
    """A node state, and what is known about it. Names in it are numbers in the order of admission."""

    __slots__ = (
        "_after",
        "_fragmentation",
        "_pool",
        "_reduced",
        "_runs",
        "_verdicts",
        "has_own_policies",
        "layout",
        "state",
    )

    def __init__(self, state: NodeState, layout: NUMALayout, pool: "StatePool") -> None:
        self.state, self.layout, self._pool = state, layout, pool
        self.has_own_policies = state.config.parts.policies != NO_CUSTOM_POLICIES
        self._fragmentation: int | None = None
        self._verdicts: dict[str, NodeVerdict] = {}
        self._after: dict[str, SharedState] = {}
        self._reduced: dict[int, SharedState] = {}
        self._runs: dict[tuple[str, ...], bool] = {}

    def verdict(self, query: PodQuery) -> NodeVerdict:
        """The verdict about a pod that is assigned now."""
        key = self._key(query)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._decide(query)
            self._pool.count_verdict(self)
        else:
            self._pool.counts.shared += 1
        return verdict

    def after(self, query: PodQuery) -> "SharedState":
        """The state with the pod, whose containers have not started yet; the same state if it is refused."""
        key = self._key(query)
        known = self._after.get(key)
        if known is None:
            result = self._step(query)
            is_placed = result.decision is not Decision.REFUSED
            known = self._after[key] = self._with(result.state) if is_placed else self
            self._pool.count_verdict(self)
        return known

    def admits_in_any_order(self, queries: Sequence[PodQuery]) -> bool:
        """Whether no pod is refused, in whatever order the kubelet sees these pods."""
        key = tuple(sorted(map(self._key, queries)))
        known = self._runs.get(key)
        if known is None:
            by_key = {self._key(query): place for place, query in enumerate(queries)}
            known = self._runs[key] = all(
                self.verdict(queries[place]).decision is not Decision.REFUSED
                and self.after(queries[place]).admits_in_any_order([*queries[:place], *queries[place + 1 :]])
                for place in by_key.values()
            )
            self._pool.count_verdict(self)
        return known

    def without(self, numbers: Collection[str]) -> "SharedState":
        """The state without pods, by their names here; it is not remembered."""
        present = [number for number in numbers if number in self.state.pods]
        return self._with(self.state.without_active(present).without_stale()) if present else self

    def without_lower(self, priority: int) -> "SharedState":
        """The state without all pods of lower priority."""
        known = self._reduced.get(priority)
        if known is None:
            pods = self.state.pods.items()
            known = self.without([uid for uid, pod in pods if (pod.spec.priority or 0) < priority])
            self._reduced[priority] = known
        return known

    @property
    def fragmentation(self) -> int:
        """How much the NUMA nodes are fragmented."""
        if self._fragmentation is None:
            self._fragmentation = self.layout.fragmentation(self.state.without_stale())
        return self._fragmentation

    def forget(self) -> None:
        """Drops what can be computed again."""
        for known in (self._verdicts, self._after, self._reduced, self._runs):
            known.clear()

    def _with(self, state: NodeState) -> "SharedState":
        return SharedState(state, self.layout, self._pool)

    def _key(self, query: PodQuery) -> str:
        return query.own_key if self.has_own_policies else query.key

    def _step(self, query: PodQuery) -> Step:
        pod = query.pod if self.has_own_policies else query.shape
        pod = named_pod(pod, int(last_number(self.state) or -1) + 1)
        return step(self.state, PodAdded(pod_as_stored(pod, self.state.config.gates)))

    def _decide(self, query: PodQuery) -> NodeVerdict:
        result = self._step(query)
        assert result.decision is not None
        first = result.because[0] if result.because else None
        if result.decision is Decision.REFUSED:
            assert first is not None
            reduced = self.without_lower(query.priority)
            is_final = reduced is self or reduced.verdict(query).decision is Decision.REFUSED
            return _refusal(first, is_unresolvable=is_final)
        uid = last_number(result.state)
        text = sentence(first) if result.decision is Decision.UNDECIDED and first is not None else ""
        return NodeVerdict(
            result.decision,
            sentence=text,
            cost=self.layout.cost(result.state, uid, before=self.fragmentation),
            preempts=result.victims is not None,
        )


def _refusal(reason: Reason, *, is_unresolvable: bool) -> NodeVerdict:
    text = kubelet_text(reason)
    return NodeVerdict(
        Decision.REFUSED, text.reason, text.message, sentence(reason), is_unresolvable=is_unresolvable
    )


class StatePool:
    """The states of all nodes, each content once; bounded, the longest unused are dropped."""

    def __init__(self, *, max_states: int = MAX_STATES, max_verdicts: int = MAX_VERDICTS) -> None:
        self._states: OrderedDict[str, SharedState] = OrderedDict()
        self._started: OrderedDict[str, SharedState] = OrderedDict()
        """Nodes without pods, by the digest of their profiles."""
        self._max_states, self._max_verdicts = max_states, max_verdicts
        self._with_verdicts: list[SharedState] = []
        self.counts = VerdictCounts()

    def state_of(self, profile: NodeProfile) -> SharedState:
        """The state of the node that a profile describes.

        Errors: InputError for a profile that no kubelet can have.
        """
        bare = profile_without_names(profile)
        key = digest_of(bare)
        known = self._states.get(key)
        if known is None:
            started = self._started_node(bare)
            state, _ = state_with_pods(started.state, bare.spec, "state")
            known = self._states[key] = SharedState(state, started.layout, self)
            while len(self._states) > self._max_states:
                self._states.popitem(last=False)
        else:
            self._states.move_to_end(key)
        return known

    def _started_node(self, profile: NodeProfile) -> SharedState:
        """The node without pods: its configuration is most of the work, and seldom changes.

        Errors: InputError.
        """
        empty = replace(profile, spec=replace(profile.spec, pods=(), allocations=None))
        key = digest_of(empty)
        known = self._started.get(key)
        if known is None:
            state = Node.from_profile(empty, source="state").state
            known = self._started[key] = SharedState(state, NUMALayout.of(state), self)
            while len(self._started) > self._max_states:
                self._started.popitem(last=False)
        return known

    def count_verdict(self, state: SharedState) -> None:
        """Counts a fact that a state remembers; at the limit all forget theirs."""
        self.counts.computed += 1
        self._with_verdicts.append(state)
        if len(self._with_verdicts) > self._max_verdicts:
            for known in self._with_verdicts:
                known.forget()
            self._with_verdicts.clear()


def pod_number(index: int) -> str:
    """The uid and name of the pod at this place in the order of admission."""
    return f"{index:05d}"


def last_number(state: NodeState) -> str:
    """The name of the pod that was admitted last; empty: there is none."""
    return max(state.pods, default="")


def named_pod(pod: Pod, index: int) -> Pod:
    """The pod with its number as uid and name."""
    number = pod_number(index)
    return replace(pod, metadata=replace(pod.metadata, uid=number, name=number))


def profile_without_names(profile: NodeProfile) -> NodeProfile:
    """The profile without the names of node and pods, so that nodes alike have equal profiles.

    Labels are not part of it: whether a pod selects the node is judged for each node.
    """
    spec = profile.spec
    has_policies = spec.policies != NodeProfileSpec().policies
    active = [pod for pod in spec.pods if not pod.is_terminal]
    numbers: dict[str, str] = {}
    for index, pod in enumerate(active):
        numbers[pod.full_name] = numbers[pod.uid or pod.full_name] = pod_number(index)
    ranks = _device_ranks(spec)
    allocations = spec.allocations
    if allocations is not None:
        allocations = tuple(
            replace(
                allocation,
                pod=numbers.get(allocation.pod, allocation.pod),
                devices={name: _ranked(ranks, name, ids) for name, ids in allocation.devices.items()},
            )
            for allocation in allocations
        )
    bare = replace(
        spec,
        labels={},
        sources=(),
        pods=tuple(_bare_pod(pod, index, keeps_labels=has_policies) for index, pod in enumerate(active)),
        allocations=allocations,
        devices={
            name: tuple(replace(device, id=ranks[name][device.id]) for device in devices)
            for name, devices in spec.devices.items()
        },
        gone_devices={name: _ranked(ranks, name, ids) for name, ids in spec.gone_devices.items()},
        not_judged=tuple(
            replace(part, names=tuple(_pod_name(numbers, name) for name in part.names))
            if part.part == NodePart.PODS
            else part
            for part in spec.not_judged
        ),
    )
    return replace(profile, metadata=ObjectMeta(name=_NODE), spec=bare)


def _device_ranks(spec: NodeProfileSpec) -> dict[str, dict[str, str]]:
    """The rank of each device among those of its resource: device managers choose by the order of ids."""
    ids: dict[str, set[str]] = {
        name: {device.id for device in devices} for name, devices in spec.devices.items()
    }
    for name, gone in spec.gone_devices.items():
        ids.setdefault(name, set()).update(gone)
    return {
        name: {device: f"{rank:06d}" for rank, device in enumerate(sorted(known))}
        for name, known in ids.items()
    }


def _ranked(ranks: Mapping[str, Mapping[str, str]], resource: str, ids: Iterable[str]) -> tuple[str, ...]:
    known = ranks.get(resource, {})
    return tuple(known.get(device, device) for device in ids)


def _pod_name(numbers: Mapping[str, str], full_name: str) -> str:
    number = numbers.get(full_name)
    return full_name if number is None else f"{_NAMESPACE}/{number}"


_NAMESPACE = shape_of(Pod()).metadata.namespace


def _bare_pod(pod: Pod, index: int, *, keeps_labels: bool) -> Pod:
    bare = named_pod(shape_of(pod), index)
    if keeps_labels:
        meta = replace(bare.metadata, labels=pod.metadata.labels, annotations=pod.metadata.annotations)
        bare = replace(bare, metadata=meta)
    return replace(bare, status=_bare_status(pod.status))


def _bare_status(status: PodStatus) -> PodStatus:
    """What of a status decides: the phase, what is allocated, and which containers run."""
    return PodStatus(
        phase=status.phase,
        resize=status.resize,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
        container_statuses=tuple(map(_bare_container_status, status.container_statuses)),
        init_container_statuses=tuple(map(_bare_container_status, status.init_container_statuses)),
        node_allocatable_resource_claim_statuses=status.node_allocatable_resource_claim_statuses,
        extended_resource_claim_status=status.extended_resource_claim_status,
    )


def _bare_container_status(status: ContainerStatus) -> ContainerStatus:
    state = status.state
    return ContainerStatus(
        name=status.name,
        state=ContainerState(
            waiting=None if state.waiting is None else type(state.waiting)(),
            running=None if state.running is None else type(state.running)(),
            terminated=None if state.terminated is None else type(state.terminated)(),
        ),
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )
