"""What a runtime says of sandboxes and containers, as facts."""

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from nodewright.model.running import (
    COMPLETED,
    ERROR,
    ContainerFacts,
    ContainerPhase,
    SandboxFacts,
)
from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri.wishes import HASH, LOGS, MESSAGE_PATH, MESSAGE_POLICY
from nodewright.world.ports import ContainerUsage

_PHASES = {
    cri.CONTAINER_CREATED: ContainerPhase.CREATED,
    cri.CONTAINER_RUNNING: ContainerPhase.RUNNING,
    cri.CONTAINER_EXITED: ContainerPhase.EXITED,
}
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80


def phase_of(state: cri.ContainerState) -> ContainerPhase:
    """How far a container has come; what a later runtime may say besides is not known."""
    return _PHASES.get(state, ContainerPhase.UNKNOWN)


def sandbox_facts(listed: cri.PodSandbox, status: cri.PodSandboxStatus | None) -> SandboxFacts:
    """A sandbox; one with a network of its own is ready once it has an address.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, PodSandboxChanged.
    """
    ip = status.network.ip if status is not None else ""
    on_host = status is not None and status.linux.namespaces.options.network == cri.NODE
    is_ready = listed.state == cri.SANDBOX_READY and status is not None and (on_host or bool(ip))
    return SandboxFacts(
        id=listed.id,
        attempt=listed.metadata.attempt,
        is_ready=is_ready,
        created_ns=listed.created_at,
        ip=ip,
    )


def container_facts(status: cri.ContainerStatus, sandbox: cri.PodSandbox, cgroup: str) -> ContainerFacts:
    """A container, with what it left behind when it ended."""
    phase = phase_of(status.state)
    has_ended = phase is ContainerPhase.EXITED
    reason = status.reason
    if has_ended and not reason:
        reason = ERROR if status.exit_code else COMPLETED
    return ContainerFacts(
        id=status.id,
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        phase=phase,
        sandbox_id=sandbox.id,
        spec_hash=status.annotations.get(HASH, ""),
        image=status.image.image,
        image_id=status.image_ref or status.image_id,
        created_ns=status.created_at,
        # containerd takes the time of a start after it, and by then a short life may be over.
        started_ns=min(status.started_at, status.finished_at) if has_ended else status.started_at,
        finished_ns=status.finished_at,
        exit_code=status.exit_code if has_ended else 0,
        reason=reason if has_ended else "",
        message=_message(status) if has_ended else "",
        log_path=_log_path(status, sandbox),
        cgroup=cgroup,
    )


def cgroup_of(info: Mapping[str, str], parent: str) -> str:
    """The group of a container from what a runtime tells besides; empty: it does not tell.

    >>> cgroup_of({"info": '{"runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/podu/c1"}}}'}, "/kubepods/podu")
    '/kubepods/podu/c1'
    >>> spec = '{"runtimeSpec": {"linux": {"cgroupsPath": "kubepods-podu.slice:cri-containerd:c1"}}}'
    >>> cgroup_of({"info": spec}, "/kubepods.slice/kubepods-podu.slice")
    '/kubepods.slice/kubepods-podu.slice/cri-containerd-c1.scope'
    """
    try:
        path = json.loads(info["info"])["runtimeSpec"]["linux"]["cgroupsPath"]
    except (KeyError, TypeError, ValueError):
        return ""
    if not isinstance(path, str):
        return ""
    match path.split(":"):
        case [_, prefix, name]:
            return f"{parent.rstrip('/')}/{prefix}-{name}.scope"
        case _:
            return path


def driver_of(info: Mapping[str, str]) -> str:
    """The driver of cgroups that containerd was configured with, for releases that have no call for it.

    >>> runc = '{"containerd": {"runtimes": {"runc": {"options": {"SystemdCgroup": true}}}}}'
    >>> driver_of({"config": runc}), driver_of({})
    ('systemd', '')
    """
    try:
        runtimes = json.loads(info["config"])["containerd"]["runtimes"]
        options = [one.get("options") or {} for one in runtimes.values()]
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""
    told = {bool(one.get("SystemdCgroup")) for one in options}
    # Where runtimes differ nothing can be said of all.
    return ("systemd" if told.pop() else "cgroupfs") if len(told) == 1 else ""


def sandbox_image(info: Mapping[str, str]) -> str:
    """The image that sandboxes are made of, where the runtime tells; empty: it does not.

    >>> sandbox_image({"config": '{"sandboxImage": "registry.k8s.io/pause:3.9"}'}), sandbox_image({})
    ('registry.k8s.io/pause:3.9', '')
    """
    try:
        image = json.loads(info["config"])["sandboxImage"]
    except (KeyError, TypeError, ValueError):
        return ""
    return image if isinstance(image, str) else ""


def usage_of(stats: cri.ContainerStats) -> ContainerUsage:
    """What a container uses, as far as the runtime says."""
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
    """An amount that may not have been told, which is not the same as none."""
    return int(getattr(used, name).value) if used.HasField(name) else None


def _log_path(status: cri.ContainerStatus, sandbox: cri.PodSandbox) -> str:
    """Where the log is: runtimes tell all of it, or what they were told."""
    if not status.log_path or status.log_path.startswith("/") or LOGS not in sandbox.annotations:
        return status.log_path
    return str(PurePosixPath(sandbox.annotations[LOGS], status.log_path))


def _message(status: cri.ContainerStatus) -> str:
    """What the container left as its last word, or what the runtime says of its end.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, getTerminationMessage.
    """
    told = {
        key: status.annotations[key] for key in (MESSAGE_PATH, MESSAGE_POLICY) if key in status.annotations
    }
    falls_back = told.get(MESSAGE_POLICY) == "FallbackToLogsOnError" and status.exit_code != 0
    text = ""
    path = told.get(MESSAGE_PATH)
    for mount in status.mounts:
        if path and mount.container_path == path:
            try:
                text = _tail(Path(mount.host_path), _MESSAGE_BYTES)
            except FileNotFoundError:
                break
            except OSError as error:
                return f"Error on reading termination log {mount.host_path}: {error}"
    if not text and falls_back and status.log_path:
        text = _log_tail(Path(status.log_path))
    return text if not status.message else (f"{status.message}: {text}" if text else status.message)


def _tail(path: Path, most_bytes: int) -> str:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")


def _log_tail(path: Path) -> str:
    """The last lines of a log, without what the runtime writes before each of them."""
    try:
        # Prefixes are some 40 bytes a line.
        lines = _tail(path, _LOG_BYTES + 64 * _LOG_LINES).splitlines(keepends=True)
    except OSError as error:
        return f"Error on reading termination message from logs: {error}"
    text = "".join(_said(line) for line in lines[-_LOG_LINES:])
    return text.encode()[-_LOG_BYTES:].decode(errors="ignore")


def _said(line: str) -> str:
    r"""A line of a log as it was said; one that is cut off at its beginning says nothing.

    >>> _said("2026-01-01T00:00:00.5Z stdout F hello\n"), _said("2026-01-01T00:00:00.5Z stderr P hel\n")
    ('hello\n', 'hel')
    """
    match line.split(" ", 3):
        case [_, "stdout" | "stderr", tag, text]:
            return text if tag.startswith("F") else text.removesuffix("\n")
        case _:
            return ""
