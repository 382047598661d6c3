"""The runtime's records on disk: `UID/pod.json`, and `UID/NAME/ATTEMPT/` with a container's record, start and exit.

A record whose write was interrupted, or that is damaged, counts as missing. A container's record is made from its config;
its status and the shim's input are made from the record.
"""

import contextlib
import errno
import fcntl
import os
import pwd
import shutil
import signal
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.host_errors import host_errors
from nodewright.agent.host.ports import ContainerConfig
from nodewright.agent.rules.container_security import container_privileges, effective_setting
from nodewright.documents.files.file_store import try_flock, write_atomically
from nodewright.documents.files.openat2 import path_beneath
from nodewright.documents.files.regular_files import FileRefusedError, read_regular_file
from nodewright.documents.formats.decode import examined
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    OOM_KILLED,
    ContainerPhase,
    RuntimeContainerStatus,
)

T = TypeVar("T")

_TRASH = ".gone"
_LOCK = "lock"
_FLOCK = "hhqqi"
"""struct flock."""
_MAX_RECORD_BYTES = 16 << 20


class ContainerId(NamedTuple):
    """The id of a container: pod uid, container name and attempt."""

    uid: str
    name: str
    attempt: int

    @classmethod
    def parse(cls, text: str) -> "ContainerId":
        """The id that a text spells; the name is empty if it is no id. Container names have no underscores."""
        uid, _, rest = text.rpartition("_")[0].rpartition("_")
        attempt = text.rpartition("_")[2]
        if not (uid and rest and attempt.isdecimal()):
            return cls(text, "", 0)
        return cls(uid, rest, int(attempt))

    def __str__(self) -> str:
        return f"{self.uid}_{self.name}_{self.attempt}"


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's sandbox."""

    namespace: str
    name: str
    attempt: int
    cgroup: str
    logs: str
    created_ns: int
    boot: str
    """The boot in which it was created."""
    is_ready: bool = True


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A created container, with all that its shim needs."""

    sandbox_id: str
    hash: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    log: str
    cgroup: str
    oom_score_adj: int | None
    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None
    """None: the agent's own."""
    termination_log: str
    created_ns: int
    capabilities: tuple[int, ...] | None = msgspec.field(default=None, name="keeps")
    """The capabilities that it may have; None: the agent's own."""
    no_new_privs: bool = msgspec.field(default=False, name="gains_nothing")
    stop_signal: int = 0
    """The signal that stops it; 0: SIGTERM."""


class StartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The shim's record of the start of the container's process."""

    pid: int = 0
    started_ns: int = 0
    notes: str = ""
    """Failures that do not keep the container from running."""


class ExitRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a container, from its shim or, if that is gone, from the runtime."""

    code: int
    finished_ns: int
    error: str = ""
    """Why the command could not be run, or what happened to its shim."""
    oom_killed: int = 0
    message: str = ""


