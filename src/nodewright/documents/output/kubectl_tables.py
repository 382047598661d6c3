"""Tables in kubectl's form: pods, nodes, events, usage."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nodewright.documents.output.text_layout import table
from nodewright.model.kubernetes.objects import Container, ContainerStateTerminated, ContainerStatus, Pod
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
    Departs: a column of what nodes lend, where one does.
    """
    listed = tuple(nodes)
    rows = [_node_row(node, now, wide=wide) for node in listed]
    headers = _WIDE_NODE_HEADERS if wide else _NODE_HEADERS
    lent = [_lent(node) for node in listed]
    if any(lent):
        headers = (*headers, "LENT")
        rows = [(*row, text or "-") for row, text in zip(rows, lent, strict=True)]
    return table(headers, rows)


def _lent(node: Mapping[str, Any]) -> str:
    """What a node lends of CPU and memory; empty: nothing."""
    annotations = node["metadata"].get("annotations") or {}
    texts = [annotations.get(f"nodewright.dev/lent-{name}", "") for name in ("cpu", "memory")]
    return "/".join(text.partition(" ")[0] for text in texts if text)


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


SOURCE_ANNOTATION, CPUS_ANNOTATION, NUMA_ANNOTATION = (
    "nodewright.dev/source",
    "nodewright.dev/cpus",
    "nodewright.dev/numa-nodes",
)
DEVICES_ANNOTATION = "nodewright.dev/devices"
"""Annotations that the agent adds to pods: their source and their exclusive CPUs, NUMA nodes and devices."""
STATIC_SOURCES = ("file", "http")
POD_HEADERS = ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "SOURCE")
WIDE_POD_HEADERS = (*POD_HEADERS, "IP", "NODE", "QOS", "CPUS", "NUMA", "DEVICES")


class PodColumns(NamedTuple):
    """The columns that summarise a pod's containers."""

    ready: int
    total: int
    status: str
    restarts: int
    restarted_at: Instant | None


def pod_row(pod: Pod, now: Instant, *, wide: bool = False) -> tuple[str, ...]:
    """One row of the table, without the namespace."""
    columns = pod_columns(pod)
    restarts = str(columns.restarts)
    if columns.restarts and columns.restarted_at is not None:
        restarts += f" ({age(columns.restarted_at, now)} ago)"
    row = (
        pod.metadata.name,
        f"{columns.ready}/{columns.total}",
        columns.status,
        restarts,
        age(pod.metadata.creation_timestamp, now),
        pod_source_text(pod),
    )
    if not wide:
        return row
    annotations = pod.metadata.annotations
    return (
        *row,
        pod.status.pod_ip or NONE,
        pod.spec.node_name or NONE,
        pod.status.qos_class or NONE,
        annotations.get(CPUS_ANNOTATION, "-" if pod.is_terminal else "shared"),
        annotations.get(NUMA_ANNOTATION, "-"),
        annotations.get(DEVICES_ANNOTATION, "-"),
    )


def pod_source_text(pod: Pod) -> str:
    """The source of a pod; static pods are marked, as the kubelet neither preempts nor evicts them."""
    source = pod.metadata.annotations.get(SOURCE_ANNOTATION, "")
    return f"{source} (static)" if source in STATIC_SOURCES else source or NONE


def pod_columns(pod: Pod) -> PodColumns:
    """The columns of a pod.

    Follows: v1.36, pkg/printers/internalversion/printers.go, printPod.
    """
    status, spec = pod.status, pod.spec
    word = status.reason or status.phase
    if any(
        condition.type == "PodScheduled" and condition.reason == "SchedulingGated"
        for condition in status.conditions
    ):
        word = "SchedulingGated"
    inits = _inits(pod, word)
    is_initialized = any(
        condition.type == "Initialized" and condition.status == "True" for condition in status.conditions
    )
    columns = inits.columns
    if not inits.is_initializing or is_initialized:
        columns = _mains(pod, inits)
    word = columns.status
    if pod.metadata.deletion_timestamp is not None:
        if status.reason == "NodeLost":
            word = "Unknown"
        elif not pod.is_terminal:
            word = "Terminating"
    sidecars = sum(container.is_sidecar for container in spec.init_containers)
    return columns._replace(status=word, total=len(spec.containers) + sidecars)


