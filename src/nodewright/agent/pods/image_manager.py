"""Pulls images with the credentials of pod and node, and deletes unused ones as `agent/rules/image_policy.py` decides."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from nodewright.agent.host.ports import Credentials, ImageStore
from nodewright.agent.pods.config_object_cache import ConfigObjectCache
from nodewright.agent.pods.container_lifecycle import ContainerConfigError
from nodewright.agent.rules import image_policy
from nodewright.agent.rules.pod_actions import BackOff, BackOffRule
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.cluster_objects import Secret
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.duration import Duration

IMAGE_GC_PERIOD_S = 300.0
"""Interval of image garbage collection.

Follows: v1.36, kubelet/kubelet.go, ImageGCPeriod.
"""

_BACK_OFF_TTL_NS = 600 * 10**9

CredentialsOf = Callable[[Pod, str], tuple[Credentials, ...]]
"""The credentials for an image of this name, in the order in which they are tried; none: an anonymous pull."""


class ImageGCResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an image garbage collection.

    Units: bytes; percent of the file system.
    """

    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    bytes_to_free: int = 0
    used_percent: int = 0
    failures: tuple[str, ...] = ()

    @property
    def is_target_reached(self) -> bool:
        """Whether as much space was freed as needed."""
        return self.freed_bytes >= self.bytes_to_free


