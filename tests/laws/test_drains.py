"""Drains place every replacement as the scheduler and the kubelet of each node do in turn, one pod after the other."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.disruption.node_shutdown import ShutdownPeriod, shutdown_groups
from nodewright.engine.core.disruption.pod_eviction import EvictionFacts
from nodewright.engine.node.events import PodAdded, PodRecovered, PodRemoved, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, step
from nodewright.fleet.runner import Options, fleet_result, fleet_simulation
from nodewright.fleet.simulation.cluster_view import AssignedPod, ClusterView, NodeSlot
from nodewright.fleet.simulation.outcomes import PodOutcome
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.scheduler import ExhaustiveScheduler
from nodewright.fleet.simulation.scores import default_score
from nodewright.fleet.workload import DisruptionBudget, FleetNode, FleetPod, IntOrPercent
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.node import Node
from nodewright.predict.verdict import scheduler_answer
from nodewright.testing.fleets import HOSTNAME, a_template
from nodewright.testing.nodes import a_profile

PROFILE = a_profile(
    cpuManagerPolicy="static", topologyManagerPolicy="single-numa-node", kubeReserved={"cpu": "1"}
)
APPS = ("web", "db", "job")
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}


def a_node(number: int) -> FleetNode:
    name = f"n{number}"
    return FleetNode(name=name, profile=PROFILE, labels={HOSTNAME: name}, shape="small")


@st.composite
def pods_on_nodes(draw: st.DrawFn, nodes: int) -> list[FleetPod]:
    templates: list[Pod] = []
    for number in range(draw(st.integers(1, 2))):
        cpu = draw(st.sampled_from(("200m", "1", "2", "3")))
        spec: dict[str, Any] = {"priority": draw(st.sampled_from((0, 0, 5)))}
        app = APPS[number]
        if app == "web" and draw(st.booleans()):
            spec["affinity"] = APART
        templates.append(a_template(f"cpu={cpu} memory=1Gi", {"app": app}, **spec))
    pods = []
    for number in range(draw(st.integers(1, 10))):
        facts = EvictionFacts(
            owner_kind=draw(st.sampled_from(("ReplicaSet", "ReplicaSet", "ReplicaSet", ""))),
            is_ready=draw(st.sampled_from((True, True, True, False))),
            is_daemon=draw(st.sampled_from((False, False, False, True))),
        )
        pods.append(
            FleetPod(
                name=f"p{number}",
                pod=draw(st.sampled_from(templates)),
                node=f"n{draw(st.integers(0, nodes - 1))}",
                has_controller=bool(facts.owner_kind),
                eviction=facts,
            )
        )
    return pods


class ObviousDrain:
    """The same drain by whole states, without queues, caches and counts."""

    def __init__(self, nodes: int, pods: list[FleetPod]) -> None:
        self.pods = pods
        self.states: list[NodeState] = [Node.from_profile(PROFILE).state] * nodes
        self.where: dict[int, int] = {}
        self.orders: list[list[int]] = [[] for _ in range(nodes)]
        self.waiting: list[int] = []
        self.numbers: dict[int, int] = {}
        for number, pod in enumerate(pods):
            node = int(pod.node[1:])
            if self.place(number, node, is_running=True):
                self.numbers.setdefault(id(pod.pod), len(self.numbers))

    def named(self, number: int) -> Pod:
        pod = self.pods[number].pod
        return replace(pod, metadata=replace(pod.metadata, uid=f"u{number}", name=f"p{number}"))

    def place(self, number: int, node: int, *, is_running: bool = False) -> bool:
        pod = self.named(number)
        result = step(self.states[node], PodRecovered(pod) if is_running else PodAdded(pod))
        if result.decision is Decision.REFUSED and not is_running:
            return False
        self.states[node] = step(result.state, PodStarted(pod.uid)).state.without_stale()
        self.where[number] = node
        self.orders[node].append(number)
        return True

    def remove(self, number: int) -> None:
        node = self.where.pop(number)
        self.orders[node].remove(number)
        self.states[node] = step(self.states[node], PodRemoved(f"u{number}")).state.without_stale()

    def template(self, number: int) -> PodTemplate:
        pod = self.pods[number].pod
        return PodTemplate(self.numbers.setdefault(id(pod), len(self.numbers)), pod, "default")

    def choice(self, number: int, drained: set[int]) -> int | None:
        """The node of the scheduler, in a view that is made anew."""
        slots = []
        for node, state in enumerate(self.states):
            allocatable = state.config.view.allocatable
            labels = {HOSTNAME: f"n{node}"}
            slots.append(NodeSlot(node, f"n{node}", allocatable, labels, cordoned=node in drained))
        view = ClusterView(slots)
        for node, order in enumerate(self.orders):
            for each in order:
                view.add_pod(slots[node], str(each), AssignedPod(each, self.template(each), 0.0))
        node_number = ExhaustiveScheduler(view, default_score).choose(self.template(number))
        if node_number is not None and node_number not in drained:
            config = self.states[node_number].config
            assert scheduler_answer(config, None, self.pods[number].pod).binds
        return node_number

    def settle(self, drained: set[int]) -> None:
        """Places what waits, by priority and then in order, until nothing changes."""
        has_changed = True
        while has_changed:
            has_changed = False
            stuck: set[int] = set()
            for number in sorted(self.waiting, key=lambda each: -(self.pods[each].pod.spec.priority or 0)):
                if id(self.pods[number].pod) in stuck:
                    continue
                node = self.choice(number, drained)
                if node is not None and self.place(number, node):
                    self.waiting.remove(number)
                    has_changed = True
                else:
                    stuck.add(id(self.pods[number].pod))

    def drain(self, node: int, drained: set[int], budgets: list[DisruptionBudget]) -> None:
        pending = sorted(self.orders[node], key=lambda each: self.pods[each].full_name)
        pending = [each for each in pending if not self.pods[each].eviction.is_daemon]
        while pending:
            counts = [self.allowed(budget) for budget in budgets]
            allowed = [count for count, _ in counts]
            evicted = []
            for number in pending:
                matching = [at for at, budget in enumerate(budgets) if self.matches(budget, number)]
                if self.may_go(number, matching, allowed, [enough for _, enough in counts]):
                    evicted.append(number)
                    self.remove(number)
                    if self.pods[number].has_controller:
                        self.waiting.append(number)
            self.settle(drained)
            pending = [number for number in pending if number not in evicted]
            if not evicted:
                return

    def may_go(self, number: int, matching: list[int], allowed: list[int], enough: list[bool]) -> bool:
        if not matching:
            return True
        if len(matching) > 1:
            return False
        (at,) = matching
        if not self.pods[number].eviction.is_ready and enough[at]:
            return True
        if allowed[at] <= 0:
            return False
        allowed[at] -= 1
        return True

    def matches(self, budget: DisruptionBudget, number: int) -> bool:
        assert budget.selector is not None
        wanted: str = budget.selector["matchLabels"]["app"]
        return self.pods[number].pod.metadata.labels["app"] == wanted

    def allowed(self, budget: DisruptionBudget) -> tuple[int, bool]:
        """The disruptions that are allowed, and whether there are as many healthy pods as desired."""
        members = [each for each in range(len(self.pods)) if self.matches(budget, each)]
        healthy = sum(each in self.where and self.pods[each].eviction.is_ready for each in members)
        if budget.max_unavailable is not None:
            expected = sum(bool(self.pods[each].eviction.owner_kind) for each in members)
            desired = max(expected - budget.max_unavailable.amount, 0)
        else:
            assert budget.min_available is not None
            expected, desired = len(members), budget.min_available.amount
        return (max(healthy - desired, 0) if expected else 0), healthy >= desired > 0


def budgets_of(draw: st.DrawFn) -> Iterator[DisruptionBudget]:
    for at in range(draw(st.integers(0, 2))):
        bound = IntOrPercent(draw(st.sampled_from((0, 1, 1, 2, 3))))
        selector = {"matchLabels": {"app": draw(st.sampled_from(APPS))}}
        budget = DisruptionBudget(name=f"b{at}", namespace="default", selector=selector)
        yield replace(budget, **{draw(st.sampled_from(("min_available", "max_unavailable"))): bound})


@given(st.data())
def test_a_drain_is_what_scheduler_kubelets_and_budgets_decide_in_turn(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 4))
    pods = data.draw(pods_on_nodes(count))
    budgets = list(data.draw(st.composite(lambda draw: list(budgets_of(draw)))()))
    drained = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=count - 1, unique=True))
    simulation = fleet_simulation(
        [a_node(number) for number in range(count)],
        Options(budgets=tuple(budgets), until_s=0, preemption=False),
    )
    simulation.run(iter(pods))
    simulation.cordon(drained)
    obvious = ObviousDrain(count, pods)
    for node in drained:
        simulation.drains.begin(node)
        simulation.settle()
        simulation.drains.end_all()
        obvious.drain(node, set(drained), budgets)
    fleet_result(simulation, complete=True)
    places = {
        number: record.node
        for number, record in simulation.records.records.items()
        if record.outcome is PodOutcome.RUNNING
    }
    assert places == obvious.where


@given(
    st.lists(st.tuples(st.integers(-5, 20), st.integers(0, 90)), max_size=8),
    st.dictionaries(st.integers(-3, 15), st.integers(0, 60), min_size=1, max_size=4),
)
def test_no_pod_gets_more_time_at_shutdown_than_it_asks_for_or_than_its_group_has(
    pods: list[tuple[int, int]], seconds: dict[int, int]
) -> None:
    periods = tuple(ShutdownPeriod(priority, period) for priority, period in sorted(seconds.items()))
    shut = [
        replace(pod, metadata=replace(pod.metadata, uid=str(number)))
        for number, (priority, grace_s) in enumerate(pods)
        for pod in [a_template(priority=priority, terminationGracePeriodSeconds=grace_s)]
    ]
    granted = {
        uid: grace for group in shutdown_groups(periods, shut) for uid, grace in group.pod_grace_periods_s
    }
    for number, (priority, grace_s) in enumerate(pods):
        below = [first for first in seconds if first <= priority]
        assert granted[str(number)] == min(grace_s, seconds[max(below) if below else min(seconds)])
