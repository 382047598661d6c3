"""Logs of containers that have grown: set aside, compressed, and the oldest removed."""

import asyncio
import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.running import ContainerPhase
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock, ContainerRuntime

_COMPRESSED, _UNFINISHED = ".gz", ".tmp"
_STAMP = "%Y%m%d-%H%M%S"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotateRule:
    """How large a log may grow, and how many files of it are kept.

    Units: bytes; files, with the one that is written to; seconds between looks.
    """

    max_bytes: int = 10 * 2**20
    max_files: int = 5
    period_s: float = 10.0

    @classmethod
    def of(cls, config: KubeletConfiguration) -> "RotateRule":
        """As a kubelet's configuration has it.

        Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, parseMaxSize.
        Errors:  QuantityError where the size is no amount.

        >>> RotateRule.of(KubeletConfiguration(container_log_max_size="1Mi")).max_bytes
        1048576
        """
        size = Quantity.parse(config.container_log_max_size).as_int64()
        if size is None:
            raise QuantityError("invalid max log size")
        period_s = config.container_log_monitor_interval.nanoseconds / 10**9
        return cls(max_bytes=size, max_files=config.container_log_max_files, period_s=period_s)


async def rotate_logs(
    runtime: ContainerRuntime, log_root: Path, rule: RotateRule, clock: Clock, tell: Callable[[str], None]
) -> None:
    """Look at the logs of all that runs, again and again, until cancelled; ``tell`` hears what could not be done.

    Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, rotateLogs; with a negative size nothing is rotated.
    """
    while rule.max_bytes >= 0:
        try:
            await rotate_once(runtime, log_root, rule, clock)
        except (WorldError, TimeoutError) as error:
            tell(str(error))
        await clock.sleep(rule.period_s)


async def rotate_once(runtime: ContainerRuntime, log_root: Path, rule: RotateRule, clock: Clock) -> None:
    """Rotate each log that has grown too large; what fails for one is told when all others are done.

    Errors: WorldError, the first.
    """
    failed: list[WorldError] = []
    for pod in await runtime.pods():
        directory = log_directory(log_root, pod.namespace, pod.name, pod.uid)
        for one in pod.containers:
            if one.phase is not ContainerPhase.RUNNING or not one.log_path:
                continue
            try:
                await _rotate(runtime, one.id, directory / one.log_path, rule, clock)
            except WorldError as error:
                failed.append(error)
    if failed:
        raise failed[0]


def log_directory(log_root: Path, namespace: str, name: str, uid: str) -> Path:
    """Where the logs of a pod are.

    Follows: v1.36, pkg/kubelet/kuberuntime/helpers.go, BuildPodLogsDirectory.
    """
    return log_root / f"{namespace}_{name}_{uid}"


async def _rotate(
    runtime: ContainerRuntime, container_id: str, log: Path, rule: RotateRule, clock: Clock
) -> None:
    """One log, if it has grown too large; one that is not there is begun."""
    if _size(log) is None:
        await runtime.reopen_log(container_id)
    if (_size(log) or 0) < rule.max_bytes:
        return
    # Compressing takes time that others need not wait for.
    await asyncio.to_thread(_make_room, log, rule.max_files)
    now = datetime.fromtimestamp(clock.now_ns() / 10**9, UTC).astimezone()
    aside = log.with_name(f"{log.name}.{now:{_STAMP}}")
    if aside.exists():
        return
    _obeyed(lambda: log.rename(aside), "rename", log)
    try:
        await runtime.reopen_log(container_id)
    except (WorldError, TimeoutError):
        # Nothing is lost: it is written to under its old name, and tried again next time.
        _obeyed(lambda: aside.rename(log), "rename", aside)
        raise


def _size(log: Path) -> int | None:
    try:
        return log.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorldError("look at log", str(log), error.strerror or str(error)) from None


def _make_room(log: Path, max_files: int) -> None:
    """Remove what was left unfinished and what is too old; compress the rest.

    Follows: v1.36, pkg/kubelet/logs/container_log_manager.go, rotateLog: beside the log that is written to and the
        one that is about to be set aside.
    """
    names = {one.name for one in log.parent.glob(f"{log.name}.*")}
    unused = {one for one in names if one.endswith(_UNFINISHED) or f"{one}{_COMPRESSED}" in names}
    kept = sorted(names - unused)
    old = kept[: max(0, len(kept) - max(0, max_files - 2))]
    for name in (*unused, *old):
        _obeyed(log.with_name(name).unlink, "remove log", log.with_name(name))
    for name in kept[len(old) :]:
        if not name.endswith(_COMPRESSED):
            path = log.with_name(name)
            _obeyed(partial(_compress, path), "compress log", path)


def _compress(path: Path) -> None:
    """The file as an archive beside it, whole or not at all."""
    unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
    try:
        with path.open("rb") as source, gzip.open(unfinished, "wb") as target:
            shutil.copyfileobj(source, target)
        unfinished.chmod(path.stat().st_mode & 0o7777)
        unfinished.replace(path.with_name(f"{path.name}{_COMPRESSED}"))
    finally:
        unfinished.unlink(missing_ok=True)
    path.unlink()


def _obeyed(act: Callable[[], object], operation: str, path: Path) -> None:
    try:
        act()
    except OSError as error:
        raise WorldError(operation, str(path), error.strerror or str(error)) from None
