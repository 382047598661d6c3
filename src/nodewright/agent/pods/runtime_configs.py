"""Builds sandbox and container configs: for plain processes, and for containers from images."""

import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from nodewright.agent.host.ports import ContainerConfig, Mount, PodSandboxConfig
from nodewright.agent.host.volumes import Volumes
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_config import (
    BaseConfigBuilder,
    ContainerCgroup,
    NodeContext,
    check_uid,
    read_text,
    run_host_operation,
)
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.rules.container_security import (
    effective_setting,
    run_as_non_root_violation,
    unsupported_settings,
)
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
from nodewright.agent.rules.pod_status import sorted_pod_ips
from nodewright.documents.files.root_directory import CLOSED
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTS = "/etc/hosts"


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
        self.record_event(RecordEvent(uid=uid, is_warning=True, reason=reason, message=message))


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
