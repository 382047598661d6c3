"""What all containers are put together from: their variables, commands and volumes, whatever runs them."""

import asyncio
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.rotate import log_directory
from nodewright.agent.shelf import Shelf
from nodewright.agent.starting import ConfigError
from nodewright.agent.values import MOUNT_ERROR
from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.core.cgroups.files import File
from nodewright.core.environment import (
    Lacking,
    Surroundings,
    command_and_args,
    payload,
    sub_path,
    variables,
)
from nodewright.core.lifecycle import spec_hash
from nodewright.core.requests import pod_limits
from nodewright.model.objects import Container, Pod, ResourceList
from nodewright.model.running import PodFacts
from nodewright.values.quantity import ZERO, Quantity
from nodewright.world.beneath import read_beneath
from nodewright.world.errors import WorldError
from nodewright.world.local_storage import PodPlaces
from nodewright.world.pod_files import is_safe_uid
from nodewright.world.ports import ContainerWish, Mount
from nodewright.world.volumes import OF_OBJECTS, VolumeError, Volumes, volume_path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOSTS, _LAST_WORDS = "/etc/hosts", "/dev/termination-log"
_MOST_ENV_FILE = 64 * 1024


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What is the same for all pods of a node."""

    log_root: Path
    """Below it a directory a pod: `NAMESPACE_NAME_UID/CONTAINER/ATTEMPT.log`."""
    allocatable: ResourceList = {}
    host_ips: tuple[str, ...] = ("127.0.0.1",)
    """The first one is that of the node."""
    cluster_domain: str = ""
    cluster_dns: tuple[str, ...] = ()
    resolv_conf: str = "/etc/resolv.conf"
    """The machine's; empty: pods ask nobody."""
    has_stop_signals: bool = False
    """Whether containers are asked to end as they say (gate ContainerStopSignals); else the field says nothing."""


Settings = tuple[ContainerSettings, tuple[File, ...]]


