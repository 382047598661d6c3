"""Tables in kubectl's form: pods, nodes, events, usage."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodewright.documents.output.kubectl_tables import POD_HEADERS, WIDE_POD_HEADERS, age, pod_row
from nodewright.documents.output.text_layout import table
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import Instant

NONE, UNKNOWN = "<none>", "<unknown>"
_MIB = 1 << 20
_EVENT_HEADERS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
_NODE_HEADERS = ("NAME", "STATUS", "ROLES", "AGE", "VERSION")
_WIDE_NODE_HEADERS = (
    *_NODE_HEADERS,
    "INTERNAL-IP",
    "EXTERNAL-IP",
    "OS-IMAGE",
    "KERNEL-VERSION",
    "CONTAINER-RUNTIME",
)
_ROLE = "node-role.kubernetes.io/"


def pods_table(pods: Sequence[Pod], now: Instant, *, wide: bool, with_namespace: bool) -> str:
    """The pods, one line each."""
    headers = WIDE_POD_HEADERS if wide else POD_HEADERS
    rows = [pod_row(pod, now, wide=wide) for pod in pods]
    if with_namespace:
        headers = ("NAMESPACE", *headers)
        rows = [(pod.metadata.namespace, *row) for pod, row in zip(pods, rows, strict=True)]
    return table(headers, rows)


def nodes_table(nodes: Iterable[Mapping[str, Any]], now: Instant, *, wide: bool) -> str:
    """The nodes, one line each.

    Follows: v1.36, pkg/printers/internalversion/printers.go, printNode.
    """
    rows = [_node_row(node, now, wide=wide) for node in nodes]
    return table(_WIDE_NODE_HEADERS if wide else _NODE_HEADERS, rows)


def _node_row(node: Mapping[str, Any], now: Instant, *, wide: bool) -> tuple[str, ...]:
    meta, status = node["metadata"], node["status"]
    ready = next((entry["status"] for entry in status["conditions"] if entry["type"] == "Ready"), None)
    states = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if node["spec"].get("unschedulable"):
        states.append("SchedulingDisabled")
    row = (
        meta["name"],
        ",".join(states),
        roles_text(meta),
        age(_moment(meta.get("creationTimestamp")), now),
        status["nodeInfo"]["kubeletVersion"],
    )
    if not wide:
        return row
    info = status["nodeInfo"]
    addresses = {entry["type"]: entry["address"] for entry in status.get("addresses", ())}
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return (
        *row,
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    )


def roles_text(metadata: Mapping[str, Any]) -> str:
    """The roles in a node's labels."""
    labels = metadata.get("labels") or {}
    return ",".join(sorted(label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE))) or NONE


def events_table(events: Iterable[Mapping[str, Any]], now: Instant, *, with_namespace: bool) -> str:
    """The events, one line each, in the given order.

    Follows: v1.36, pkg/printers/internalversion/printers.go, printEvent.
    """
    rows = []
    for event in events:
        involved = event["involvedObject"]
        row = (
            age(_moment(event["lastTimestamp"]), now),
            event["type"],
            event["reason"],
            f"{involved['kind'].lower()}/{involved['name']}",
            event["message"].strip(),
        )
        rows.append((event["metadata"]["namespace"], *row) if with_namespace else row)
    return table(("NAMESPACE", *_EVENT_HEADERS) if with_namespace else _EVENT_HEADERS, rows)


def pod_usage_table(pods: Iterable[Mapping[str, Any]], *, with_namespace: bool, by_container: bool) -> str:
    """The usage of pods, one line each, as `kubectl top pods` prints it."""
    rows = []
    for pod in pods:
        names = [pod["namespace"]] if with_namespace else []
        parts = [[container] for container in pod["containers"]] if by_container else [pod["containers"]]
        rows += [
            (
                *names,
                pod["name"],
                *((part[0]["name"],) if by_container else ()),
                _cpu(_sum(part, "cpuNanoCores")),
                _memory(_sum(part, "workingSetBytes")),
            )
            for part in parts
        ]
    headers = (*(("NAMESPACE",) if with_namespace else ()), *(("POD", "NAME") if by_container else ("NAME",)))
    return table((*headers, "CPU(cores)", "MEMORY(bytes)"), sorted(rows))


def node_usage_table(node: Mapping[str, Any]) -> str:
    """The usage of the node and its share of the capacity, as `kubectl top nodes` prints it."""
    row = (
        node["name"],
        _cpu(node["cpuNanoCores"]),
        _share(node["cpuNanoCores"], node["cpus"] * 10**9),
        _memory(node["workingSetBytes"]),
        _share(node["workingSetBytes"], node["memoryBytes"]),
    )
    return table(("NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"), [row])


def _sum(parts: Iterable[Mapping[str, Any]], key: str) -> int | None:
    """The sum of the known values; None: no value is known."""
    known = [part[key] for part in parts if part[key] is not None]
    return sum(known) if known else None


def _cpu(nano_cores: int | None) -> str:
    return UNKNOWN if nano_cores is None else f"{-(-nano_cores // 10**6)}m"


def _memory(amount: int | None) -> str:
    return UNKNOWN if amount is None else f"{amount // _MIB}Mi"


def _share(part: int | None, whole: int) -> str:
    return UNKNOWN if part is None or not whole else f"{part * 100 // whole}%"


def _moment(text: str | None) -> Instant | None:
    return Instant.parse(text) if text else None
