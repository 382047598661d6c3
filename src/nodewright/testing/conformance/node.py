"""Family node: a whole node through a list of events."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from nodewright.ask import parts_of
from nodewright.core.memory.state import Block
from nodewright.core.predicates import alternatives
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.model.reasons import PredicateFailure
from nodewright.model.verdict import Refused
from nodewright.node.events import PodArrived, PodGone, PodStarted
from nodewright.node.placement import left_of, placement_of
from nodewright.node.start import start
from nodewright.node.state import NodeState
from nodewright.node.step import Decision, Step, step
from nodewright.render.messages import message, start_error
from nodewright.world.decode import decode
from nodewright.world.errors import InputError


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """Capacity, the state at the start, and what each event led to; or why the kubelet does not start."""
    del machines
    script = question.get("events") or ()
    spec = decode(
        {key: value for key, value in question.items() if key not in ("events", "tag")}, NodeProfileSpec
    )
    try:
        parts, _ = parts_of(NodeProfile(spec=spec))
    except InputError as error:
        return {"error": error.faults[0].rule, "events": None}
    # The node object of these vectors declares no features of its runtime.
    started = start(replace(parts, facts=replace(parts.facts, has_supplemental_groups_policy=False)))
    if isinstance(started, Refused):
        return {"error": start_error(started.because[0]), "events": None}
    state = started.value
    answered: dict[str, Any] = {
        "capacity": _amounts(state.config.resources.capacity),
        "allocatable": _amounts(state.config.resources.allocatable),
        "initial": _state(state),
        "events": [],
    }
    for event in script:
        state, entry = (
            _added(state, decode(event["add"], Pod)) if "add" in event else _removed(state, event["remove"])
        )
        answered["events"].append(entry | {"state": _state(state)})
    return answered


def _amounts(resources: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(amount) for name, amount in resources.items()}


def _removed(state: NodeState, uid: str) -> tuple[NodeState, dict[str, Any]]:
    return step(state, PodGone(uid)).state.collected(), {"removed": uid}


def _added(state: NodeState, pod: Pod) -> tuple[NodeState, dict[str, Any]]:
    done = step(state, PodArrived(pod))
    admitted = done.decision is Decision.ADMITTED
    entry: dict[str, Any] = {"uid": pod.uid, "admitted": admitted}
    if done.victims is not None:
        entry["preempted"] = [victim.pod.uid for victim in done.victims.victims]
    if admitted:
        entry |= _placement(done.state, pod)
    else:
        entry |= _refusal(done)
    return step(done.state, PodStarted(pod.uid)).state.collected(), entry


def _refusal(done: Step) -> dict[str, Any]:
    said = message(done.because[0])
    entry: dict[str, Any] = {"reason": said.reason, "message": said.message}
    failures = tuple(reason for reason in done.because if isinstance(reason, PredicateFailure))
    others = [message(other) for other in alternatives(failures)] if failures else []
    if others:
        entry["alternatives"] = [{"reason": other.reason, "message": other.message} for other in others]
    return entry


def _placement(state: NodeState, pod: Pod) -> dict[str, Any]:
    """What the pod's containers hold."""
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
    found: dict[str, Any] = {"containers": containers}
    if placed.cpus is not None:
        found["podCPUs"] = str(placed.cpus)
    if placed.memory is not None:
        found["podMemory"] = _blocks(placed.memory)
    return found


def _blocks(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    return [{"numaNodes": list(block.numa), "type": block.resource, "size": block.size} for block in blocks]


def _state(state: NodeState) -> dict[str, Any]:
    left = left_of(state)
    shown: dict[str, Any] = {
        "sharedCPUs": None if left.shared_cpus is None else str(left.shared_cpus),
        "pods": list(state.pods),
    }
    if state.config.facts.devices:
        shown["freeDevices"] = left.devices
    if left.memory:
        shown["memory"] = [
            {
                "numaNode": one.numa,
                "group": list(one.group),
                "assignments": one.assignments,
                "free": one.free,
            }
            for one in left.memory
        ]
    return shown