class Composing:
    """What both kinds have in common."""

    def __init__(self, site: Site, volumes: Volumes, shelf: Shelf) -> None:
        self.site, self.volumes, self._shelf = site, volumes, shelf

    async def forget(self, pod: Pod) -> None:
        """Nothing is left of the pod's volumes and logs."""
        self.volumes.remove(pod.uid)
        logs = self.logs(pod)
        if logs.exists():
            done("remove", logs, lambda: shutil.rmtree(logs))

    async def keep_fresh(self, pods: Callable[[], Iterable[Pod]], tell: Callable[[str], None]) -> None:
        """Refresh these pods whenever objects change, until cancelled; ``tell`` hears what could not be written."""
        changed = asyncio.Event()
        self._shelf.changed = changed.set
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self.refresh(pods())
            except WorldError as error:
                tell(str(error))

    async def refresh(self, pods: Iterable[Pod]) -> None:
        """The files of pods that are made of objects are as these objects are now.

        Errors: WorldError, the first, when all others have been refreshed.
        """
        failed: list[WorldError] = []
        for pod in pods:
            for volume in pod.spec.volumes:
                if _is_of_objects(volume) and volume_path(self.volumes.directory(pod.uid), volume).is_dir():
                    try:
                        self._of_objects(pod, volume)
                    except VolumeError:
                        # What lacks now stays as it was.
                        continue
                    except WorldError as error:
                        failed.append(error)
        if failed:
            raise failed[0]

    def places(self, pod: Pod) -> PodPlaces:
        """Where the pod's files are that count as its local storage; what is in memory does not."""
        volumes = {}
        for volume in pod.spec.volumes:
            if volume.get("hostPath") is None and (volume.get("emptyDir") or {}).get("medium") != "Memory":
                try:
                    volumes[str(volume["name"])] = volume_path(self.volumes.directory(pod.uid), volume)
                except VolumeError:
                    continue
        names = [one.name for one in (*pod.spec.init_containers, *pod.spec.containers)]
        return PodPlaces(volumes=volumes, logs={name: self.logs(pod) / name for name in names})

    # ------------------------------------------------------------ parts

    def logs(self, pod: Pod) -> Path:
        """The directory of the pod's logs."""
        meta = pod.metadata
        return log_directory(self.site.log_root, meta.namespace, meta.name, meta.uid)

    def _around(self, pod: Pod, container: Container, facts: PodFacts) -> Surroundings:
        around = self._objects_around(pod)
        ip = facts.sandboxes[0].ip if facts.sandboxes else ""
        ips = (ip,) if ip else self.site.host_ips
        return replace(around, pod_ips=ips, env_files=self._env_files(pod, container))

    def _objects_around(self, pod: Pod) -> Surroundings:
        namespace = pod.metadata.namespace
        return Surroundings(
            host_ips=self.site.host_ips,
            allocatable=self.site.allocatable,
            config_maps=self._shelf.config_maps(namespace),
            secrets=self._shelf.secrets(namespace),
        )

    def _env_files(self, pod: Pod, container: Container) -> dict[tuple[str, str], str | Lacking]:
        """The texts of files in volumes that variables refer to."""
        found: dict[tuple[str, str], str | Lacking] = {}
        volumes = {volume["name"]: volume for volume in pod.spec.volumes}
        for variable in container.env:
            told = (variable.value_from or {}).get("fileKeyRef")
            volume = volumes.get(told.get("volumeName")) if told is not None else None
            if told is None or volume is None:
                continue
            key = (str(told["volumeName"]), str(told.get("path") or ""))
            place = self._volume(pod, volume)
            try:
                found[key] = read_beneath(place, key[1], _MOST_ENV_FILE).decode()
            except (OSError, ValueError) as error:
                found[key] = Lacking(str(error))
        return found

    def _volume(self, pod: Pod, volume: Mapping[str, Any]) -> Path:
        """A volume, made if it is not there.

        Errors: ConfigError; WorldError.
        """
        try:
            if volume.get("hostPath") is not None:
                return self.volumes.of_host(volume)
            if _is_of_objects(volume):
                return self._of_objects(pod, volume)
            # What cannot be made at all is told apart from what lacks.
            volume_path(self.volumes.directory(pod.uid), volume)
            size = tmpfs_bytes(pod, volume, self.site.allocatable)
            return self.volumes.empty(pod.uid, volume, _group(pod), size)
        except VolumeError as error:
            name = volume.get("name") or ""
            what = f'MountVolume.SetUp failed for volume "{name}" : {error}'
            raise ConfigError(what, MOUNT_ERROR) from None

    def _of_objects(self, pod: Pod, volume: Mapping[str, Any]) -> Path:
        files = payload(volume, pod, self._objects_around(pod))
        if isinstance(files, Lacking):
            raise VolumeError(files.message)
        return self.volumes.of_files(pod.uid, volume, files, _group(pod))

    def wish(
        self, pod: Pod, container: Container, attempt: int, settings: Settings, facts: PodFacts
    ) -> ContainerWish:
        """All but mounts and images.

        Errors: ConfigError; WorldError.
        """
        checked_uid(pod)
        env = _found(variables(pod, container, self._around(pod, container, facts)))
        command, args = command_and_args(container, env)
        signal = (container.lifecycle or {}).get("stopSignal")
        return ContainerWish(
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
            files=settings[1],
            stop_signal=str(signal or "") if self.site.has_stop_signals else "",
        )

    def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> list[Mount]:
        """The volumes that a container sees, and where.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, makeMounts.
        """
        volumes = {str(volume["name"]): volume for volume in pod.spec.volumes}
        mounts = []
        for number, told in enumerate(container.volume_mounts):
            name = str(told.get("name") or "")
            if name not in volumes:
                raise ConfigError(f'cannot find volume "{name}" to mount into container "{container.name}"')
            path = _found(sub_path(told, env))
            place = self._volume(pod, volumes[name])
            if path:
                place = self.below(pod, volumes[name], place, path, (name, container.name, number))
            mount_path = str(told.get("mountPath") or "")
            mounts.append(
                Mount(
                    host_path=str(place),
                    container_path=mount_path if mount_path.startswith("/") else f"/{mount_path}",
                    is_read_only=bool(told.get("readOnly")) or _is_of_objects(volumes[name]),
                    propagation=str(told.get("mountPropagation") or ""),
                )
            )
        return mounts

    def below(
        self, pod: Pod, volume: Mapping[str, Any], place: Path, path: str, target: tuple[str, str, int]
    ) -> Path:
        """A path below a volume; what it leads to is not told, since that may be none of the pod's business."""
        try:
            return self.volumes.below(pod.uid, place, path, target)
        except OSError:
            name, container, _ = target
            raise ConfigError(
                f'failed to prepare subPath for volumeMount "{name}" of container "{container}"'
            ) from None
        except VolumeError as error:
            raise ConfigError(f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}') from None

    def last_words(self, pod: Pod, container: Container, attempt: int) -> Mount:
        """The file that a container can leave a message in; the one before the last is needed no more.

        Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_container.go, makeMounts.
        """
        place = self.volumes.directory(pod.uid) / "containers" / container.name / str(attempt)
        done("make", place, lambda: place.parent.mkdir(parents=True, exist_ok=True))
        before = place.with_name(str(attempt - 2))
        done("remove", before, lambda: before.unlink(missing_ok=True))
        done("make", place, lambda: place.touch(0o666))
        done("make", place, lambda: place.chmod(0o666))
        return Mount(host_path=str(place), container_path=container.termination_message_path or _LAST_WORDS)


