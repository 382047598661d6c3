"""The objects that a pod's variables and volumes refer to, and the errors of unresolved references.

An env file has one `NAME='value'` per line; a value may span several lines.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.objects import Pod, ResourceList

DEFAULT_TOKEN_LIFETIME_S = 3600


class UnresolvedReference(msgspec.Struct, frozen=True):
    """A reference in a pod cannot be resolved; the message is the kubelet's if the kubelet has one."""

    message: str
    may_exist: bool = False
    """Whether the object may exist but could not be read: then an optional reference cannot be resolved either."""


class TokenSpec(msgspec.Struct, frozen=True):
    """A service account token that a projected volume asks for; an empty audience is that of the API server.

    Units: lifetime_s in seconds.
    """

    audience: str = ""
    lifetime_s: int = DEFAULT_TOKEN_LIFETIME_S


class NodeVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A directory or file of the node that a claim of a pod is bound to."""

    path: str
    path_type: str = ""
    """The type that it must have, as of `hostPath`; empty: any."""
    is_read_only: bool = False
    has_group: bool = False
    """Whether its files get the group of the pod."""


class ReferenceSources(msgspec.Struct, frozen=True, kw_only=True):
    """The objects and values that a pod's references resolve to.

    ``config_maps`` and ``secrets`` are those of the pod's namespace, by name; one that could not be read has the error.
    """

    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    allocatable: ResourceList = {}
    """The node's allocatable: the default limits of containers in the downward API."""
    config_maps: Mapping[str, ConfigMap | UnresolvedReference] = {}
    secrets: Mapping[str, Secret | UnresolvedReference] = {}
    services: Mapping[str, str] | UnresolvedReference = {}
    """The variables of Services."""
    tokens: Mapping[TokenSpec, str | UnresolvedReference] = {}
    volumes: Mapping[str, NodeVolume | UnresolvedReference] = {}
    """What the pod's claims are bound to, by the names of its volumes."""
    env_files: Mapping[tuple[str, str], str | UnresolvedReference] = {}
    """The texts of env files by volume and path."""


def config_map(sources: ReferenceSources, name: str) -> ConfigMap | UnresolvedReference:
    """A ConfigMap of the pod's namespace.

    Follows: v1.36, kubelet/util/manager/watch_based_manager.go, Get.
    """
    return sources.config_maps.get(name) or UnresolvedReference(f'configmap "{name}" not found')


def secret(sources: ReferenceSources, name: str) -> Secret | UnresolvedReference:
    """A Secret of the pod's namespace."""
    return sources.secrets.get(name) or UnresolvedReference(f'secret "{name}" not found')


def is_omitted(reference: Mapping[str, Any], error: UnresolvedReference) -> bool:
    """Whether a reference is optional, and its object does not exist."""
    return bool(reference.get("optional")) and not error.may_exist


_BLANKS = " \t"
_INDENTS = (" ", "\t")


def env_file_value(text: str, key: str) -> str | UnresolvedReference:
    r"""The value of a variable in an env file; empty: it has none.

    The file is parsed up to the variable only.

    Follows: v1.36, pkg/kubelet/util/env/env_util.go, ParseEnv.

    >>> env_file_value("A='1'\nB='say $A' # as it is", "B")
    'say $A'
    """
    lines = enumerate((line.removesuffix("\r") for line in _lines(text)), 1)
    for number, line in lines:
        line = line.lstrip(_BLANKS)  # noqa: PLW2901 - the line without its indentation
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        fault = _wrong_start(name, equals, value)
        if fault:
            return _fault(number, fault)
        # `A= 'x'` sets A to the empty string, as in a shell.
        content = "" if value.startswith(_INDENTS) else _quoted(value[1:], number, lines)
        if isinstance(content, UnresolvedReference) or name == key:
            return content
    return ""


def _wrong_start(name: str, equals: str, value: str) -> str:
    if not equals:
        return "missing '='"
    if not name.rstrip(_BLANKS):
        return "empty variable name"
    if name.rstrip(_BLANKS) != name:
        return "whitespace before '=' is not allowed"
    return "" if value.startswith(("'", *_INDENTS)) else "value must be enclosed in single quotes"


def _quoted(rest: str, number: int, lines: Iterator[tuple[int, str]]) -> str | UnresolvedReference:
    """The text up to the closing quote, across lines."""
    parts, first = [], number
    while "'" not in rest:
        parts.append(f"{rest}\n")
        following = next(lines, None)
        if following is None:
            message = f"invalid environment variable format starting at line {first}: unclosed single quote"
            return UnresolvedReference(message)
        number, rest = following
    content, _, after = rest.partition("'")
    after = after.lstrip(_BLANKS)
    if after and not after.startswith("#"):
        return _fault(number, "unexpected content after closing quote")
    return "".join((*parts, content))


def _fault(number: int, fault: str) -> UnresolvedReference:
    return UnresolvedReference(f"invalid environment variable format at line {number}: {fault}")


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


