"""The smallest changes that give a pod without a place one: each was tried on a node of the simulated fleet."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Inlined
from nodewright.engine.admission.admission_plugins import pod_as_stored, without_cluster_fields
from nodewright.engine.node.events import PodAdded
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.step import Decision, step
from nodewright.engine.node.what_if.changes import RequestsChanged
from nodewright.engine.node.what_if.counterfactuals import Suggestion
from nodewright.fleet.simulation.cluster_view import NodeSlot
from nodewright.fleet.simulation.filters import fits_resources
from nodewright.fleet.simulation.fleet_simulation import FleetSimulation
from nodewright.fleet.simulation.inter_pod import InterPodView
from nodewright.fleet.simulation.kubelets import own_config
from nodewright.fleet.simulation.placed_claims import with_served
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.model.kubernetes.objects import with_cordon
from nodewright.predict.explain.explanation import suggested_changes
from nodewright.predict.explain.suggestion_text import suggestion_text
from nodewright.predict.verdict import obstacles_on

MAX_NODES = 12
"""Of so many nodes that differ in what is left on them, the changes are tried for a pod."""
_BUDGET = 300
"""Number of decisions in the search on one node."""
_AS_IT_IS = "takes it as it is, but the scheduler prefers another node"


class PlaceChange(Inlined, frozen=True, kw_only=True):
    """A change with which a node takes the pod; it was tried there, for this pod alone."""

    node: str
    kind: str
    text: str


def smallest_changes(
    simulation: FleetSimulation, number: int, drained: Collection[int]
) -> tuple[PlaceChange, ...]:
    """For the pod of this number, of each kind the smallest change with which a node that is not drained takes the pod; no change: it takes it as it is.

    Departs: nodes where pods of other nodes are in the way (affinity, spread) and nodes without devices for its claims are
        left out, and of nodes with as much left all but the first.
    """
    template = simulation.templates.template_of(simulation.records[number].pod)
    obstacle = simulation.claim_obstacle(template, number) or (lambda _: "")
    smallest: dict[str, tuple[float, PlaceChange]] = {}
    for slot in _different_nodes(simulation, template, drained):
        if obstacle(slot.number):
            continue
        for size, change in _changes_on(simulation, slot, template):
            if change.kind not in smallest or size < smallest[change.kind][0]:
                smallest[change.kind] = size, change
    return tuple(change for _, change in smallest.values())


def _different_nodes(
    simulation: FleetSimulation, template: PodTemplate, drained: Collection[int]
) -> Iterator[NodeSlot]:
    inter_pod = InterPodView(template, simulation.cluster)
    seen: set[object] = set()
    for slot in simulation.cluster.nodes:
        left = (slot.amounts(), tuple(slot.cpus_free_by_numa()), slot.taints, slot.unschedulable)
        labels = tuple(slot.labels.items()) if template.selects_nodes or template.volumes else ()
        key = (left, labels, id(simulation.kubelets.all[slot.number].node.profile))
        if slot.number in drained or key in seen or inter_pod.filter_status(slot) is not None:
            continue
        seen.add(key)
        yield slot
        if len(seen) == MAX_NODES:
            return


def _changes_on(
    simulation: FleetSimulation, slot: NodeSlot, template: PodTemplate
) -> Iterator[tuple[float, PlaceChange]]:
    """The changes with their sizes; on the node that takes the pod without one, that."""
    state = _named_state(simulation, slot)
    meta = replace(template.pod.metadata, name="candidate", uid="candidate", namespace=template.namespace)
    pod = without_cluster_fields(replace(template.pod, metadata=meta))
    served = with_served({}, simulation.options.claims, state.config.gates)
    obstacles = obstacles_on(state.config, pod, template.volumes, served)
    result = step(state, PodAdded(pod_as_stored(pod, state.config.gates)))
    takes = result.decision is Decision.ADMITTED and result.victims is None and fits_resources(template, slot)
    if takes and len(obstacles) <= 1:
        for obstacle in obstacles:
            yield 0.0, PlaceChange(node=slot.name, kind=obstacle.plugin, text=obstacle.remedy)
        if not obstacles:
            yield 0.0, PlaceChange(node=slot.name, kind="no change", text=_AS_IT_IS)
    elif result.decision is Decision.REFUSED and not obstacles:
        for suggestion in suggested_changes(state, pod, result, budget=_BUDGET).suggestions:
            change = PlaceChange(node=slot.name, kind=suggestion.kind, text=suggestion_text(suggestion))
            yield _size(suggestion), change


def _named_state(simulation: FleetSimulation, slot: NodeSlot) -> NodeState:
    """The state of a node with the names of its pods, which are numbers in the simulation."""
    kubelet = simulation.kubelets.all[slot.number]
    state = kubelet.state.without_stale()
    names = {uid: simulation.records[pod.pod_number].pod for uid, pod in slot.pods.items()}
    pods = {
        uid: replace(
            pod, metadata=replace(pod.metadata, name=names[uid].name, namespace=names[uid].namespace)
        )
        for uid, pod in state.pods.items()
    }
    holders = {pod.full_name: pods[uid].full_name for uid, pod in state.pods.items()}
    ports = tuple(held._replace(holder=holders[held.holder]) for held in state.usage.ports)
    config = own_config(kubelet)
    taints = with_cordon(config.view.taints, is_unschedulable=slot.unschedulable)
    return replace(
        state,
        pods=pods,
        usage=replace(state.usage, ports=ports),
        config=replace(config, view=replace(config.view, taints=taints)),
    )


def _size(suggestion: Suggestion) -> float:
    """How much a change takes from the pod, as a share of its requests; others are equally small."""
    change = suggestion.change
    if not isinstance(change, RequestsChanged):
        return 0.0
    return sum(abs(amount.was - amount.now) / max(amount.was, 1) for amount in change.amounts)
