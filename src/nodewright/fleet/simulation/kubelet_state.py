"""The present state of a simulated kubelet: the sums and holdings of its pods, from which a `NodeState` is derived."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.predicates.predicate_check import AllocatedHostPort, host_ports
from nodewright.engine.core.requests.effective_resources import scheduler_usage
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.fleet.simulation.shared_decisions import (
    FreeResources,
    PodHoldings,
    SharedDecisions,
    free_cpus,
)
from nodewright.fleet.workload import FleetNode
from nodewright.model.kubernetes.objects import Pod


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
        """By shape number, shared by the nodes of one configuration; None: `step` decides."""
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
