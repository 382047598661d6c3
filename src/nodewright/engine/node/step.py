"""The node's step function: a state and an event give the next state, the actions and the reasons.

Device plugins update the state with listed devices and responses to `Allocate`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.devices.device_state import (
    NO_PREFERENCES,
    PreferredAllocations,
    plugin_with_preference,
)
from nodewright.engine.core.preemption.greedy import PreemptionVictims
from nodewright.engine.node.actions import (
    Action,
    AdmitPod,
    ExitKubelet,
    GetPreferredAllocation,
    LimitBorrowers,
    RejectPod,
)
from nodewright.engine.node.events import (
    ConditionsObserved,
    DevicesAllocated,
    DevicesObserved,
    KillFailed,
    KubeletRestarted,
    NodeEvent,
    PodAdded,
    PodRecovered,
    PodRemoved,
    PodResized,
    PodStarted,
    ReservationsObserved,
    UsageObserved,
)
from nodewright.engine.node.managers.hint_providers import DeviceProvider
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import (
    admission_doubts,
    admission_result,
    alignment_result,
    is_rejected_regardless,
    preemption_actions,
    without_victims,
)
from nodewright.engine.node.unknowns import assumptions_for, unjudged_features
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import ContainerState, Pod
from nodewright.model.kubernetes.resource_names import CPU, MEMORY
from nodewright.model.reasons.devices import PreferenceWanted
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.verdict import Refused

if TYPE_CHECKING:
    from nodewright.engine.core.eviction.eviction_state import EvictionPass
    from nodewright.engine.node.resize import ResizeAttempt, ResizeStep

T = TypeVar("T")


class Decision(StrEnum):
    """The decision about a pod."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    UNDECIDED = "undecided"

    __hash__ = str.__hash__


class Step(msgspec.Struct, frozen=True):
    """The result of an event."""

    state: NodeState
    actions: tuple[Action, ...] = ()
    """Actions in order; each starts when the previous one has finished."""
    because: tuple[Reason, ...] = ()
    """The reasons; the kubelet reports the first."""
    decision: Decision | None = None
    """The decision about an added or recovered pod; None for other events."""
    victims: PreemptionVictims | None = None
    """The preempted pods, and how they were chosen; None: no preemption."""
    eviction_pass: "EvictionPass | None" = None
    """The pass of the eviction manager, for `UsageObserved`."""
    resizes: "tuple[ResizeAttempt, ...]" = ()
    """The outcomes of the attempted resizes, in order."""


def step(state: NodeState, event: NodeEvent) -> Step:
    """The node after the event; the same arguments give the same result.

    Follows: v1.36, pkg/kubelet/allocation/allocation_manager.go, AddPod; the handlers in the order of
        pkg/kubelet/kubelet.go, NewMainKubelet.
    """
    match event:
        case KubeletRestarted():
            return _restart(state, event)
        case PodAdded(pod) if state.kubelet_down_for:
            return _queue(state, pod)
        case PodAdded():
            return _admit(state, event)
        case PodRecovered(pod, is_placed):
            return Step(state.with_pod(pod)) if is_placed else _recover(state, pod)
        case PodStarted(uid):
            return Step(state.started(uid))
        case KillFailed(pod):
            return Step(state.with_pod(pod))
        case PodRemoved(uid):
            return _remove(state, uid)
        case PodResized(pod):
            return _resize(state, pod)
        case UsageObserved() | ConditionsObserved() if state.kubelet_down_for:
            return Step(state)
        case UsageObserved():
            return _evict(state, event)
        case ConditionsObserved(conditions):
            return Step(replace(state, conditions=conditions))
        case ReservationsObserved():
            return _lend(state, event)
        case DevicesObserved():
            return Step(with_listed_devices(state, event))
        case DevicesAllocated(uid=uid) if uid in state.pods:
            return _devices_allocated(state, event)
        case DevicesAllocated():
            return Step(state)
        case _:
            assert_never(event)


def running_containers(pods: Iterable[Pod]) -> frozenset[tuple[str, str]]:
    """The running containers by uid and name: by their statuses; without a status, all but init containers."""
    return frozenset((pod.metadata.uid, name) for pod in pods for name in _running(pod))


