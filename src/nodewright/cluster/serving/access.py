"""Authentication by client certificates and bearer tokens, and authorization by roles of users and groups."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from nodewright.cluster.serving.access import (
    AccessReviews,
    RequestAttributes,
    ReviewError,
    TokenFile,
    TokenReviews,
    User,
)
from nodewright.cluster.serving.routes import AccessRole
from nodewright.model.errors import Fault
from nodewright.model.values.instant import Instant

ANONYMOUS = "system:anonymous"
_UNAUTHENTICATED, _AUTHENTICATED = "system:unauthenticated", "system:authenticated"
_BEARER = "bearer "

Certificate: TypeAlias = Mapping[str, Any]
"""A verified client certificate, as `ssl` shows it."""


class Unauthenticated(NamedTuple):
    """A request that could not be authenticated."""

    reason: str


class AuthorizationError(Exception):
    """The API server has not decided about a request; the text is the body of the response."""

    def __init__(self, user: User, attributes: RequestAttributes, subresource: str, reason: str) -> None:
        super().__init__(
            f"Authorization error (user={user.name}, verb={attributes.verb}, resource=nodes,"
            f" subresource={subresource})"
        )
        self.reason = reason


class Grants(NamedTuple):
    """The roles of users and groups."""

    users: Mapping[str, AccessRole] = {}
    groups: Mapping[str, AccessRole] = {}

    def allows(self, user: User, role: AccessRole) -> bool:
        """Whether the user has the role; write includes read."""
        roles = [self.users.get(user.name), *(self.groups.get(group) for group in user.groups)]
        return AccessRole.WRITE in roles or (role is AccessRole.READ and AccessRole.READ in roles)


def read_grants(texts: Sequence[str], faults: list[Fault]) -> Grants:
    """The grants of `--grant`; adds the faults of invalid ones."""
    users, groups = dict[str, AccessRole](), dict[str, AccessRole]()
    for text in texts:
        role, _, subject = text.partition("=")
        kind, _, name = subject.partition(":")
        if role not in set(AccessRole) or kind not in ("user", "group") or not name:
            rule = "must be read=user:NAME, write=user:NAME, read=group:NAME or write=group:NAME"
            faults.append(Fault(source="--grant", value=text, rule=rule))
            continue
        roles = users if kind == "user" else groups
        if roles.get(name) is not AccessRole.WRITE:
            roles[name] = AccessRole(role)
    return Grants(users, groups)


class Authorizer:
    """Authenticates and authorizes requests; everything that is not granted is forbidden."""

    def __init__(
        self,
        grants: Grants,
        tokens: TokenFile | None = None,
        *,
        takes_anonymous: bool = False,
        allows_all: bool = False,
        token_reviews: TokenReviews | None = None,
        access_reviews: AccessReviews | None = None,
    ) -> None:
        """With ``allows_all`` every authenticated user is authorized (authorization mode AlwaysAllow).

        The reviews ask the API server where the file and the grants give no answer; None: it is not asked.
        """
        self.grants, self.tokens = grants, tokens
        self._takes_anonymous, self._allows_all = takes_anonymous, allows_all
        self._token_reviews, self._access_reviews = token_reviews, access_reviews

    async def authenticate(
        self, certificate: Certificate | None, authorization: str, now: Instant
    ) -> User | Unauthenticated:
        """The user: by client certificate, else by bearer token.

        Follows: v1.36, apiserver/pkg/authentication/authenticatorfactory/delegating.go, New: an unknown token is not
            anonymous; where nothing knows tokens, they are not read.
        """
        if certificate:
            user = _certificate_user(certificate)
            if user is not None:
                return user
        knows_tokens = self.tokens is not None or self._token_reviews is not None
        is_ignored = self._takes_anonymous and not knows_tokens
        if authorization[: len(_BEARER)].lower() == _BEARER and not is_ignored:
            token = authorization[len(_BEARER) :].strip()
            user_or_refusal = self._token_user(token, now)
            if isinstance(user_or_refusal, User) or self._token_reviews is None or not token:
                return user_or_refusal
            return await _reviewed_user(self._token_reviews, token)
        if self._takes_anonymous:
            return User(ANONYMOUS, (_UNAUTHENTICATED,))
        return Unauthenticated("no token and no client certificate")

    async def is_authorized(self, user: User, role: AccessRole, attributes: RequestAttributes) -> bool:
        """Whether the user has the role, or may do this as the API server decides.

        Follows: v1.36, kubelet/server/server.go, InstallAuthFilter: one of the subresources suffices.
        Errors:  AuthorizationError.
        """
        if self._allows_all or self.grants.allows(user, role):
            return True
        if self._access_reviews is None:
            return False
        for subresource in attributes.subresources:
            try:
                if await self._access_reviews.is_allowed(user, attributes, subresource):
                    return True
            except ReviewError as error:
                raise AuthorizationError(user, attributes, subresource, str(error)) from None
        return False

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


async def _reviewed_user(reviews: TokenReviews, token: str) -> User | Unauthenticated:
    try:
        user = await reviews.user(token)
    except ReviewError as error:
        return Unauthenticated(f"the API server does not verify the token: {error}")
    if user is None:
        return Unauthenticated("unknown token")
    if {_AUTHENTICATED, _UNAUTHENTICATED}.isdisjoint(user.groups):
        return user._replace(groups=(*user.groups, _AUTHENTICATED))
    return user


def _certificate_user(certificate: Certificate) -> User | None:
    """The user of a certificate: its common name, with its organizations as groups.

    Follows: v1.36, apiserver/pkg/authentication/request/x509/x509.go, CommonNameUserConversion.
    """
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in pairs if key == "commonName"]
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return User(names[-1], (*groups, _AUTHENTICATED)) if names and names[-1] else None
