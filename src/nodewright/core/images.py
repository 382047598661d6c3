"""Images: is this a name of one, may it be fetched, and which ones go when their file system fills up?"""

import re
from collections.abc import Iterable, Mapping

import msgspec

ALWAYS, IF_NOT_PRESENT, NEVER = "Always", "IfNotPresent", "Never"

_LATEST = "latest"
_HOME, _OFFICIAL = "docker.io", "library/"
_WORD = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_WORD}(?:\.{_WORD})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_STEP = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>{_DOMAIN}/{_STEP}(?:/{_STEP})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_ONLY_HEX = re.compile(r"[a-f0-9]{64}")
_NAME_LENGTH = 255


class ImageName(msgspec.Struct, frozen=True, kw_only=True):
    """A name as people write it, taken apart."""

    name: str
    """With the registry that is meant."""
    tag: str = ""
    digest: str = ""

    @property
    def is_latest(self) -> bool:
        """Whether it names whatever is newest."""
        return self.tag == _LATEST


class NoImageName(msgspec.Struct, frozen=True):
    """Why a text names no image, in the kubelet's words."""

    message: str


NOT_FETCHED = frozenset(
    (
        "InvalidImageName",
        "ImageInspectError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    )
)
"""The reasons of a container whose image is not there."""


class ImageRefusal(msgspec.Struct, frozen=True):
    """Why a container gets no image: the reason of its status, and the kubelet's message."""

    reason: str
    message: str


class ImagePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When images that nobody uses are removed.

    Units: percent of the file system; nanoseconds, 0 for ever.
    """

    high_percent: int = 85
    """From here on some go..."""
    low_percent: int = 80
    """...until it is no fuller than this."""
    min_age_ns: int = 120 * 10**9
    """No image goes that has been there for less."""
    max_age_ns: int = 0


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image and when it was seen.

    Units: bytes; nanoseconds since 1970, 0 never.
    """

    id: str
    size_bytes: int
    is_pinned: bool = False
    first_seen_ns: int
    last_used_ns: int = 0


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go.

    Units: bytes; percent.
    """

    outdated: tuple[ImageRecord, ...] = ()
    """Those that were not used for too long: they go in any case."""
    spare: tuple[ImageRecord, ...] = ()
    """Those that may go for room, in this order, until there is enough."""
    wanted_bytes: int = 0
    """0: there is room enough."""
    used_percent: int = 0


def image_name(text: str) -> ImageName | NoImageName:
    """What a text names: without a tag and a digest, the tag `latest` is meant.

    Follows: v1.36, pkg/util/parsers/parsers.go, ParseImageName; distribution/reference v0.6.0, ParseNormalizedNamed.

    >>> image_name("web")
    ImageName(name='docker.io/library/web', tag='latest', digest='')
    >>> image_name("localhost:5000/shop/web@sha256:" + 32 * "0").tag
    ''
    """
    refused = f'couldn\'t parse image name "{text}": '
    if _ONLY_HEX.fullmatch(text):
        shown = f"({text}), cannot specify 64-byte hexadecimal strings"
        return NoImageName(f"{refused}invalid repository name {shown}")
    domain, path = _split(text)
    repository = path.partition(":")[0]
    if repository != repository.lower():
        return NoImageName(
            f"{refused}invalid reference format: repository name ({repository}) must be lowercase"
        )
    found = _REFERENCE.fullmatch(f"{domain}/{path}")
    if found is None:
        return NoImageName(f"{refused}invalid reference format")
    if len(found["name"]) > _NAME_LENGTH:
        return NoImageName(f"{refused}repository name must not be more than {_NAME_LENGTH} characters")
    tag, digest = found["tag"] or "", found["digest"] or ""
    return ImageName(name=found["name"], tag=tag or ("" if digest else _LATEST), digest=digest)


def named_image(text: str, name: ImageName) -> str:
    """What a runtime is asked for: with its tag, where people left that out.

    Follows: v1.36, kubelet/images/image_manager.go, applyDefaultImageTag.
    """
    is_told = name.digest or not name.tag or text.endswith(f":{name.tag}")
    return text if is_told else f"{text}:{name.tag}"


def pull_policy(told: str, name: ImageName) -> str:
    """When an image is fetched, if the container does not say.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_Container.
    """
    return told or (ALWAYS if name.is_latest else IF_NOT_PRESENT)


def invalid_name(text: str, why: NoImageName) -> ImageRefusal:
    """A container whose image has no name."""
    return ImageRefusal("InvalidImageName", f'Failed to apply default image tag "{text}": {why.message}')


def never_pulled(text: str) -> ImageRefusal:
    """A container whose image is not there and must not be fetched."""
    return ImageRefusal(
        "ErrImageNeverPull", f'Container image "{text}" is not present with pull policy of Never'
    )


def backed_off(text: str, before: str) -> ImageRefusal:
    """A container whose image could not be fetched just before."""
    message = f'Back-off pulling image "{text}"'
    return ImageRefusal("ImagePullBackOff", f"{message}: {before}" if before else message)


def not_pulled(text: str, said: str) -> ImageRefusal:
    """A container whose image could not be fetched.

    Follows: v1.36, kubelet/images/image_manager.go, evalCRIPullErr.
    """
    for reason, why in _PULL_FAILURES.items():
        if said.startswith(reason):
            return ImageRefusal(
                reason, f"image pull failed for {text} because {why}{said.removeprefix(reason)}"
            )
    return ImageRefusal("ErrImagePull", said)


_PULL_FAILURES = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}


# ---------------------------------------------------------------- what goes


def noted(
    known: Mapping[str, ImageRecord],
    there: Iterable[tuple[str, int, bool]],
    in_use: frozenset[str],
    now_ns: int,
) -> dict[str, ImageRecord]:
    """What is known of images after a look at all: ids, sizes, and whether the runtime needs them.

    Units:   bytes; nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, detectImages.
    """
    found = {}
    for id_, size_bytes, is_pinned in there:
        old = known.get(id_)
        found[id_] = ImageRecord(
            id=id_,
            size_bytes=size_bytes,
            is_pinned=is_pinned,
            first_seen_ns=old.first_seen_ns if old is not None else now_ns,
            last_used_ns=now_ns if id_ in in_use else (old.last_used_ns if old is not None else 0),
        )
    return found


def collection(
    known: Mapping[str, ImageRecord],
    in_use: frozenset[str],
    room: tuple[int, int],
    policy: ImagePolicy,
    times_ns: tuple[int, int],
) -> Collection:
    """What is to go now; ``room`` is what the file system holds and has free, ``times_ns`` now and the agent's start.

    Units:   bytes; nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, GarbageCollect; images used at the same time are told apart
        by when they were first seen.
    Departs: and then by their ids.
    """
    capacity, available = room
    now_ns, began_ns = times_ns
    unused = _unused(known, in_use)
    outdated: tuple[ImageRecord, ...] = ()
    # Before the agent has watched for so long it cannot know.
    if policy.max_age_ns and now_ns - began_ns > policy.max_age_ns:
        outdated = tuple(one for one in unused if now_ns - one.last_used_ns > policy.max_age_ns)
    available = min(available, capacity)
    used_percent = 100 - available * 100 // capacity if capacity else 0
    wanted = 0
    if capacity and used_percent >= policy.high_percent:
        wanted = capacity * (100 - policy.low_percent) // 100 - available
    gone = {one.id for one in outdated}
    left = [one for one in unused if one.id not in gone]
    spare = tuple(one for one in left if now_ns - one.first_seen_ns >= policy.min_age_ns)
    return Collection(
        outdated=outdated,
        spare=spare if wanted > 0 else (),
        wanted_bytes=max(0, wanted),
        used_percent=used_percent,
    )


def all_unused(
    known: Mapping[str, ImageRecord], in_use: frozenset[str], policy: ImagePolicy, now_ns: int
) -> tuple[ImageRecord, ...]:
    """All that can go, for a node that is short of disk.

    Units:   nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, DeleteUnusedImages.
    """
    unused = _unused(known, in_use)
    return tuple(one for one in unused if now_ns - one.first_seen_ns >= policy.min_age_ns)


def _unused(known: Mapping[str, ImageRecord], in_use: frozenset[str]) -> list[ImageRecord]:
    free = (one for one in known.values() if one.id not in in_use and not one.is_pinned)
    return sorted(free, key=lambda one: (one.last_used_ns, one.first_seen_ns, one.id))


def _split(text: str) -> tuple[str, str]:
    """The registry and the rest; whoever names none means the one that everybody means."""
    domain, slash, path = text.partition("/")
    is_domain = slash and (
        "." in domain or ":" in domain or domain == "localhost" or domain != domain.lower()
    )
    if not is_domain:
        domain, path = _HOME, text
    if domain == "index.docker.io":
        domain = _HOME
    if domain == _HOME and "/" not in path:
        path = f"{_OFFICIAL}{path}"
    return domain, path
