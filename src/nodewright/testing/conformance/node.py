"""Family node: a whole node and a list of events."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.core.predicates.predicate_check import alternative_failures
from nodewright.engine.node.events import PodAdded, PodRemoved, PodStarted
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import placement_of, unallocated_resources
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.engine.node.step import Decision, Step, step
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.predicates import PredicateFailure
from nodewright.model.reasons.reason import kubelet_start_error, kubelet_text
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.conformance.vectors import amount_texts


def answer(question: dict[str, Any], _machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The capacity, the initial state and the result of each event; or why the kubelet does not start."""
    script = question.get("events") or ()
    spec = decode(
        {key: value for key, value in question.items() if key not in ("events", "tag")}
        | {"kubernetesVersion": release.name},
        NodeProfileSpec,
    )
    try:
        parts, _ = node_parts(NodeProfile(spec=spec))
    except InputError as error:
        return {"error": error.faults[0].rule, "events": None}
    # The node object of these vectors declares no features of its runtime.
    started = initial_node(replace(parts, facts=replace(parts.facts, has_supplemental_groups_policy=False)))
    if isinstance(started, Refused):
        return {"error": kubelet_start_error(started.because[0]), "events": None}
    state = started.value
    answered: dict[str, Any] = {
        "capacity": amount_texts(state.config.resources.capacity),
        "allocatable": amount_texts(state.config.resources.allocatable),
        "initial": _state(state),
        "events": [],
    }
    for event in script:
        state, entry = (
            _added(state, decode(event["add"], Pod)) if "add" in event else _removed(state, event["remove"])
        )
        answered["events"].append(entry | {"state": _state(state)})
    return answered


def _removed(state: NodeState, uid: str) -> tuple[NodeState, dict[str, Any]]:
    return step(state, PodRemoved(uid)).state.without_stale(), {"removed": uid}


def _added(state: NodeState, pod: Pod) -> tuple[NodeState, dict[str, Any]]:
    result = step(state, PodAdded(pod))
    admitted = result.decision is Decision.ADMITTED
    entry: dict[str, Any] = {"uid": pod.uid, "admitted": admitted}
    if result.victims is not None:
        entry["preempted"] = [victim.pod.uid for victim in result.victims.victims]
    if admitted:
        entry |= _placement(result.state, pod)
    else:
        entry |= _refusal(result)
    return step(result.state, PodStarted(pod.uid)).state.without_stale(), entry


def _refusal(result: Step) -> dict[str, Any]:
    text = kubelet_text(result.because[0])
    entry: dict[str, Any] = text._asdict()
    failures = tuple(reason for reason in result.because if isinstance(reason, PredicateFailure))
    others = [kubelet_text(other) for other in alternative_failures(failures)] if failures else []
    if others:
        entry["alternatives"] = [other._asdict() for other in others]
    return entry


def _placement(state: NodeState, pod: Pod) -> dict[str, Any]:
    """The resources of the pod's containers."""
    placed = placement_of(state, pod)
    containers = []
    for container in placed.containers:
        entry: dict[str, Any] = {
            "name": container.name,
            "cpus": None if container.cpus is None else str(container.cpus),
        }
        if container.memory:
            entry["memory"] = _blocks(container.memory)
        if container.devices:
            entry["devices"] = container.devices
        if container.hint is not None:
            numa = container.hint.numa
            entry["hint"] = {
                "numaNodes": None if numa is None else list(numa),
                "preferred": container.hint.preferred,
            }
        containers.append(entry)
    placement: dict[str, Any] = {"containers": containers}
    if placed.cpus is not None:
        placement["podCPUs"] = str(placed.cpus)
    if placed.memory is not None:
        placement["podMemory"] = _blocks(placed.memory)
    return placement


def _blocks(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [{"numaNodes": list(block.numa), "type": block.resource, "size": block.size} for block in blocks]


def _state(state: NodeState) -> dict[str, Any]:
    left = unallocated_resources(state)
    shown: dict[str, Any] = {
        "sharedCPUs": None if left.shared_cpus is None else str(left.shared_cpus),
        "pods": list(state.pods),
    }
    if state.config.facts.devices:
        shown["freeDevices"] = left.devices
    if left.memory:
        shown["memory"] = [
            {
                "numaNode": numa_memory.numa,
                "group": list(numa_memory.group),
                "assignments": numa_memory.assignments,
                "free": numa_memory.free,
            }
            for numa_memory in left.memory
        ]
    return shown