class ReadmittedPod(msgspec.Struct, frozen=True):
    """The decision of a restarted kubelet about a pod."""

    pod: Pod
    step: Step


def readmit_pods(
    state: NodeState, pods: Iterable[Pod], running_uids: Collection[str]
) -> tuple[NodeState, tuple[ReadmittedPod, ...]]:
    """The node after its restarted kubelet has handled all pods, with the decision about each.

    Each pod passes all admission handlers as a new one does and keeps its allocations. No allocation is released
    until all pods are handled. ``running_uids`` are the pods whose admission is certain, as they ran before: for
    them unjudged features do not matter.

    Follows: v1.36, pkg/kubelet/kubelet.go, HandlePodAdditions; allocation/allocation_manager.go, AddPod.
    Departs: pods are judged by what the new configuration leaves them; a kubelet that is slow to write its
        node object judges by what the former one left.
    """
    from nodewright.engine.node.restart.kubelet_startup import pods_in_sync_order  # noqa: PLC0415 - start-up time

    readmitted = []
    for pod in pods_in_sync_order(pods):
        result = _decide(replace(state, is_collected=True), pod, is_known=pod.metadata.uid in running_uids)
        readmitted.append(ReadmittedPod(pod, result))
        state = result.state
    return state, tuple(readmitted)


class NodeStep(msgspec.Struct, frozen=True):
    """An event and the node's step for it, for the journal."""

    event: NodeEvent
    step: Step


def with_listed_devices(state: NodeState, event: DevicesObserved) -> NodeState:
    """The node with the devices that a plugin lists: capacity counts all of them, allocatable the healthy ones.

    Pods keep their devices even if these are unhealthy or no longer listed. A resource whose plugin is gone for good
    stays with a capacity of 0 until the next start, so that it differs from one that no plugin manages.

    Follows: v1.36, devicemanager/manager.go, genericDeviceUpdateCallback, GetCapacity; nodestatus/setters.go,
        MachineInfo.
    """
    facts, devices = state.config.facts, state.held.devices
    if event.devices is None:
        lists = {**facts.devices, event.resource: ()}
        preferences = _without(facts.preferred_allocation, event.resource)
        devices = devices.without_resource(event.resource)
    else:
        lists = {**facts.devices, event.resource: event.devices}
        preferences = {**facts.preferred_allocation, event.resource: event.preference}
        devices = devices.with_devices(event.resource, event.devices)
    after = _with_lists(state, lists, preferences)
    return replace(after, held=replace(after.held, devices=devices))


def without_listed_devices(state: NodeState) -> NodeState:
    """The node before plugins register again: known resources have no devices.

    Follows: v1.36, devicemanager/manager.go, readCheckpoint.
    """
    return _with_lists(state, dict.fromkeys(state.held.devices.device_lists, ()), {})


def with_allocate_responses(state: NodeState, event: DevicesAllocated) -> NodeState:
    """The node with the plugins' `Allocate` responses for a pod."""
    devices = state.held.devices
    for (container, resource), response in event.responses.items():
        devices = devices.with_allocation_response(event.uid, container, resource, response)
    return replace(state, held=replace(state.held, devices=devices))


def _remove(state: NodeState, uid: str) -> Step:
    after = state.without_pod(uid)
    if not after.pending_resizes or after.kubelet_down_for:
        return Step(after)
    from nodewright.engine.node.resize import retry_pending_resizes  # noqa: PLC0415 - start-up time

    return _resize_result(retry_pending_resizes(after))


def _resize(state: NodeState, pod: Pod) -> Step:
    from nodewright.engine.node.resize import defer_resize, request_resize  # noqa: PLC0415 - start-up time

    return _resize_result(defer_resize(state, pod) if state.kubelet_down_for else request_resize(state, pod))


def _evict(state: NodeState, event: UsageObserved) -> Step:
    from nodewright.engine.node import eviction_pass as passes  # noqa: PLC0415 - start-up time

    eviction_pass = passes.evict_under_pressure(state, event)
    return Step(
        passes.after_eviction_pass(state, eviction_pass),
        passes.eviction_actions(eviction_pass),
        passes.eviction_reasons(eviction_pass),
        eviction_pass=eviction_pass,
    )


