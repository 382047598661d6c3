"""A node as `kubectl describe node` tells of it, and its devices."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodewright.core.requests import pod_limits, pod_requests
from nodewright.model.objects import Pod
from nodewright.model.profile import Device
from nodewright.model.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, is_extended, is_huge_page
from nodewright.render.ages import age
from nodewright.render.describe import NONE, aligned, events_part, several
from nodewright.render.listing import roles_text
from nodewright.render.pod_rows import DEVICES
from nodewright.render.tables import table
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity

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
    """All that there is to tell of a node; ``devices`` are those of its plugins, by resource.

    Follows: v1.36, kubectl/pkg/describe/describe.go, describeNode, in its order.
    Departs: times are in UTC as in the API; conditions without times, as an agent reports them to nobody;
        Devices, which kubectl does not have, stand before the events.
    """
    status = node["status"]
    there = [pod for pod in pods if pod.status.phase not in _OVER]
    there.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    allocatable = {name: Quantity.parse(text) for name, text in status["allocatable"].items()}
    info = [(name, status["nodeInfo"][key]) for name, key in _SYSTEM.items() if key in status["nodeInfo"]]
    parts = [
        aligned(_head(node)),
        "Conditions:\n" + _conditions(status["conditions"]),
        _listed("Addresses", ((one["type"], one["address"]) for one in status["addresses"])),
        _listed("Capacity", sorted(status["capacity"].items())),
        _listed("Allocatable", sorted(status["allocatable"].items())),
        _listed("System Info", info),
        f"Non-terminated Pods:  ({len(there)} in total)\n" + _pods(there, allocatable, now),
        _allocated(there, allocatable),
    ]
    if devices:
        parts.append("Devices:\n" + _devices(devices, there))
    parts.append(events_part(events, now))
    return "".join(parts)


def _head(node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    meta, spec = node["metadata"], node["spec"]
    yield "Name", meta["name"]
    yield "Roles", roles_text(meta)
    for name in ("labels", "annotations"):
        separator = "=" if name == "labels" else ": "
        pairs = (f"{key}{separator}{value}" for key, value in sorted((meta.get(name) or {}).items()))
        yield from several(name.capitalize(), pairs)
    yield "CreationTimestamp", meta["creationTimestamp"]
    yield from several("Taints", map(_taint, spec.get("taints") or ()))
    yield "Unschedulable", str(bool(spec.get("unschedulable"))).lower()


def _taint(taint: Mapping[str, str]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _listed(name: str, rows: Iterable[tuple[str, str]]) -> str:
    return f"{name}:\n" + aligned(rows, indent=2)


def _conditions(conditions: Iterable[Mapping[str, str]]) -> str:
    rows = [
        (f"{_INDENT}{one['type']}", one["status"], one["reason"], one.get("message", ""))
        for one in conditions
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
    """What all pods have asked for together, of what the node has for them."""
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
    over = f"{_INDENT}(Total limits may be over 100 percent, i.e., overcommitted.)\n"
    shown = _underlined((f"{_INDENT}Resource", "Requests", "Limits"), rows)
    return f"Allocated resources:\n{over}{shown}"


def _devices(devices: Mapping[str, Sequence[Device]], pods: Iterable[Pod]) -> str:
    """Each device, where it is, how it is, and whose."""
    holders = {
        (resource, device): pod.full_name for pod in pods for resource, held in _held(pod) for device in held
    }
    rows = [
        (
            f"{_INDENT}{resource}",
            one.id,
            ",".join(map(str, one.numa_nodes)) if one.numa_nodes else "-",
            "Healthy" if one.healthy else "Unhealthy",
            holders.get((resource, one.id), NONE),
        )
        for resource, listed in sorted(devices.items())
        for one in listed
    ]
    return _underlined((f"{_INDENT}Resource", "Device", "NUMA", "Health", "Pod"), rows)


def _held(pod: Pod) -> Iterator[tuple[str, Sequence[str]]]:
    for text in pod.metadata.annotations.get(DEVICES, "").split():
        resource, _, ids = text.partition("=")
        yield resource, ids.split(",")


def _total(lists: Iterable[Mapping[str, Quantity]]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _share(amount: Quantity, of: Quantity) -> str:
    """An amount, and how many hundredths of another it is: `500m (25%)`."""
    whole = of.milli_value()
    return f"{amount} ({amount.milli_value() * 100 // whole if whole else 0}%)"


def _underlined(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [_INDENT + "-" * len(headers[0].strip()), *("-" * len(one) for one in headers[1:])]
    return table(headers, [lines, *rows])
