"""Family cpu-manager: a CPU manager policy created, started, and driven through a list of operations."""

from collections.abc import Mapping
from typing import Any

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cpu.cpu_allocation import (
    allocate,
    allocate_pod,
    container_hints,
    pod_hints,
    remove_container,
)
from nodewright.engine.core.cpu.cpu_policy import (
    CPUPolicy,
    CPUSettings,
    NoneCPUPolicy,
    create_policy,
    validated_state,
)
from nodewright.engine.core.cpu.cpu_state import CPUState, PodCPURequests
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Refused, Verdict
from nodewright.model.releases.feature_gates import FeatureGates, resolve_gates
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.topology_hints import ProviderHints
from nodewright.testing.conformance.cpu_topology import error_document, topology_of
from nodewright.testing.conformance.vectors import by_container, named_container


def answer(question: dict[str, Any], machines: Mapping[str, Any], release: ReleaseTable) -> Any:
    """The policy, its initial state, the result of each step, and the final state."""
    resolved = resolve_gates(question.get("featureGates") or {}, release=release)
    if resolved.errors:
        return {"creation": {"error": resolved.errors[0]}, "start": None, "steps": []}
    settings = _settings(question, resolved.gates)
    created = _created(question, machines, settings)
    if isinstance(created, Refused):
        return {"creation": _error(created), "start": None, "steps": []}
    policy, state = created.value, _state(question.get("initialState"))
    expect: dict[str, Any] = {"creation": _creation(policy), "start": None, "steps": []}
    if question.get("callStart", True):
        started = validated_state(policy, state)
        if isinstance(started, Refused):
            return expect | {"start": _error(started)}
        state = started.value
        expect["start"] = _plain(state)
    run = _CPUManagerRun(policy, state, settings.gates, question["pods"])
    expect["steps"] = [run.step(step) for step in question["steps"]]
    return expect | {"final": _plain(run.state)}


def _settings(question: dict[str, Any], gates: FeatureGates) -> CPUSettings:
    reserved = question.get("reservedCPU")
    return CPUSettings(
        policy=question["policy"],
        options=question.get("policyOptions") or {},
        reservation=None if reserved is None else Quantity.parse(reserved),
        reserved_cpus=CPUSet.parse(question.get("reservedCPUSet") or ""),
        topology_policy=question.get("topologyManagerPolicy") or "none",
        gates=CPUGates.of(gates),
    )


def _created(
    question: dict[str, Any], machines: Mapping[str, Any], settings: CPUSettings
) -> Verdict[CPUPolicy]:
    topology = topology_of(question, machines)
    return topology if isinstance(topology, Refused) else create_policy(topology.value, settings)


def _creation(policy: CPUPolicy) -> dict[str, str]:
    if isinstance(policy, NoneCPUPolicy):
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
        by_container(CPUSet.parse, document.get("assignments")),
    )


class _CPUManagerRun:
    """A policy with its state."""

    def __init__(self, policy: CPUPolicy, state: CPUState, gates: CPUGates, pods: dict[str, Any]) -> None:
        self.policy = policy
        self.state = state
        self.demands = {key: PodCPURequests.of(decode(pod, Pod), gates) for key, pod in pods.items()}

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        demands = self.demands[step["pod"]]
        match step["op"]:
            case "podHints":
                return _hints(pod_hints(self.policy, self.state, demands))
            case "containerHints":
                return _hints(
                    container_hints(
                        self.policy, self.state, demands, named_container(demands.pod, step["container"])
                    )
                )
            case "allocate":
                return self.allocate(demands, step)
            case "allocatePod":
                return self.allocate_pod(demands, step)
            case _:
                self.state = remove_container(self.policy, self.state, demands.pod.uid, step["container"])
                return _plain(self.state)

    def allocate(self, demands: PodCPURequests, step: dict[str, Any]) -> dict[str, Any]:
        container = named_container(demands.pod, step["container"])
        allocation = allocate(self.policy, self.state, demands, container, _affinity(step))
        self.state = allocation.state
        cpus = self.state.exclusive(demands.pod.uid, container.name)
        return {
            "cpus": None if cpus is None else str(cpus),
            "defaultCPUSet": str(self.state.default),
        } | _error(allocation.verdict)

    def allocate_pod(self, demands: PodCPURequests, step: dict[str, Any]) -> dict[str, Any]:
        allocation = allocate_pod(self.policy, self.state, demands, _affinity(step))
        self.state = allocation.state
        cpus = self.state.pods.get(demands.pod.uid)
        return (
            {"podCPUs": None if cpus is None else str(cpus)} | _plain(self.state) | _error(allocation.verdict)
        )


def _affinity(step: dict[str, Any]) -> NUMASet | None:
    nodes = (step.get("affinity") or {}).get("numaNodeAffinity")
    return None if nodes is None else NUMASet.from_ids(nodes)


def _hints(hints: ProviderHints | None) -> dict[str, Any]:
    if hints is None:
        return {"hints": None}
    return {
        "hints": {
            resource: [
                {"numaNodeAffinity": list(hint.numa or ()), "preferred": hint.preferred}
                for hint in provider_hints
            ]
            for resource, provider_hints in hints.items()
            if provider_hints is not None
        }
    }


def _plain(state: CPUState) -> dict[str, Any]:
    return {"defaultCPUSet": str(state.default), "assignments": by_container(str, state.assignments)}


def _error(verdict: Verdict[Any]) -> dict[str, str]:
    return error_document(verdict) if isinstance(verdict, Refused) else {}
