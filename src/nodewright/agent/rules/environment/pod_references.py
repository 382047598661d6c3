"""The objects of an API server that a pod refers to: ConfigMaps, Secrets, service account tokens."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.agent.rules.value_sources import DEFAULT_TOKEN_LIFETIME_S, TokenSpec
from nodewright.model.kubernetes.objects import Pod

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
