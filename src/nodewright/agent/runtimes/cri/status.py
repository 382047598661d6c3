"""Converts CRI messages to status and usage, and detects what a runtime supports."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path, PurePosixPath

from nodewright.agent.host.ports import RuntimeFacts
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import (
    GET_CONTAINER_EVENTS,
    RUNTIME_CONFIG,
    STATUS,
    CRIChannel,
    UnimplementedError,
)
from nodewright.agent.runtimes.cri.configs import (
    CONTAINER_HASH,
    LOG_DIRECTORY,
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
)
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.documents.files.regular_files import open_regular_file
from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimeSandboxStatus,
)

_PHASES = {
    cri.CONTAINER_CREATED: ContainerPhase.CREATED,
    cri.CONTAINER_RUNNING: ContainerPhase.RUNNING,
    cri.CONTAINER_EXITED: ContainerPhase.EXITED,
}
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80


def phase_of(state: cri.ContainerState) -> ContainerPhase:
    """The phase of a container; states of later CRI releases are unknown."""
    return _PHASES.get(state, ContainerPhase.UNKNOWN)


def sandbox_facts(listed: cri.PodSandbox, status: cri.PodSandboxStatus | None) -> RuntimeSandboxStatus:
    """The status of a sandbox; one with a network of its own is ready once it has an address.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, PodSandboxChanged.
    """
    ip = status.network.ip if status is not None else ""
    on_host = status is not None and status.linux.namespaces.options.network == cri.NODE
    is_ready = listed.state == cri.SANDBOX_READY and status is not None and (on_host or bool(ip))
    return RuntimeSandboxStatus(
        id=listed.id,
        attempt=listed.metadata.attempt,
        is_ready=is_ready,
        created_ns=listed.created_at,
        ip=ip,
        other_ips=tuple(other.ip for other in status.network.additional_ips) if status is not None else (),
    )


def container_facts(
    status: cri.ContainerStatus, sandbox: cri.PodSandbox, cgroup: str
) -> RuntimeContainerStatus:
    """The status of a container, with its termination message."""
    phase = phase_of(status.state)
    has_ended = phase is ContainerPhase.EXITED
    reason = status.reason
    if has_ended and not reason:
        reason = ERROR if status.exit_code else COMPLETED
    return RuntimeContainerStatus(
        id=status.id,
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        phase=phase,
        sandbox_id=sandbox.id,
        spec_hash=status.annotations.get(CONTAINER_HASH, ""),
        image=status.image.image,
        image_id=status.image_ref or status.image_id,
        created_ns=status.created_at,
        # containerd sets the start time after the start; a short-lived container may have ended before that.
        started_ns=min(status.started_at, status.finished_at) if has_ended else status.started_at,
        finished_ns=status.finished_at,
        exit_code=status.exit_code if has_ended else 0,
        reason=reason if has_ended else "",
        message=_message(status) if has_ended else "",
        log_path=_log_path(status, sandbox),
        cgroup=cgroup,
    )


def cgroup_of(info: Mapping[str, str], parent: str) -> str:
    """The cgroup of a container, from the runtime's verbose info; empty: the info does not contain it.

    >>> cgroup_of({"info": '{"runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/podu/c1"}}}'}, "/kubepods/podu")
    '/kubepods/podu/c1'
    >>> spec = '{"runtimeSpec": {"linux": {"cgroupsPath": "kubepods-podu.slice:cri-containerd:c1"}}}'
    >>> cgroup_of({"info": spec}, "/kubepods.slice/kubepods-podu.slice")
    '/kubepods.slice/kubepods-podu.slice/cri-containerd-c1.scope'
    """
    try:
        path = json.loads(info["info"])["runtimeSpec"]["linux"]["cgroupsPath"]
    except (KeyError, TypeError, *JSON_ERRORS):
        return ""
    if not isinstance(path, str):
        return ""
    match path.split(":"):
        case [_, prefix, name]:
            return f"{parent.rstrip('/')}/{prefix}-{name}.scope"
        case _:
            return path


def cgroup_driver(info: Mapping[str, str]) -> str:
    """Containerd's configured cgroup driver, for releases without the RuntimeConfig call; empty: unknown.

    >>> runc = '{"containerd": {"runtimes": {"runc": {"options": {"SystemdCgroup": true}}}}}'
    >>> cgroup_driver({"config": runc}), cgroup_driver({})
    ('systemd', '')
    """
    try:
        runtimes = json.loads(info["config"])["containerd"]["runtimes"]
        options = [runtime.get("options") or {} for runtime in runtimes.values()]
    except (AttributeError, KeyError, TypeError, *JSON_ERRORS):
        return ""
    uses_systemd = {bool(option.get("SystemdCgroup")) for option in options}
    # Where the runtime handlers differ there is no single answer.
    return ("systemd" if uses_systemd.pop() else "cgroupfs") if len(uses_systemd) == 1 else ""


def sandbox_image(info: Mapping[str, str]) -> str:
    """The sandbox image, from the runtime's verbose info; empty: unknown.

    >>> sandbox_image({"config": '{"sandboxImage": "registry.k8s.io/pause:3.9"}'}), sandbox_image({})
    ('registry.k8s.io/pause:3.9', '')
    """
    try:
        image = json.loads(info["config"])["sandboxImage"]
    except (KeyError, TypeError, *JSON_ERRORS):
        return ""
    return image if isinstance(image, str) else ""


def usage_of(stats: cri.ContainerStats) -> ContainerUsage:
    """A container's usage, as far as the runtime reports it."""
    cpu, memory, disk = stats.cpu, stats.memory, stats.writable_layer
    return ContainerUsage(
        at_ns=cpu.timestamp or memory.timestamp,
        cpu_ns=_amount(cpu, "usage_core_nano_seconds"),
        memory_bytes=_amount(memory, "usage_bytes"),
        working_set_bytes=_amount(memory, "working_set_bytes"),
        rss_bytes=_amount(memory, "rss_bytes"),
        swap_bytes=_amount(stats.swap, "swap_usage_bytes"),
        rootfs_bytes=_amount(disk, "used_bytes"),
        rootfs_inodes=_amount(disk, "inodes_used"),
    )


