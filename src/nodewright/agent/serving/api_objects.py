"""Pods, the node and events as objects of the Kubernetes API."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.observe.event_recorder import RecordedEvent
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.output.kubectl_tables import (
    CPUS_ANNOTATION,
    DEVICES_ANNOTATION,
    NUMA_ANNOTATION,
    SOURCE_ANNOTATION,
)
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.core.devices.device_state import DeviceState
from nodewright.engine.node.node_cgroups import lent_amounts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_of
from nodewright.model.kubernetes.eviction_thresholds import NodeCondition
from nodewright.model.kubernetes.objects import ContainerStateTerminated, ContainerStatus, PodCondition
from nodewright.model.kubernetes.resource_names import CPU, MEMORY, readable_amount
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.instant import Instant


class NodeSystemInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The node information that does not change while the agent runs.

    Units: started_ns in nanoseconds since 1970.
    """

    kubelet_version: str
    started_ns: int
    container_runtime_version: str = ""
    kernel_version: str = ""
    os_image: str = ""
    host_ip: str = ""

    @property
    def runtime_name(self) -> str:
        """The name of the container runtime."""
        return self.container_runtime_version.partition("://")[0]


COMPONENT = "nodewright"
PRESSURE_CONDITION_TEXTS = {
    NodeCondition.MEMORY_PRESSURE: (
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ),
    NodeCondition.DISK_PRESSURE: (
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ),
    NodeCondition.PID_PRESSURE: (
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ),
}
"""Reason and message of a condition that is true, and of one that is false."""


def pod_object(record: PodRecord, node: NodeState, runtime: str) -> dict[str, Any]:
    """A pod as in the API server, with annotations for its source and its exclusive resources.

    ``runtime`` is the name of the container runtime, which ids of containers have in front.
    """
    metadata = record.pod.metadata
    placed = (
        placement_of(node, record.pod)
        if record.stage not in (PodStage.REJECTED, PodStage.TERMINATED)
        else None
    )
    annotations = {
        **metadata.annotations,
        SOURCE_ANNOTATION: str(record.source),
        **_placement_annotations(placed),
    }
    created = metadata.creation_timestamp
    if created is None and record.status.start_time:
        created = Instant.parse(record.status.start_time)
    metadata = replace(
        metadata,
        namespace=metadata.namespace or "default",
        annotations=annotations,
        creation_timestamp=created,
    )
    pod = replace(
        record.pod,
        metadata=metadata,
        # The spec has the desired resources, as in the API server; the status has the actual ones.
        spec=replace((record.resizing.desired or record.pod).spec, node_name=node.config.facts.name),
        status=record.status,
    )
    document = {"apiVersion": "v1", "kind": "Pod", **object_document(pod)}
    _complete_status(document.get("status", {}), record, node, runtime)
    return document


def pod_status_document(record: PodRecord, node: NodeState, runtime: str) -> dict[str, Any]:
    """The status of a pod as in the API server; ``runtime`` as in `pod_object`."""
    parts = dict.fromkeys((*_CONTAINER_LISTS, "conditions"), ())
    status: dict[str, Any] = object_document(replace(record.status, **parts))
    _complete_status(status, record, node, runtime)
    return status


_CONTAINER_LISTS = {
    "container_statuses": "containerStatuses",
    "init_container_statuses": "initContainerStatuses",
    "ephemeral_container_statuses": "ephemeralContainerStatuses",
}


def _complete_status(status: dict[str, Any], record: PodRecord, node: NodeState, runtime: str) -> None:
    """Adds the fields that the API server includes even if they are zero, IP lists, and device health.

    Without their gate the resources of the pod as a whole are left out.
    """
    if not node.config.gates["InPlacePodLevelResourcesVerticalScaling"]:
        for name in ("resources", "allocatedResources"):
            status.pop(name, None)
    if record.status.host_ip:
        status["hostIPs"] = [{"ip": record.status.host_ip}]
    for name, key in _CONTAINER_LISTS.items():
        if statuses := getattr(record.status, name):
            status[key] = [_with_required_fields(container, runtime) for container in statuses]
    if node.config.gates["ResourceHealthStatus"]:
        _add_device_health(status.get("containerStatuses", ()), record, node.held.devices)
    if record.status.conditions:
        status["conditions"] = [_with_required_fields(condition) for condition in record.status.conditions]