class RecordDirectory:
    """The runtime's directory, used by one agent at a time.

    Errors: HostError while another agent uses it.
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory
        with host_errors("make", directory):
            directory.mkdir(parents=True, exist_ok=True)
            # Other users may pass through, so that their containers reach their own files.
            directory.chmod(0o711)
            self._lock = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with host_errors("lock", directory):
            is_ours = try_flock(self._lock)
        if not is_ours:
            os.close(self._lock)
            raise HostError("use", str(directory), "another agent uses it") from None
        # Made while there is room: on a full disk a directory can be renamed into it, but it could not be made.
        with contextlib.suppress(OSError):
            (directory / _TRASH).mkdir(mode=0o700, exist_ok=True)
            for removed in (directory / _TRASH).iterdir():
                shutil.rmtree(removed, ignore_errors=True)

    def close(self) -> None:
        """Releases the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ------------------------------------------------------------ pods

    def pod_uids(self) -> list[str]:
        """The uids of all pods."""
        with host_errors("list", self._root):
            return sorted(path.parent.name for path in self._root.glob("*/pod.json"))

    def sandbox_record(self, uid: str) -> SandboxRecord | None:
        """The record of a pod's sandbox; None: no such pod."""
        return _read(self._pod_directory(uid) / "pod.json", SandboxRecord)

    def save_sandbox(self, uid: str, record: SandboxRecord) -> None:
        """Writes the record of a sandbox."""
        path = self._pod_directory(uid)
        with host_errors("make", path):
            path.mkdir(mode=0o711, exist_ok=True)
        _write(path / "pod.json", record)

    def delete_sandbox(self, uid: str) -> None:
        """Removes all records of a pod."""
        self._remove_directory(self._pod_directory(uid))

    def remove_remains(self, uids: Collection[str]) -> None:
        """Removes what is left of pods, besides these, whose record is missing or damaged, unless a shim still runs.

        Nothing else would: without the record the pod is unknown. What cannot be removed is tried again.
        """
        with host_errors("list", self._root), os.scandir(self._root) as entries:
            names = {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
        for name in sorted(name for name in names - {*uids} if not name.startswith(".")):
            with contextlib.suppress(HostError):
                has_record = self.sandbox_record(name) is not None
                if not has_record and all(map(self.delete_container, self.container_ids(name))):
                    self.delete_sandbox(name)

    def _pod_directory(self, uid: str) -> Path:
        if uid.startswith("."):
            raise HostError("keep pod", uid, "a directory cannot have this name")
        return path_beneath(self._root, uid)

    # ------------------------------------------------------------ containers

    def container_ids(self, uid: str) -> list[ContainerId]:
        """The containers of a pod, by name, the newest attempt first."""
        pod_directory = self._pod_directory(uid)
        with host_errors("list", pod_directory):
            directories = [path.parent for path in pod_directory.glob("*/*/created.json")]
        ids = [
            ContainerId(uid, directory.parent.name, int(directory.name))
            for directory in directories
            if directory.name.isdecimal()
        ]
        return sorted(ids, key=lambda id_: (id_.name, -id_.attempt))

    def running_cgroups(self, uid: str, *, besides: str) -> frozenset[str]:
        """The cgroups of a pod's containers that have not ended, without those of one name."""
        records = (
            self.container_record(id_)
            for id_ in self.container_ids(uid)
            if id_.name != besides and self.exit_record(id_) is None
        )
        return frozenset(record.cgroup for record in records if record is not None)

    def container_directory(self, id_: ContainerId) -> Path:
        """The directory of a container."""
        return path_beneath(self._pod_directory(id_.uid), id_.name, str(id_.attempt))

    def termination_log(self, id_: ContainerId) -> Path:
        """The container's termination message file, writable by every user."""
        return self.container_directory(id_) / "termination-log"

    def container_record(self, id_: ContainerId) -> ContainerRecord | None:
        """The record of a container; None: no such container."""
        return _read(self.container_directory(id_) / "created.json", ContainerRecord)

    def start_record(self, id_: ContainerId) -> StartRecord | None:
        """The shim's record of the start; empty if the file is incomplete."""
        path = self.container_directory(id_) / "started"
        return _read(path, StartRecord) or (StartRecord() if path.exists() else None)

    def exit_record(self, id_: ContainerId) -> ExitRecord | None:
        """The record of the end; None: the container has not ended."""
        return _read(self.container_directory(id_) / "exit.json", ExitRecord)

    def save_container(self, id_: ContainerId, record: ContainerRecord) -> None:
        """Writes the record of a created container."""
        path = self.container_directory(id_)
        with host_errors("make", path):
            path.mkdir(mode=0o711, parents=True, exist_ok=True)
            self.termination_log(id_).touch()
            self.termination_log(id_).chmod(0o666)
        _write(path / "created.json", record)

    def record_exit(self, id_: ContainerId, exit_record: ExitRecord) -> bool:
        """Records the end of a container without a shim; whether it has none, so that it will not start or run on.

        A write error is ignored.
        """
        with self.lock_container(id_) as is_ours:
            if is_ours and self.exit_record(id_) is None:
                with contextlib.suppress(HostError):
                    _write(self.container_directory(id_) / "exit.json", exit_record, synced=True)
            return is_ours

    def delete_container(self, id_: ContainerId) -> bool:
        """Removes a container's records unless a shim holds its lock; its log stays. Whether the records are gone."""
        with self.lock_container(id_) as is_ours:
            if is_ours:
                self._remove_directory(self.container_directory(id_))
            return is_ours

    def _remove_directory(self, path: Path) -> None:
        """Removes a directory by renaming it first: an interrupted removal leaves nothing that looks like a new container."""
        trash = self._root / _TRASH
        if not os.path.lexists(path):
            return
        with host_errors("remove", path), contextlib.suppress(FileNotFoundError):
            trash.mkdir(mode=0o700, exist_ok=True)
            removed = path.rename(trash / str(time.monotonic_ns()))
            if removed.is_dir():
                shutil.rmtree(removed)
            else:
                removed.unlink()

    # ------------------------------------------------------------ shims

    def shim_pid(self, id_: ContainerId) -> int:
        """The pid of a container's shim, which holds the lock while it runs; 0: no shim runs."""
        path = self.container_directory(id_) / _LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise HostError("look at", str(path), error.strerror or str(error)) from None
        try:
            request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            lock_type, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
        finally:
            os.close(descriptor)
        return pid if lock_type != fcntl.F_UNLCK else 0

    def shim_age_s(self, id_: ContainerId) -> float:
        """How long ago a container's shim was started; 0 if that is unknown."""
        try:
            return max(0.0, time.time() - (self.container_directory(id_) / _LOCK).stat().st_mtime)
        except OSError:
            return 0.0

    @contextlib.contextmanager
    def lock_container(self, id_: ContainerId) -> Iterator[bool]:
        """Whether no shim holds the container; if so, none can start while the lock is held."""
        path = self.container_directory(id_) / _LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            yield True
            return
        except OSError as error:
            raise HostError("lock", str(path), error.strerror or str(error)) from None
        is_ours = True
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            is_ours = False
        try:
            yield is_ours
        finally:
            os.close(descriptor)

    def send_command(self, id_: ContainerId, command: str) -> bool:
        """Sends a command to a container's shim; False: the shim is gone."""
        path = self.container_directory(id_) / "ctl"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise HostError("write to", str(path), error.strerror or str(error)) from None
        try:
            os.write(descriptor, f"{command}\n".encode())
        except BlockingIOError:
            # The FIFO is full of earlier commands; once the shim reads them, this one makes no difference.
            return True
        except BrokenPipeError:
            return False
        finally:
            os.close(descriptor)
        return True


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_regular_file(path, _MAX_RECORD_BYTES), type=examined(kind))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, FileRefusedError):
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Written without sync, it may be empty after a power loss; then the container does not run either.
        return None
    except OSError as error:
        raise HostError("read", str(path), error.strerror or str(error)) from None


