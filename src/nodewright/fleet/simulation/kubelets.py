"""Simulated kubelets: each decides by `step`, or takes the decision of a node that had as much left.

The uid of a pod on its node is the lowest free number there, so that nodes with equal pods have equal states. A node's
present state is held as sums and holdings of its pods, from which a `NodeState` is derived; its eviction manager observes
the usage that the workload gives.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.memory.memory_state import NO_REUSABLE_MEMORY
from nodewright.engine.core.pod_features import (
    disabled_pod_level_resources,
    forbidden_sysctl,
    missing_features,
)
from nodewright.engine.core.predicates.predicate_check import (
    AllocatedHostPort,
    check_predicates,
    host_ports,
    requests_on_node,
)
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.engine.node.events import (
    NodeEvent,
    PodAdded,
    PodRecovered,
    PodRemoved,
    PodStarted,
    UsageObserved,
)
from nodewright.engine.node.eviction_pass import eviction_capacities
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import (
    NodeState,
    container_names,
    with_reported_resources,
    without_ungated_resources,
)
from nodewright.engine.node.pod_admission import Placement, placement_of
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.unknowns import assumptions_for, unjudged_features
from nodewright.fleet.simulation.outcomes import SHARED_POOL_PLACEMENT
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.shared_decisions import (
    FreeResources,
    GrantedAlignment,
    PodHoldings,
    SharedDecisions,
    free_cpus,
)
from nodewright.fleet.workload import FleetNode, UsageStep
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod, Taint
from nodewright.model.kubernetes.stats_summary import (
    ContainerStats,
    MemoryStats,
    NodeStats,
    PodReference,
    PodStats,
    StatsSummary,
)
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.instant import Instant

_MAX_CACHED_REFUSALS = 4096
"""Maximum number of cached refusals."""
_PODS = "pods"
_CHECKS_WITHOUT_CHANGE = 60
"""Number of further checks while the usage does not change: enough for a pressure condition to end."""


class AdmissionOutcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a kubelet's admission of a pod."""

    decision: Decision
    because: tuple[Reason, ...]
    victims: tuple[str, ...]
    placement: Placement

    @property
    def is_placed(self) -> bool:
        """Whether the pod is on the node."""
        return self.decision is not Decision.REFUSED


class PlacedPod(msgspec.Struct, frozen=True, gc=False):
    """A pod on a node as its kubelet counts it: what it holds and uses.

    Units: usage in thousandths for cpu, else bytes or pieces.
    """

    pod: Pod
    holdings: PodHoldings
    usage: Mapping[str, int]


class AcceptedPod(NamedTuple):
    """A pod that only its amounts and the resource managers can keep from a node.

    Units: amounts are requests and allocatable in thousandths for cpu, else bytes or pieces.
    """

    amounts: tuple[tuple[str, int, int], ...]
    usage: Mapping[str, int]