class _Inits(NamedTuple):
    """The columns after the init containers."""

    columns: PodColumns
    is_initializing: bool
    sidecar_restarts: tuple[int, Instant | None]
    """Number of sidecar restarts, and the time of the last."""


def _inits(pod: Pod, word: str) -> _Inits:
    by_name = {status.name: status for status in pod.spec.init_containers}
    restarts, ready, at = 0, 0, list[Instant]()
    sidecars: tuple[int, Instant | None] = (0, None)
    for index, status in enumerate(pod.status.init_container_statuses):
        container = by_name.get(status.name, Container())
        restarts += status.restart_count
        at += _ended_at(status)
        if container.is_sidecar:
            sidecars = _later(sidecars, status)
        ended = status.state.terminated
        if ended is not None and ended.exit_code == 0:
            continue
        if container.is_sidecar and status.started:
            ready += status.ready
            continue
        word = _init_word(status, index, len(by_name))
        return _Inits(PodColumns(ready, 0, word, restarts, max(at, default=None)), True, sidecars)
    return _Inits(PodColumns(ready, 0, word, restarts, max(at, default=None)), False, sidecars)


def _init_word(status: ContainerStatus, index: int, count: int) -> str:
    ended, waiting = status.state.terminated, status.state.waiting
    if ended is not None:
        return f"Init:{_end_word(ended)}"
    if waiting is not None and waiting.reason not in ("", "PodInitializing"):
        return f"Init:{waiting.reason}"
    return f"Init:{index}/{count}"


def _mains(pod: Pod, inits: _Inits) -> PodColumns:
    """The columns after the main containers; the first container's status takes precedence."""
    word, ready = inits.columns.status, inits.columns.ready
    counted, has_running, error = inits.sidecar_restarts, False, ""
    for status in reversed(pod.status.container_statuses):
        counted = _later(counted, status)
        state = status.state
        if state.waiting is not None and state.waiting.reason:
            word = state.waiting.reason
        elif state.terminated is not None:
            word = _end_word(state.terminated)
            error = word if state.terminated.exit_code else error
        elif status.ready and state.running is not None:
            has_running = True
            ready += 1
    if word == "Completed":
        is_ready = any(
            condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions
        )
        not_ready = error or ("NotReady" if has_running else word)
        word = "Running" if has_running and is_ready else not_ready
    return PodColumns(ready, 0, word, *counted)


def _end_word(ended: ContainerStateTerminated) -> str:
    return ended.reason or f"ExitCode:{ended.exit_code}"


def _ended_at(status: ContainerStatus) -> list[Instant]:
    last = status.last_state.terminated
    return [last.finished_at] if last is not None and last.finished_at is not None else []


def _later(counted: tuple[int, Instant | None], status: ContainerStatus) -> tuple[int, Instant | None]:
    count, at = counted
    moments = [*([at] if at is not None else []), *_ended_at(status)]
    return count + status.restart_count, max(moments, default=None)


def age(since: Instant | None, now: Instant) -> str:
    """The time since an instant, in at most two units.

    Follows: v1.36, apimachinery/pkg/util/duration/duration.go, HumanDuration; cli-runtime's tables for `<unknown>`.

    >>> age(Instant(0), Instant(90 * 10**9)), age(Instant(0), Instant(150 * 10**9))
    ('90s', '2m30s')
    >>> age(None, Instant(0))
    '<unknown>'
    """
    if since is None:
        return UNKNOWN
    # Go's integer division truncates towards zero.
    seconds = int((now.nanoseconds - since.nanoseconds) / 10**9)
    if seconds < -1:
        return "<invalid>"
    return _positive(max(0, seconds))


def _positive(seconds: int) -> str:
    minutes, hours = seconds // 60, seconds // 3600
    days = hours // 24
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