def _amount(
    used: cri.CpuUsage | cri.MemoryUsage | cri.SwapUsage | cri.FilesystemUsage, name: str
) -> int | None:
    """An amount; None: not reported, which differs from zero."""
    return int(getattr(used, name).value) if used.HasField(name) else None


def _log_path(status: cri.ContainerStatus, sandbox: cri.PodSandbox) -> str:
    """The path of the log: some runtimes report the full path, others the relative one of the config."""
    if not status.log_path or status.log_path.startswith("/") or LOG_DIRECTORY not in sandbox.annotations:
        return status.log_path
    return str(PurePosixPath(sandbox.annotations[LOG_DIRECTORY], status.log_path))


def _message(status: cri.ContainerStatus) -> str:
    """The termination message of the container, or the runtime's message about its end.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, getTerminationMessage.
    Departs: the agent's own mount at the path is read, which is the last; a kubelet reads a volume that the pod mounts there.
    """
    annotations = {
        key: status.annotations[key]
        for key in (TERMINATION_MESSAGE_PATH, TERMINATION_MESSAGE_POLICY)
        if key in status.annotations
    }
    falls_back = (
        annotations.get(TERMINATION_MESSAGE_POLICY) == "FallbackToLogsOnError" and status.exit_code != 0
    )
    text = ""
    path = annotations.get(TERMINATION_MESSAGE_PATH)
    mounts = [mount for mount in status.mounts if path and mount.container_path == path]
    for mount in mounts[-1:]:
        try:
            text = _tail(Path(mount.host_path), _MESSAGE_BYTES)
        except FileNotFoundError:
            break
        except OSError as error:
            return f"Error on reading termination log {mount.host_path}: {error}"
    if not text and falls_back and status.log_path:
        text = _log_tail(Path(status.log_path))
    return text if not status.message else (f"{status.message}: {text}" if text else status.message)


