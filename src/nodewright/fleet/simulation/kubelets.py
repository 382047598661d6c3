"""Simulated kubelets: each decides by `step`, and decisions are shared between nodes in the same state.

The uid of a pod on its node is the lowest free number there, so that nodes with equal pods have equal states.
"""

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from msgspec.structs import replace
from msgspec.structs import replace as changed

from nodewright.core.cpu.cpu_policy import StaticCPUPolicy
from nodewright.fleet.simulation.outcomes import SHARED_POOL_PLACEMENT
from nodewright.fleet.simulation.pod_shapes import PodShape
from nodewright.fleet.workload import FleetNode
from nodewright.kubernetes.node_profile import NodeProfile
from nodewright.kubernetes.objects import Pod, Taint
from nodewright.node.events import NodeEvent, PodAdded, PodRecovered, PodRemoved, PodStarted, UsageObserved
from nodewright.node.managers.hint_providers import CPUProvider
from nodewright.node.node_config import NodeConfig
from nodewright.node.node_state import NodeState
from nodewright.node.pod_placement import Placement, placement_of
from nodewright.node.step import Decision, step
from nodewright.reasons.reason import Reason

_MAX_CACHED_OUTCOMES = 4096
"""Maximum number of cached admission outcomes."""


class CachedNodeState:
    """A node state, shared by nodes, with the outcomes of admissions in it."""

    __slots__ = ("admissions", "free_cpus", "state")

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self.admissions: dict[tuple[int, str, int], AdmissionOutcome] = {}
        self.free_cpus: tuple[int, ...] | None = None


class AdmissionOutcome:
    """The outcome of a kubelet's admission of a pod."""

    __slots__ = ("because", "decision", "node_state", "placement", "victims")

    def __init__(
        self,
        cached: CachedNodeState,
        decision: Decision,
        because: tuple[Reason, ...],
        victims: tuple[str, ...],
        placement: Placement,
    ) -> None:
        self.node_state, self.decision, self.because = cached, decision, because
        self.victims, self.placement = victims, placement

    @property
    def is_placed(self) -> bool:
        """Whether the pod is on the node."""
        return self.decision is not Decision.REFUSED


class SimulatedKubelet:
    """A node and its present state."""

    __slots__ = (
        "base_config",
        "free_uids",
        "node",
        "node_state",
        "number",
        "own_config",
        "placed_pods",
        "refused_pods",
    )

    def __init__(self, number: int, node: FleetNode, cached: CachedNodeState) -> None:
        self.number, self.node, self.node_state = number, node, cached
        self.base_config = cached.state.config
        self.own_config: NodeConfig | None = None
        """The configuration with the node's own name and labels, created when a pod selects nodes."""
        self.free_uids: list[str] = []
        self.placed_pods = self.refused_pods = 0

    def cpus_free_by_numa(self) -> tuple[int, ...]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        cached = self.node_state
        if cached.free_cpus is None:
            cached.free_cpus = _free_cpus(cached.state.without_stale())
        return cached.free_cpus


