"""Rotates the logs of containers, and links to them in one directory, where log collectors look for them."""

import asyncio
import gzip
import shutil
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from nodewright.agent.host.host_errors import host_errors, run_host_operation
from nodewright.agent.host.ports import ContainerConfig, ContainerRuntime
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.openat2 import path_beneath
from nodewright.documents.files.regular_files import open_regular_file
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)
from nodewright.model.values.quantity import Quantity, QuantityError

_COMPRESSED, _UNFINISHED = ".gz", ".tmp"
_STAMP = "%Y%m%d-%H%M%S"


class LogRotatePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The size limit of a log, and how many of its files are kept.

    Units: bytes; files, the current one included; seconds between checks.
    """

    max_bytes: int = 10 * 2**20
    max_files: int = 5
    period_s: float = 10.0

    @classmethod
    def from_config(cls, config: KubeletConfiguration) -> "LogRotatePolicy":
        """The policy of a kubelet's configuration.

        Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, parseMaxSize.
        Errors:  QuantityError where the size is no quantity.

        >>> LogRotatePolicy.from_config(KubeletConfiguration(container_log_max_size="1Mi")).max_bytes
        1048576
        """
        size = Quantity.parse(config.container_log_max_size).as_int64()
        if size is None:
            raise QuantityError("invalid max log size")
        period_s = config.container_log_monitor_interval.nanoseconds / 10**9
        return cls(max_bytes=size, max_files=config.container_log_max_files, period_s=period_s)


async def rotate_logs(
    runtime: ContainerRuntime,
    log_root: Path,
    policy: LogRotatePolicy,
    clock: Clock,
    on_error: Callable[[str], None],
    clean_up: Callable[[Iterable[RuntimePodStatus]], None] = lambda _pods: None,
) -> None:
    """Rotates the logs of all containers periodically, until cancelled; ``on_error`` gets the failures.

    ``clean_up`` runs with the runtime's pods after each rotation.

    Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, rotateLogs; with a negative size nothing is rotated.
    """
    while True:
        try:
            pods = await runtime.pods()
            if policy.max_bytes >= 0:
                await rotate_once(runtime, pods, log_root, policy, clock)
            await asyncio.to_thread(_remove_unused_logs, pods, log_root)
            await asyncio.to_thread(clean_up, pods)
        except (HostError, TimeoutError) as error:
            on_error(str(error))
        await clock.sleep(policy.period_s)


async def rotate_once(
    runtime: ContainerRuntime,
    pods: Iterable[RuntimePodStatus],
    log_root: Path,
    policy: LogRotatePolicy,
    clock: Clock,
) -> None:
    """Rotates each log of running containers that has grown too large; a failure does not stop the other rotations.

    Errors: HostError, the first.
    """
    errors: list[HostError] = []
    for pod in pods:
        for container in pod.containers:
            if container.phase is not ContainerPhase.RUNNING or not container.log_path:
                continue
            try:
                directory = log_directory(log_root, pod.namespace, pod.name, pod.uid)
                await _rotate(runtime, container.id, directory / container.log_path, policy, clock)
            except HostError as error:
                errors.append(error)
    if errors:
        raise errors[0]


def _remove_unused_logs(pods: Iterable[RuntimePodStatus], log_root: Path) -> None:
    """Removes the logs of attempts that came before those that the runtime still has.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_container.go, removeContainerLog.
    Errors:  HostError.
    """
    for pod in pods:
        oldest: dict[str, RuntimeContainerStatus] = {}
        for container in pod.containers:
            if container.name not in oldest or container.attempt < oldest[container.name].attempt:
                oldest[container.name] = container
        for container in oldest.values():
            if container.attempt == 0 or not container.log_path:
                continue
            directory = log_directory(log_root, pod.namespace, pod.name, pod.uid)
            for path in (directory / container.log_path).parent.glob("*.log*"):
                attempt = path.name.partition(".")[0]
                if attempt.isdecimal() and int(attempt) < container.attempt:
                    run_host_operation("remove log", path, partial(path.unlink, missing_ok=True))


def remove_logs_of_removed_pods(
    log_root: Path, pods: Iterable[RuntimePodStatus], known_uids: Callable[[], Collection[str] | None]
) -> None:
    """Removes the log directories of pods that neither the runtime nor the agent has, as after the loss of a record.

    ``known_uids`` is None as long as not every source has listed its pods.
    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_gc.go, evictPodLogsDirectories.
    Errors:  HostError.
    """
    # Listed before the pods: the directory of a pod is younger than its record.
    directories = [path for path in log_root.glob("*_*_*") if path.is_dir() and not path.is_symlink()]
    uids = known_uids()
    if uids is None:
        return
    kept = {*uids, *(pod.uid for pod in pods)}
    for path in directories:
        if path.name.rpartition("_")[2] not in kept:
            run_host_operation("remove", path, partial(shutil.rmtree, path))


def log_directory(log_root: Path, namespace: str, name: str, uid: str) -> Path:
    """The directory of a pod's logs.

    Follows: v1.36, pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory.
    Errors:  HostError where these names make no name of a directory.
    """
    return path_beneath(log_root, f"{namespace}_{name}_{uid}")


async def _rotate(
    runtime: ContainerRuntime, container_id: str, log: Path, policy: LogRotatePolicy, clock: Clock
) -> None:
    """Rotates one log if it is too large; a missing log file is created."""
    if _size(log) is None:
        await runtime.reopen_log(container_id)
    if (_size(log) or 0) < policy.max_bytes:
        return
    # Compressing takes time; the event loop stays free.
    await asyncio.to_thread(_remove_old_logs, log, policy.max_files)
    now = datetime.fromtimestamp(clock.now_ns() / 10**9, UTC).astimezone()
    rotated = log.with_name(f"{log.name}.{now:{_STAMP}}")
    if rotated.exists():
        return
    run_host_operation("rename", log, lambda: log.rename(rotated))
    try:
        await runtime.reopen_log(container_id)
    except (HostError, TimeoutError):
        # The container still writes to the renamed file: give it its name back and try again next time.
        run_host_operation("rename", rotated, lambda: rotated.rename(log))
        raise


def _size(log: Path) -> int | None:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError("look at log", str(log), error.strerror or str(error)) from None


def _remove_old_logs(log: Path, max_files: int) -> None:
    """Removes unfinished and outdated files, and compresses the rest.

    Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, rotateLog: beside the current log and the one that is
        about to be renamed.
    """
    names = {path.name for path in log.parent.glob(f"{log.name}.*")}
    unused = {name for name in names if name.endswith(_UNFINISHED) or f"{name}{_COMPRESSED}" in names}
    rotated_names = sorted(names - unused)
    outdated = rotated_names[: max(0, len(rotated_names) - max(0, max_files - 2))]
    for name in (*unused, *outdated):
        run_host_operation("remove log", log.with_name(name), log.with_name(name).unlink)
    for name in rotated_names[len(outdated) :]:
        if not name.endswith(_COMPRESSED):
            path = log.with_name(name)
            run_host_operation("compress log", path, partial(_compress, path))


def _compress(path: Path) -> None:
    """Replaces the file by a compressed one, completely or not at all."""
    unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
    try:
        with open_regular_file(path) as source, gzip.open(unfinished, "wb") as target:
            shutil.copyfileobj(source, target)
        unfinished.chmod(path.stat().st_mode & 0o7777)
        unfinished.replace(path.with_name(f"{path.name}{_COMPRESSED}"))
    finally:
        unfinished.unlink(missing_ok=True)
    path.unlink()


# ---------------------------------------------------------------- links


CONTAINER_LOGS = Path("/var/log/containers")
_SUFFIX, _MAX_NAME_LENGTH = ".log", 255


class LogLinks:
    """Keeps the links of an agent's containers.

    Follows: v1.36, kubelet/kuberuntime/legacy.go; kuberuntime_container.go, startContainer.
    """

    def __init__(self, directory: Path, log_root: Path, on_error: Callable[[str], None]) -> None:
        """``log_root`` is the root of the pod log directories; links to other files are left alone.

        ``on_error`` gets the links that cannot be made: containers run without them.
        """
        self._directory, self._log_root, self._on_error = directory, log_root, on_error

    def add(self, config: ContainerConfig, container_id: str) -> None:
        """Links to the log of a container that has started, if it has a log."""
        meta = config.pod.metadata
        log = log_directory(self._log_root, meta.namespace, meta.name, meta.uid) / config.log_path
        name = f"{meta.name}_{meta.namespace}_{config.container.name}-{container_id}"
        link = self._directory / f"{name[: _MAX_NAME_LENGTH - len(_SUFFIX)]}{_SUFFIX}"
        try:
            if log.exists():
                self._directory.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(log)
        except OSError as error:
            self._on_error(str(HostError("link", str(link), error.strerror or str(error))))

    def remove_dead(self, pods: Iterable[RuntimePodStatus]) -> None:
        """Removes links to logs that no longer exist; while a log is rotated, its container still runs.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_gc.go, evictPodLogsDirectories.
        Departs: the kubelet removes dead links to any place.
        Errors:  HostError.
        """
        not_ended = {
            container.id
            for pod in pods
            for container in pod.containers
            if container.phase is not ContainerPhase.EXITED
        }
        for link in self._directory.glob(f"*{_SUFFIX}"):
            container_id = link.name.removesuffix(_SUFFIX).rpartition("-")[2]
            with host_errors("remove link", link):
                is_ours = link.is_symlink() and link.readlink().is_relative_to(self._log_root)
                if is_ours and not link.exists() and container_id not in not_ended:
                    link.unlink(missing_ok=True)
