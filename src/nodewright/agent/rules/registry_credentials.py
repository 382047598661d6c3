"""Registry credentials: parsing of docker configuration files and pull secrets, and the match with an image."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from nodewright.model.errors import JSON_ERRORS
from nodewright.model.kubernetes.namespace_objects import Secret

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
    (host, port, path), (image_host, image_port, image_path) = _split(registry), _split(image)
    patterns, parts = host.split("."), image_host.split(".")
    return (
        port == image_port
        and len(patterns) == len(parts)
        and image_path.startswith(path)
        and all(fnmatchcase(part, pattern) for pattern, part in zip(patterns, parts, strict=True))
    )


def _split(registry: str) -> tuple[str, str, str]:
    host, slash, path = registry.partition("/")
    name, _, port = host.partition(":")
    return name, port, slash + path