def _write(path: Path, document: msgspec.Struct, *, synced: bool = False) -> None:
    write_atomically(path, msgspec.json.encode(document), synced=synced)


# ---------------------------------------------------------------- from configs to records, and from records to statuses


class ProcessIdentity(NamedTuple):
    """User, primary group and supplementary groups; None: the agent's own."""

    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None


def process_identity(pod: Pod, container: Container) -> ProcessIdentity:
    """The identity that a container runs as: from the container, else the pod, else the agent.

    Departs: a user of this machine gets its own group where a container without runAsGroup would get group 0, and only
             the supplementary groups that the pod names (`supplementalGroupsPolicy: Strict`).
    """
    pod_context = pod.spec.security_context or PodSecurityContext()
    uid, gid = effective_setting(pod, container, "runAsUser"), effective_setting(pod, container, "runAsGroup")
    supplemental_groups = (
        pod_context.supplemental_groups
        if pod_context.fs_group is None
        else (*pod_context.supplemental_groups, pod_context.fs_group)
    )
    if uid is None and gid is None and not supplemental_groups:
        return ProcessIdentity(None, None, None)
    if uid is not None and gid is None:
        gid = _primary_group(uid)
    return ProcessIdentity(uid, gid, tuple(dict.fromkeys(supplemental_groups)))


def _primary_group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0


START_ERROR = "StartError"

_NOT_RUN = 128
_TERMINATION_LOG = "/dev/termination-log"
_CAP_SYS_RESOURCE = 1 << 24


