"""Images: names, pull errors, garbage collection, and the credentials of registries."""

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.cluster_objects import Secret

ALWAYS, IF_NOT_PRESENT, NEVER = "Always", "IfNotPresent", "Never"

_LATEST = "latest"
_DEFAULT_REGISTRY, _OFFICIAL_PREFIX = "docker.io", "library/"
_DOMAIN_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_PATH_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>{_DOMAIN}/{_PATH_COMPONENT}(?:/{_PATH_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?",
    re.ASCII,
)
_ONLY_HEX = re.compile(r"[a-f0-9]{64}")
_NAME_LENGTH = 255


class ImageName(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed image reference."""

    name: str
    """The repository, registry included."""
    tag: str = ""
    digest: str = ""

    @property
    def is_latest(self) -> bool:
        """Whether the tag is `latest`."""
        return self.tag == _LATEST


class InvalidImageName(msgspec.Struct, frozen=True):
    """Why a text is no image reference, in the kubelet's words."""

    message: str


IMAGE_MISSING_REASONS = frozenset(
    (
        *("InvalidImageName", "ImageInspectError", "ErrImageNeverPull", "ErrImagePull"),
        *("ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed"),
    )
)
"""The waiting reasons of a container whose image is not available."""


class ImageUnavailable(msgspec.Struct, frozen=True):
    """Why the image is not available: the container's waiting reason and the kubelet's message."""

    reason: str
    message: str


class ImageGCPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When unused images are removed.

    Units: percent of the file system; nanoseconds, 0 for ever.
    """

    high_percent: int = 85
    """Images are removed from this usage on..."""
    low_percent: int = 80
    """...until usage is down to this."""
    min_age_ns: int = 120 * 10**9
    """An image is kept at least this long after it was first seen."""
    max_age_ns: int = 0


class ImageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An image with the times at which it was first seen and last used.

    Units: bytes; nanoseconds since 1970, 0 never.
    """

    id: str
    size_bytes: int
    is_pinned: bool = False
    first_seen_ns: int
    last_used_ns: int = 0


class ImageGCPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The images to remove.

    Units: bytes; percent.
    """

    outdated: tuple[ImageRecord, ...] = ()
    """Images unused for longer than the maximum age: removed in any case."""
    candidates: tuple[ImageRecord, ...] = ()
    """Images to remove in this order until enough space is free."""
    bytes_to_free: int = 0
    """0: enough space is free."""
    used_percent: int = 0


def parse_image_name(text: str) -> ImageName | InvalidImageName:
    """The parsed image reference; without tag and digest the tag is `latest`.

    Follows: v1.36, pkg/util/parsers/parsers.go, ParseImageName; distribution/reference v0.6.0, ParseNormalizedNamed.

    >>> parse_image_name("web")
    ImageName(name='docker.io/library/web', tag='latest', digest='')
    >>> parse_image_name("localhost:5000/shop/web@sha256:" + 32 * "0").tag
    ''
    """
    error = f'couldn\'t parse image name "{text}": '
    if _ONLY_HEX.fullmatch(text):
        shown = f"({text}), cannot specify 64-byte hexadecimal strings"
        return InvalidImageName(f"{error}invalid repository name {shown}")
    domain, path = _split(text)
    repository = path.partition(":")[0]
    if repository != repository.lower():
        return InvalidImageName(
            f"{error}invalid reference format: repository name ({repository}) must be lowercase"
        )
    match = _REFERENCE.fullmatch(f"{domain}/{path}")
    if match is None:
        return InvalidImageName(f"{error}invalid reference format")
    if len(match["name"]) > _NAME_LENGTH:
        return InvalidImageName(f"{error}repository name must not be more than {_NAME_LENGTH} characters")
    tag, digest = match["tag"] or "", match["digest"] or ""
    return ImageName(name=match["name"], tag=tag or ("" if digest else _LATEST), digest=digest)


def image_with_tag(text: str, name: ImageName) -> str:
    """The image reference for the runtime: with the default tag where the text has none.

    Follows: v1.36, kubelet/images/image_manager.go, applyDefaultImageTag.
    """
    is_complete = name.digest or not name.tag or text.endswith(f":{name.tag}")
    return text if is_complete else f"{text}:{name.tag}"


def _split(text: str) -> tuple[str, str]:
    """The registry and the rest; Docker Hub where the text names no registry."""
    domain, slash, path = text.partition("/")
    is_domain = slash and (
        "." in domain or ":" in domain or domain == "localhost" or domain != domain.lower()
    )
    if not is_domain:
        domain, path = _DEFAULT_REGISTRY, text
    if domain == "index.docker.io":
        domain = _DEFAULT_REGISTRY
    if domain == _DEFAULT_REGISTRY and "/" not in path:
        path = f"{_OFFICIAL_PREFIX}{path}"
    return domain, path


def pull_policy(policy: str, name: ImageName) -> str:
    """The container's pull policy, or the default for the image.

    Follows: v1.36, pkg/apis/core/v1/defaults.go, SetDefaults_Container.
    """
    return policy or (ALWAYS if name.is_latest else IF_NOT_PRESENT)


def invalid_image_name(text: str, why: InvalidImageName) -> ImageUnavailable:
    """The error for an image reference that cannot be parsed."""
    return ImageUnavailable("InvalidImageName", f'Failed to apply default image tag "{text}": {why.message}')


def image_never_pull(text: str) -> ImageUnavailable:
    """The error for an absent image with the pull policy Never."""
    return ImageUnavailable(
        "ErrImageNeverPull", f'Container image "{text}" is not present with pull policy of Never'
    )


def image_pull_back_off(text: str, last_error: str) -> ImageUnavailable:
    """The error while a failed pull is not repeated yet."""
    message = f'Back-off pulling image "{text}"'
    return ImageUnavailable("ImagePullBackOff", f"{message}: {last_error}" if last_error else message)


def image_pull_failure(text: str, error: str) -> ImageUnavailable:
    """The error for a failed pull.

    Follows: v1.36, kubelet/images/image_manager.go, evalCRIPullErr.
    """
    for reason, why in _PULL_FAILURES.items():
        if error.startswith(reason):
            return ImageUnavailable(
                reason, f"image pull failed for {text} because {why}{error.removeprefix(reason)}"
            )
    return ImageUnavailable("ErrImagePull", error)


_PULL_FAILURES = {
    "RegistryUnavailable": "the registry is unavailable",
    "SignatureValidationFailed": "the signature validation failed",
}


# ---------------------------------------------------------------- garbage collection


def updated_image_records(
    known: Mapping[str, ImageRecord],
    images: Iterable[tuple[str, int, bool]],
    in_use: frozenset[str],
    now_ns: int,
) -> dict[str, ImageRecord]:
    """The image records after an inspection; ``images`` are id, size and whether the runtime pins the image.

    Units:   bytes; nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, detectImages.
    """
    records = {}
    for id_, size_bytes, is_pinned in images:
        old = known.get(id_)
        records[id_] = ImageRecord(
            id=id_,
            size_bytes=size_bytes,
            is_pinned=is_pinned,
            first_seen_ns=old.first_seen_ns if old is not None else now_ns,
            last_used_ns=now_ns if id_ in in_use else (old.last_used_ns if old is not None else 0),
        )
    return records


def image_gc_plan(
    known: Mapping[str, ImageRecord],
    in_use: frozenset[str],
    space: tuple[int, int],
    policy: ImageGCPolicy,
    times_ns: tuple[int, int],
) -> ImageGCPlan:
    """The images to remove; ``space`` is capacity and free space of the file system, ``times_ns`` now and the start.

    Units:   bytes; nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, GarbageCollect; images last used at the same time are
        ordered by when they were first seen.
    Departs: and then by their ids.
    """
    capacity, available = space
    now_ns, start_ns = times_ns
    unused = _unused(known, in_use)
    outdated: tuple[ImageRecord, ...] = ()
    # Before the agent has run that long, it cannot know how long an image has been unused.
    if policy.max_age_ns and now_ns - start_ns > policy.max_age_ns:
        outdated = tuple(image for image in unused if now_ns - image.last_used_ns > policy.max_age_ns)
    available = min(available, capacity)
    used_percent = 100 - available * 100 // capacity if capacity else 0
    bytes_to_free = 0
    if capacity and used_percent >= policy.high_percent:
        bytes_to_free = capacity * (100 - policy.low_percent) // 100 - available
    outdated_ids = {image.id for image in outdated}
    remaining = [image for image in unused if image.id not in outdated_ids]
    candidates = tuple(image for image in remaining if now_ns - image.first_seen_ns >= policy.min_age_ns)
    return ImageGCPlan(
        outdated=outdated,
        candidates=candidates if bytes_to_free > 0 else (),
        bytes_to_free=max(0, bytes_to_free),
        used_percent=used_percent,
    )


def unused_images(
    known: Mapping[str, ImageRecord], in_use: frozenset[str], policy: ImageGCPolicy, now_ns: int
) -> tuple[ImageRecord, ...]:
    """All images that may be removed when the node is short of disk space.

    Units:   nanoseconds since 1970.
    Follows: v1.36, kubelet/images/image_gc_manager.go, DeleteUnusedImages.
    """
    unused = _unused(known, in_use)
    return tuple(image for image in unused if now_ns - image.first_seen_ns >= policy.min_age_ns)


def _unused(known: Mapping[str, ImageRecord], in_use: frozenset[str]) -> list[ImageRecord]:
    unused = (image for image in known.values() if image.id not in in_use and not image.is_pinned)
    return sorted(unused, key=lambda image: (image.last_used_ns, image.first_seen_ns, image.id))


# ---------------------------------------------------------------- registry credentials


DOCKER_CONFIG_JSON_KEY, DOCKERCFG_KEY = ".dockerconfigjson", ".dockercfg"
_KEY_OF_TYPE = {
    "kubernetes.io/dockerconfigjson": DOCKER_CONFIG_JSON_KEY,
    "kubernetes.io/dockercfg": DOCKERCFG_KEY,
}
_DEFAULT_HOST = "index.docker.io"


class RegistryLogin(msgspec.Struct, frozen=True):
    """User name and password for a registry: a host, optionally with a port and a path prefix."""

    registry: str
    username: str
    password: str


def logins_of_secret(secret: Secret) -> tuple[RegistryLogin, ...]:
    """The credentials in a secret of `imagePullSecrets`; none in secrets of other types.

    Follows: v1.36, pkg/credentialprovider/secrets/secrets.go, secretsToTrackedDockerConfigs.
    Errors:  ValueError.
    """
    key = _KEY_OF_TYPE.get(secret.type)
    content = secret.content.get(key, b"") if key is not None else b""
    return logins_of_config(content, is_old=key == DOCKERCFG_KEY) if content else ()


def logins_of_config(content: bytes, *, is_old: bool = False) -> tuple[RegistryLogin, ...]:
    """The credentials in a `config.json`; ``is_old``: in a `.dockercfg`, which holds only the part below `auths`.

    Follows: v1.36, pkg/credentialprovider/config.go, DockerConfigEntry.UnmarshalJSON.
    Errors:  ValueError, without anything of the content.

    >>> logins_of_config(b'{"auths": {"https://reg.example/v2/": {"auth": "YTpi"}}}')
    (RegistryLogin(registry='reg.example', username='a', password='b'),)
    """
    try:
        document = json.loads(content)
        auths = document if is_old else document.get("auths")
        return tuple(_login(registry, entry) for registry, entry in ({} if auths is None else auths).items())
    except (AttributeError, TypeError, *JSON_ERRORS):
        # The decoder's message could contain secrets.
        raise ValueError("error occurred while trying to unmarshal json") from None


def matching_logins(logins: Iterable[RegistryLogin], image: str) -> tuple[RegistryLogin, ...]:
    """The credentials for an image, which is named with its registry and without its tag; longest names first.

    Follows: v1.36, pkg/credentialprovider/keyring.go, BasicDockerKeyring.Lookup.

    >>> logins = [RegistryLogin("*.reg.example", "a", ""), RegistryLogin("x.reg.example/shop", "b", ""), RegistryLogin("y.example", "c", "")]
    >>> [login.username for login in matching_logins(logins, "x.reg.example/shop/web")]
    ['b', 'a']
    """
    by_name = sorted(logins, key=lambda login: login.registry, reverse=True)
    matches = tuple(login for login in by_name if _matches(login.registry, image))
    if matches or image.partition("/")[0] not in ("docker.io", _DEFAULT_HOST):
        return matches
    return tuple(login for login in by_name if login.registry == _DEFAULT_HOST)


def _login(registry: str, entry: Mapping[str, str]) -> RegistryLogin:
    username, password = entry.get("username") or "", entry.get("password") or ""
    if entry.get("auth"):
        username, password = _decoded_auth(entry["auth"])
    return RegistryLogin(_normalized_registry(registry), username, password)


def _decoded_auth(text: str) -> tuple[str, str]:
    stripped = text.strip()
    padded = stripped if stripped.endswith("=") else stripped + "=" * (-len(stripped) % 4)
    try:
        username, colon, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if not colon:
        raise ValueError("unable to parse auth field, must be formatted as base64(username:password)")
    return username, password


def _normalized_registry(text: str) -> str:
    """The registry without its scheme and without docker's protocol version."""
    parts = urlsplit(text if text.startswith(("https://", "http://")) else f"https://{text}")
    path = parts.path[3:] if parts.path.startswith(("/v1/", "/v2/")) else parts.path
    return parts.netloc + (path if path != "/" else "")


def _matches(registry: str, image: str) -> bool:
    """Whether the registry is the image's; each part of its host may have wildcards, its path is a prefix."""
    host, port, path = _host_port_path(registry)
    image_host, image_port, image_path = _host_port_path(image)
    patterns, parts = host.split("."), image_host.split(".")
    return (
        port == image_port
        and len(patterns) == len(parts)
        and image_path.startswith(path)
        and all(fnmatchcase(part, pattern) for pattern, part in zip(patterns, parts, strict=True))
    )


def _host_port_path(registry: str) -> tuple[str, str, str]:
    host, slash, path = registry.partition("/")
    name, _, port = host.partition(":")
    return name, port, slash + path
