"""Builds sandbox and container configs: what all runtimes have in common, for plain processes, and for containers from images."""

import os
import pwd
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.host.eviction_readings import PodDirectories
from nodewright.agent.host.host_errors import run_host_operation
from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.host.volumes import MEMORY_VOLUME_TYPES, VolumeError, Volumes, volume_path
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.pods.log_rotation import log_directory
from nodewright.agent.pods.volume_setup import VolumeSetup, mounted_volumes, volumes_by_name
from nodewright.agent.rules.container_security import (
    effective_setting,
    run_as_non_root_violation,
    unsupported_settings,
)
from nodewright.agent.rules.environment_variables import command_and_args, environment_variables, sub_path
from nodewright.agent.rules.hosts_and_dns import (
    MISSING_CLUSTER_DNS,
    NO_CLUSTER_DNS,
    OverlongHostname,
    kernel_hostname,
    managed_hosts_file,
    node_hosts_file,
    pod_dns,
    pod_hostname,
    resolv_conf_text,
)
from nodewright.agent.rules.pod_actions import spec_hash
from nodewright.agent.rules.pod_status import sorted_pod_ips
from nodewright.agent.rules.value_sources import ReferenceSources, UnresolvedReference
from nodewright.documents.files.openat2 import path_beneath, read_beneath
from nodewright.documents.files.root_directory import CLOSED
from nodewright.documents.formats.pod_files import is_safe_uid
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.engine.core.cgroups.cgroup_plan import CgroupFile
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, EphemeralContainer, Pod, ResourceList
from nodewright.model.kubernetes.recorded_events import RecordEvent
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


class ProcessConfigBuilder(BaseConfigBuilder):
    """For plain processes: they see the host's files, so a volume is only visible at its real path."""

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """The config that keeps the pod's processes together."""
        check_uid(pod)
        return PodSandboxConfig(
            pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=str(self.pod_log_directory(pod))
        )

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: ContainerCgroup,
        runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """A process's config: its command, with the environment variables that it would have in a container.

        Errors: ContainerConfigError; HostError.
        """
        self._check_security_context(pod, container)
        self.volumes.admit_users(pod.uid, _users(pod))
        config = self.base_config(pod, container, attempt, settings, runtime_status)
        if not config.command:
            message = "no command specified: a plain process has no image to take one from"
            raise ContainerConfigError(f"container {container.name}: {message}")
        mounts = self.mounts(pod, container, config.env)
        for mount in mounts:
            if mount.host_path != mount.container_path:
                raise ContainerConfigError(
                    f"container {container.name}: a plain process sees the host's files: {mount.host_path} cannot be "
                    f"mounted at {mount.container_path}; set mountPath to the same path, "
                    "or use a container runtime"
                )
        for volume_mount in container.volume_mounts:
            if volume_mount.get("readOnly"):
                raise ContainerConfigError(
                    f"container {container.name}: a plain process can write where its user can: readOnly cannot be enforced "
                    f"at {volume_mount.get('mountPath')}; remove it, or use a container runtime"
                )
        termination_log = self.termination_log(pod, container, attempt)
        default_env = {
            "PATH": PATH,
            "HOME": _home(pod, container),
            "TERMINATION_MESSAGE_PATH": termination_log.host_path,
        }
        return replace(
            config,
            env={**default_env, **config.env},
            working_dir=config.working_dir or "/",
            mounts=(*mounts, termination_log),
        )

    def _check_security_context(self, pod: Pod, container: Container) -> None:
        """Checks that the process can run as the right user and with all restrictions of its security context.

        Errors: ContainerConfigError.
        """
        violation = run_as_non_root_violation(pod, container, (os.geteuid(), ""))
        if violation:
            raise ContainerConfigError(violation)
        unsupported = list(unsupported_settings(pod, container))
        if unsupported:
            raise ContainerConfigError(
                f"container {container.name}: its security context cannot be enforced for a plain process "
                f"({'; '.join(unsupported)}); remove these settings, or use a container runtime"
            )

    def resolve_subpath(self, pod: Pod, root: Path, path: str, target: tuple[str, str, int]) -> Path:
        """The path itself: a link leads a process nowhere that it could not go on its own."""
        del pod, target
        return root / path


EnsureImage = Callable[[Pod, Container], Awaitable[str]]
"""Ensures that a container's image exists, and returns its id.

Errors: ContainerConfigError, with the reason for the container's status.
"""