def _lend(state: NodeState, event: ReservationsObserved) -> Step:
    """The node with the loans that the reservations allow; without an action if these stay as they are."""
    from nodewright.engine.core.lending.loans import LendableAmount, loans_after  # noqa: PLC0415 - for nodes that lend only

    allocatable, requested = state.config.resources.allocatable, state.usage.requests
    cpu = LendableAmount(
        allocatable=allocatable[CPU].milli_value(),
        requested=requested.get(CPU, 0),
        reserved=event.cpu_milli,
    )
    memory = LendableAmount(
        allocatable=allocatable[MEMORY].value(),
        requested=requested.get(MEMORY, 0),
        reserved=event.memory_bytes,
    )
    loans = loans_after(state.loans, cpu, memory, event.borrowed_bytes)
    if loans is None or loans == state.loans:
        return Step(state)
    ceilings = LimitBorrowers(cpu_milli=loans.cpu_milli, memory_bytes=loans.memory_bytes)
    return Step(replace(state, loans=loans), (ceilings,))


def _admit(state: NodeState, event: PodAdded) -> Step:
    """The decision about a pod; or, with an unchanged state, a query that a device plugin must answer first."""
    if not (event.can_query_plugins or event.preferred_devices):
        return _decide(state, event.pod)
    preferences = PreferredAllocations(answers=event.preferred_devices, asks_plugins=event.can_query_plugins)
    result = _decide(_with_preferences(state, preferences), event.pod)
    for reason in result.because:
        if isinstance(reason, PreferenceWanted):
            return Step(state, (GetPreferredAllocation(pod_uid=event.pod.metadata.uid, request=reason),))
    return replace(result, state=_with_preferences(result.state, NO_PREFERENCES))


def _with_preferences(state: NodeState, preferences: PreferredAllocations) -> NodeState:
    devices = replace(state.held.devices, preferred_allocations=preferences)
    return replace(state, held=replace(state.held, devices=devices))


def _devices_allocated(state: NodeState, event: DevicesAllocated) -> Step:
    """The node with the plugins' responses for a pod's devices; a failed allocation rejects the pod.

    Follows: v1.36, devicemanager/manager.go, allocateContainerResources; pkg/kubelet/kubelet.go, rejectPod.
    Departs: the kubelet calls the plugin before it handles the next container, and blocks until the plugin
        responds; here the pod holds its devices meanwhile, and later pods are decided.
    """
    if event.failure is None:
        return Step(with_allocate_responses(state, event))
    removal = _remove(state, event.uid)
    reject = RejectPod(pod_uid=event.uid, because=(event.failure,))
    after = removal.state.rejected(event.uid)
    return replace(
        removal,
        state=after,
        actions=(reject, *removal.actions),
        because=(event.failure, *removal.because),
        decision=Decision.REFUSED,
    )


def _resize_result(resize_step: "ResizeStep") -> Step:
    return Step(resize_step.state, resize_step.actions, resizes=resize_step.resizes)


def _recover(state: NodeState, pod: Pod) -> Step:
    """The state with a running pod, and the decision if it were added now; no pod is preempted for it."""
    admission = admission_result(state, pod)
    held = admission.held
    if held is None:
        held = alignment_result(state, pod).held
    after = replace(state, held=held, is_collected=True).with_pod(pod).started(pod.metadata.uid)
    decision = Decision.REFUSED if admission.rejected_for else Decision.ADMITTED
    return Step(after, because=(*admission.rejected_for, *admission.because), decision=decision)


def _queue(state: NodeState, pod: Pod) -> Step:
    """Queues a pod that is added while the kubelet is down."""
    not_judged = NotJudged(what="the pod", because="the kubelet does not run")
    after = replace(state, pending_pods={**state.pending_pods, pod.metadata.uid: pod})
    return Step(after, because=(not_judged,), decision=Decision.UNDECIDED)


