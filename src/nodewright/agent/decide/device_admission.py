"""Admission of pods with devices: plugins state their preference before a pod is placed, and allocate afterwards."""

from msgspec.structs import replace

from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.decide.record_status import rejected_status
from nodewright.agent.decide.termination import rejected_stage
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage, PreferenceQuery
from nodewright.agent.state.effects import AllocatedDevices, AllocateDevices, QueryPreferredAllocation
from nodewright.agent.state.observations import (
    DeviceObservation,
    PluginDevicesListed,
    PodEffectCompleted,
    PreferredAllocationReceived,
)
from nodewright.engine.core.devices.device_assignment import container_device_ids
from nodewright.engine.node.actions import GetPreferredAllocation
from nodewright.engine.node.events import DevicesAllocated, DevicesObserved, PodAdded
from nodewright.engine.node.node_state import NodeState, container_names
from nodewright.engine.node.step import Step
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.devices import PreferenceWanted


def devices_of_pod(node: NodeState, pod: Pod) -> tuple[AllocatedDevices, ...]:
    """The devices that the pod's containers hold, in the order of the Allocate calls."""
    devices = node.held.devices
    if pod.uid not in devices.pod_devices:
        return ()
    return tuple(
        AllocatedDevices(
            container=name,
            resource=resource,
            devices=ids,
            response=responses[resource].response if resource in responses else b"",
        )
        for name in container_names(pod)
        for responses in (devices.responses_of(pod.uid, name),)
        for resource, ids in container_device_ids(devices, pod.uid, name).items()
        if ids
    )


def observe_devices(iteration: Iteration, observation: DeviceObservation) -> None:
    """Applies a plugin's device list to the node, or its preference to the pod that waits for it."""
    match observation:
        case PluginDevicesListed(resource=resource, devices=devices, preferred_allocation=preference):
            facts = iteration.node.config.facts
            if facts.devices.get(resource) != devices or (
                devices is not None and facts.preferred_allocation.get(resource) != preference
            ):
                iteration.step(DevicesObserved(resource=resource, devices=devices, preference=preference))
        case PreferredAllocationReceived(uid=uid) if uid in iteration.preference_queries:
            answers = {
                **iteration.preference_queries[uid].answers,
                (observation.container, observation.resource): observation.preferred_devices,
            }
            iteration.preference_queries[uid] = PreferenceQuery(answers=answers, is_pending=False)
        case PreferredAllocationReceived():
            # The pod was deleted meanwhile.
            pass


def awaits_preference(iteration: Iteration, uid: str) -> bool:
    """Whether the pod waits for a plugin's preference."""
    return uid in iteration.preference_queries and iteration.preference_queries[uid].is_pending


def decide_admission(iteration: Iteration, source: PodSource, pod: Pod) -> Step | None:
    """The node's decision on a pod; None: a plugin is queried first, and the pod is deferred until it answers."""
    previous = iteration.take_preference_query(pod.uid)
    node_step = iteration.step(PodAdded(pod, preferred_devices=previous.answers, can_query_plugins=True))
    query = preference_query(node_step)
    if query is None:
        return node_step
    iteration.preference_queries[pod.uid] = PreferenceQuery(answers=previous.answers)
    iteration.defer(source, pod)
    iteration.add_effects(QueryPreferredAllocation(uid=pod.uid, query=query))
    return None


def preference_query(node_step: Step) -> PreferenceWanted | None:
    """The query that a plugin must answer before the node can decide."""
    return next(
        (action.request for action in node_step.actions if isinstance(action, GetPreferredAllocation)), None
    )


def stage_after_allocation(record: PodRecord) -> PodStage:
    """The stage of a pod after its devices are allocated."""
    return PodStage.WAITING if record.waits_for else PodStage.ACTIVE


def allocation_effect(iteration: Iteration, record: PodRecord) -> AllocateDevices:
    """The Allocate calls for a pod.

    Departs: preempted pods are terminated while the plugins allocate; a kubelet calls the plugins first, so it
        preempts no pod for one that a plugin refuses.
    """
    return AllocateDevices(
        uid=record.pod.uid, pod=record.pod, devices=devices_of_pod(iteration.node, record.pod)
    )


def with_allocation_result(
    iteration: Iteration, record: PodRecord, observation: PodEffectCompleted
) -> PodRecord:
    """The record after the Allocate calls; rejected if one failed."""
    if record.stage is not PodStage.ALLOCATING or observation.device_allocation is None:
        return record
    uid, result = record.pod.uid, observation.device_allocation
    iteration.step(DevicesAllocated(uid=uid, responses=result.responses, failure=result.failure))
    if result.failure is None:
        return replace(record, stage=stage_after_allocation(record))
    because = (result.failure,)
    override = rejected_status(because)
    iteration.record_event(uid, override.reason, override.message, warning=True)
    return replace(
        record, stage=rejected_stage(record), status_override=override, because=because, waits_for=frozenset()
    )