# ---------------------------------------------------------------- the objects that a pod refers to


CONFIG_MAPS, SECRETS = "configmaps", "secrets"
_DAY_S = 24 * 3600.0
_FRESH_SHARE = 0.8


class ObjectReference(msgspec.Struct, frozen=True, order=True):
    """A ConfigMap or a Secret by its resource, namespace and name."""

    resource: str
    namespace: str
    name: str


def referenced_objects(pod: Pod) -> frozenset[ObjectReference]:
    """The ConfigMaps and Secrets that a pod needs, optional ones included.

    Follows: v1.36, pkg/api/v1/pod/util.go, VisitPodSecretNames, VisitPodConfigmapNames.
    """
    namespace = pod.metadata.namespace or "default"
    names = (*_of_variables(pod), *_of_volumes(pod))
    pull_secrets = ((SECRETS, secret.get("name")) for secret in pod.spec.image_pull_secrets)
    return frozenset(
        ObjectReference(resource, namespace, str(name)) for resource, name in (*names, *pull_secrets) if name
    )


def volume_objects(pod: Pod) -> frozenset[ObjectReference]:
    """Those of `referenced_objects` that volumes show: changes have to reach running containers."""
    namespace = pod.metadata.namespace or "default"
    return frozenset(
        ObjectReference(resource, namespace, str(name)) for resource, name in _of_volumes(pod) if name
    )


def _of_variables(pod: Pod) -> Iterator[tuple[str, Any]]:
    for container in pod.spec.all_containers:
        for source in container.env_from:
            yield CONFIG_MAPS, (source.get("configMapRef") or {}).get("name")
            yield SECRETS, (source.get("secretRef") or {}).get("name")
        for variable in container.env:
            reference = variable.value_from or {}
            yield CONFIG_MAPS, (reference.get("configMapKeyRef") or {}).get("name")
            yield SECRETS, (reference.get("secretKeyRef") or {}).get("name")


def _of_volumes(pod: Pod) -> Iterator[tuple[str, Any]]:
    for source in _volume_sources(pod):
        yield CONFIG_MAPS, (source.get("configMap") or {}).get("name")
        secret = source.get("secret") or {}
        yield SECRETS, secret.get("secretName") or secret.get("name")


def _volume_sources(pod: Pod) -> Iterator[Mapping[str, Any]]:
    for volume in pod.spec.volumes:
        yield volume
        yield from (volume.get("projected") or {}).get("sources") or ()


# ---------------------------------------------------------------- service account tokens


def token_spec(source: Mapping[str, Any]) -> TokenSpec:
    """The token of a projection `serviceAccountToken`."""
    lifetime_s = source.get("expirationSeconds")
    return TokenSpec(
        source.get("audience") or "", DEFAULT_TOKEN_LIFETIME_S if lifetime_s is None else int(lifetime_s)
    )


def token_specs(pod: Pod) -> frozenset[TokenSpec]:
    """The service account tokens that a pod's volumes ask for."""
    sources = (source.get("serviceAccountToken") for source in _volume_sources(pod))
    return frozenset(token_spec(source) for source in sources if source is not None)


def token_request(pod: Pod, spec: TokenSpec) -> dict[str, Any]:
    """The TokenRequest for a token that is valid as long as the pod exists.

    Follows: v1.36, pkg/volume/projected/projected.go, collectData.
    """
    bound_object = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.uid}
    request: dict[str, Any] = {"expirationSeconds": spec.lifetime_s, "boundObjectRef": bound_object}
    if spec.audience:
        request["audiences"] = [spec.audience]
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": request}


def is_refresh_due(expires_s: float, lifetime_s: float, now_s: float, jitter_s: float) -> bool:
    """Whether a token is to be replaced: after four fifths of its lifetime, or after a day.

    Units:   seconds; moments since 1970. ``jitter_s``: how much earlier, so that not all tokens are replaced at once.
    Follows: v1.36, pkg/kubelet/token/token_manager.go, requiresRefresh.

    >>> is_refresh_due(4600, 3600, 3879, 0), is_refresh_due(4600, 3600, 3881, 0), is_refresh_due(4600, 3600, 3875, 6)
    (False, True, True)
    """
    issued_s = expires_s - lifetime_s
    return now_s + jitter_s > issued_s + min(_FRESH_SHARE * lifetime_s, _DAY_S)


def common_user(pod: Pod) -> int | None:
    """The user as whom all containers run; None: there are several, or one is not specified.

    Follows: v1.36, pkg/volume/util/util.go, FsUserFrom.
    """
    context = pod.spec.security_context
    pod_user = context.run_as_user if context is not None else None
    users = set[int | None]()
    for container in pod.spec.all_containers:
        own_user = (container.security_context or {}).get("runAsUser")
        users.add(pod_user if own_user is None else own_user)
    return users.pop() if len(users) == 1 else None
