"""Images for containers that are to start, and room for images: what is decided in `core/images.py`, done."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

from nodewright.agent.starting import ConfigError
from nodewright.agent.values import Tell
from nodewright.core.images import (
    ALWAYS,
    NEVER,
    ImagePolicy,
    ImageRecord,
    ImageRefusal,
    NoImageName,
    all_unused,
    backed_off,
    collection,
    image_name,
    invalid_name,
    named_image,
    never_pulled,
    not_pulled,
    noted,
    pull_policy,
)
from nodewright.core.lifecycle import BackOff, BackOffRule
from nodewright.model.kubelet_config import KubeletConfiguration
from nodewright.model.objects import Container, Pod
from nodewright.world.errors import WorldError
from nodewright.world.ports import Clock, Credentials, ImageStore

COLLECT_S = 300.0
"""How often to look whether images have to go.

Follows: v1.36, kubelet/kubelet.go, ImageGCPeriod.
"""

_FORGOTTEN_AFTER_NS = 600 * 10**9

CredentialsOf = Callable[[Pod, str], tuple[Credentials, ...]]
"""With what a pod may fetch an image of this name, in the order in which that is tried; none: as nobody."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What came of making room.

    Units: bytes; percent of the file system.
    """

    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    wanted_bytes: int = 0
    used_percent: int = 0
    failures: tuple[str, ...] = ()

    @property
    def is_enough(self) -> bool:
        """Whether there is as much room as there should be."""
        return self.freed_bytes >= self.wanted_bytes


class ImageKeeper:
    """Fetches images, and removes those that nobody needs. ``at_once`` is how many may be fetched together; 0: all."""

    def __init__(
        self,
        store: ImageStore,
        clock: Clock,
        tell: Callable[[Tell], None],
        *,
        policy: ImagePolicy | None = None,
        at_once: int = 1,
        credentials_of: CredentialsOf = lambda _pod, _name: (),
    ) -> None:
        self._store, self._clock, self._tell = store, clock, tell
        self._credentials_of = credentials_of
        self._policy = policy or ImagePolicy()
        self._turns = asyncio.Semaphore(at_once) if at_once else contextlib.nullcontext()
        self._back_offs: dict[tuple[str, str], tuple[BackOff, str]] = {}
        self._known: dict[str, ImageRecord] = {}
        self._began_ns = clock.now_ns()

    @classmethod
    def of(
        cls,
        store: ImageStore,
        clock: Clock,
        tell: Callable[[Tell], None],
        config: KubeletConfiguration,
        credentials_of: CredentialsOf = lambda _pod, _name: (),
    ) -> "ImageKeeper":
        """One by the settings of a kubelet."""
        policy = ImagePolicy(
            high_percent=config.image_gc_high_threshold_percent,
            low_percent=config.image_gc_low_threshold_percent,
            min_age_ns=config.image_minimum_gc_age.nanoseconds,
            max_age_ns=config.image_maximum_gc_age.nanoseconds,
        )
        most = config.max_parallel_image_pulls or 0
        is_serial = config.serialize_image_pulls
        # Whoever allows several at once means it, as the kubelet's defaults have it.
        at_once = 1 if is_serial or (is_serial is None and most < 2) else most
        return cls(store, clock, tell, policy=policy, at_once=at_once, credentials_of=credentials_of)

    async def ensure(self, pod: Pod, container: Container) -> str:
        """The id of the container's image, which is there.

        Follows: v1.36, kubelet/images/image_manager.go, EnsureImageExists.
        Departs: who may use an image that is there is not asked (`imagePullCredentialsVerificationPolicy`).
        Errors:  ConfigError.
        """
        asked = container.image
        name = image_name(asked)
        if isinstance(name, NoImageName):
            raise self._refused(pod, "InspectFailed", invalid_name(asked, name))
        wanted, policy = named_image(asked, name), pull_policy(container.image_pull_policy, name)
        if policy != ALWAYS:
            try:
                found = await self._store.image_id(wanted)
            except WorldError as error:
                said = ImageRefusal("ImageInspectError", f'Failed to inspect image "": {error}')
                raise self._refused(pod, "InspectFailed", said) from error
            if found is not None:
                self._say(pod, "Pulled", f'Container image "{asked}" already present on machine')
                return found
        if policy == NEVER:
            raise self._refused(pod, "ErrImageNeverPull", never_pulled(asked))
        return await self._pulled(pod, asked, wanted, self._credentials_of(pod, name.name))

    async def collect(self) -> Collected:
        """Remove what is too old, and what has to go for room.

        Errors: WorldError where the runtime or the file system does not tell.
        """
        in_use = await self._look()
        room = await self._store.room()
        now_ns = self._clock.now_ns()
        found = collection(
            self._known,
            in_use,
            (room.capacity_bytes, room.available_bytes),
            self._policy,
            (now_ns, self._began_ns),
        )
        aged = await self._removed(found.outdated, None)
        done = await self._removed(found.spare, found.wanted_bytes)
        return Collected(
            removed=(*aged.removed, *done.removed),
            freed_bytes=done.freed_bytes,
            wanted_bytes=found.wanted_bytes,
            used_percent=found.used_percent,
            failures=(*aged.failures, *done.failures),
        )

    async def remove_unused(self) -> Collected:
        """Remove all that nobody uses: the node is short of disk.

        Errors: as for `collect`.
        """
        in_use = await self._look()
        return await self._removed(all_unused(self._known, in_use, self._policy, self._clock.now_ns()), None)

    async def run(self) -> None:
        """Collect now and then until it is cancelled; what could not be done is told.

        Follows: v1.36, kubelet/images/image_gc_manager.go, Start: images are looked at from the beginning.
        """
        try:
            await self._look()
        except WorldError as error:
            self._node("ImageGCFailed", str(error))
        while True:
            await self._clock.sleep(COLLECT_S)
            try:
                done = await self.collect()
            except WorldError as error:
                self._node("ImageGCFailed", str(error))
                continue
            if not done.is_enough:
                self._node("FreeDiskSpaceFailed", _shortage(done))

    async def _pulled(self, pod: Pod, asked: str, wanted: str, credentials: tuple[Credentials, ...]) -> str:
        key, rule, now_ns = (pod.uid, asked), BackOffRule(), self._clock.now_ns()
        self._forget(now_ns)
        held, before = self._back_offs.get(key, (None, ""))
        if held is not None and rule.remaining_ns(held, held.updated_ns, now_ns):
            raise self._refused(pod, "BackOff", backed_off(asked, before), is_warning=False)
        self._say(pod, "Pulling", f'Pulling image "{asked}"')
        try:
            async with self._turns:
                found = await self._fetched(wanted, credentials)
        except WorldError as error:
            now_ns = self._clock.now_ns()
            refusal = not_pulled(asked, error.error)
            self._back_offs[key] = (rule.after(held, now_ns, now_ns), f"{refusal.reason}: {refusal.message}")
            failed = f'Failed to pull image "{asked}": {error.error}'
            self._tell(Tell(uid=pod.uid, is_warning=True, reason="Failed", message=failed))
            raise ConfigError(refusal.message, refusal.reason) from error
        self._back_offs.pop(key, None)
        self._say(pod, "Pulled", f'Successfully pulled image "{asked}"')
        return found

    async def _fetched(self, wanted: str, credentials: tuple[Credentials, ...]) -> str:
        """The id of an image, fetched by the first who gets it.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_image.go, PullImage.
        """
        said: list[str] = []
        for one in credentials or (None,):
            try:
                return await self._store.pull(wanted, one)
            except WorldError as error:
                said.append(error.error)
        told = list(dict.fromkeys(said))
        raise WorldError("PullImage", wanted, told[0] if len(told) == 1 else f"[{', '.join(told)}]")

    def _forget(self, now_ns: int) -> None:
        """Failures that are so long ago that nobody is held back for them."""
        for key, (held, _) in tuple(self._back_offs.items()):
            if now_ns - held.updated_ns > _FORGOTTEN_AFTER_NS:
                del self._back_offs[key]

    async def _look(self) -> frozenset[str]:
        """What is in use now; what is there is noted."""
        images, in_use = await self._store.images(), await self._store.in_use()
        there = [(one.id, one.size_bytes, one.is_pinned) for one in images]
        self._known = noted(self._known, there, in_use, self._clock.now_ns())
        return in_use

    async def _removed(self, records: Iterable[ImageRecord], wanted_bytes: int | None) -> Collected:
        """One after the other; until there is enough, where only so much is wanted."""
        removed, failures, freed = list[str](), list[str](), 0
        for record in records:
            try:
                await self._store.remove(record.id)
            except WorldError as error:
                failures.append(str(error))
                continue
            removed.append(record.id)
            self._known.pop(record.id, None)
            freed += record.size_bytes
            if wanted_bytes is not None and freed >= wanted_bytes:
                break
        return Collected(removed=tuple(removed), freed_bytes=freed, failures=tuple(failures))

    def _refused(
        self, pod: Pod, event: str, refusal: ImageRefusal, *, is_warning: bool = True
    ) -> ConfigError:
        self._tell(Tell(uid=pod.uid, is_warning=is_warning, reason=event, message=refusal.message))
        return ConfigError(refusal.message, refusal.reason)

    def _say(self, pod: Pod, reason: str, message: str) -> None:
        self._tell(Tell(uid=pod.uid, is_warning=False, reason=reason, message=message))

    def _node(self, reason: str, message: str) -> None:
        self._tell(Tell(uid="", is_warning=True, reason=reason, message=message))


def _shortage(done: Collected) -> str:
    """Why there is not enough room, in the kubelet's words but for the size of the file system."""
    return (
        f"Insufficient free disk space on the node's image filesystem ({done.used_percent}% used). "
        f"Failed to free sufficient space by deleting unused images (freed {done.freed_bytes} bytes). "
        "Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
    )
