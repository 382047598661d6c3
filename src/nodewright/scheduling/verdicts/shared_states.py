"""Node states without names, shared by equal nodes, with their verdicts about pods.

`NodeNames` removes the names of node and pods from NodeProfiles, so that equal nodes have equal ones.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.admission_plugins import pod_as_stored, with_canonical_quantities
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_config import NO_CUSTOM_POLICIES
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.placement_cost import NO_COST, NUMALayout, PlacementCost
from nodewright.engine.node.step import Decision, Step, step
from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    UnknownNodePart,
)
from nodewright.model.kubernetes.objects import ContainerState, ContainerStatus, ObjectMeta, Pod, PodStatus
from nodewright.model.reasons.reason import Reason, kubelet_text, sentence
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.model.values.bounded_cache import ENTRY_BYTES, BoundedCache
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import state_with_pods
from nodewright.scheduling.verdicts.pod_queries import NAMESPACE, PodQuery, anonymous_pod, sized_digest

MAX_STATES, MAX_STATES_BYTES, MAX_PODS_BYTES = 20_000, 256 << 20, 64 << 20
MAX_VERDICTS, MAX_VERDICTS_BYTES = 400_000, 256 << 20
MAX_VERDICT_LENGTH = 1024
"""Of a message and of a sentence: events of schedulers are not longer."""
_NODE = "node"
_NO_SPEC = NodeProfileSpec()
_PER_POD = ("pods", "allocations", "labels", "sources")
"""The fields that change with the pods, and those that decide nothing here."""
_OF_THE_NODE = tuple(name for name in NodeProfileSpec.__struct_fields__ if name not in _PER_POD)


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
        "_pool",
        "_reduced",
        "_runs",
        "_settled",
        "_verdicts",
        "has_own_policies",
        "layout",
        "state",
    )

    def __init__(self, state: NodeState, layout: NUMALayout, pool: "StatePool") -> None:
        self.state, self.layout, self._pool = state, layout, pool
        self.has_own_policies = state.config.parts.policies != NO_CUSTOM_POLICIES
        self._settled: NodeState | None = None
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
            self._pool.count_verdict(self, len(verdict.message) + len(verdict.sentence))
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
            self._pool.count_verdict(self, query.size)
        return known

    def admits_in_any_order(self, queries: Sequence[PodQuery]) -> bool:
        """Whether no pod is refused, in whatever order the kubelet sees these pods."""
        key = tuple(sorted(map(self._key, queries)))
        known = self._runs.get(key)
        if known is None:
            by_key = {self._key(query): place for place, query in enumerate(queries)}
            known = self._runs[key] = all(
                (after := self.after(queries[place])) is not self
                and after.admits_in_any_order([*queries[:place], *queries[place + 1 :]])
                for place in by_key.values()
            )
            self._pool.count_verdict(self, 8 * len(key))
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
    def settled(self) -> NodeState:
        """The state without what pods that have ended still hold."""
        if self._settled is None:
            self._settled = self.state.without_stale()
        return self._settled

    def forget(self) -> None:
        """Drops what can be computed again."""
        for known in (self._verdicts, self._after, self._reduced, self._runs):
            known.clear()

    def _with(self, state: NodeState) -> "SharedState":
        return SharedState(state, self.layout, self._pool)

    def _key(self, query: PodQuery) -> str:
        return query.own_key if self.has_own_policies else query.key

    def _step(self, query: PodQuery) -> Step:
        pod = query.pod if self.has_own_policies else query.anonymous
        shared = AnonymousPod(query.pod, pod, self._key(query), query.size)
        stored = self._pool.stored_pod(shared, self.state.config.gates)
        return step(self.state, PodAdded(named_pod(stored, int(last_number(self.state) or -1) + 1)))

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
            sentence=text[:MAX_VERDICT_LENGTH],
            cost=self.layout.cost(result.state, uid, before=self.settled),
            preempts=result.victims is not None,
        )


def _refusal(reason: Reason, *, is_unresolvable: bool) -> NodeVerdict:
    text, most = kubelet_text(reason), MAX_VERDICT_LENGTH
    return NodeVerdict(
        Decision.REFUSED,
        text.reason[:most],
        text.message[:most],
        sentence(reason)[:most],
        is_unresolvable=is_unresolvable,
    )


def last_number(state: NodeState) -> str:
    """The name of the pod that was admitted last; empty: there is none."""
    return max(state.pods, default="")


class AnonymousPod(msgspec.Struct, frozen=True):
    """A pod of a profile, and the same without its names."""

    original: Pod
    pod: Pod
    key: str
    """Its digest."""
    size: int
    """The bytes of its JSON."""


class AnonymousProfile(NamedTuple):
    """A profile without names. Labels are not part of it: whether a pod selects the node is judged for each node."""

    key: str
    """Its digest."""
    size: int
    """The bytes of its JSON."""
    empty: NodeProfile
    """Without pods."""
    empty_key: str
    empty_size: int
    """The bytes of its JSON."""
    pods: Sequence[AnonymousPod]
    """The active pods, in order; their names are their places."""
    allocations: Sequence[ContainerAllocation] | None

    def spec(self, pods: Iterable[Pod]) -> NodeProfileSpec:
        """The whole, with these pods in place of its own."""
        named = tuple(named_pod(pod, index) for index, pod in enumerate(pods))
        allocations = None if self.allocations is None else tuple(self.allocations)
        return replace(self.empty.spec, pods=named, allocations=allocations)


class NodeNames:
    """Removes the names from the profiles of one node, one after the other.

    What the next profile shares with the one before (the same objects) is not computed again.
    """

    def __init__(self) -> None:
        self._before: NodeProfileSpec | None = None
        self._empty, self._empty_key, self._empty_size = NodeProfile(), "", 0
        self._ranks: dict[str, dict[str, str]] = {}
        self._pods: dict[str, AnonymousPod] = {}

    def removed_from(self, profile: NodeProfile) -> AnonymousProfile:
        """The profile without names."""
        spec, before = profile.spec, self._before
        if before is None or any(getattr(spec, name) is not getattr(before, name) for name in _OF_THE_NODE):
            self._take_node(spec)
        self._before = spec
        active = [pod for pod in spec.pods if not pod.is_terminal]
        pods = [self._anonymous_pod(pod) for pod in active]
        self._pods = {pod.original.uid: pod for pod in pods}
        numbers: dict[str, str] = {}
        for index, pod in enumerate(active):
            numbers[pod.full_name] = numbers[pod.uid or pod.full_name] = pod_number(index)
        allocations = _anonymous_allocations(spec.allocations, numbers, self._ranks)
        empty, empty_key, added = self._empty, self._empty_key, 0
        if spec.not_judged:
            unknown = tuple(_anonymous_part(part, numbers) for part in spec.not_judged)
            empty = replace(empty, spec=replace(empty.spec, not_judged=unknown))
            empty_key, added = sized_digest((empty_key, unknown))
        key, size = sized_digest((empty_key, [pod.key for pod in pods], allocations))
        total = size + self._empty_size + added + sum(pod.size for pod in pods)
        return AnonymousProfile(key, total, empty, empty_key, self._empty_size + added, pods, allocations)

    def _take_node(self, spec: NodeProfileSpec) -> None:
        self._ranks, self._pods = _device_ranks(spec), {}
        bare = replace(
            spec,
            labels={},
            sources=(),
            pods=(),
            allocations=None,
            not_judged=(),
            devices={
                name: tuple(replace(device, id=self._ranks[name][device.id]) for device in devices)
                for name, devices in spec.devices.items()
            },
            gone_devices={name: _ranked(self._ranks, name, ids) for name, ids in spec.gone_devices.items()},
        )
        self._empty = NodeProfile(metadata=ObjectMeta(name=_NODE), spec=bare)
        self._empty_key, self._empty_size = sized_digest(self._empty)

    def _anonymous_pod(self, pod: Pod) -> AnonymousPod:
        known = self._pods.get(pod.uid)
        if known is not None and known.original is pod:
            return known
        bare = anonymous_pod(pod)
        if self._empty.spec.policies != _NO_SPEC.policies:
            # A custom policy sees labels and annotations as well.
            labels, annotations = pod.metadata.labels, pod.metadata.annotations
            bare = replace(bare, metadata=replace(bare.metadata, labels=labels, annotations=annotations))
        bare = replace(bare, status=_bare_status(pod.status))
        return AnonymousPod(pod, bare, *sized_digest(bare))


class StatePool:
    """The states of all nodes, each content once; bounded in bytes, the longest unused are dropped, one at a time."""

    def __init__(self, *, max_verdicts: int = MAX_VERDICTS) -> None:
        self._states = BoundedCache[str, SharedState](MAX_STATES_BYTES, MAX_STATES)
        self._started = BoundedCache[str, SharedState](MAX_STATES_BYTES, MAX_STATES)
        """Nodes without pods, by the digest of their profiles."""
        self._pods = BoundedCache[tuple[str, int], tuple[Pod, FeatureGates]](MAX_PODS_BYTES, MAX_STATES)
        """Pods with their defaults."""
        self._max_verdicts = max_verdicts
        self._facts: OrderedDict[SharedState, tuple[int, int]] = OrderedDict()
        """The number and bytes of the facts that a state remembers; the one that has computed none for longest comes first."""
        self._fact_count = self._fact_bytes = 0
        self.counts = VerdictCounts()

    def state_of(self, profile: NodeProfile, names: NodeNames | None = None) -> SharedState:
        """The state of the node that a profile describes; ``names`` are of the same node, whichever came before.

        Errors: InputError for a profile that no kubelet can have.
        """
        anonymous = (names or NodeNames()).removed_from(profile)
        known = self._states.get(anonymous.key)
        if known is None:
            started = self._started_node(anonymous)
            gates = started.state.config.gates
            stored = [self.stored_pod(pod, gates) for pod in anonymous.pods]
            state, _ = state_with_pods(started.state, anonymous.spec(stored), "state", are_stored=True)
            known = SharedState(state, started.layout, self)
            self._states.put(anonymous.key, known, anonymous.size)
        return known

    def _started_node(self, anonymous: AnonymousProfile) -> SharedState:
        """The node without pods: its configuration is most of the work, and seldom changes.

        Errors: InputError.
        """
        known = self._started.get(anonymous.empty_key)
        if known is None:
            state = Node.from_profile(anonymous.empty, source="state").state
            known = SharedState(state, NUMALayout.of(state), self)
            self._started.put(anonymous.empty_key, known, anonymous.empty_size)
        return known

    def stored_pod(self, pod: AnonymousPod, gates: FeatureGates) -> Pod:
        """The pod with the defaults of an API server; pods with equal keys share it, and what is cached by its spec."""
        known = self._pods.get((pod.key, id(gates)))
        if known is None:
            # The gates are kept, so that no others get their id.
            known = pod_as_stored(with_canonical_quantities(pod.pod), gates), gates
            self._pods.put((pod.key, id(gates)), known, pod.size)
        return known[0]

    def count_verdict(self, state: SharedState, size: int) -> None:
        """Counts a fact that a state remembers, and its bytes; beyond the limits, states that have computed none for longest forget theirs."""
        self.counts.computed += 1
        count, total = self._facts.pop(state, (0, 0))
        self._facts[state] = count + 1, total + size + ENTRY_BYTES
        self._fact_count, self._fact_bytes = self._fact_count + 1, self._fact_bytes + size + ENTRY_BYTES
        while self._fact_count > self._max_verdicts or self._fact_bytes > MAX_VERDICTS_BYTES:
            oldest, (count, total) = self._facts.popitem(last=False)
            oldest.forget()
            self._fact_count, self._fact_bytes = self._fact_count - count, self._fact_bytes - total


def _anonymous_part(part: UnknownNodePart, numbers: Mapping[str, str]) -> UnknownNodePart:
    if part.part != NodePart.PODS:
        return part
    return replace(part, names=tuple(_pod_name(numbers, name) for name in part.names))


def _anonymous_allocations(
    allocations: Sequence[ContainerAllocation] | None,
    numbers: Mapping[str, str],
    ranks: Mapping[str, Mapping[str, str]],
) -> list[ContainerAllocation] | None:
    if allocations is None:
        return None
    return [
        replace(
            allocation,
            pod=numbers.get(allocation.pod, allocation.pod),
            devices={name: _ranked(ranks, name, ids) for name, ids in allocation.devices.items()},
        )
        for allocation in allocations
    ]


def pod_number(index: int) -> str:
    """The uid and name of the pod at this place in the order of admission."""
    return f"{index:05d}"


def named_pod(pod: Pod, index: int) -> Pod:
    """The pod with its number as uid and name."""
    number = pod_number(index)
    return replace(pod, metadata=replace(pod.metadata, uid=number, name=number))


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
    return full_name if number is None else f"{NAMESPACE}/{number}"


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