def container_record(
    config: ContainerConfig, sandbox_id: str, cgroup: str, log_path: str, termination_log: str
) -> ContainerRecord:
    """The record of a new container.

    Errors: HostError where it has no command.
    """
    if not config.command and not config.args:
        raise HostError(
            "create container",
            config.container.name,
            "no command specified, and a plain process has no image",
        )
    score, privileges = config.settings.oom_score, container_privileges(config.container)
    identity = process_identity(config.pod, config.container)
    return ContainerRecord(
        sandbox_id=sandbox_id,
        hash=config.spec_hash,
        argv=(*config.command, *config.args),
        env=dict(config.env),
        cwd=config.working_dir,
        log=log_path,
        cgroup=cgroup,
        oom_score_adj=None if score is None else score.adj,
        **identity._asdict(),
        termination_log=termination_log,
        created_ns=time.time_ns(),
        capabilities=None if privileges.capabilities is None else tuple(sorted(privileges.capabilities)),
        no_new_privs=privileges.no_new_privs,
        stop_signal=_signal_number(config.stop_signal) if config.stop_signal else 0,
    )


def _signal_number(name: str) -> int:
    """The number of a signal, in Kubernetes' notation: `SIGINT`, `SIGRTMIN+3`, `SIGRTMAX-1`.

    Errors: HostError.
    """
    base, sign, supplemental_groups = name.partition("+") if "+" in name else name.partition("-")
    base_number = getattr(signal, base, None) if base.startswith("SIG") and base[3:].isalnum() else None
    if base_number is None or (
        sign and not (base in ("SIGRTMIN", "SIGRTMAX") and supplemental_groups.isdecimal())
    ):
        raise HostError("stop by", name, "there is no such signal")
    number = int(base_number) + int(f"{sign}{supplemental_groups}" if sign else 0)
    if not 0 < number <= signal.SIGRTMAX:
        raise HostError("stop by", name, "there is no such signal")
    return number


def termination_log_path(config: ContainerConfig) -> str:
    """The host file that is mounted as the container's termination log; empty: none.

    It is the last mount there: one before it is a volume of the pod, which may be a file that its user cannot read.
    """
    path = config.container.termination_message_path or _TERMINATION_LOG
    return next((mount.host_path for mount in reversed(config.mounts) if mount.container_path == path), "")


def container_facts(
    id_: ContainerId,
    record: ContainerRecord,
    start_record: StartRecord | None,
    exit_record: ExitRecord | None,
) -> RuntimeContainerStatus:
    """The status of a container."""
    status = RuntimeContainerStatus(
        id=str(id_),
        name=id_.name,
        attempt=id_.attempt,
        phase=ContainerPhase.CREATED if start_record is None else ContainerPhase.RUNNING,
        sandbox_id=record.sandbox_id,
        spec_hash=record.hash,
        created_ns=record.created_ns,
        started_ns=start_record.started_ns if start_record is not None else 0,
        log_path=record.log,
        cgroup=record.cgroup,
    )
    if exit_record is None:
        return status
    has_not_run = exit_record.code == _NOT_RUN and bool(exit_record.error)
    reason = OOM_KILLED if exit_record.oom_killed else ERROR if exit_record.code else COMPLETED
    return replace(
        status,
        phase=ContainerPhase.EXITED,
        started_ns=0 if has_not_run else status.started_ns,
        finished_ns=exit_record.finished_ns,
        exit_code=exit_record.code,
        reason=START_ERROR if has_not_run else reason,
        message=exit_record.message or exit_record.error,
    )


def shim_spec(record: ContainerRecord, cgroups: CgroupFS) -> dict[str, Any]:
    """The input of a container's shim."""
    procs_files = cgroups.procs_files(record.cgroup)
    directories = [door.rpartition("/")[0] for door in procs_files]
    names = ("memory.events", "memory.oom_control")
    return {
        **asdict(record),
        "procs_files": list(procs_files),
        "directories": directories,
        "oom_files": [f"{directory}/{name}" for directory in directories for name in names],
    }


def can_lower_oom_scores() -> bool:
    """Whether the agent may lower the oom_score_adj of processes."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _CAP_SYS_RESOURCE)
    return False
