"""Rows of `kubectl get pods`: ready containers, status word, restarts."""

from typing import NamedTuple

from nodewright.documents.output.kubectl_tables import age
from nodewright.model.kubernetes.objects import Container, ContainerStateTerminated, ContainerStatus, Pod
from nodewright.model.values.instant import Instant

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
NONE = "<none>"


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
