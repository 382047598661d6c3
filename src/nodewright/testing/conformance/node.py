"""Family node: a whole node through a list of events."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nodewright.ask import parts_of
from nodewright.core.devices.allocate import devices_of, free_devices
from nodewright.core.predicates import alternatives
from nodewright.core.topology.policy import NONE
from nodewright.model.hints import Hint
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.model.reasons import PredicateFailure
from nodewright.model.verdict import Refused
from nodewright.node.events import PodArrived, PodGone, PodStarted
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
    held, uid = state.held, pod.uid
    parts = state.config.parts
    containers = []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        cpus = held.cpu.exclusive(uid, container.name)
        entry: dict[str, Any] = {"name": container.name, "cpus": None if cpus is None else str(cpus)}
        blocks = held.memory.blocks(uid, container.name)
        if blocks:
            entry["memory"] = _blocks(blocks)
        devices = devices_of(held.devices, uid, container.name)
        if devices:
            entry["devices"] = devices
        if parts.kubelet.topology_manager_policy != NONE:
            entry["hint"] = _hint(held.hint(uid, container.name))
        containers.append(entry)
    found: dict[str, Any] = {"containers": containers}
    if uid in held.cpu.pods:
        found["podCPUs"] = str(held.cpu.pods[uid])
    if uid in held.memory.pods:
        found["podMemory"] = _blocks(held.memory.pods[uid])
    return found


def _hint(hint: Hint) -> dict[str, Any]:
    return {"numaNodes": None if hint.numa is None else list(hint.numa), "preferred": hint.preferred}


def _blocks(blocks: Any) -> list[dict[str, Any]]:
    return [
        {"numaNodes": list(block.numa), "type": block.resource, "size": block.size}
        for block in sorted(blocks, key=lambda one: one.resource)
    ]


def _state(state: NodeState) -> dict[str, Any]:
    held, parts = state.held, state.config.parts
    kubelet = parts.kubelet
    shown: dict[str, Any] = {
        "sharedCPUs": str(held.cpu.default) if kubelet.cpu_manager_policy == "static" else None,
        "pods": list(state.pods),
    }
    if parts.facts.devices:
        shown["freeDevices"] = free_devices(held.devices)
    if kubelet.memory_manager_policy == "Static":
        shown["memory"] = [
            {
                "numaNode": numa,
                "group": list(node.cells),
                "assignments": node.assignments,
                "free": {kind: table.free for kind, table in node.tables.items()},
            }
            for numa, node in sorted(held.memory.machine.items())
        ]
    return shown