class ImageManager:
    """Pulls images, and deletes unused ones. ``max_parallel_pulls`` limits concurrent pulls; 0: no limit."""

    def __init__(
        self,
        store: ImageStore,
        clock: Clock,
        record_event: Callable[[RecordEvent], None],
        *,
        policy: image_policy.ImageGCPolicy | None = None,
        max_parallel_pulls: int = 1,
        credentials_of: CredentialsOf = lambda _pod, _name: (),
    ) -> None:
        self._store, self._clock, self._record_event = store, clock, record_event
        self._credentials_of = credentials_of
        self._policy = policy or image_policy.ImageGCPolicy()
        self._pull_slots = (
            asyncio.Semaphore(max_parallel_pulls) if max_parallel_pulls else contextlib.nullcontext()
        )
        self._back_offs: dict[tuple[str, str], tuple[BackOff, str]] = {}
        self._records: dict[str, image_policy.ImageRecord] = {}
        self._started_ns = clock.now_ns()
        self.on_pull: Callable[[str, float, float, int], None] = lambda _uid, _started_s, _s, _bytes: None
        """Gets the uid of the pod, start (since 1970) and duration of each successful pull, and the image's size."""

    @classmethod
    def from_config(
        cls,
        store: ImageStore,
        clock: Clock,
        record_event: Callable[[RecordEvent], None],
        config: KubeletConfiguration,
        credentials_of: CredentialsOf = lambda _pod, _name: (),
    ) -> "ImageManager":
        """An image manager with a kubelet's settings."""
        policy = image_policy.ImageGCPolicy(
            high_percent=config.image_gc_high_threshold_percent,
            low_percent=config.image_gc_low_threshold_percent,
            min_age_ns=config.image_minimum_gc_age.nanoseconds,
            max_age_ns=config.image_maximum_gc_age.nanoseconds,
        )
        most = config.max_parallel_image_pulls or 0
        is_serial = config.serialize_image_pulls
        # A limit above one implies parallel pulls, as in the kubelet's defaults.
        max_parallel_pulls = 1 if is_serial or (is_serial is None and most < 2) else most
        return cls(
            store,
            clock,
            record_event,
            policy=policy,
            max_parallel_pulls=max_parallel_pulls,
            credentials_of=credentials_of,
        )

    async def ensure_image_exists(self, pod: Pod, container: Container) -> str:
        """The id of the container's image, pulled if necessary.

        Follows: v1.36, kubelet/images/image_manager.go, EnsureImageExists.
        Departs: permission to use an image that exists is not checked (`imagePullCredentialsVerificationPolicy`).
        Errors:  ContainerConfigError.
        """
        image_name = container.image
        name = image_policy.parse_image_name(image_name)
        if isinstance(name, image_policy.InvalidImageName):
            raise self._failure(
                (pod, container), "InspectFailed", image_policy.invalid_image_name(image_name, name)
            )
        reference, policy = (
            image_policy.image_with_tag(image_name, name),
            image_policy.pull_policy(container.image_pull_policy, name),
        )
        if policy != image_policy.ALWAYS:
            try:
                image_id = await self._store.image_id(reference)
            except HostError as error:
                failure = image_policy.ImageUnavailable(
                    "ImageInspectError", f'Failed to inspect image "": {error}'
                )
                raise self._failure((pod, container), "InspectFailed", failure) from error
            if image_id is not None:
                self._record(
                    (pod, container), "Pulled", f'Container image "{image_name}" already present on machine'
                )
                return image_id
        if policy == image_policy.NEVER:
            raise self._failure(
                (pod, container), "ErrImageNeverPull", image_policy.image_never_pull(image_name)
            )
        return await self._pull((pod, container), image_name, reference, self._credentials_of(pod, name.name))

    async def collect_garbage(self) -> ImageGCResult:
        """Deletes outdated images, and as many unused ones as the disk space requires.

        Errors: HostError where the runtime or the file system does not answer.
        """
        in_use = await self._refresh_records()
        image_fs = await self._store.image_fs_stats()
        now_ns = self._clock.now_ns()
        plan = image_policy.image_gc_plan(
            self._records,
            in_use,
            (image_fs.capacity_bytes, image_fs.available_bytes),
            self._policy,
            (now_ns, self._started_ns),
        )
        outdated = await self._remove_images(plan.outdated, None)
        freed = await self._remove_images(plan.candidates, plan.bytes_to_free)
        return ImageGCResult(
            removed=(*outdated.removed, *freed.removed),
            freed_bytes=freed.freed_bytes,
            bytes_to_free=plan.bytes_to_free,
            used_percent=plan.used_percent,
            failures=(*outdated.failures, *freed.failures),
        )

    async def delete_unused_images(self) -> ImageGCResult:
        """Deletes all unused images, because the node is short of disk space.

        Errors: as `collect_garbage`.
        """
        in_use = await self._refresh_records()
        return await self._remove_images(
            image_policy.unused_images(self._records, in_use, self._policy, self._clock.now_ns()), None
        )

    async def run(self) -> None:
        """Collects garbage periodically until it is cancelled, and reports failures.

        Follows: v1.36, kubelet/images/image_gc_manager.go, Start: images are tracked from the beginning.
        """
        try:
            await self._refresh_records()
        except HostError as error:
            self._record_node_warning("ImageGCFailed", str(error))
        while True:
            await self._clock.sleep(IMAGE_GC_PERIOD_S)
            try:
                freed = await self.collect_garbage()
            except HostError as error:
                self._record_node_warning("ImageGCFailed", str(error))
                continue
            if not freed.is_target_reached:
                self._record_node_warning("FreeDiskSpaceFailed", _shortage_message(freed))

    async def _pull(
        self,
        about: tuple[Pod, Container],
        image_name: str,
        reference: str,
        credentials: tuple[Credentials, ...],
    ) -> str:
        pod = about[0]
        key, rule, now_ns = (pod.uid, image_name), BackOffRule(), self._clock.now_ns()
        self._forget_old_back_offs(now_ns)
        back_off, last_error = self._back_offs.get(key, (None, ""))
        if back_off is not None and rule.remaining_ns(back_off, back_off.updated_ns, now_ns):
            raise self._failure(
                about, "BackOff", image_policy.image_pull_back_off(image_name, last_error), is_warning=False
            )
        self._record(about, "Pulling", f'Pulling image "{image_name}"')
        started_ns = pull_ns = self._clock.now_ns()
        try:
            async with self._pull_slots:
                pull_ns = self._clock.now_ns()
                image_id = await self._pull_with_credentials(reference, credentials)
                ended_ns = self._clock.now_ns()
        except HostError as error:
            now_ns = self._clock.now_ns()
            failure = image_policy.image_pull_failure(image_name, error.error)
            self._back_offs[key] = (
                rule.next(back_off, now_ns, now_ns),
                f"{failure.reason}: {failure.message}",
            )
            failed = f'Failed to pull image "{image_name}": {error.error}'
            self._record(about, "Failed", failed, is_warning=True)
            raise ContainerConfigError(failure.message, failure.reason) from error
        self._back_offs.pop(key, None)
        size_bytes = await self._image_size(reference)
        took, waited = (_rounded(ended_ns - since_ns) for since_ns in (pull_ns, started_ns))
        text = f'Successfully pulled image "{image_name}" in {took} ({waited} including waiting).'
        self._record(about, "Pulled", f"{text} Image size: {size_bytes} bytes.")
        self.on_pull(pod.uid, started_ns / 10**9, waited.total_seconds, size_bytes)
        return image_id

    async def _image_size(self, reference: str) -> int:
        """The size of an image that has been pulled, in bytes; 0: unknown."""
        try:
            return await self._store.image_size(reference)
        except HostError:
            return 0

    async def _pull_with_credentials(self, reference: str, credentials: tuple[Credentials, ...]) -> str:
        """The id of an image, pulled with the first credentials that work.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_image.go, PullImage.
        """
        errors: list[str] = []
        for credential in credentials or (None,):
            try:
                return await self._store.pull(reference, credential)
            except HostError as error:
                errors.append(error.error)
        distinct = list(dict.fromkeys(errors))
        raise HostError(
            "PullImage", reference, distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
        )

    def _forget_old_back_offs(self, now_ns: int) -> None:
        """Forgets failures that are too old to delay another pull."""
        for key, (back_off, _) in tuple(self._back_offs.items()):
            if now_ns - back_off.updated_ns > _BACK_OFF_TTL_NS:
                del self._back_offs[key]

    async def _refresh_records(self) -> frozenset[str]:
        """Updates the image records from the runtime; the images in use."""
        images, in_use = await self._store.images(), await self._store.in_use()
        present = [(image.id, image.size_bytes, image.is_pinned) for image in images]
        self._records = image_policy.updated_image_records(
            self._records, present, in_use, self._clock.now_ns()
        )
        return in_use

    async def _remove_images(
        self, records: Iterable[image_policy.ImageRecord], bytes_to_free: int | None
    ) -> ImageGCResult:
        """Deletes images in order; with a target, until enough is freed."""
        removed, failures, freed = list[str](), list[str](), 0
        for record in records:
            try:
                await self._store.remove(record.id)
            except HostError as error:
                failures.append(str(error))
                continue
            removed.append(record.id)
            self._records.pop(record.id, None)
            freed += record.size_bytes
            if bytes_to_free is not None and freed >= bytes_to_free:
                break
        return ImageGCResult(removed=tuple(removed), freed_bytes=freed, failures=tuple(failures))

    def _failure(
        self,
        about: tuple[Pod, Container],
        event: str,
        refusal: image_policy.ImageUnavailable,
        *,
        is_warning: bool = True,
    ) -> ContainerConfigError:
        self._record(about, event, refusal.message, is_warning=is_warning)
        return ContainerConfigError(refusal.message, refusal.reason)

    def _record(
        self, about: tuple[Pod, Container], reason: str, message: str, *, is_warning: bool = False
    ) -> None:
        pod, name = about[0], about[1].name
        self._record_event(
            RecordEvent(uid=pod.uid, is_warning=is_warning, reason=reason, message=message, container=name)
        )

    def _record_node_warning(self, reason: str, message: str) -> None:
        self._record_event(RecordEvent.warning(reason, message))


