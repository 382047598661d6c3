"""Family cpu-manager: a CPU manager policy created, started, and driven through a list of operations."""

from collections.abc import Mapping
from typing import Any

from nodewright.core.cpu.allocate import allocate, allocate_pod, remove
from nodewright.core.cpu.hints import container_hints, pod_hints
from nodewright.core.cpu.options import CPUGates
from nodewright.core.cpu.policy import CPUPolicy, CPUSettings, NonePolicy, create_policy, start
from nodewright.core.cpu.state import Assignments, CPUState
from nodewright.core.cpu.wants import PodWants
from nodewright.model.gates import DEFAULT_GATES, FeatureGates
from nodewright.model.hints import ProviderHints
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Refused, Verdict
from nodewright.testing.conformance.cpu_topology import error, topology_of
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.values.quantity import Quantity
from nodewright.world.decode import decode


def answer(question: dict[str, Any], machines: Mapping[str, Any]) -> Any:
    """What the policy came to, what it started with, what each step gave, and the last state."""
    settings = _settings(question)
    created = _created(question, machines, settings)
    if isinstance(created, Refused):
        return {"creation": _error(created), "start": None, "steps": []}
    policy, state = created.value, _state(question.get("initialState"))
    expect: dict[str, Any] = {"creation": _creation(policy), "start": None, "steps": []}
    if question.get("callStart", True):
        started = start(policy, state)
        if isinstance(started, Refused):
            return expect | {"start": _error(started)}
        state = started.value
        expect["start"] = _plain(state)
    run = _Run(policy, state, settings.gates, question["pods"])
    expect["steps"] = [run.step(step) for step in question["steps"]]
    return expect | {"final": _plain(run.state)}


def _settings(question: dict[str, Any]) -> CPUSettings:
    gates: dict[str, bool] = question.get("featureGates") or {}
    on = {gate for gate, is_on in gates.items() if is_on}
    off = {gate for gate, is_on in gates.items() if not is_on}
    reserved = question.get("reservedCPU")
    return CPUSettings(
        policy=question["policy"],
        options=question.get("policyOptions") or {},
        reservation=None if reserved is None else Quantity.parse(reserved),
        reserved_cpus=CPUSet.parse(question.get("reservedCPUSet") or ""),
        topology_policy=question.get("topologyManagerPolicy") or "none",
        gates=CPUGates.of(FeatureGates(on=DEFAULT_GATES.on - off | on)),
    )


def _created(
    question: dict[str, Any], machines: Mapping[str, Any], settings: CPUSettings
) -> Verdict[CPUPolicy]:
    found = topology_of(question, machines)
    return found if isinstance(found, Refused) else create_policy(found.value, settings)


def _creation(policy: CPUPolicy) -> dict[str, str]:
    if isinstance(policy, NonePolicy):
        return {"reservedCPUs": "", "allocatableCPUs": ""}
    return {
        "reservedCPUs": str(policy.reserved),
        "reservedPhysicalCPUs": str(policy.reserved_cores),
        "allocatableCPUs": str(policy.allocatable),
    }


def _state(document: dict[str, Any] | None) -> CPUState:
    if document is None:
        return CPUState()
    return CPUState(
        CPUSet.parse(document.get("defaultCPUSet") or ""),
        {
            pod: {container: CPUSet.parse(cpus) for container, cpus in containers.items()}
            for pod, containers in (document.get("assignments") or {}).items()
        },
    )


class _Run:
    """The policy's state from step to step."""

    def __init__(self, policy: CPUPolicy, state: CPUState, gates: CPUGates, pods: dict[str, Any]) -> None:
        self.policy = policy
        self.state = state
        self.wants = {key: PodWants.of(decode(pod, Pod), gates) for key, pod in pods.items()}

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        wants = self.wants[step["pod"]]
        match step["op"]:
            case "podHints":
                return _hints(pod_hints(self.policy, self.state, wants))
            case "containerHints":
                return _hints(container_hints(self.policy, self.state, wants, _container(wants, step)))
            case "allocate":
                return self.allocate(wants, step)
            case "allocatePod":
                return self.allocate_pod(wants, step)
            case _:
                self.state = remove(self.policy, self.state, wants.pod.uid, step["container"])
                return _plain(self.state)

    def allocate(self, wants: PodWants, step: dict[str, Any]) -> dict[str, Any]:
        container = _container(wants, step)
        done = allocate(self.policy, self.state, wants, container, _affinity(step))
        self.state = done.state
        cpus = self.state.exclusive(wants.pod.uid, container.name)
        return {
            "cpus": None if cpus is None else str(cpus),
            "defaultCPUSet": str(self.state.default),
        } | _error(done.verdict)

    def allocate_pod(self, wants: PodWants, step: dict[str, Any]) -> dict[str, Any]:
        done = allocate_pod(self.policy, self.state, wants, _affinity(step))
        self.state = done.state
        cpus = self.state.pods.get(wants.pod.uid)
        return {"podCPUs": None if cpus is None else str(cpus)} | _plain(self.state) | _error(done.verdict)


def _container(wants: PodWants, step: dict[str, Any]) -> Container:
    spec = wants.pod.spec
    return next(one for one in (*spec.init_containers, *spec.containers) if one.name == step["container"])


def _affinity(step: dict[str, Any]) -> NUMASet | None:
    nodes = (step.get("affinity") or {}).get("numaNodeAffinity")
    return None if nodes is None else NUMASet.from_ids(nodes)


def _hints(hints: ProviderHints | None) -> dict[str, Any]:
    if hints is None:
        return {"hints": None}
    return {
        "hints": {
            resource: [
                {"numaNodeAffinity": list(hint.numa or ()), "preferred": hint.preferred} for hint in found
            ]
            for resource, found in hints.items()
            if found is not None
        }
    }


def _plain(state: CPUState) -> dict[str, Any]:
    return {"defaultCPUSet": str(state.default), "assignments": _texts(state.assignments)}


def _texts(assignments: Assignments) -> dict[str, dict[str, str]]:
    return {
        pod: {container: str(cpus) for container, cpus in containers.items()}
        for pod, containers in assignments.items()
    }


def _error(verdict: Verdict[Any]) -> dict[str, str]:
    return error(verdict) if isinstance(verdict, Refused) else {}
