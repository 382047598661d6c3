"""The user of a request to the kubelet's API, and what the request does in terms of Kubernetes' authorization."""

from collections.abc import Mapping
from typing import NamedTuple


class User(NamedTuple):
    """An authenticated user."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}


class RequestAttributes(NamedTuple):
    """A verb on subresources of the node, one of which has to be allowed."""

    verb: str
    subresources: tuple[str, ...]


_SUBRESOURCES = {
    "/stats": "stats",
    "/metrics": "metrics",
    "/logs": "log",
    "/checkpoint": "checkpoint",
    "/statusz": "statusz",
    "/flagz": "configz",
}
_FINE_SUBRESOURCES = {"/pods": "pods", "/healthz": "healthz", "/configz": "configz", "/runningpods": "pods"}
_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def request_attributes(method: str, path: str, *, is_fine: bool) -> RequestAttributes:
    """The attributes of a request; ``is_fine``: the gate KubeletFineGrainedAuthz.

    Follows: v1.36, kubelet/server/auth.go, GetRequestAttributes.

    >>> request_attributes("GET", "/pods", is_fine=True)
    RequestAttributes(verb='get', subresources=('pods', 'proxy'))
    """
    root = "/" + path.lstrip("/").partition("/")[0]
    fine = (_FINE_SUBRESOURCES[root],) if is_fine and root in _FINE_SUBRESOURCES else ()
    return RequestAttributes(_VERBS.get(method, ""), (*fine, _SUBRESOURCES.get(root, "proxy")))


def forbidden_text(user: User, attributes: RequestAttributes) -> str:
    """The body of a 403 response.

    Follows: v1.36, kubelet/server/server.go, InstallAuthFilter.
    """
    subresources = " ".join(attributes.subresources)
    return f"Forbidden (user={user.name}, verb={attributes.verb}, resource=nodes, subresource(s)=[{subresources}])\n"