class SimulatedKubelet:
    """A node and its present state: while nothing but its pods has changed, as sums and holdings, not as a `NodeState`."""

    __slots__ = (
        "_state",
        "accepted",
        "base_config",
        "free",
        "free_uids",
        "node",
        "number",
        "own_accepted",
        "own_config",
        "placed_pods",
        "pods",
        "refused_pods",
        "start",
        "used",
    )

    def __init__(
        self, number: int, node: FleetNode, start: NodeState, accepted: dict[int, AcceptedPod | None]
    ) -> None:
        self.number, self.node = number, node
        self.base_config = start.config
        self.own_config: NodeConfig | None = None
        """The configuration with the node's own name and labels, created when a pod selects nodes."""
        self.start = start
        """The state without pods."""
        self._state: NodeState | None = start
        """The present state; None: not derived from the fields below since they changed."""
        self.free: FreeResources | None = None
        """What the pods leave; None: `_state` counts, and the fields below do not."""
        self.pods: dict[str, PlacedPod] = {}
        """By uid, in the order of admission."""
        self.used: dict[str, int] = {}
        self.accepted = accepted
        """By template number, shared by the nodes of one configuration; None: `step` decides."""
        self.own_accepted: dict[int, AcceptedPod | None] = {}
        """The same of the pods that select nodes."""
        self.free_uids: list[str] = []
        self.placed_pods = self.refused_pods = 0

    @property
    def state(self) -> NodeState:
        """The present state."""
        if self._state is None:
            self._state = self._derived_state()
        return self._state

    @property
    def pod_count(self) -> int:
        """Number of pods on the node."""
        return len(self.state.pods) if self.free is None else len(self.pods)

    def place(self, uid: str, pod: PlacedPod, free: FreeResources) -> None:
        """Adds a pod that leaves these resources."""
        used = self.used
        for name, amount in pod.usage.items():
            used[name] = used.get(name, 0) + amount
        self.pods[uid], self.free, self._state = pod, free, None

    def remove(self, uid: str, free: FreeResources) -> None:
        """Removes a pod, after which these resources are left."""
        used = self.used
        for name, amount in self.pods.pop(uid).usage.items():
            used[name] -= amount
        self.free, self._state = free, None

    def set_state(self, state: NodeState, decisions: SharedDecisions | None) -> None:
        """Sets the state; with ``decisions``, they are shared from now on if the state allows it."""
        self._state, self.free = state, None
        if decisions is None or not _is_plain(state):
            return
        self.start = (
            replace(self.start, eviction=state.eviction)
            if state.eviction != self.start.eviction
            else self.start
        )
        rules = self.base_config.requests
        self.pods = {
            uid: PlacedPod(pod, PodHoldings.of(state.held, uid), scheduler_usage(pod, rules))
            for uid, pod in state.pods.items()
        }
        self.used = dict(state.usage.requests)
        self.free = decisions.free_resources(self.start, state.held)

    def cpus_free_by_numa(self) -> tuple[int, ...]:
        """CPUs of each NUMA node that are neither exclusively allocated nor reserved."""
        if self.free is None:
            return free_cpus(self.start, self.state.without_stale().held)
        return self.free.cpus_by_numa(self.start)

    def _derived_state(self) -> NodeState:
        assert self.free is not None
        pods = {uid: placed.pod for uid, placed in self.pods.items()}
        usage = self.start.usage
        ports = tuple(
            AllocatedHostPort(port, pod.full_name)
            for pod in pods.values()
            for port in host_ports(pod, sidecars=usage.sidecar_ports)
        )
        return replace(
            self.start,
            held=self.free.holdings_of({uid: placed.holdings for uid, placed in self.pods.items()}),
            pods=pods,
            containers={uid: container_names(pod) for uid, pod in pods.items()},
            usage=replace(usage, pods=len(pods), requests=dict(self.used), ports=ports),
            is_collected=True,
        )


