"""With which credentials is an image fetched? What docker's configuration files say, and which of it is for an image."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from nodewright.model.config_objects import Secret

CONFIG_JSON, CONFIG = ".dockerconfigjson", ".dockercfg"
_KINDS = {"kubernetes.io/dockerconfigjson": CONFIG_JSON, "kubernetes.io/dockercfg": CONFIG}
_DEFAULT = "index.docker.io"


class Login(msgspec.Struct, frozen=True):
    """Who fetches images from where; the place is a host, perhaps with a port and the beginning of a path."""

    place: str
    username: str
    password: str


def logins_of_secret(secret: Secret) -> tuple[Login, ...]:
    """What a secret of `imagePullSecrets` says; those of other types say nothing.

    Follows: v1.36, pkg/credentialprovider/secrets/secrets.go, secretsToTrackedDockerConfigs.
    Errors:  ValueError.
    """
    key = _KINDS.get(secret.type)
    content = secret.content.get(key, b"") if key is not None else b""
    return logins_of(content, is_old=key == CONFIG) if content else ()


def logins_of(content: bytes, *, is_old: bool = False) -> tuple[Login, ...]:
    """What a `config.json` says; ``is_old``: a `.dockercfg`, which is the part of it below `auths`.

    Follows: v1.36, pkg/credentialprovider/config.go, DockerConfigEntry.UnmarshalJSON.
    Errors:  ValueError, without anything of the content.

    >>> logins_of(b'{"auths": {"https://reg.example/v2/": {"auth": "YTpi"}}}')
    (Login(place='reg.example', username='a', password='b'),)
    """
    try:
        document = json.loads(content)
        places = document if is_old else document.get("auths")
        return tuple(_login(place, told) for place, told in ({} if places is None else places).items())
    except (AttributeError, TypeError, ValueError):
        # What is wrong would show what is secret.
        raise ValueError("error occurred while trying to unmarshal json") from None


def lookup(logins: Iterable[Login], image: str) -> tuple[Login, ...]:
    """Those for an image, named with its registry and without its tag; the longest names first.

    Follows: v1.36, pkg/credentialprovider/keyring.go, BasicDockerKeyring.Lookup.

    >>> all_of = [Login("*.reg.example", "a", ""), Login("x.reg.example/shop", "b", ""), Login("y.example", "c", "")]
    >>> [one.username for one in lookup(all_of, "x.reg.example/shop/web")]
    ['b', 'a']
    """
    known = sorted(logins, key=lambda one: one.place, reverse=True)
    found = tuple(one for one in known if _matches(one.place, image))
    if found or image.partition("/")[0] not in ("docker.io", _DEFAULT):
        return found
    return tuple(one for one in known if one.place == _DEFAULT)


def _login(place: str, told: Mapping[str, str]) -> Login:
    username, password = told.get("username") or "", told.get("password") or ""
    if told.get("auth"):
        username, password = _decoded(told["auth"])
    return Login(_place(place), username, password)


def _decoded(text: str) -> tuple[str, str]:
    stripped = text.strip()
    padded = stripped if stripped.endswith("=") else stripped + "=" * (-len(stripped) % 4)
    try:
        username, colon, password = base64.b64decode(padded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    if not colon:
        raise ValueError("unable to parse auth field, must be formatted as base64(username:password)")
    return username, password


def _place(text: str) -> str:
    """A place as it is compared: without its scheme, and without the number of docker's own protocol."""
    parts = urlsplit(text if text.startswith(("https://", "http://")) else f"https://{text}")
    path = parts.path[3:] if parts.path.startswith(("/v1/", "/v2/")) else parts.path
    return parts.netloc + (path if path != "/" else "")


def _matches(place: str, image: str) -> bool:
    """Each part of the host may have wildcards; the path is where the image's begins."""
    (host, port, path), (other_host, other_port, other_path) = _split(place), _split(image)
    parts, others = host.split("."), other_host.split(".")
    return (
        port == other_port
        and len(parts) == len(others)
        and other_path.startswith(path)
        and all(fnmatchcase(other, one) for one, other in zip(parts, others, strict=True))
    )


def _split(place: str) -> tuple[str, str, str]:
    host, slash, path = place.partition("/")
    name, _, port = host.partition(":")
    return name, port, slash + path