def _shortage_message(result: ImageGCResult) -> str:
    """The kubelet's message for a missed target, except for the size of the file system."""
    return (
        f"Insufficient free disk space on the node's image filesystem ({result.used_percent}% used). "
        f"Failed to free sufficient space by deleting unused images (freed {result.freed_bytes} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )


def _rounded(duration_ns: int) -> Duration:
    """The duration in whole milliseconds, as the kubelet truncates it."""
    return Duration(max(0, duration_ns) // 10**6 * 10**6)


# ---------------------------------------------------------------- credentials


class PullSecrets:
    """Pull credentials, read again for each pull. ``root`` is the agent's own directory."""

    def __init__(
        self, object_cache: ConfigObjectCache, root: Path, record_event: Callable[[RecordEvent], None]
    ) -> None:
        self._object_cache, self._root, self._record_event = object_cache, root, record_event

    def __call__(self, pod: Pod, name: str) -> tuple[Credentials, ...]:
        """All credentials to try for an image of this name, in order.

        Follows: v1.36, pkg/kubelet/kubelet_pods.go, getPullSecretsForPod; kubelet/images/image_manager.go, pullImage.
        Departs: an unreadable secret is reported and skipped; the kubelet does not pull the image at all.
        """
        node_logins, errors = docker_logins(self._root)
        for error in errors:
            self._record_event(RecordEvent.warning("CredentialsNotRead", error))
        logins = (
            *image_policy.matching_logins(self._logins_of_pod(pod), name),
            *image_policy.matching_logins(node_logins, name),
        )
        return tuple(dict.fromkeys(Credentials(login.username, login.password) for login in logins))

    def _logins_of_pod(self, pod: Pod) -> tuple[image_policy.RegistryLogin, ...]:
        secrets = self._object_cache.sources(pod).secrets
        logins: list[image_policy.RegistryLogin] = []
        unreadable: list[str] = []
        for secret_reference in pod.spec.image_pull_secrets:
            name = str(secret_reference.get("name") or "")
            if not name:
                continue
            secret = secrets.get(name)
            try:
                logins += image_policy.logins_of_secret(secret) if isinstance(secret, Secret) else ()
            except ValueError:
                secret = None
            if not isinstance(secret, Secret):
                unreadable.append(name)
        if unreadable:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(unreadable)}); "
                "attempting to pull the image may not succeed."
            )
            reason = "FailedToRetrieveImagePullSecret"
            self._record_event(RecordEvent.warning(reason, message, uid=pod.uid))
        return tuple(logins)


def docker_logins(root: Path) -> tuple[tuple[image_policy.RegistryLogin, ...], tuple[str, ...]]:
    """The credentials in the first file that can be read, and the errors in those before it.

    `config.json` is looked for in ``root``, the working directory, `~/.docker` and `/.docker`; then `.dockercfg` in
    ``root``, the working directory, the home and `/`.

    Follows: v1.36, pkg/credentialprovider/config.go, ReadDockerConfigFile.
    """
    errors: list[str] = []
    for path, is_old in _config_paths(root):
        try:
            return image_policy.logins_of_config(path.read_bytes(), is_old=is_old), tuple(errors)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            errors.append(f"{path}: {error.strerror}")
        except ValueError as error:
            errors.append(f"{path}: {error}")
    return (), tuple(errors)


def _config_paths(root: Path) -> Iterator[tuple[Path, bool]]:
    home = Path(os.environ.get("HOME") or "/")
    for directory in (root, Path.cwd(), home / ".docker", Path("/.docker")):
        yield directory / "config.json", False
    for directory in (root, Path.cwd(), home, Path("/")):
        yield directory / ".dockercfg", True