class SimulatedKubelets:
    """All kubelets of a fleet; ``start`` returns the state of a node that has just started with a profile."""

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        start: Callable[[NodeProfile], NodeState],
        *,
        is_caching: bool = True,
    ) -> None:
        self._decisions = SharedDecisions() if is_caching else None
        self._refusals: dict[Hashable, tuple[AdmissionOutcome, tuple[object, ...]]] = {}
        """With the objects whose ids the key has, so that no others get them."""
        self._pods: dict[tuple[int, str], Pod] = {}
        self.steps = self.cached_steps = 0
        started: dict[tuple[int, tuple[Taint, ...]], NodeState] = {}
        accepted: dict[tuple[int, tuple[Taint, ...]], dict[int, AcceptedPod | None]] = {}
        self.all: list[SimulatedKubelet] = []
        for number, node in enumerate(nodes):
            key = (id(node.profile), node.taints)
            if key not in started:
                started[key] = start(_without_identity(node))
                accepted[key] = {}
            kubelet = SimulatedKubelet(number, node, started[key], accepted[key])
            kubelet.set_state(started[key], self._decisions)
            self.all.append(kubelet)

    def next_uid(self, kubelet: SimulatedKubelet) -> str:
        """The uid of the next pod on this node: the lowest free number.

        Without caching, a uid that no pod has had, as in a real cluster.
        """
        if self._decisions is None:
            return f"{self.steps:08d}"
        return kubelet.free_uids[0] if kubelet.free_uids else f"{kubelet.pod_count:04d}"

    def admit(
        self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str, *, is_running: bool = False
    ) -> AdmissionOutcome:
        """Admits a pod of this template with the node's next uid, which runs there afterwards unless it is rejected.

        ``is_running``: the pod already runs there, and is recovered without admission.
        """
        outcome = None if is_running else self._grant(kubelet, template, uid)
        if outcome is None:
            outcome = self._decide(kubelet, template, uid, is_running=is_running)
        if outcome.decision is not Decision.REFUSED or is_running:
            if kubelet.free_uids:
                heappop(kubelet.free_uids)
            kubelet.placed_pods += 1
        else:
            kubelet.refused_pods += 1
        for victim in outcome.victims:
            heappush(kubelet.free_uids, victim)
        return outcome

    def would_admit(
        self, kubelet: SimulatedKubelet, template: PodTemplate, *, without: Sequence[str] = ()
    ) -> bool:
        """Whether the kubelet would admit a pod of this template now, or ``without`` these pods; it kills none for it.

        The kubelet is unchanged.
        """
        uid = "candidate" if without else self.next_uid(kubelet)
        key, parts = self._refusal_key(kubelet, template, uid)
        is_shared = kubelet.free is not None and not without
        if is_shared and key in self._refusals:
            self.cached_steps += 1
            return False
        if not without and self._granted(kubelet, template, uid) is not None:
            return True
        state = kubelet.state
        for victim in without:
            state = step(state, PodRemoved(victim)).state
        if without:
            state = state.without_stale()
        if template.selects_nodes:
            state = replace(state, config=own_config(kubelet))
        self.steps += 1
        result = step(state, PodAdded(self._pod(template, uid)))
        has_victims = bool(result.victims and result.victims.victims)
        if is_shared and result.decision is Decision.REFUSED and not has_victims:
            refusal = AdmissionOutcome(Decision.REFUSED, result.because, (), SHARED_POOL_PLACEMENT)
            self._keep_refusal(key, parts, refusal)
        return result.decision is not Decision.REFUSED and not has_victims

    def remove_pod(self, kubelet: SimulatedKubelet, uid: str) -> None:
        """Removes a pod from its node."""
        if kubelet.free is not None and self._decisions is not None:
            holdings = kubelet.pods[uid].holdings
            kubelet.remove(uid, self._decisions.released(kubelet.start, kubelet.free, holdings))
        else:
            self._set_state(kubelet, step(kubelet.state, PodRemoved(uid)).state)
        heappush(kubelet.free_uids, uid)

    def observe_usage(self, kubelet: SimulatedKubelet, event: UsageObserved) -> tuple[str, ...]:
        """Makes an eviction pass with this usage; the uids of the pods that it evicted."""
        result = step(kubelet.state, event)
        evicted = (
            tuple(eviction.active_pod.uid for eviction in result.eviction_pass.evictions)
            if result.eviction_pass
            else ()
        )
        self._set_state(kubelet, result.state)
        for uid in evicted:
            heappush(kubelet.free_uids, uid)
        return evicted

    def _set_state(self, kubelet: SimulatedKubelet, state: NodeState) -> None:
        kubelet.set_state(state if self._decisions is None else _without_removed_pods(state), self._decisions)

    def _grant(self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str) -> AdmissionOutcome | None:
        """Admits a pod that the node has room for, by shared decisions; None: `step` decides."""
        granted = self._granted(kubelet, template, uid)
        if granted is None:
            return None
        placed, alignment = granted
        kubelet.place(uid, placed, alignment.after)
        return AdmissionOutcome(Decision.ADMITTED, (), (), alignment.placement)

    def _granted(
        self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str
    ) -> tuple[PlacedPod, GrantedAlignment] | None:
        """A pod that the node has room for as it would be placed, by shared decisions; None: `step` decides."""
        free, decisions = kubelet.free, self._decisions
        if free is None or decisions is None or not free.is_listed:
            return None
        accepted = self._accepted_pod(kubelet, template)
        if accepted is None or len(kubelet.pods) >= kubelet.base_config.view.allocatable.get("pods", 0):
            return None
        used = kubelet.used
        for name, amount, allocatable in accepted.amounts:
            if amount > allocatable - used.get(name, 0):
                return None
        pod = self._pod(template, uid)
        alignment, is_known = decisions.aligned(kubelet.start, free, template.number, pod)
        if alignment is None:
            return None
        self.steps += not is_known
        self.cached_steps += is_known
        return PlacedPod(pod, alignment.holdings, accepted.usage), alignment

    @staticmethod
    def _accepted_pod(kubelet: SimulatedKubelet, template: PodTemplate) -> AcceptedPod | None:
        known = kubelet.own_accepted if template.selects_nodes else kubelet.accepted
        if template.number not in known:
            config = own_config(kubelet) if template.selects_nodes else kubelet.base_config
            known[template.number] = _accepted_pod(config, template)
        return known[template.number]

    def _decide(
        self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str, *, is_running: bool
    ) -> AdmissionOutcome:
        """The outcome by `step`; that of nodes with the same pods, which hold the same, for a refusal."""
        if is_running and not template.pod.spec.init_containers:
            # What the node has room for holds the same if it is recovered, but for init containers, which have ended.
            granted = self._grant(kubelet, template, uid)
            if granted is not None:
                return granted
        key, parts = self._refusal_key(kubelet, template, uid)
        is_shared = kubelet.free is not None and not is_running
        if is_shared and key in self._refusals:
            self.cached_steps += 1
            return self._refusals[key][0]
        self.steps += 1
        outcome = self._stepped(kubelet, template, uid, is_running=is_running)
        if is_shared and not outcome.is_placed and not outcome.victims:
            self._keep_refusal(key, parts, outcome)
        return outcome

    def _refusal_key(
        self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str
    ) -> tuple[Hashable, tuple[object, ...]]:
        """What a refusal depends on, and the objects whose ids that names."""
        parts = (kubelet.start, kubelet.free, *kubelet.pods.values())
        selected = kubelet.number if template.selects_nodes else -1
        return (template.number, uid, selected, *kubelet.pods, *map(id, parts)), parts

    def _keep_refusal(self, key: Hashable, parts: tuple[object, ...], outcome: AdmissionOutcome) -> None:
        if len(self._refusals) >= _MAX_CACHED_REFUSALS:
            self._refusals.clear()
        self._refusals[key] = outcome, parts

    def _stepped(
        self, kubelet: SimulatedKubelet, template: PodTemplate, uid: str, *, is_running: bool
    ) -> AdmissionOutcome:
        state, pod = kubelet.state, self._pod(template, uid)
        event: NodeEvent = PodRecovered(pod) if is_running else PodAdded(pod)
        if template.selects_nodes:
            state = replace(state, config=own_config(kubelet))
        result = step(state, event)
        assert result.decision is not None
        next_state = (
            result.state if not template.selects_nodes else replace(result.state, config=kubelet.base_config)
        )
        victims = tuple(victim.pod.uid for victim in result.victims.victims) if result.victims else ()
        if result.decision is Decision.REFUSED and not is_running:
            # Allocations of a rejected pod are released before the next admission, so the state is unchanged.
            if victims or self._decisions is None:
                self._set_state(kubelet, next_state)
            return AdmissionOutcome(result.decision, result.because, victims, SHARED_POOL_PLACEMENT)
        next_state = step(next_state, PodStarted(uid)).state
        kubelet.set_state(_without_removed_pods(next_state) if victims else next_state, self._decisions)
        placement = placement_of(result.state, pod)
        because = result.because if result.decision is Decision.UNDECIDED else ()
        return AdmissionOutcome(
            result.decision,
            because,
            victims,
            placement if placement.holds_anything else SHARED_POOL_PLACEMENT,
        )

    def _pod(self, template: PodTemplate, uid: str) -> Pod:
        pod = self._pods.get((template.number, uid))
        if pod is None:
            meta = replace(template.pod.metadata, uid=uid, name=uid, namespace=template.namespace)
            pod = self._pods[template.number, uid] = replace(template.pod, metadata=meta)
        return pod


