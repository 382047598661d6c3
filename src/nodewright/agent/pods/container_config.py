"""Builds what configs of all runtimes have in common: environment variables, commands and volumes."""

import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.host.eviction_readings import PodDirectories
from nodewright.agent.host.ports import ContainerConfig, Mount
from nodewright.agent.host.volumes import MEMORY_VOLUME_TYPES, VolumeError, Volumes, volume_path
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.log_rotation import log_directory
from nodewright.agent.pods.volume_setup import VolumeSetup, mounted_volumes, volumes_by_name
from nodewright.agent.rules.environment_variables import (
    command_and_args,
    environment_variables,
    sub_path,
)
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.rules.pod_status import sorted_pod_ips
from nodewright.agent.rules.value_sources import ReferenceSources, UnresolvedReference
from nodewright.documents.files.openat2 import path_beneath, read_beneath
from nodewright.documents.formats.pod_files import is_safe_uid
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, EphemeralContainer, Pod, ResourceList
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTS, _TERMINATION_LOG = "/etc/hosts", "/dev/termination-log"
_MAX_ENV_FILE_BYTES = 64 * 1024

NO_RECURSIVE_READ_ONLY = (
    'failed to resolve recursive read-only mode: volume "{name}" requested recursive read-only mode, '
    "but it is not supported by the runtime"
)
"""The agent mounts nothing recursively read-only.

Follows: v1.36, kubelet/kubelet_pods.go, resolveRecursiveReadOnly.
"""


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all pods of a node."""

    log_root: Path
    """Root of the pod log directories: `NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log`."""
    allocatable: ResourceList = {}
    host_ips: tuple[str, ...] = ("127.0.0.1",)
    """The first one is the node's address."""
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = ()
    resolv_conf: str = "/etc/resolv.conf"
    """The node's own file; empty: pods have no nameservers from the node."""
    has_stop_signals: bool = False
    """Whether a container's own stop signal is used (gate ContainerStopSignals)."""


ContainerCgroup = tuple[ContainerSettings, tuple[CgroupFile, ...]]