def _tail(path: Path, max_bytes: int) -> str:
    # The mount at the message's path may be one of the pod's own: a FIFO, say.
    with open_regular_file(path) as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - max_bytes))
        return file.read(max_bytes).decode(errors="replace")


def _log_tail(path: Path) -> str:
    """The last lines of a log, without the prefix of each record."""
    try:
        # Prefixes are some 40 bytes long.
        text = _tail(path, _LOG_BYTES + 64 * _LOG_LINES)
    except OSError as error:
        return f"Error on reading termination message from logs: {error}"
    # Only newlines end a record; its text may have carriage returns and other ends of lines.
    lines = StringIO(text, newline="\n").readlines()
    text = "".join(_log_text(line) for line in lines[-_LOG_LINES:])
    return text.encode()[-_LOG_BYTES:].decode(errors="ignore")


def _log_text(line: str) -> str:
    r"""The text of a log record; empty if its beginning is cut off.

    >>> _log_text("2026-01-01T00:00:00.5Z stdout F hello\n"), _log_text("2026-01-01T00:00:00.5Z stderr P hel\n")
    ('hello\n', 'hel')
    """
    match line.split(" ", 3):
        case [_, "stdout" | "stderr", tag, text]:
            return text if tag.startswith("F") else text.removesuffix("\n")
        case _:
            return ""


_DRIVERS = {cri.SYSTEMD: "systemd", cri.CGROUPFS: "cgroupfs"}
_UNKNOWN_CGROUP_DRIVER = "RuntimeConfig: the cgroup driver is unknown and must be equal to cgroupDriver"
_LATE_CHANGES = "GetContainerEvents: changes are noticed up to a second late"
_PROBE_TIMEOUT_S = 0.3


async def detect_runtime_facts(channel: CRIChannel, version_response: cri.VersionResponse) -> RuntimeFacts:
    """The runtime's facts: which of the newer calls it implements, and what is used instead.

    Errors: HostError.
    """
    unimplemented_calls: list[str] = []
    try:
        config = await channel.call(RUNTIME_CONFIG, cri.RuntimeConfigRequest(), "")
        driver = _DRIVERS.get(config.linux.cgroup_driver, "")
    except UnimplementedError:
        unimplemented_calls.append(RUNTIME_CONFIG.name)
        status = await channel.call(STATUS, cri.StatusRequest(verbose=True), "")
        driver = cgroup_driver(status.info)
    if not await _has_events(channel):
        unimplemented_calls.append(GET_CONTAINER_EVENTS.name)
    has_events = (
        GET_CONTAINER_EVENTS.name not in unimplemented_calls or version_response.runtime_name == "containerd"
    )
    limitations = [] if driver else [_UNKNOWN_CGROUP_DRIVER]
    limitations += [] if has_events else [_LATE_CHANGES]
    return RuntimeFacts(
        name=version_response.runtime_name,
        version=version_response.runtime_version,
        has_events=has_events,
        cgroup_driver=driver,
        unimplemented_calls=tuple(unimplemented_calls),
        limitations=tuple(limitations),
    )


async def _has_events(channel: CRIChannel) -> bool:
    """Whether the runtime has the event stream: one without it answers at once."""
    stream = channel.stream(GET_CONTAINER_EVENTS, cri.GetEventsRequest())
    try:
        # The limit is the client's only: a runtime that knew it might close the stream first, with another error.
        async with asyncio.timeout(_PROBE_TIMEOUT_S), contextlib.aclosing(stream):
            await anext(stream, None)
    except UnimplementedError:
        return False
    except TimeoutError:
        pass
    return True