def _without_removed_pods(state: NodeState) -> NodeState:
    """The state without what managers keep of removed pods: another pod may get the uid of one.

    That is stale allocations, and what the last pod's init containers left to its further containers.
    """
    held = state.without_stale().held
    held = replace(
        held,
        cpu=replace(held.cpu, reusable=None),
        memory=replace(held.memory, reusable=NO_REUSABLE_MEMORY),
        devices=replace(held.devices, reusable=None),
    )
    return replace(state, held=held, is_collected=True)


def _accepted_pod(config: NodeConfig, template: PodTemplate) -> AcceptedPod | None:
    """What is left to judge about a pod once the node's configuration accepts it; None: `step` decides."""
    pod, gates = template.pod, config.gates
    counts_pod_level = gates["PodLevelResources"] or not gates.rules.pod_features_checked
    if (
        template.ports
        or without_ungated_resources(pod, config) is not pod
        or with_reported_resources(pod, config) is not pod
        or forbidden_sysctl(pod, config.sysctls)
        or disabled_pod_level_resources(pod, gate=counts_pod_level)
        or missing_features(pod, config.declared_features)
        or unjudged_features(config, pod)
        or assumptions_for(config, pod)
    ):
        return None
    empty = check_predicates(pod, config.view, config.rules.no_usage, fresh=config.view, rules=config.rules)
    if isinstance(empty.verdict, Refused):
        return None
    allocatable = config.view.allocatable
    amounts = requests_on_node(pod, allocatable, config.rules)
    return AcceptedPod(
        tuple((name, amount, allocatable.get(name, 0)) for name, amount in amounts.items() if amount > 0),
        scheduler_usage(pod, config.requests),
    )


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


