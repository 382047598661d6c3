"""What an agent knows, as API objects: pods with their statuses, events, the node."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.happenings import Happening
from nodewright.agent.values import Mind, PodRecord, Stage
from nodewright.core.devices.state import DeviceState
from nodewright.model.objects import ContainerStatus, PodCondition, Terminated
from nodewright.model.pressure import NodeCondition
from nodewright.node.placement import Placement, placement_of
from nodewright.node.state import NodeState
from nodewright.render.documents import plain
from nodewright.render.pod_rows import CPUS, DEVICES, NUMA, SOURCE
from nodewright.render.profiles import object_document
from nodewright.values.idset import CPUSet, NUMASet
from nodewright.values.instant import Instant

COMPONENT = "nodewright"
_CONDITION_WORDS = {
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
"""Reason and message where the node runs short, and where it does not."""


class NodeSheet(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself that does not change while the agent runs.

    Units: started_ns in nanoseconds since 1970.
    """

    version: str
    started_ns: int
    runtime: str = ""
    kernel: str = ""
    os_image: str = ""
    host_ip: str = ""


def pod_object(record: PodRecord, node: NodeState) -> dict[str, Any]:
    """A pod as the API server would have it; annotations tell where it comes from and what is its alone."""
    metadata = record.pod.metadata
    placed = placement_of(node, record.pod) if record.stage not in (Stage.REFUSED, Stage.ENDED) else None
    said = {**metadata.annotations, SOURCE: str(record.source), **_own(placed)}
    created = metadata.creation_timestamp
    if created is None and record.status.start_time:
        created = Instant.parse(record.status.start_time)
    metadata = replace(
        metadata, namespace=metadata.namespace or "default", annotations=said, creation_timestamp=created
    )
    pod = replace(
        record.pod,
        metadata=metadata,
        # What is wanted, as in the API server; the status tells what it has.
        spec=replace((record.resizing.desired or record.pod).spec, node_name=node.config.facts.name),
        status=record.status,
    )
    document = {"apiVersion": "v1", "kind": "Pod", **object_document(pod)}
    status = document.get("status", {})
    for key, address in (("hostIPs", record.status.host_ip), ("podIPs", record.status.pod_ip)):
        if address:
            status[key] = [{"ip": address}]
    for key, of in (
        ("containerStatuses", record.status.container_statuses),
        ("initContainerStatuses", record.status.init_container_statuses),
    ):
        if of:
            status[key] = [_spelled_out(one) for one in of]
    if node.config.gates["ResourceHealthStatus"]:
        _add_device_health(status.get("containerStatuses", ()), pod.uid, node.held.devices)
    if record.status.conditions:
        status["conditions"] = [_spelled_out(one) for one in record.status.conditions]
    return document


def _add_device_health(statuses: Iterable[dict[str, Any]], uid: str, devices: DeviceState) -> None:
    """Which devices containers hold, and how these are; one that nobody lists any more counts as healthy.

    Follows: v1.36, cm/devicemanager/manager.go, UpdateAllocatedResourcesStatus: not for init containers.
    Departs: resources and devices in order; devices whose plugin has just gone are unhealthy here, as they are for
        the node, while the kubelet goes on telling what the plugin said last.
    """
    for status in statuses:
        held = devices.of_container(uid, status["name"])
        told = [
            {
                "name": resource,
                "resources": [
                    {
                        "resourceID": one,
                        "health": "Healthy" if devices.is_healthy(resource, one) else "Unhealthy",
                    }
                    for one in sorted(ids)
                ],
            }
            for resource, ids in sorted(held.items())
            if ids
        ]
        if told:
            status["allocatedResourcesStatus"] = told