class SimulatedKubelets:
    """All kubelets of a fleet; ``start`` returns the state of a node that has just started with a profile."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        start: Callable[[NodeProfile], NodeState],
        *,
        is_caching: bool = True,
    ) -> None:
        self._is_caching = is_caching
        self._caches: list[dict[tuple[int, str, int], AdmissionOutcome]] = []
        self._pods: dict[tuple[int, str], Pod] = {}
        self.steps = self.cached_steps = 0
        started: dict[tuple[int, tuple[Taint, ...]], CachedNodeState] = {}
        self.all: list[SimulatedKubelet] = []
        for number, node in enumerate(nodes):
            key = (id(node.profile), node.taints)
            if key not in started:
                started[key] = CachedNodeState(start(_without_identity(node)))
            self.all.append(SimulatedKubelet(number, node, started[key]))

    def next_uid(self, kubelet: SimulatedKubelet) -> str:
        """The uid of the next pod on this node: the lowest free number.

        Without caching, a uid that no pod has had, as in a real cluster.
        """
        if not self._is_caching:
            return f"{self.steps:08d}"
        return kubelet.free_uids[0] if kubelet.free_uids else f"{len(kubelet.node_state.state.pods):04d}"

    def admit(
        self, kubelet: SimulatedKubelet, shape: PodShape, *, is_running: bool = False
    ) -> AdmissionOutcome:
        """Admits a pod of this shape, which runs on the node afterwards unless it is rejected.

        ``is_running``: the pod already runs there, and is recovered without admission.
        """
        uid = self.next_uid(kubelet)
        key = (shape.number, uid, kubelet.number if shape.selects_nodes else -1)
        outcome = None if is_running else kubelet.node_state.admissions.get(key)
        if outcome is None:
            outcome = self._decide(kubelet, shape, uid, is_running=is_running)
            if self._is_caching and not is_running:
                self._cache(kubelet.node_state.admissions, key, outcome)
        else:
            self.cached_steps += 1
        kubelet.node_state = outcome.node_state
        if outcome.is_placed or is_running:
            if kubelet.free_uids:
                heappop(kubelet.free_uids)
            kubelet.placed_pods += 1
        else:
            kubelet.refused_pods += 1
        for victim in outcome.victims:
            heappush(kubelet.free_uids, victim)
        return outcome

    def remove_pod(self, kubelet: SimulatedKubelet, uid: str) -> None:
        """Removes a pod from its node."""
        # Another pod may get this uid: no stale allocation may be left under it.
        state = step(kubelet.node_state.state, PodRemoved(uid)).state
        kubelet.node_state = CachedNodeState(state.without_stale() if self._is_caching else state)
        heappush(kubelet.free_uids, uid)

    def observe_usage(self, kubelet: SimulatedKubelet, event: UsageObserved) -> tuple[str, ...]:
        """Makes an eviction pass with this usage; the uids of the pods that it evicted."""
        result = step(kubelet.node_state.state, event)
        evicted = (
            tuple(eviction.active_pod.uid for eviction in result.eviction_pass.evictions)
            if result.eviction_pass
            else ()
        )
        kubelet.node_state = CachedNodeState(
            result.state.without_stale() if evicted and self._is_caching else result.state
        )
        for uid in evicted:
            heappush(kubelet.free_uids, uid)
        return evicted

    def _decide(
        self, kubelet: SimulatedKubelet, shape: PodShape, uid: str, *, is_running: bool
    ) -> AdmissionOutcome:
        self.steps += 1
        state = kubelet.node_state.state
        pod = self._pod(shape, uid)
        event: NodeEvent = PodRecovered(pod) if is_running else PodAdded(pod)
        if shape.selects_nodes:
            state = replace(state, config=_own_config(kubelet))
        result = step(state, event)
        assert result.decision is not None
        next_state = (
            result.state if not shape.selects_nodes else replace(result.state, config=kubelet.base_config)
        )
        victims = tuple(victim.pod.uid for victim in result.victims.victims) if result.victims else ()
        if result.decision is Decision.REFUSED and not is_running:
            # Allocations of a rejected pod are released before the next admission, so the state is unchanged.
            cached = kubelet.node_state
            if victims or not self._is_caching:
                cached = CachedNodeState(next_state.without_stale() if self._is_caching else next_state)
            return AdmissionOutcome(cached, result.decision, result.because, victims, SHARED_POOL_PLACEMENT)
        next_state = step(next_state, PodStarted(uid)).state
        if victims:
            next_state = next_state.without_stale()
        placement = placement_of(result.state, pod)
        because = result.because if result.decision is Decision.UNDECIDED else ()
        return AdmissionOutcome(
            CachedNodeState(next_state),
            result.decision,
            because,
            victims,
            placement if placement.holds_anything else SHARED_POOL_PLACEMENT,
        )

    def _pod(self, shape: PodShape, uid: str) -> Pod:
        pod = self._pods.get((shape.number, uid))
        if pod is None:
            meta = replace(shape.pod.metadata, uid=uid, name=uid, namespace=shape.namespace)
            pod = self._pods[shape.number, uid] = replace(shape.pod, metadata=meta)
        return pod

    def _cache(
        self,
        admissions: dict[tuple[int, str, int], AdmissionOutcome],
        key: tuple[int, str, int],
        outcome: AdmissionOutcome,
    ) -> None:
        if len(self._caches) >= _MAX_CACHED_OUTCOMES:
            for cache in self._caches:
                cache.clear()
            self._caches.clear()
        admissions[key] = outcome
        self._caches.append(admissions)


def allocatable_of(kubelet: SimulatedKubelet) -> Mapping[str, int]:
    """Allocatable resources of the node.

    Units: cpu in thousandths, everything else in bytes or units.
    """
    return kubelet.base_config.view.allocatable


def _without_identity(node: FleetNode) -> NodeProfile:
    """The profile without name and labels, so that nodes share states; pods that select nodes are decided separately."""
    profile = node.profile
    spec = replace(profile.spec, labels={}, taints=node.taints, pods=(), allocations=None)
    return replace(profile, spec=spec, metadata=replace(profile.metadata, name="node"))


def _own_config(kubelet: SimulatedKubelet) -> NodeConfig:
    if kubelet.own_config is None:
        base, node = kubelet.base_config, kubelet.node
        kubelet.own_config = changed(base, view=changed(base.view, name=node.name, labels=node.labels))
    return kubelet.own_config


def _free_cpus(state: NodeState) -> tuple[int, ...]:
    """CPUs of each NUMA node that are free for exclusive allocation; all CPUs without a static CPU manager."""
    topology = state.config.parts.machine.topology
    for provider in state.config.managers.providers:
        if isinstance(provider, CPUProvider) and isinstance(provider.policy, StaticCPUPolicy):
            free = state.held.cpu.default - provider.policy.reserved
            return tuple(
                sum(cpu in free for core in numa.cores for cpu in core.thread_ids) for numa in topology
            )
    return tuple(sum(len(core.thread_ids) for core in numa.cores) for numa in topology)
