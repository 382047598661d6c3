"""The nodes' own part: each decides by its `step`, and nodes that are in the same state decide only once.

A pod is known to its node by the lowest number that is free there, so that nodes with the same pods are equal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as changed
from heapq import heappop, heappush

from msgspec.structs import replace

from nodewright.core.cpu.policy import StaticPolicy
from nodewright.model.fleet import FleetNode
from nodewright.model.objects import Pod, Taint
from nodewright.model.profile import NodeProfile
from nodewright.model.reasons import Reason
from nodewright.node.config import NodeConfig
from nodewright.node.events import Event, PodArrived, PodFound, PodGone, PodStarted, UsageObserved
from nodewright.node.placement import Placement, placement_of
from nodewright.node.providers import CPUs
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, step
from nodewright.sim.fleet.shapes import PodShape
from nodewright.sim.fleet.values import NOTHING_HELD

_REMEMBERED = 4096
"""How many answers are kept at most."""


class Known:
    """A state in which nodes are, and what came of it so far."""

    __slots__ = ("after", "free", "state")

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self.after: dict[tuple[int, str, int], Outcome] = {}
        self.free: tuple[int, ...] | None = None


class Outcome:
    """What a node said to a pod of some shape."""

    __slots__ = ("because", "decision", "known", "placement", "victims")

    def __init__(
        self,
        known: Known,
        decision: Decision,
        because: tuple[Reason, ...],
        victims: tuple[str, ...],
        placement: Placement,
    ) -> None:
        self.known, self.decision, self.because = known, decision, because
        self.victims, self.placement = victims, placement

    @property
    def is_in(self) -> bool:
        """Whether the pod is on the node now."""
        return self.decision is not Decision.REFUSED


class Kubelet:
    """A node at its present state."""

    __slots__ = ("base", "free", "known", "node", "number", "own", "placed", "refused")

    def __init__(self, number: int, node: FleetNode, known: Known) -> None:
        self.number, self.node, self.known = number, node, known
        self.base = known.state.config
        self.own: NodeConfig | None = None
        """With its own name and labels, once a pod asks for them."""
        self.free: list[str] = []
        self.placed = self.refused = 0

    def cpus_free_by_numa(self) -> tuple[int, ...]:
        """How many CPUs of each NUMA node nobody has for himself and are not reserved."""
        known = self.known
        if known.free is None:
            known.free = _cpus_free(known.state.collected())
        return known.free


class Kubelets:
    """All nodes of a fleet.

    ``start`` gives the state of a node that has just started with a profile.
    """

    def __init__(
        self,
        nodes: Sequence[FleetNode],
        start: Callable[[NodeProfile], NodeState],
        *,
        remembering: bool = True,
    ) -> None:
        self._remembering = remembering
        self._branches: list[dict[tuple[int, str, int], Outcome]] = []
        self._pods: dict[tuple[int, str], Pod] = {}
        self.steps = self.remembered = 0
        started: dict[tuple[int, tuple[Taint, ...]], Known] = {}
        self.all: list[Kubelet] = []
        for number, node in enumerate(nodes):
            key = (id(node.profile), node.taints)
            if key not in started:
                started[key] = Known(start(_without_identity(node)))
            self.all.append(Kubelet(number, node, started[key]))

    def next_uid(self, kubelet: Kubelet) -> str:
        """The uid that the next pod has on this node: the lowest free number.

        Where nothing is remembered, one that no pod has had, as in reality.
        """
        if not self._remembering:
            return f"{self.steps:08d}"
        return kubelet.free[0] if kubelet.free else f"{len(kubelet.known.state.pods):04d}"

    def arrive(self, kubelet: Kubelet, shape: PodShape, *, found: bool = False) -> Outcome:
        """What the node says to a pod of this shape, which is there afterwards if it is taken.

        ``found``: it runs there already, whatever the node says.
        """
        uid = self.next_uid(kubelet)
        key = (shape.number, uid, kubelet.number if shape.selects else -1)
        outcome = None if found else kubelet.known.after.get(key)
        if outcome is None:
            outcome = self._asked(kubelet, shape, uid, found=found)
            if self._remembering and not found:
                self._remember(kubelet.known.after, key, outcome)
        else:
            self.remembered += 1
        kubelet.known = outcome.known
        if outcome.is_in or found:
            if kubelet.free:
                heappop(kubelet.free)
            kubelet.placed += 1
        else:
            kubelet.refused += 1
        for victim in outcome.victims:
            heappush(kubelet.free, victim)
        return outcome

    def leave(self, kubelet: Kubelet, uid: str) -> None:
        """A pod is gone from its node."""
        # Another pod may come under this uid: nothing must be left that looks as if it were its own.
        gone = step(kubelet.known.state, PodGone(uid)).state
        kubelet.known = Known(gone.collected() if self._remembering else gone)
        heappush(kubelet.free, uid)

    def observe(self, kubelet: Kubelet, event: UsageObserved) -> tuple[str, ...]:
        """The pods that the node ends for what its eviction manager reads; they are gone afterwards."""
        done = step(kubelet.known.state, event)
        evicted = tuple(one.claim.uid for one in done.relief.evictions) if done.relief else ()
        kubelet.known = Known(done.state.collected() if evicted and self._remembering else done.state)
        for uid in evicted:
            heappush(kubelet.free, uid)
        return evicted

    def _asked(self, kubelet: Kubelet, shape: PodShape, uid: str, *, found: bool) -> Outcome:
        self.steps += 1
        state = kubelet.known.state
        pod = self._pod(shape, uid)
        event: Event = PodFound(pod) if found else PodArrived(pod)
        if shape.selects:
            state = replace(state, config=_own_config(kubelet))
        done = step(state, event)
        assert done.decision is not None
        after = done.state if not shape.selects else replace(done.state, config=kubelet.base)
        victims = tuple(one.pod.uid for one in done.victims.victims) if done.victims else ()
        if done.decision is Decision.REFUSED and not found:
            # What it was given is taken back before the next one is looked at: the node is as it was.
            known = kubelet.known
            if victims or not self._remembering:
                known = Known(after.collected() if self._remembering else after)
            return Outcome(known, done.decision, done.because, victims, NOTHING_HELD)
        after = step(after, PodStarted(uid)).state
        if victims:
            after = after.collected()
        held = placement_of(done.state, pod)
        because = done.because if done.decision is Decision.UNDECIDED else ()
        return Outcome(
            Known(after), done.decision, because, victims, held if held.holds_anything else NOTHING_HELD
        )

    def _pod(self, shape: PodShape, uid: str) -> Pod:
        pod = self._pods.get((shape.number, uid))
        if pod is None:
            meta = replace(shape.pod.metadata, uid=uid, name=uid, namespace=shape.namespace)
            pod = self._pods[shape.number, uid] = replace(shape.pod, metadata=meta)
        return pod

    def _remember(
        self, branch: dict[tuple[int, str, int], Outcome], key: tuple[int, str, int], outcome: Outcome
    ) -> None:
        if len(self._branches) >= _REMEMBERED:
            for one in self._branches:
                one.clear()
            self._branches.clear()
        branch[key] = outcome
        self._branches.append(branch)


def allocatable_of(kubelet: Kubelet) -> Mapping[str, int]:
    """What the node has for pods.

    Units: cpu in thousandths, everything else in bytes or pieces.
    """
    return kubelet.base.view.allocatable


def _without_identity(node: FleetNode) -> NodeProfile:
    """The profile as all nodes have it that share it: pods that ask for a name or labels are asked apart."""
    profile = node.profile
    spec = replace(profile.spec, labels={}, taints=node.taints, pods=(), allocations=None)
    return replace(profile, spec=spec, metadata=replace(profile.metadata, name="node"))


def _own_config(kubelet: Kubelet) -> NodeConfig:
    if kubelet.own is None:
        base, node = kubelet.base, kubelet.node
        kubelet.own = changed(base, view=changed(base.view, name=node.name, labels=node.labels))
    return kubelet.own


def _cpus_free(state: NodeState) -> tuple[int, ...]:
    """Of a node whose CPUs nobody ever has for himself, all of them."""
    topology = state.config.parts.machine.topology
    for provider in state.config.managers.providers:
        if isinstance(provider, CPUs) and isinstance(provider.policy, StaticPolicy):
            free = state.held.cpu.default - provider.policy.reserved
            return tuple(
                sum(cpu in free for core in numa.cores for cpu in core.thread_ids) for numa in topology
            )
    return tuple(sum(len(core.thread_ids) for core in numa.cores) for numa in topology)