def pod_list(documents: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Pods as the API server lists them."""
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": list(documents)}


def event_object(one: Happening, node_name: str) -> dict[str, Any]:
    """Something that happened, as an Event."""
    about = (
        {"kind": "Pod", "namespace": one.namespace, "name": one.name, "uid": one.uid}
        if one.name
        else {"kind": "Node", "name": node_name, "uid": node_name}
    )
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{one.name or node_name}.{one.number:x}", "namespace": one.namespace},
        "involvedObject": {"apiVersion": "v1", **about},
        "type": "Warning" if one.is_warning else "Normal",
        "reason": one.reason,
        "message": one.message,
        "count": one.count,
        "firstTimestamp": str(Instant(one.first_ns).whole_second),
        "lastTimestamp": str(Instant(one.last_ns).whole_second),
        "source": {"component": COMPONENT, "host": node_name},
    }


def event_list(found: Iterable[Happening], node_name: str) -> dict[str, Any]:
    """Events as the API server lists them."""
    items = [event_object(one, node_name) for one in found]
    return {"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": items}


def node_object(mind: Mind, sheet: NodeSheet) -> dict[str, Any]:
    """The node as a Node object, as its kubelet would report it."""
    config = mind.node.config
    facts, resources = config.facts, config.resources
    taints = [*facts.taints, *(one.taint for one in mind.node.conditions)]
    spec: dict[str, Any] = {"taints": object_document(taints)} if taints else {}
    if mind.takes_no_pods:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": facts.name,
            "uid": facts.name,
            "creationTimestamp": str(Instant(sheet.started_ns).whole_second),
            "labels": dict(facts.labels),
        },
        "spec": spec,
        "status": {
            "capacity": plain(dict(resources.capacity)),
            "allocatable": plain(dict(resources.allocatable)),
            "conditions": _conditions(mind),
            "addresses": [
                *([{"type": "InternalIP", "address": sheet.host_ip}] if sheet.host_ip else []),
                {"type": "Hostname", "address": facts.name},
            ],
            "nodeInfo": {
                "kubeletVersion": sheet.version,
                "containerRuntimeVersion": sheet.runtime,
                "kernelVersion": sheet.kernel,
                "osImage": sheet.os_image,
                "operatingSystem": "linux",
                "architecture": facts.labels.get("kubernetes.io/arch", ""),
            },
        },
    }


def _conditions(mind: Mind) -> list[dict[str, str]]:
    """What runs short, and whether the node takes pods.

    Follows: v1.36, kubelet/nodestatus/setters.go.
    """
    found = []
    for one, words in _CONDITION_WORDS.items():
        is_short = one in mind.node.conditions
        reason, message = words[0 if is_short else 1]
        found.append({"type": str(one), "status": str(is_short), "reason": reason, "message": message})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the agent takes pods"}
    if mind.takes_no_pods:
        ready = {
            "type": "Ready",
            "status": "False",
            "reason": "KubeletNotReady",
            "message": mind.takes_no_pods,
        }
    return [*found, ready]


def _own(placed: Placement | None) -> dict[str, str]:
    """What is a pod's alone, as annotations: CPUs, devices, and the NUMA nodes that were chosen."""
    if placed is None:
        return {}
    cpus, numa = placed.cpus or CPUSet(), NUMASet()
    for one in placed.containers:
        cpus |= one.cpus or CPUSet()
        if one.hint is not None and one.hint.numa is not None:
            numa |= one.hint.numa
    said = {CPUS: str(cpus), DEVICES: _devices(placed), NUMA: str(numa)}
    return {name: text for name, text in said.items() if text}


def _devices(placed: Placement) -> str:
    """The devices of all containers: `example.com/gpu=gpu-0,gpu-1 example.com/nic=nic-0`."""
    found: dict[str, set[str]] = {}
    for one in placed.containers:
        for resource, ids in one.devices.items():
            found.setdefault(resource, set()).update(ids)
    return " ".join(f"{resource}={','.join(sorted(ids))}" for resource, ids in sorted(found.items()) if ids)


_ALWAYS: dict[type, tuple[str, ...]] = {
    ContainerStatus: ("name", "ready", "restart_count", "image", "image_id", "state", "last_state"),
    PodCondition: ("type", "status"),
    Terminated: ("exit_code",),
}


def _spelled_out(one: msgspec.Struct) -> Any:
    """A part of a status with the fields that the API server shows even where they are zero."""
    document = {}
    for field in msgspec.structs.fields(type(one)):
        value = getattr(one, field.name)
        if isinstance(value, msgspec.Struct):
            value = _spelled_out(value)
            is_said = bool(value)
        else:
            is_said = bool(value) or value is False
            value = plain(value)
        if is_said or field.name in _ALWAYS.get(type(one), ()):
            document[field.encode_name] = value
    return document
