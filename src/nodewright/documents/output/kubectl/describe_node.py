"""A node as `kubectl describe node` prints it, with its devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodewright.documents.output.kubectl_describe import (
    NONE,
    aligned,
    events_section,
    named_values,
)
from nodewright.documents.output.kubectl_tables import DEVICES_ANNOTATION, age, roles_text
from nodewright.documents.output.text_layout import table
from nodewright.engine.core.requests.effective_resources import pod_limits, pod_requests
from nodewright.model.kubernetes.node_profile import Device
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    is_extended,
    is_huge_page,
)
from nodewright.model.printable import printable_line
from nodewright.model.values.instant import Instant
from nodewright.model.values.quantity import Quantity

_INDENT = "  "
_OVER = ("Succeeded", "Failed")
_POD_HEADERS = (
    *("Namespace", "Name", "CPU Requests", "CPU Limits", "Memory Requests", "Memory Limits", "Age"),
)
_SYSTEM = {
    "Machine ID": "machineID",
    "Kernel Version": "kernelVersion",
    "OS Image": "osImage",
    "Operating System": "operatingSystem",
    "Architecture": "architecture",
    "Container Runtime Version": "containerRuntimeVersion",
    "Kubelet Version": "kubeletVersion",
}
_ZERO = Quantity.of(0)


def describe_node_text(
    node: Mapping[str, Any],
    pods: Sequence[Pod],
    devices: Mapping[str, Sequence[Device]],
    events: Sequence[Mapping[str, Any]],
    now: Instant,
) -> str:
    """The description of a node; ``devices`` are the devices of its plugins by resource.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeNode, in its order.
    Departs: times are in UTC as in the API; conditions have no times, as a standalone agent does not record them;
        a section Devices, which kubectl does not have, precedes the events.
    """
    status = node["status"]
    active_pods = [pod for pod in pods if pod.status.phase not in _OVER]
    active_pods.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    allocatable = {name: Quantity.parse(text) for name, text in status["allocatable"].items()}
    info = [(name, status["nodeInfo"][key]) for name, key in _SYSTEM.items() if key in status["nodeInfo"]]
    parts = [
        aligned(_head(node)),
        "Conditions:\n" + _conditions(status["conditions"]),
        _listed("Addresses", ((address["type"], address["address"]) for address in status["addresses"])),
        _listed("Capacity", sorted(status["capacity"].items())),
        _listed("Allocatable", sorted(status["allocatable"].items())),
        _listed("System Info", info),
        printable_line(f"Non-terminated Pods:  ({len(active_pods)} in total)")
        + _pods(active_pods, allocatable, now),
        _allocated(active_pods, allocatable),
    ]
    if devices:
        parts.append("Devices:\n" + _devices(devices, active_pods))
    parts.append(events_section(events, now))
    return "".join(parts)


def _head(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta, spec = node["metadata"], node["spec"]
    yield "Name", meta["name"]
    yield "Roles", roles_text(meta)
    for name in ("labels", "annotations"):
        separator = "=" if name == "labels" else ": "
        pairs = (f"{key}{separator}{value}" for key, value in sorted((meta.get(name) or {}).items()))
        yield from named_values(name.capitalize(), pairs)
    yield "CreationTimestamp", meta["creationTimestamp"]
    yield from named_values("Taints", map(_taint, spec.get("taints") or ()))
    yield "Unschedulable", str(bool(spec.get("unschedulable"))).lower()


def _taint(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _listed(name: str, rows: Iterable[tuple[str, str]]) -> str:
    return printable_line(f"{name}:") + aligned(rows, indent=2)


def _conditions(conditions: Iterable[Mapping[str, str]]) -> str:
    rows = [
        (
            f"{_INDENT}{condition['type']}",
            condition["status"],
            condition["reason"],
            condition.get("message", ""),
        )
        for condition in conditions
    ]
    return _underlined((f"{_INDENT}Type", "Status", "Reason", "Message"), rows)


def _pods(pods: Iterable[Pod], allocatable: Mapping[str, Quantity], now: Instant) -> str:
    rows = []
    for pod in pods:
        requests, limits = pod_requests(pod), pod_limits(pod)
        shares = (
            _share(amounts.get(name, _ZERO), allocatable.get(name, _ZERO))
            for name in (CPU, MEMORY)
            for amounts in (requests, limits)
        )
        meta = pod.metadata
        rows.append((f"{_INDENT}{meta.namespace}", meta.name, *shares, age(meta.creation_timestamp, now)))
    first, *others = _POD_HEADERS
    return _underlined((f"{_INDENT}{first}", *others), rows)


def _allocated(pods: Sequence[Pod], allocatable: Mapping[str, Quantity]) -> str:
    """The pods' total requests and limits as shares of the allocatable amounts."""
    requests = _total(pod_requests(pod) for pod in pods)
    limits = _total(pod_limits(pod) for pod in pods)
    names = [CPU, MEMORY, EPHEMERAL_STORAGE, *sorted(filter(is_huge_page, allocatable))]
    rows = [
        (
            f"{_INDENT}{name}",
            *(
                _share(amounts.get(name, _ZERO), allocatable.get(name, _ZERO))
                for amounts in (requests, limits)
            ),
        )
        for name in names
    ]
    rows += [
        (f"{_INDENT}{name}", str(requests.get(name, _ZERO)), str(limits.get(name, _ZERO)))
        for name in sorted(filter(is_extended, allocatable))
    ]
    over = printable_line(f"{_INDENT}(Total limits may be over 100 percent, i.e., overcommitted.)")
    shown = _underlined((f"{_INDENT}Resource", "Requests", "Limits"), rows)
    return f"Allocated resources:\n{over}{shown}"


def _devices(devices: Mapping[str, Sequence[Device]], pods: Iterable[Pod]) -> str:
    """Each device with its NUMA nodes, health and pod."""
    holders = {
        (resource, device): pod.full_name
        for pod in pods
        for resource, ids in _allocated_devices(pod)
        for device in ids
    }
    rows = [
        (
            f"{_INDENT}{resource}",
            device.id,
            ",".join(map(str, device.numa_nodes)) if device.numa_nodes else "-",
            "Healthy" if device.healthy else "Unhealthy",
            holders.get((resource, device.id), NONE),
        )
        for resource, resource_devices in sorted(devices.items())
        for device in resource_devices
    ]
    return _underlined((f"{_INDENT}Resource", "Device", "NUMA", "Health", "Pod"), rows)


def _allocated_devices(pod: Pod) -> Iterator[tuple[str, Sequence[str]]]:
    for text in pod.metadata.annotations.get(DEVICES_ANNOTATION, "").split():
        resource, _, ids = text.partition("=")
        yield resource, ids.split(",")


def _total(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _share(amount: Quantity, of: Quantity) -> str:
    """An amount with its percentage of another: `500m (25%)`."""
    whole = of.milli_value()
    return f"{amount} ({amount.milli_value() * 100 // whole if whole else 0}%)"


def _underlined(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_INDENT + "-" * len(headers[0].strip()), *("-" * len(header) for header in headers[1:])]
    return table(headers, [lines, *rows])