def _add_device_health(statuses: Iterable[dict[str, Any]], record: PodRecord, devices: DeviceState) -> None:
    """Adds the devices of containers with their health; devices that no plugin lists any more count as healthy.

    Follows: v1.36, cm/container_manager_linux.go, UpdateAllocatedResourcesStatus: not for init containers.
    Departs: resources and devices are sorted; devices of a plugin that has disconnected are unhealthy here, as they
        are for the node, while the kubelet keeps reporting the plugin's last message.
    """
    for status in statuses:
        held = devices.container_devices(record.pod.uid, status["name"])
        resources = [
            {
                "name": resource,
                "resources": [
                    {
                        "resourceID": id_,
                        "health": "Healthy" if devices.is_healthy(resource, id_) else "Unhealthy",
                    }
                    for id_ in sorted(ids)
                ],
            }
            for resource, ids in sorted(held.items())
            if ids
        ]
        resources += map(object_document, record.claim_health.get(status["name"], ()))
        if resources:
            status["allocatedResourcesStatus"] = resources


def pod_list(documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Pods as the API server lists them."""
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": list(documents)}


def event_object(event: RecordedEvent, node_name: str) -> dict[str, Any]:
    """A recorded event as an Event object."""
    involved_object = (
        {"kind": "Pod", "namespace": event.namespace, "name": event.name, "uid": event.uid}
        if event.name
        else {"kind": "Node", "name": node_name, "uid": node_name}
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{event.name or node_name}.{event.sequence_number:x}",
            "namespace": event.namespace,
        },
        "involvedObject": {"apiVersion": "v1", **involved_object},
        "type": "Warning" if event.is_warning else "Normal",
        "reason": event.reason,
        "message": event.message,
        "count": event.count,
        "firstTimestamp": str(Instant(event.first_timestamp_ns).whole_second),
        "lastTimestamp": str(Instant(event.last_timestamp_ns).whole_second),
        "source": {"component": COMPONENT, "host": node_name},
    }


def event_list(events: Iterable[RecordedEvent], node_name: str) -> dict[str, Any]:
    """Events as the API server lists them."""
    items = [event_object(event, node_name) for event in events]
    return {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items}


def node_object(state: AgentState, system_info: NodeSystemInfo) -> dict[str, Any]:
    """The node as a Node object, as its kubelet reports it."""
    config = state.node.config
    facts, resources = config.facts, config.resources
    taints = [*facts.taints, *(condition.taint for condition in state.node.conditions)]
    spec: dict[str, Any] = {"taints": object_document(taints)} if taints else {}
    if state.shutdown_reason:
        spec["unschedulable"] = True
    annotations = {f"nodewright.dev/{name}": text for name, text in lending_texts(state).items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "uid": facts.name,
            "creationTimestamp": str(Instant(system_info.started_ns).whole_second),
            "labels": dict(facts.labels),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
        "status": {
            "capacity": plain_value(dict(resources.capacity)),
            "allocatable": plain_value(dict(resources.allocatable)),
            "conditions": _conditions(state),
            "addresses": [
                *([{"type": "InternalIP", "address": system_info.host_ip}] if system_info.host_ip else []),
                {"type": "Hostname", "address": facts.name},
            ],
            "nodeInfo": {
                "kubeletVersion": system_info.kubelet_version,
                "containerRuntimeVersion": system_info.container_runtime_version,
                "kernelVersion": system_info.kernel_version,
                "osImage": system_info.os_image,
                "operatingSystem": "linux",
                "architecture": facts.labels.get("kubernetes.io/arch", ""),
            },
        },
    }


def lending_texts(state: AgentState) -> dict[str, str]:
    """What is lent, to which pods, and how fast memory came back last; empty if nothing was lent yet."""
    node, lending = state.node, state.lending
    if node.loans is None:
        return {}
    lent = lent_amounts(node)
    ceilings = {CPU: node.loans.cpu_milli, MEMORY: node.loans.memory_bytes}
    texts = {
        f"lent-{name}": f"{readable_amount(name, lent[name])} of {readable_amount(name, ceilings[name])} for BestEffort pods"
        for name in (CPU, MEMORY)
    }
    borrowers = (
        f"{node.pods[uid].full_name}={readable_amount(CPU, cpu or 0)}/{readable_amount(MEMORY, memory or 0)}"
        for uid, (cpu, memory) in lending.borrowed.items()
        if uid in node.pods
    )
    texts["borrowers"] = ", ".join(sorted(borrowers)) or "none"
    last = lending.last_return
    if last is not None:
        amount = readable_amount(MEMORY, last.amount_bytes)
        taken = "is coming back" if last.duration_ns is None else f"in {last.duration_ns // 10**6} ms"
        texts["last-return"] = f"{amount} {taken}, return {lending.returns_total} of this agent"
    return texts


def _conditions(state: AgentState) -> list[dict[str, str]]:
    """The pressure conditions, and whether the node is ready.

    Follows: v1.36, kubelet/nodestatus/setters.go.
    """
    rows = []
    for condition, texts in PRESSURE_CONDITION_TEXTS.items():
        is_true = condition in state.node.conditions
        rows.append((condition, is_true, *texts[0 if is_true else 1]))
    if state.shutdown_reason:
        ready = (False, "KubeletNotReady", state.shutdown_reason)
    else:
        ready = (True, "KubeletReady", "the agent is ready to run pods")
    return [
        {"type": str(kind), "status": str(status), "reason": reason, "message": message}
        for kind, status, reason, message in (*rows, ("Ready", *ready))
    ]


def _placement_annotations(placed: Placement | None) -> dict[str, str]:
    """The annotations of exclusive CPUs, devices, and the chosen NUMA nodes."""
    if placed is None:
        return {}
    cpus, numa = placed.cpus or CPUSet(), NUMASet()
    for container in placed.containers:
        cpus |= container.cpus or CPUSet()
        if container.hint is not None and container.hint.numa is not None:
            numa |= container.hint.numa
    annotations = {
        CPUS_ANNOTATION: str(cpus),
        DEVICES_ANNOTATION: _devices(placed),
        NUMA_ANNOTATION: str(numa),
    }
    return {name: text for name, text in annotations.items() if text}


def _devices(placed: Placement) -> str:
    """The devices of all containers: `example.com/gpu=gpu-0,gpu-1 example.com/nic=nic-0`."""
    devices: dict[str, set[str]] = {}
    for container in placed.containers:
        for resource, ids in container.devices.items():
            devices.setdefault(resource, set()).update(ids)
    return " ".join(f"{resource}={','.join(sorted(ids))}" for resource, ids in sorted(devices.items()) if ids)


_ALWAYS: dict[type, tuple[str, ...]] = {
    ContainerStatus: ("name", "ready", "restart_count", "image", "image_id", "state", "last_state"),
    PodCondition: ("type", "status"),
    ContainerStateTerminated: ("exit_code",),
}


def _with_required_fields(part: msgspec.Struct, runtime: str = "") -> Any:
    """A part of a status, with the fields that the API server includes even if they are zero.

    Follows: v1.36, kubelet/container/runtime.go, ContainerID.String.
    """
    document = {}
    for name, key, is_required in _field_names(type(part)):
        value = getattr(part, name)
        if isinstance(value, msgspec.Struct):
            value = _with_required_fields(value, runtime)
            is_set = bool(value)
        else:
            is_set = bool(value) or value is False
            value = plain_value(value)
            if name == "container_id" and value and runtime:
                value = f"{runtime}://{value}"
        if is_set or is_required:
            document[key] = value
    return document


@cache
def _field_names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """The name of each field here and in JSON, and whether the API server includes it even if it is zero."""
    required = _ALWAYS.get(kind, ())
    return tuple(
        (field.name, field.encode_name, field.name in required) for field in msgspec.structs.fields(kind)
    )