class BaseConfigBuilder:
    """The config parts that both kinds of runtime share."""

    def __init__(self, node_context: NodeContext, volumes: Volumes, object_cache: ConfigObjectCache) -> None:
        self.node_context, self.volumes, self.object_cache = node_context, volumes, object_cache
        self.volume_setup = VolumeSetup(volumes, self._object_sources)

    async def remove_pod_files(self, pod: Pod) -> None:
        """Removes the pod's volumes and logs."""
        self.volume_setup.remove(pod)
        try:
            logs = self.pod_log_directory(pod)
        except HostError:
            # Nothing was ever created under these names.
            return
        if logs.exists():
            run_host_operation("remove", logs, lambda: shutil.rmtree(logs))

    async def watch_config_objects(
        self, pods: Callable[[], Iterable[Pod]], on_error: Callable[[str], None]
    ) -> None:
        """Refreshes the volumes of these pods whenever their objects change, until cancelled; ``on_error`` gets failures."""
        cache = self.object_cache
        while True:
            await cache.has_changed.wait()
            uids = cache.take_changes()
            try:
                await self.refresh_volumes(pod for pod in pods() if uids is None or pod.uid in uids)
            except HostError as error:
                on_error(str(error))

    async def prepare_pod(self, pod: Pod) -> None:
        """Sets up the pod's volumes, once what they show is known; no container starts before.

        Follows: v1.36, kubelet/kubelet.go, SyncPod; kubelet/volumemanager/volume_manager.go, WaitForAttachAndMount.
        Errors:  ContainerConfigError; HostError.
        """
        check_uid(pod)
        await self.object_cache.prepare(pod)
        for volume in mounted_volumes(pod):
            await self.volume_setup.prepare(pod, volume)

    async def refresh_volumes(self, pods: Iterable[Pod]) -> None:
        """Updates the files in volumes that come from config objects.

        Errors: HostError, the first, after all others have been refreshed.
        """
        await self.volume_setup.refresh(pods)

    def storage_paths(self, pod: Pod) -> PodDirectories:
        """Where the pod's files that count as its local ephemeral storage are; volumes in memory do not count."""
        volumes = {}
        for volume in pod.spec.volumes:
            is_in_memory = any(volume.get(kind) is not None for kind in MEMORY_VOLUME_TYPES)
            is_in_memory |= (volume.get("emptyDir") or {}).get("medium") == "Memory"
            if volume.get("hostPath") is None and not is_in_memory:
                with suppress(VolumeError, HostError):
                    path = volume_path(self.volumes.pod_directory(pod.uid), volume)
                    volumes[path.name] = path
        logs = {}
        for container in pod.spec.all_containers:
            with suppress(HostError):
                logs[container.name] = self.container_log_directory(pod, container)
        return PodDirectories(volumes=volumes, logs=logs)

    # ------------------------------------------------------------ parts

    def pod_log_directory(self, pod: Pod) -> Path:
        """The directory of the pod's logs.

        Errors: HostError for names that cannot be in a path.
        """
        meta = pod.metadata
        return log_directory(self.node_context.log_root, meta.namespace, meta.name, meta.uid)

    def container_log_directory(self, pod: Pod, container: Container) -> Path:
        """The directory of a container's logs.

        Errors: HostError, as for `pod_log_directory`.
        """
        return path_beneath(self.pod_log_directory(pod), container.name)

    def _reference_sources(
        self, pod: Pod, container: Container, runtime_status: RuntimePodStatus
    ) -> ReferenceSources:
        around = self._object_sources(pod)
        host_ips = self.node_context.host_ips
        own_ips = runtime_status.sandboxes[0].ips if runtime_status.sandboxes else ()
        ips = sorted_pod_ips(own_ips, host_ips[0]) or host_ips
        return replace(around, pod_ips=ips, env_files=self._env_files(pod, container))

    def _object_sources(self, pod: Pod) -> ReferenceSources:
        context = self.node_context
        sources = self.object_cache.sources(pod)
        return replace(sources, host_ips=context.host_ips, allocatable=context.allocatable)

    def _env_files(self, pod: Pod, container: Container) -> dict[tuple[str, str], str | UnresolvedReference]:
        """The texts of files in volumes that environment variables refer to."""
        texts: dict[tuple[str, str], str | UnresolvedReference] = {}
        volumes = volumes_by_name(pod)
        for variable in container.env:
            entry = (variable.value_from or {}).get("fileKeyRef")
            volume = volumes.get(str(entry.get("volumeName") or "")) if entry is not None else None
            if entry is None or volume is None:
                continue
            key = (str(entry.get("volumeName") or ""), str(entry.get("path") or ""))
            host_path, _ = self.volume_setup.set_up(pod, volume)
            try:
                texts[key] = read_beneath(host_path, key[1], _MAX_ENV_FILE_BYTES).decode()
            except (OSError, ValueError) as error:
                texts[key] = UnresolvedReference(str(error))
        return texts

    def base_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: ContainerCgroup,
        runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """The container's config except for mounts and image.

        Errors: ContainerConfigError; HostError.
        """
        check_uid(pod)
        env = _checked_value(
            environment_variables(pod, container, self._reference_sources(pod, container, runtime_status))
        )
        command, args = _checked_value(command_and_args(container, env))
        signal = (container.lifecycle or {}).get("stopSignal")
        return ContainerConfig(
            pod=pod,
            container=container,
            attempt=attempt,
            spec_hash=spec_hash(container),
            command=command,
            args=args,
            env=env,
            working_dir=container.working_dir,
            log_path=f"{container.name}/{attempt}.log",
            image=container.image,
            settings=settings[0],
            cgroup_files=settings[1],
            stop_signal=str(signal or "") if self.node_context.has_stop_signals else "",
            target_id=_target_id(container, runtime_status),
        )

    def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> list[Mount]:
        """The container's volume mounts.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, makeMounts.
        """
        volumes = volumes_by_name(pod)
        mounts = []
        for number, entry in enumerate(container.volume_mounts):
            name = str(entry.get("name") or "")
            if name not in volumes:
                raise ContainerConfigError(
                    f'cannot find volume "{name}" to mount into container "{container.name}"'
                )
            if entry.get("recursiveReadOnly") == "Enabled":
                raise ContainerConfigError(NO_RECURSIVE_READ_ONLY.format(name=name))
            path = _checked_value(sub_path(entry, env))
            host_path, is_read_only = self.volume_setup.set_up(pod, volumes[name])
            if path:
                host_path = self.resolve_subpath(pod, host_path, path, (name, container.name, number))
            mount_path = str(entry.get("mountPath") or "")
            mounts.append(
                Mount(
                    host_path=str(host_path),
                    container_path=mount_path if mount_path.startswith("/") else f"/{mount_path}",
                    is_read_only=bool(entry.get("readOnly")) or is_read_only,
                    propagation=str(entry.get("mountPropagation") or ""),
                )
            )
        return mounts

    def resolve_subpath(self, pod: Pod, root: Path, path: str, target: tuple[str, str, int]) -> Path:
        """The path below a volume; the error does not name the target, which may lie outside the pod's volumes."""
        try:
            return self.volumes.prepare_subpath(pod.uid, root, path, target)
        except OSError:
            name, container, _ = target
            raise ContainerConfigError(
                f'failed to prepare subPath for volumeMount "{name}" of container "{container}"'
            ) from None
        except VolumeError as error:
            raise ContainerConfigError(
                f'MountVolume.SetUp failed for volume "{target[0]}" : {error}'
            ) from None

    def termination_log(self, pod: Pod, container: Container, attempt: int) -> Mount:
        """The container's termination message file; the file of the attempt before the last is removed.

        Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts.
        """
        pod_directory = self.volumes.pod_directory(pod.uid)
        host_path = path_beneath(pod_directory, "containers", container.name, str(attempt))
        self.volumes.make_directory(host_path.parent, 0o755)
        before = host_path.with_name(str(attempt - 2))
        run_host_operation("remove", before, lambda: before.unlink(missing_ok=True))
        run_host_operation("make", host_path, lambda: host_path.touch(0o666))
        run_host_operation("make", host_path, lambda: host_path.chmod(0o666))
        return Mount(
            host_path=str(host_path), container_path=container.termination_message_path or _TERMINATION_LOG
        )


