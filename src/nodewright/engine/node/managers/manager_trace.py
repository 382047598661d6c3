"""A trace of a pod's admission by the resource managers, and the reasons for missing hints.

The trace records the calls of `align_pod` to the node's own managers, so it cannot differ from the decision.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.cpu.cpu_state import PodCPURequests
from nodewright.engine.core.memory.memory_state import PodMemoryDemand
from nodewright.engine.node.managers.hint_providers import (
    ActiveContainers,
    HintProvider,
    Holdings,
)
from nodewright.engine.node.managers.manager_admission import AlignmentResult, ResourceManagers, align_pod
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.topology import HintsMerged, NoCommonNUMA, ResourceHints
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.values.topology_hints import Hint, Offer, ProviderHints


class HintRound(msgspec.Struct, frozen=True):
    """The hints of all managers for one container or the whole pod, and their merge."""

    container: str
    """Empty: the pod as a whole."""
    before: Holdings
    offers: tuple[Offer, ...]
    merged: HintsMerged | None
    """None: a manager crashes the kubelet before the merge."""
    admits: bool


class AllocationCall(msgspec.Struct, frozen=True):
    """A manager's allocation for one container or the whole pod."""

    provider: str
    container: str
    """Empty: the pod as a whole."""
    hint: Hint
    before: Holdings
    after: Holdings
    verdict: Verdict[Any]


class ManagerTrace(msgspec.Struct, frozen=True):
    """The calls to the managers for one pod, in order."""

    rounds: tuple[HintRound, ...]
    """Empty under the topology manager's policy none."""
    allocations: tuple[AllocationCall, ...]
    aligned: AlignmentResult
    managers: ResourceManagers
    """The managers that judged the pod."""


def manager_trace(state: NodeState, pod: Pod) -> ManagerTrace:
    """The trace of adding the pod to the node now; the node stays unchanged."""
    state = state.without_pod(pod.uid)
    managers = state.config.managers
    log = _CallLog()
    recorded = replace(
        managers,
        providers=tuple(
            _RecordingProvider(provider, log, index) for index, provider in enumerate(managers.providers)
        ),
    )
    aligned = align_pod(recorded, state.held, pod, state.containers_to_collect(pod))
    pod_managers = managers.for_pod(pod)
    if isinstance(pod_managers, Refused):
        return ManagerTrace((), (), aligned, managers)
    rounds = tuple(_round(pod_managers.value, pod, hint_calls) for hint_calls in log.hint_calls)
    return ManagerTrace(rounds, tuple(log.allocations), aligned, pod_managers.value)


class _HintCalls(msgspec.Struct):
    """The calls for hints in one round."""

    container: str
    before: Holdings
    answers: list[tuple[str, Verdict[ProviderHints | None]]] = []


class _CallLog(msgspec.Struct):
    """The recorded calls."""

    hint_calls: list[_HintCalls] = []
    allocations: list[AllocationCall] = []


class _RecordedDemand(msgspec.Struct):
    """What a manager returns as a pod's demand."""

    value: Any


class _RecordingProvider(msgspec.Struct, frozen=True):
    """A manager that records its calls and answers."""

    manager: HintProvider
    log: _CallLog
    index: int

    @property
    def name(self) -> str:
        return self.manager.name

    @property
    def no_demand(self) -> Offer:
        return self.manager.no_demand

    def demand(self, held: Holdings, pod: Pod) -> _RecordedDemand:
        # A manager without a demand is called as well, so that each round has the answers of all.
        return _RecordedDemand(self.manager.demand(held, pod))

    def hints(
        self, held: Holdings, demand: _RecordedDemand, container: Container | None
    ) -> Verdict[ProviderHints | None]:
        if self.index == 0:
            self.log.hint_calls.append(_HintCalls(_name(container), held))
        answer = (
            Granted(self.no_demand.hints)
            if demand.value is None
            else self.manager.hints(held, demand.value, container)
        )
        self.log.hint_calls[-1].answers.append((self.name, answer))
        return answer

    def allocate(
        self, held: Holdings, demand: _RecordedDemand, container: Container | None, hint: Hint
    ) -> tuple[Holdings, Verdict[Any]]:
        after, verdict = (
            (held, Granted(None))
            if demand.value is None
            else self.manager.allocate(held, demand.value, container, hint)
        )
        self.log.allocations.append(AllocationCall(self.name, _name(container), hint, held, after, verdict))
        return after, verdict

    def without_stale(self, held: Holdings, active: ActiveContainers) -> Holdings:
        return self.manager.without_stale(held, active)

    def started(self, held: Holdings, pod: Pod) -> Holdings:
        return self.manager.started(held, pod)


def _name(container: Container | None) -> str:
    return container.name if container is not None else ""


def _round(managers: ResourceManagers, pod: Pod, hint_calls: _HintCalls) -> HintRound:
    offers = _offers(hint_calls.answers)
    if offers is None:
        return HintRound(hint_calls.container, hint_calls.before, (), None, admits=False)
    result = managers.merged_hint(pod, hint_calls.container, offers)
    reason = result.because[0]
    merged = reason.merged if isinstance(reason, NoCommonNUMA) else reason
    assert isinstance(merged, HintsMerged)
    return HintRound(
        hint_calls.container, hint_calls.before, offers, merged, admits=isinstance(result, Granted)
    )


def _offers(answers: Sequence[tuple[str, Verdict[ProviderHints | None]]]) -> tuple[Offer, ...] | None:
    offers = []
    for provider, hints in answers:
        if isinstance(hints, Refused):
            return None
        offers.append(Offer(provider, hints.value))
    return tuple(offers)


NoHintReason: TypeAlias = Literal[
    "policy",
    "class",
    "pod-level resources",
    "not whole",
    "inexact",
    "nothing fits",
    "nothing asked",
    "nowhere",
]
"""`policy`: the manager's policy gives no hints; `class`: the pod is not Guaranteed; `not whole`: the CPU request is
not a whole number; `inexact`: the amount is not an integer; `nothing fits`: memory allocation will refuse the pod;
`nothing asked`: no request; `nowhere`: the devices have no NUMA affinity."""


def no_hint_reason(
    config: NodeConfig, pod: Pod, container: Container | None, hints: ResourceHints
) -> NoHintReason:
    """Why the manager gave no hint for the container, or for the whole pod without one."""
    if hints.provider == "cpu":
        cpu_policy = config.managers.static_cpu_policy
        return "policy" if cpu_policy is None else _cpu_reason(cpu_policy.cpu_requests(pod))
    if hints.provider == "memory":
        memory_policy = config.managers.static_memory_policy
        return "policy" if memory_policy is None else _memory_reason(memory_policy.demand(pod), container)
    return "nowhere" if hints.resource else "nothing asked"


def _cpu_reason(demand: PodCPURequests) -> NoHintReason:
    if demand.is_ignored:
        return "pod-level resources"
    return "not whole" if demand.is_guaranteed else "class"


def _memory_reason(demand: PodMemoryDemand, container: Container | None) -> NoHintReason:
    if demand.is_ignored:
        return "pod-level resources"
    if not demand.is_guaranteed:
        return "class"
    requested = demand.container(container) if container is not None else demand.whole_pod()
    if not isinstance(requested, dict):
        return "inexact"
    return "nothing fits" if requested else "nothing asked"
