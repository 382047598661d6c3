"""Authentication by client certificates and bearer tokens, and authorization by roles of users and groups."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from nodewright.api.routes import AccessRole
from nodewright.host.tokens import TokenFile
from nodewright.values.instant import Instant

ANONYMOUS = "system:anonymous"
_UNAUTHENTICATED, _AUTHENTICATED = "system:unauthenticated", "system:authenticated"
_BEARER = "bearer "

Certificate: TypeAlias = Mapping[str, Any]
"""A verified client certificate, as `ssl` shows it."""


class User(NamedTuple):
    """An authenticated user."""

    name: str
    groups: tuple[str, ...]


class Unauthenticated(NamedTuple):
    """A request that could not be authenticated."""

    reason: str


class Grants(NamedTuple):
    """The roles of users and groups."""

    users: Mapping[str, AccessRole] = {}
    groups: Mapping[str, AccessRole] = {}

    def allows(self, user: User, role: AccessRole) -> bool:
        """Whether the user has the role; write includes read."""
        roles = [self.users.get(user.name), *(self.groups.get(group) for group in user.groups)]
        return AccessRole.WRITE in roles or (role is AccessRole.READ and AccessRole.READ in roles)


class Authorizer:
    """Authenticates and authorizes requests; everything that is not granted is forbidden."""

    def __init__(
        self,
        grants: Grants,
        tokens: TokenFile | None = None,
        *,
        takes_anonymous: bool = False,
        allows_all: bool = False,
    ) -> None:
        """With ``allows_all`` every authenticated user is authorized (authorization mode AlwaysAllow)."""
        self.grants, self.tokens = grants, tokens
        self._takes_anonymous, self._allows_all = takes_anonymous, allows_all

    def authenticate(
        self, certificate: Certificate | None, authorization: str, now: Instant
    ) -> User | Unauthenticated:
        """The user: by client certificate, else by bearer token.

        Follows: v1.36, apiserver/pkg/authentication/authenticatorfactory/delegating.go, New: an unknown token is not
            anonymous.
        """
        if certificate:
            user = _certificate_user(certificate)
            if user is not None:
                return user
        if authorization[: len(_BEARER)].lower() == _BEARER:
            return self._token_user(authorization[len(_BEARER) :].strip(), now)
        if self._takes_anonymous:
            return User(ANONYMOUS, (_UNAUTHENTICATED,))
        return Unauthenticated("no token and no client certificate")

    def is_authorized(self, user: User, role: AccessRole) -> bool:
        """Whether the user is authorized for the role."""
        return self._allows_all or self.grants.allows(user, role)

    def _token_user(self, token: str, now: Instant) -> User | Unauthenticated:
        if self.tokens is None:
            return Unauthenticated("bearer token, but no token file is configured")
        owner = self.tokens.owner(token, now)
        if owner is not None:
            return User(owner.name, (*owner.groups, _AUTHENTICATED))
        if self.tokens.error:
            return Unauthenticated(f"the token file cannot be read: {self.tokens.error}")
        if self.tokens.has_expired(token, now):
            return Unauthenticated("expired token")
        return Unauthenticated("unknown token")


def _certificate_user(certificate: Certificate) -> User | None:
    """The user of a certificate: its common name, with its organizations as groups.

    Follows: v1.36, apiserver/pkg/authentication/request/x509/x509.go, CommonNameUserConversion.
    """
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return User(names[-1], (*groups, _AUTHENTICATED)) if names and names[-1] else None


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


def forbidden_text(user: User, method: str, path: str, *, is_fine: bool) -> str:
    """The body of a 403 response; ``is_fine``: the gate KubeletFineGrainedAuthz.

    Follows: v1.36, kubelet/server/auth.go, GetRequestAttributes; server.go, InstallAuthFilter.
    """
    root = "/" + path.lstrip("/").partition("/")[0]
    subresources = [_FINE_SUBRESOURCES[root]] if is_fine and root in _FINE_SUBRESOURCES else []
    subresources.append(_SUBRESOURCES.get(root, "proxy"))
    verb = _VERBS.get(method, "")
    return f"Forbidden (user={user.name}, verb={verb}, resource=nodes, subresource(s)=[{' '.join(subresources)}])\n"