def _restart(state: NodeState, event: KubeletRestarted) -> Step:
    """The node after a kubelet restart: if the new kubelet starts, it handles all pods as additions.

    Follows: v1.36, pkg/kubelet/kubelet.go, syncLoopIteration, HandlePodAdditions, initializeRuntimeDependentModules.
    """
    from nodewright.engine.node.resize import resume_resizes  # noqa: PLC0415 - start-up time
    from nodewright.engine.node.restart.kubelet_startup import start_kubelet, with_plugins_registered  # noqa: PLC0415 - as above

    if isinstance(event.parts, Refused):
        return _down(state, event.parts.because)
    startup = start_kubelet(event.parts.value, event.stored, running_containers(state.pods.values()))
    if startup.state is None:
        return _down(state, tuple(ending.because for ending in startup.failures))
    decided_uids = state.pods.keys() - state.undecided_pods
    after, readmitted_pods = readmit_pods(
        startup.state, (*state.pods.values(), *state.pending_pods.values()), decided_uids
    )
    actions = tuple(action for readmitted in readmitted_pods for action in readmitted.step.actions)
    lost_steps = (
        readmitted.step for readmitted in readmitted_pods if readmitted.step.decision is not Decision.ADMITTED
    )
    because = (*startup.warnings, *(reason for readmitted in lost_steps for reason in readmitted.because))
    resumption = resume_resizes(with_plugins_registered(after), state.pending_resizes)
    return Step(resumption.state, (*actions, *resumption.actions), because, resizes=resumption.resizes)


def _down(state: NodeState, because: tuple[Reason, ...]) -> Step:
    return Step(replace(state, kubelet_down_for=because), (ExitKubelet(because=because),), because)


def _running(pod: Pod) -> Iterator[str]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    running_by_name = {
        status.name: status.state.running is not None
        for status in statuses
        if status.state != ContainerState()
    }
    for container in pod.spec.init_containers:
        if running_by_name.get(container.name, container.is_sidecar):
            yield container.name
    for container in pod.spec.containers:
        if running_by_name.get(container.name, True):
            yield container.name


def _decide(state: NodeState, pod: Pod, *, is_known: bool = False) -> Step:
    """The decision about a pod, if it is the same for every possible answer to the open questions.

    Where the admission of earlier pods is only assumed, the pod is judged with all of them and with none of them;
    only a decision that is the same in both cases stands.
    """
    # A pod that is already on the node does not compete with itself.
    state = state.without_pod(pod.metadata.uid)
    admission = admission_result(state, pod)
    refused = admission.rejected_for
    unknown = () if is_known else unjudged_features(state.config, pod)
    doubts = admission_doubts(state, pod, admission)
    assumed = assumptions_for(state.config, pod)
    if refused and assumed and is_rejected_regardless(state, pod, admission):
        unknown, assumed = (*assumed, *unknown), ()
    doubts = (*assumed, *doubts)
    # Unjudged features can only reject a pod: for a rejected pod they change nothing but the reason.
    if not refused:
        doubts = (*unknown, *doubts)
    after = state if admission.held is None else replace(state, held=admission.held, is_collected=True)
    after = without_victims(after, admission.victims)
    if doubts:
        because = (*doubts, *refused, *admission.because)
        return Step(after.with_pod(pod, assumed=True), (), because, Decision.UNDECIDED, admission.victims)
    kills = preemption_actions(admission.victims) if admission.victims else ()
    if refused:
        actions = (*kills, RejectPod(pod_uid=pod.metadata.uid, because=refused))
        because = (*refused, *unknown, *admission.because)
        return Step(after.rejected(pod.metadata.uid), actions, because, Decision.REFUSED, admission.victims)
    actions = (*kills, AdmitPod(pod_uid=pod.metadata.uid))
    return Step(after.with_pod(pod), actions, admission.because, Decision.ADMITTED, admission.victims)


def _with_lists(
    state: NodeState, lists: Mapping[str, tuple[Device, ...]], preferences: Mapping[str, str]
) -> NodeState:
    config = state.config
    facts = replace(config.facts, devices=lists, preferred_allocation=preferences)
    plugins = {name: plugin_with_preference(preferences.get(name, "lowest")) for name in lists}
    providers = tuple(
        DeviceProvider(replace(provider.manager, plugins=plugins))
        if isinstance(provider, DeviceProvider)
        else provider
        for provider in config.managers.providers
    )
    managers = replace(config.managers, providers=providers)
    return replace(state, config=config.with_facts(facts, managers))


def _without(by_name: Mapping[str, T], name: str) -> dict[str, T]:
    return {key: value for key, value in by_name.items() if key != name}
