"""Who asks, and what may they do? Client certificates and bearer tokens, and roles for users and groups."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from nodewright.api.entries import Role
from nodewright.values.instant import Instant
from nodewright.world.tokens import TokenFile

ANONYMOUS = "system:anonymous"
_UNAUTHENTICATED, _AUTHENTICATED = "system:unauthenticated", "system:authenticated"
_BEARER = "bearer "

Certificate: TypeAlias = Mapping[str, Any]
"""A verified client certificate, as `ssl` shows it."""


class Person(NamedTuple):
    """Somebody who asks."""

    name: str
    groups: tuple[str, ...]


class Stranger(NamedTuple):
    """Somebody of whom is not known who he is."""

    because: str


class Grants(NamedTuple):
    """Who has which role."""

    users: Mapping[str, Role] = {}
    groups: Mapping[str, Role] = {}

    def allows(self, person: Person, role: Role) -> bool:
        """Whether somebody has the role; whoever may write may read."""
        found = [self.users.get(person.name), *(self.groups.get(one) for one in person.groups)]
        return Role.WRITE in found or (role is Role.READ and Role.READ in found)


class Access:
    """Knows people, and what they may do. Closed: what nobody has granted, nobody may."""

    def __init__(
        self,
        grants: Grants,
        tokens: TokenFile | None = None,
        *,
        takes_anonymous: bool = False,
        allows_all: bool = False,
    ) -> None:
        """With ``allows_all`` everybody who is known may do everything (authorization mode AlwaysAllow)."""
        self.grants, self.tokens = grants, tokens
        self._takes_anonymous, self._allows_all = takes_anonymous, allows_all

    def who(self, certificate: Certificate | None, authorization: str, now: Instant) -> Person | Stranger:
        """Who asks: by his certificate, else by his token.

        Follows: v1.36, apiserver/pkg/authentication/authenticatorfactory/delegating.go, New: a token that is nobody's
            is not anonymous.
        """
        if certificate:
            person = _shown(certificate)
            if person is not None:
                return person
        if authorization[: len(_BEARER)].lower() == _BEARER:
            return self._bearer(authorization[len(_BEARER) :].strip(), now)
        if self._takes_anonymous:
            return Person(ANONYMOUS, (_UNAUTHENTICATED,))
        return Stranger("no token and no client certificate")

    def may(self, person: Person, role: Role) -> bool:
        """Whether somebody may."""
        return self._allows_all or self.grants.allows(person, role)

    def _bearer(self, token: str, now: Instant) -> Person | Stranger:
        if self.tokens is None:
            return Stranger("a token, and there is no file of tokens")
        owner = self.tokens.owner(token, now)
        if owner is not None:
            return Person(owner.name, (*owner.groups, _AUTHENTICATED))
        if self.tokens.trouble:
            return Stranger(f"the file of tokens cannot be read: {self.tokens.trouble}")
        if self.tokens.has_expired(token, now):
            return Stranger("a token that has expired")
        return Stranger("a token that is nobody's")


def _shown(certificate: Certificate) -> Person | None:
    """Whom a certificate names: its common name, and as groups its organizations.

    Follows: v1.36, apiserver/pkg/authentication/request/x509/x509.go, CommonNameUserConversion.
    """
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return Person(names[-1], (*groups, _AUTHENTICATED)) if names and names[-1] else None


_SUBRESOURCES = {
    "/stats": "stats",
    "/metrics": "metrics",
    "/logs": "log",
    "/checkpoint": "checkpoint",
    "/statusz": "statusz",
    "/flagz": "configz",
}
_FINE = {"/pods": "pods", "/healthz": "healthz", "/configz": "configz", "/runningpods": "pods"}
_VERBS = {"POST": "create", "GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def forbidden(person: Person, method: str, path: str, *, is_fine: bool) -> str:
    """What somebody is told who may not; ``is_fine``: the gate KubeletFineGrainedAuthz.

    Follows: v1.36, kubelet/server/auth.go, GetRequestAttributes; server.go, InstallAuthFilter.
    """
    root = "/" + path.lstrip("/").partition("/")[0]
    found = [_FINE[root]] if is_fine and root in _FINE else []
    found.append(_SUBRESOURCES.get(root, "proxy"))
    what = f"verb={_VERBS.get(method, '')}, resource=nodes, subresource(s)=[{' '.join(found)}]"
    return f"Forbidden (user={person.name}, {what})\n"
