"""What runtimes are asked for: by plain processes, and by containers from images."""

import os
import pwd
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.agent.composing import Composing, Settings, Site, checked_uid, done, text_of
from nodewright.agent.shelf import Shelf
from nodewright.agent.starting import ConfigError
from nodewright.core.environment import aliased_hosts, managed_hosts, pod_dns, pod_name, resolv_text
from nodewright.core.security import not_for_processes, root_refusal, setting
from nodewright.model.objects import Container, Pod
from nodewright.model.running import PodFacts
from nodewright.world.ports import ContainerWish, Mount, SandboxWish
from nodewright.world.volumes import Volumes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTS = "/etc/hosts"


class ProcessComposer(Composing):
    """For plain processes: they see the machine as it is, so volumes can only be shown where they really are."""

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """What holds the pod's processes together."""
        checked_uid(pod)
        return SandboxWish(pod=pod, attempt=attempt, cgroup_parent=cgroup, log_directory=str(self.logs(pod)))

    async def container(
        self, pod: Pod, container: Container, attempt: int, settings: Settings, facts: PodFacts
    ) -> ContainerWish:
        """What a process is to be: its command, with the variables that it could count on in a container.

        Errors: ConfigError; WorldError.
        """
        self._allowed(pod, container)
        wish = self.wish(pod, container, attempt, settings, facts)
        if not wish.command:
            what = "no command specified: a plain process has no image to take one from"
            raise ConfigError(f"container {container.name}: {what}")
        mounts = self.mounts(pod, container, wish.env)
        for mount in mounts:
            if mount.host_path != mount.container_path:
                raise ConfigError(
                    f"container {container.name}: a plain process sees the machine's own files: what is at "
                    f"{mount.host_path} cannot be shown at {mount.container_path}; set mountPath to the same path, "
                    "or use a container runtime"
                )
        for told in container.volume_mounts:
            if told.get("readOnly"):
                raise ConfigError(
                    f"container {container.name}: a plain process can write where its user can: readOnly does not hold "
                    f"at {told.get('mountPath')}; take it away, or use a container runtime"
                )
        words = self.last_words(pod, container, attempt)
        usual = {"PATH": PATH, "HOME": _home(pod, container), "TERMINATION_MESSAGE_PATH": words.host_path}
        return replace(
            wish,
            env={**usual, **wish.env},
            working_dir=wish.working_dir or "/",
            mounts=(*mounts, words),
        )

    def _allowed(self, pod: Pod, container: Container) -> None:
        """It may run as whom it would, and with no less around it than it asks for.

        Errors: ConfigError.
        """
        refusal = root_refusal(pod, container, (os.geteuid(), ""))
        if refusal:
            raise ConfigError(refusal)
        lacking = list(not_for_processes(pod, container))
        if lacking:
            raise ConfigError(
                f"container {container.name}: a plain process cannot be held to its security context "
                f"({'; '.join(lacking)}): take that away, or use a container runtime"
            )

    def below(
        self, pod: Pod, volume: Mapping[str, Any], place: Path, path: str, target: tuple[str, str, int]
    ) -> Path:
        """Where it is: links lead a process nowhere that it could not go itself."""
        del pod, volume, target
        return place / path


ImageOf = Callable[[Pod, Container], Awaitable[str]]
"""The id of a container's image, fetched where that is due.

Errors: ConfigError, with the reason that a status has.
"""


class ContainerComposer(Composing):
    """For containers from images, with everything mounted where they want it."""

    def __init__(self, site: Site, volumes: Volumes, shelf: Shelf, image_of: ImageOf | None = None) -> None:
        super().__init__(site, volumes, shelf)
        self._image_of = image_of
        """None: images are named as pods name them."""

    async def sandbox(self, pod: Pod, attempt: int, cgroup: str) -> SandboxWish:
        """What holds the pod's containers together."""
        checked_uid(pod)
        name, dns = pod_name(pod, self.site.cluster_domain), self._dns(pod)
        hostname = name.hostname
        if pod.spec.set_hostname_as_fqdn and name.domain:
            hostname = f"{name.hostname}.{name.domain}"
        logs = self.logs(pod)
        done("make", logs, lambda: logs.mkdir(parents=True, exist_ok=True))
        return SandboxWish(
            pod=pod,
            attempt=attempt,
            cgroup_parent=cgroup,
            log_directory=str(logs),
            hostname="" if pod.spec.host_network else hostname,
            resolv_conf=dns,
        )

    async def container(
        self, pod: Pod, container: Container, attempt: int, settings: Settings, facts: PodFacts
    ) -> ContainerWish:
        """What a container is to be.

        Errors: ConfigError; WorldError.
        """
        image = container.image if self._image_of is None else await self._image_of(pod, container)
        wish = self.wish(pod, container, attempt, settings, facts)
        mounts = self.mounts(pod, container, wish.env)
        if all(one.container_path != _HOSTS for one in mounts):
            mounts += self._hosts(pod, facts)
        mounts.append(self.last_words(pod, container, attempt))
        logs = self.logs(pod) / container.name
        done("make", logs, lambda: logs.mkdir(parents=True, exist_ok=True))
        return replace(wish, image=image, mounts=tuple(mounts))

    def _hosts(self, pod: Pod, facts: PodFacts) -> list[Mount]:
        """The hosts file, where the pod has an address to be written into it.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, shouldMountHostsFile and makeHostsMount.
        """
        ip = facts.sandboxes[0].ip if facts.sandboxes else ""
        if pod.spec.host_network:
            text = aliased_hosts(text_of(Path(_HOSTS)), pod.spec.host_aliases)
        elif ip:
            text = managed_hosts(pod_name(pod, self.site.cluster_domain), [ip], pod.spec.host_aliases)
        else:
            return []
        place = self.volumes.directory(pod.uid) / "etc-hosts"
        done("make", place.parent, lambda: place.parent.mkdir(parents=True, exist_ok=True))
        # In place: containers that run have this very file.
        done("write", place, lambda: place.write_text(text))
        done("write", place, lambda: place.chmod(0o644))
        return [Mount(host_path=str(place), container_path=_HOSTS)]

    def _dns(self, pod: Pod) -> str:
        path = self.site.resolv_conf
        text = text_of(Path(path)) if path else None
        return resolv_text(pod_dns(pod, text, self.site.cluster_dns, self.site.cluster_domain))


def _home(pod: Pod, container: Container) -> str:
    """The home of whom the process runs as."""
    user = setting(pod, container, "runAsUser")
    try:
        return pwd.getpwuid(os.geteuid() if user is None else user).pw_dir
    except (KeyError, OverflowError):
        return "/"