def own_config(kubelet: SimulatedKubelet) -> NodeConfig:
    """The configuration with the name and labels of the node."""
    if kubelet.own_config is None:
        base, node = kubelet.base_config, kubelet.node
        kubelet.own_config = replace(base, view=replace(base.view, name=node.name, labels=node.labels))
    return kubelet.own_config


def _is_plain(state: NodeState) -> bool:
    """Whether the decisions about further pods depend on the pods, what they hold and the configuration alone."""
    held, pods = state.held, state.pods
    devices = held.devices
    return (
        not (state.undecided_pods or state.conditions or state.kubelet_down_for)
        and not (state.pending_pods or state.pending_resizes or state.config.parts.policies.configured)
        and all(amount >= 0 for amount in state.usage.requests.values())
        and pods.keys()
        >= {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *devices.pod_devices}
        and devices.running_at_start is None
        and devices.in_use == devices.with_in_use_recomputed().in_use
    )


class EvictionCheck(NamedTuple):
    """A check by the eviction manager of a node.

    Units: used_bytes is the usage at the last check; -1: the check is made because the usage changes.
    """

    node: int
    used_bytes: int = -1
    checks_left: int = _CHECKS_WITHOUT_CHANGE


class PlacedUsage(NamedTuple):
    """The usage steps of a pod on the node, and the time of its placement."""

    usage: tuple[UsageStep, ...]
    placed_at_s: float


def usage_reading(
    state: NodeState, usages: Mapping[str, PlacedUsage], now_s: float
) -> tuple[UsageObserved, int]:
    """The usage of a node at this time, as an event, and the memory in use.

    Units:   now_s in seconds since the beginning, the answer in bytes.
    Departs: the usage of a node is the sum of the usage that the workload gives for its pods; pods without usage count
        as zero. It is checked when it changes, and every ten seconds while a threshold is met; the kubelet checks it
        every ten seconds.
    """
    at = Instant(int(now_s * 10**9))
    used = {uid: _used_bytes(usage, now_s) for uid, usage in usages.items()}
    total = sum(used.values())
    capacities = eviction_capacities(state.config)
    node = NodeStats(
        memory=_memory_stats(total, capacities.memory, at),
        system_containers=(
            ContainerStats(name=_PODS, memory=_memory_stats(total, capacities.pods_memory, at)),
        ),
    )
    pods = tuple(
        PodStats(
            pod_ref=PodReference(name=uid, namespace=state.pods[uid].metadata.namespace, uid=uid),
            containers=(
                ContainerStats(
                    name=state.pods[uid].spec.containers[0].name,
                    memory=MemoryStats(time=at, working_set_bytes=size),
                ),
            ),
            memory=MemoryStats(time=at, working_set_bytes=size),
        )
        for uid, size in used.items()
    )
    return UsageObserved(usage=StatsSummary(node=node, pods=pods), now_s=now_s), total


def next_check(
    check: EvictionCheck, state: NodeState, used_bytes: int, *, evicted: bool
) -> EvictionCheck | None:
    """The check ten seconds after this one; None: no pressure any more, or the usage does not change."""
    if not state.conditions and not evicted:
        return None
    if used_bytes != check.used_bytes or evicted:
        return EvictionCheck(check.node, used_bytes)
    return EvictionCheck(check.node, used_bytes, check.checks_left - 1) if check.checks_left else None


def _used_bytes(placed: PlacedUsage, now_s: float) -> int:
    begun = [step.memory_bytes for step in placed.usage if placed.placed_at_s + step.at_s <= now_s]
    return begun[-1] if begun else 0


def _memory_stats(used: int, capacity: int, at: Instant) -> MemoryStats:
    return MemoryStats(time=at, available_bytes=max(capacity - used, 0), working_set_bytes=used)
