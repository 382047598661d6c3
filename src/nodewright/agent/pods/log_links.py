"""Links to the logs of containers in one directory, where log collectors look for them: /var/log/containers."""

from collections.abc import Callable, Iterable
from pathlib import Path

from nodewright.agent.host.ports import ContainerConfig
from nodewright.agent.pods.log_rotation import log_directory
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.runtime_status import ContainerPhase, RuntimePodStatus

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
            try:
                is_ours = link.is_symlink() and link.readlink().is_relative_to(self._log_root)
                if is_ours and not link.exists() and container_id not in not_ended:
                    link.unlink(missing_ok=True)
            except OSError as error:
                raise HostError("remove link", str(link), error.strerror or str(error)) from None
