"""Pods as `kubectl get pods` has them: how many containers are ready, and one word for how it goes."""

from typing import NamedTuple

from nodewright.model.objects import Container, ContainerStatus, Pod, Terminated
from nodewright.render.ages import age
from nodewright.values.instant import Instant

SOURCE, CPUS, NUMA = "nodewright.dev/source", "nodewright.dev/cpus", "nodewright.dev/numa-nodes"
DEVICES = "nodewright.dev/devices"
"""Annotations of pods that an agent tells of: where it comes from, and what is its alone."""
STATIC_SOURCES = ("file", "http")
HEADERS = ("NAME", "READY", "STATUS", "RESTARTS", "AGE", "SOURCE")
WIDE_HEADERS = (*HEADERS, "IP", "NODE", "QOS", "CPUS", "NUMA", "DEVICES")
NONE = "<none>"


class Told(NamedTuple):
    """What the columns tell of a pod's containers."""

    ready: int
    of: int
    word: str
    restarts: int
    restarted_at: Instant | None


def pod_row(pod: Pod, now: Instant, *, wide: bool = False) -> tuple[str, ...]:
    """One line of the table, without the namespace."""
    told = told_of(pod)
    restarts = str(told.restarts)
    if told.restarts and told.restarted_at is not None:
        restarts += f" ({age(told.restarted_at, now)} ago)"
    row = (
        pod.metadata.name,
        f"{told.ready}/{told.of}",
        told.word,
        restarts,
        age(pod.metadata.creation_timestamp, now),
        source_word(pod),
    )
    if not wide:
        return row
    said = pod.metadata.annotations
    return (
        *row,
        pod.status.pod_ip or NONE,
        pod.spec.node_name or NONE,
        pod.status.qos_class or NONE,
        said.get(CPUS, "-" if pod.has_ended else "shared"),
        said.get(NUMA, "-"),
        said.get(DEVICES, "-"),
    )


def source_word(pod: Pod) -> str:
    """Where a pod comes from; static pods are marked, since nothing pushes them out."""
    source = pod.metadata.annotations.get(SOURCE, "")
    return f"{source} (static)" if source in STATIC_SOURCES else source or NONE


def told_of(pod: Pod) -> Told:
    """What the containers come to.

    Follows: v1.36, pkg/printers/internalversion/printers.go, printPod.
    """
    status, spec = pod.status, pod.spec
    word = status.reason or status.phase
    if any(one.type == "PodScheduled" and one.reason == "SchedulingGated" for one in status.conditions):
        word = "SchedulingGated"
    inits = _inits(pod, word)
    is_initialized = any(one.type == "Initialized" and one.status == "True" for one in status.conditions)
    told = inits.told
    if not inits.is_initializing or is_initialized:
        told = _mains(pod, inits)
    word = told.word
    if pod.metadata.deletion_timestamp is not None:
        if status.reason == "NodeLost":
            word = "Unknown"
        elif not pod.has_ended:
            word = "Terminating"
    sidecars = sum(one.is_sidecar for one in spec.init_containers)
    return told._replace(word=word, of=len(spec.containers) + sidecars)


class _Inits(NamedTuple):
    """What the init containers come to."""

    told: Told
    is_initializing: bool
    of_sidecars: tuple[int, Instant | None]
    """Their restarts, and the last of them."""


def _inits(pod: Pod, word: str) -> _Inits:
    by_name = {one.name: one for one in pod.spec.init_containers}
    restarts, ready, at = 0, 0, list[Instant]()
    sidecars: tuple[int, Instant | None] = (0, None)
    for index, one in enumerate(pod.status.init_container_statuses):
        container = by_name.get(one.name, Container())
        restarts += one.restart_count
        at += _ended_at(one)
        if container.is_sidecar:
            sidecars = _later(sidecars, one)
        ended = one.state.terminated
        if ended is not None and ended.exit_code == 0:
            continue
        if container.is_sidecar and one.started:
            ready += one.ready
            continue
        word = _init_word(one, index, len(by_name))
        return _Inits(Told(ready, 0, word, restarts, max(at, default=None)), True, sidecars)
    return _Inits(Told(ready, 0, word, restarts, max(at, default=None)), False, sidecars)


def _init_word(one: ContainerStatus, index: int, count: int) -> str:
    ended, waiting = one.state.terminated, one.state.waiting
    if ended is not None:
        return f"Init:{_end_word(ended)}"
    if waiting is not None and waiting.reason not in ("", "PodInitializing"):
        return f"Init:{waiting.reason}"
    return f"Init:{index}/{count}"


def _mains(pod: Pod, inits: _Inits) -> Told:
    """What the main containers come to; the first of them has the last word."""
    word, ready = inits.told.word, inits.told.ready
    counted, has_running, error = inits.of_sidecars, False, ""
    for one in reversed(pod.status.container_statuses):
        counted = _later(counted, one)
        state = one.state
        if state.waiting is not None and state.waiting.reason:
            word = state.waiting.reason
        elif state.terminated is not None:
            word = _end_word(state.terminated)
            error = word if state.terminated.exit_code else error
        elif one.ready and state.running is not None:
            has_running = True
            ready += 1
    if word == "Completed":
        is_ready = any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)
        not_ready = error or ("NotReady" if has_running else word)
        word = "Running" if has_running and is_ready else not_ready
    return Told(ready, 0, word, *counted)


def _end_word(ended: Terminated) -> str:
    return ended.reason or f"ExitCode:{ended.exit_code}"


def _ended_at(one: ContainerStatus) -> list[Instant]:
    last = one.last_state.terminated
    return [last.finished_at] if last is not None and last.finished_at is not None else []


def _later(counted: tuple[int, Instant | None], one: ContainerStatus) -> tuple[int, Instant | None]:
    count, at = counted
    moments = [*([at] if at is not None else []), *_ended_at(one)]
    return count + one.restart_count, max(moments, default=None)