def _target_id(container: Container, runtime_status: RuntimePodStatus) -> str:
    """The id of the container whose processes an ephemeral container sees; empty: none is named.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, getTargetID.
    """
    name = container.target_container_name if isinstance(container, EphemeralContainer) else ""
    target = runtime_status.newest_attempt(name) if name else None
    if name and target is None:
        raise ContainerConfigError(f"unable to find target container {name}")
    return target.id if target is not None else ""


def _checked_value(value: Any) -> Any:
    if isinstance(value, UnresolvedReference):
        raise ContainerConfigError(value.message)
    return value


def check_uid(pod: Pod) -> None:
    """Checks that the pod's uid can name a directory.

    Errors: ContainerConfigError.
    """
    if not is_safe_uid(pod.uid):
        raise ContainerConfigError(f"the pod's uid {pod.uid!r} cannot be the name of a directory")


def read_text(path: Path) -> str:
    """The text of a file; empty if it does not exist.

    Errors: HostError.
    """
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise HostError("read", str(path), error.strerror or str(error)) from None


def run_host_operation(operation: str, host_path: Path, act: Callable[[], object]) -> None:
    """Runs an operation on the host's files.

    Errors: HostError.
    """
    try:
        act()
    except OSError as error:
        raise HostError(operation, str(host_path), error.strerror or str(error)) from None