class ContainerConfigBuilder(BaseConfigBuilder):
    """For containers from images, with all mounts at the paths in the pod spec."""

    def __init__(
        self,
        node_context: NodeContext,
        volumes: Volumes,
        object_cache: ConfigObjectCache,
        ensure_image: EnsureImage | None = None,
        record_event: Callable[[RecordEvent], None] = lambda _event: None,
    ) -> None:
        """``record_event`` gets what the DNS configurations of pods lack."""
        super().__init__(node_context, volumes, object_cache)
        self._ensure_image = ensure_image
        """None: images are named as in the pod spec."""
        self.record_event = record_event

    async def sandbox_config(self, pod: Pod, attempt: int, cgroup: str) -> PodSandboxConfig:
        """The config of the pod's sandbox.

        Errors: ContainerConfigError; HostError.
        """
        check_uid(pod)
        dns = self._resolv_conf_text(pod)
        hostname = kernel_hostname(pod, pod_hostname(pod, self.node_context.cluster_domain))
        if isinstance(hostname, OverlongHostname):
            raise ContainerConfigError(hostname.message)
        logs = self.pod_log_directory(pod)
        run_host_operation("make", logs, lambda: logs.mkdir(parents=True, exist_ok=True))
        return PodSandboxConfig(
            pod=pod,
            attempt=attempt,
            cgroup_parent=cgroup,
            log_directory=str(logs),
            hostname="" if pod.spec.host_network else hostname,
            resolv_conf=dns,
        )

    async def container_config(
        self,
        pod: Pod,
        container: Container,
        attempt: int,
        settings: ContainerCgroup,
        runtime_status: RuntimePodStatus,
    ) -> ContainerConfig:
        """The config of a container.

        Errors: ContainerConfigError; HostError.
        """
        image = container.image if self._ensure_image is None else await self._ensure_image(pod, container)
        config = self.base_config(pod, container, attempt, settings, runtime_status)
        mounts = self.mounts(pod, container, config.env)
        if all(mount.container_path != _HOSTS for mount in mounts):
            mounts += self._hosts_mount(pod, runtime_status)
        mounts.append(self.termination_log(pod, container, attempt))
        logs = self.container_log_directory(pod, container)
        run_host_operation("make", logs, lambda: logs.mkdir(parents=True, exist_ok=True))
        return replace(config, image=image, mounts=tuple(mounts))

    def _hosts_mount(self, pod: Pod, runtime_status: RuntimePodStatus) -> list[Mount]:
        """The mount of the hosts file, if the pod has an address.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, shouldMountHostsFile and makeHostsMount.
        """
        own_ips = runtime_status.sandboxes[0].ips if runtime_status.sandboxes else ()
        ips = sorted_pod_ips(own_ips, self.node_context.host_ips[0])
        if pod.spec.host_network:
            text = node_hosts_file(read_text(Path(_HOSTS)), pod.spec.host_aliases)
        elif ips:
            text = managed_hosts_file(
                pod_hostname(pod, self.node_context.cluster_domain), ips, pod.spec.host_aliases
            )
        else:
            return []
        path = self.volumes.pod_directory(pod.uid) / "etc-hosts"
        self.volumes.make_directory(path.parent, CLOSED)
        # Written in place: running containers have this very file mounted.
        run_host_operation("write", path, lambda: path.write_text(text))
        run_host_operation("write", path, lambda: path.chmod(0o644))
        return [Mount(host_path=str(path), container_path=_HOSTS)]

    def _resolv_conf_text(self, pod: Pod) -> str:
        path = self.node_context.resolv_conf
        text = read_text(Path(path)) if path else None
        dns = pod_dns(pod, text, self.node_context.cluster_dns, self.node_context.cluster_domain)
        for reason, message in dns.warnings:
            if reason == MISSING_CLUSTER_DNS:
                self._warn("", reason, NO_CLUSTER_DNS)
            self._warn(pod.uid, reason, message)
        return resolv_conf_text(dns)

    def _warn(self, uid: str, reason: str, message: str) -> None:
        self.record_event(RecordEvent.warning(reason, message, uid=uid))


def _home(pod: Pod, container: Container) -> str:
    """The home directory of the user that the process runs as."""
    user = effective_setting(pod, container, "runAsUser")
    try:
        return pwd.getpwuid(os.geteuid() if user is None else user).pw_dir
    except (KeyError, OverflowError):
        return "/"


def _users(pod: Pod) -> set[int]:
    """The users that containers of the pod run as, besides the agent's own."""
    users = (
        effective_setting(pod, container, "runAsUser")
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    )
    return {user for user in users if user is not None}