def tmpfs_bytes(pod: Pod, volume: Mapping[str, Any], allocatable: ResourceList) -> int:
    """How much an empty directory in memory may hold: what the pod may, what it says itself, if that is less.

    Follows: v1.36, pkg/volume/emptydir/empty_dir.go, calculateEmptyDirMemorySize.
    """
    size = allocatable.get("memory", ZERO).value()
    own = str((volume.get("emptyDir") or {}).get("sizeLimit") or "0")
    for limit in (_memory_limit(pod), Quantity.parse(own).value()):
        if limit > 0 and (limit <= size or not size):
            size = limit
    return size


def _memory_limit(pod: Pod) -> int:
    """How much memory the pod's group may use; 0: all there is."""
    whole = pod.spec.resources.limits.get("memory") if pod.spec.resources is not None else None
    if whole is not None:
        return whole.value()
    ones = (*pod.spec.containers, *pod.spec.init_containers)
    limits = [one.resources.limits.get("memory", ZERO).value() for one in ones]
    if not all(limits):
        return 0
    return pod_limits(pod).get("memory", ZERO).value()


def _is_of_objects(volume: Mapping[str, Any]) -> bool:
    return any(volume.get(kind) is not None for kind in OF_OBJECTS)


def _group(pod: Pod) -> int | None:
    return pod.spec.security_context.fs_group if pod.spec.security_context is not None else None


def _found(answer: Any) -> Any:
    if isinstance(answer, Lacking):
        raise ConfigError(answer.message)
    return answer


def checked_uid(pod: Pod) -> None:
    """The pod can have directories of its own.

    Errors: ConfigError.
    """
    if not is_safe_uid(pod.uid):
        raise ConfigError(f"the pod's uid {pod.uid!r} cannot be the name of a directory")


def text_of(path: Path) -> str:
    """What a file says; nothing if it is not there.

    Errors: WorldError.
    """
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise WorldError("read", str(path), error.strerror or str(error)) from None


def done(operation: str, place: Path, act: Callable[[], object]) -> None:
    """It is done.

    Errors: WorldError.
    """
    try:
        act()
    except OSError as error:
        raise WorldError(operation, str(place), error.strerror or str(error)) from None
