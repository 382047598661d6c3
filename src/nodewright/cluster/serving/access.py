"""Who may do what: users of client certificates, token files and TokenReviews; roles, grants and SubjectAccessReviews."""

import asyncio
import csv
import hashlib
import hmac
import io
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.serving.routes import AccessRole
from nodewright.documents.formats.decode import examined
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.values.bounded_cache import BoundedCache
from nodewright.model.values.instant import Instant, InstantError


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


# ---------------------------------------------------------------- token files

MAX_BYTES = 1 << 20
CHECK_PERIOD_S = 1.0


class TokenOwner(NamedTuple):
    """The user of a token."""

    name: str
    uid: str
    groups: tuple[str, ...]
    expires: Instant | None = None
    """When the token expires; None: never."""


def read_tokens(content: bytes, source: str) -> dict[bytes, TokenOwner]:
    """The users by the SHA-256 of their token, from lines `token,user,uid[,"group,group"[,expiry]]`.

    Errors:  InputError with all faults; no fault contains a token.
    Follows: v1.36, apiserver/pkg/authentication/token/tokenfile/tokenfile.go, NewCSV: three columns at least, groups
        in the fourth, spaces around names are dropped.
    Departs: a duplicate token is an error, where the API server uses the last one; a fifth column is the time at
        which the token expires.
    """
    owners: dict[bytes, TokenOwner] = {}
    faults: list[Fault] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8")), strict=True, skipinitialspace=True)
        for row in rows:
            line = f"line {rows.line_num}"
            if row and not (row[0].startswith("#") and len(row) == 1):
                _add_owner(owners, faults, row, (line, source))
    except (UnicodeDecodeError, csv.Error) as error:
        faults.append(Fault(rule=f"not valid CSV: {error}", source=source))
    if faults:
        raise InputError(faults)
    return owners


def _add_owner(
    owners: dict[bytes, TokenOwner], faults: list[Fault], row: list[str], place: tuple[str, str]
) -> None:
    line, source = place
    token, *columns = (column.strip() for column in row)
    if len(columns) < 2 or len(columns) > 4:
        rule = f"expected token,user,uid and optionally groups and an expiry, not {len(columns) + 1} columns"
        faults.append(Fault(path=line, rule=rule, source=source))
        return
    if not token or not columns[0]:
        column = "user" if token else "token"
        faults.append(Fault(path=line, rule=f"the {column} is empty", source=source))
        return
    expires = None
    if len(columns) > 3 and columns[3]:
        try:
            expires = Instant.parse(columns[3])
        except InstantError as error:
            faults.append(Fault(path=line, value=columns[3], rule=str(error), source=source))
            return
    groups = tuple(group for text in columns[2:3] for group in map(str.strip, text.split(",")) if group)
    digest = hashlib.sha256(token.encode()).digest()
    if digest in owners:
        faults.append(Fault(path=line, rule="this token is a duplicate of another line's", source=source))
        return
    owners[digest] = TokenOwner(columns[0], columns[1], groups, expires)


class TokenFile:
    """A token file, read again when it changes. While it cannot be read, no token is valid."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Errors: InputError if it cannot be read.
        """
        self.path = path
        self.error: str = ""
        """Why the file cannot be read now; empty if it can."""
        self._checked_s = time.monotonic()
        self._stamp = self._stamp_now()
        self._owners = self._read()

    def owner(self, token: str, now: Instant) -> TokenOwner | None:
        """The user of a token; None if the token is unknown or has expired.

        Compares all tokens in constant time, so that the duration reveals nothing about them.
        """
        self._reload_if_changed()
        digest, match = hashlib.sha256(token.encode()).digest(), None
        for known_digest, owner in self._owners.items():
            if hmac.compare_digest(known_digest, digest):
                match = owner
        if match is None or (match.expires is not None and match.expires <= now):
            return None
        return match

    def has_expired(self, token: str, now: Instant) -> bool:
        """Whether the token is known and has expired."""
        owner = self._owners.get(hashlib.sha256(token.encode()).digest())
        return owner is not None and owner.expires is not None and owner.expires <= now

    def _reload_if_changed(self) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_PERIOD_S:
            return
        self._checked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._owners, self.error = self._read(), ""
        except InputError as error:
            self._owners, self.error = {}, str(error)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[bytes, TokenOwner]:
        source = os.fspath(self.path)
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            rule = f"the token file cannot be read: {error.strerror or error}"
            raise InputError([Fault(rule=rule, source=source)]) from None
        if len(content) > MAX_BYTES:
            raise InputError([Fault(rule=f"the file is larger than {MAX_BYTES} bytes", source=source)])
        return read_tokens(content, source)


# ---------------------------------------------------------------- reviews by the API server

T = TypeVar("T")
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEW_TIMEOUT_S = 30.0
MAX_ANSWERS, MAX_ANSWERS_BYTES = 8192, 16 << 20
MAX_CACHED_KEY_BYTES = 10_000
_FIRST_DELAY_S, _DELAY_FACTOR, _ATTEMPTS = 0.5, 1.5, 5
_TRANSIENT_STATUSES = (429, 500, 504)


class ReviewAPI(Protocol):
    """An API server that answers reviews."""

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The review with its answer.

        Errors: ApiError.
        """


class _ReviewedUser(msgspec.Struct, frozen=True):
    """The user in the status of a TokenReview."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class ReviewError(Exception):
    """The API server has not answered, or answered with an error."""


class CacheTimes(NamedTuple):
    """How long answers are valid.

    Units: seconds.
    """

    authenticated_s: float = 120.0
    authorized_s: float = 300.0
    unauthorized_s: float = 30.0

    @classmethod
    def from_config(cls, config: KubeletConfiguration) -> "CacheTimes":
        """The times of a KubeletConfiguration."""
        authorization = config.authorization.webhook
        return cls(
            config.authentication.webhook.cache_ttl.nanoseconds / 10**9,
            authorization.cache_authorized_ttl.nanoseconds / 10**9,
            authorization.cache_unauthorized_ttl.nanoseconds / 10**9,
        )


class _Answers(Generic[T]):
    """Answers by key, each until it expires; requests with the same key share one lookup. Errors are not kept."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._valid = BoundedCache[bytes, tuple[float, T]](MAX_ANSWERS_BYTES, MAX_ANSWERS)
        self._lookups: dict[bytes, asyncio.Task[T]] = {}

    async def answer(
        self, key: bytes, look_up: Callable[[], Awaitable[T]], lifetime_s: Callable[[T], float]
    ) -> T:
        """The answer; errors are those of the lookup."""
        known = self._valid.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = asyncio.ensure_future(self._look_up(key, look_up, lifetime_s))
            self._lookups[key] = lookup
            # Its error is of no interest once all who asked have left.
            lookup.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A client that leaves does not end the lookup of the others.
        return await asyncio.shield(lookup)

    async def _look_up(
        self, key: bytes, look_up: Callable[[], Awaitable[T]], lifetime_s: Callable[[T], float]
    ) -> T:
        try:
            answer = await look_up()
            valid = (self._clock() + lifetime_s(answer), answer)
            self._valid.put(key, valid, len(msgspec.json.encode(answer)))
            return answer
        finally:
            del self._lookups[key]


class _Reviewer:
    """Sends reviews, and repeats those that fail for reasons that may pass.

    Follows: v1.36, apiserver/pkg/util/webhook/webhook.go, WithExponentialBackoff, DefaultShouldRetry.
    """

    def __init__(self, api: ReviewAPI, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._api, self._sleep = api, sleep

    async def status(self, path: str, kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The status of the review.

        Errors: ReviewError.
        """
        group = path.split("/")[2]
        document = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {}, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT_S):
                review = await self._created(path, document)
        except TimeoutError:
            raise ReviewError(f"no answer within {REVIEW_TIMEOUT_S:g} s") from None
        except ApiError as error:
            raise ReviewError(str(error)) from None
        status = review.get("status")
        return status if isinstance(status, dict) else {}

    async def _created(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        delay_s = _FIRST_DELAY_S
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._api.create(path, document)
            except ApiError as error:
                if error.status not in _TRANSIENT_STATUSES:
                    raise
            await self._sleep(delay_s)
            delay_s *= _DELAY_FACTOR
        return await self._api.create(path, document)


class TokenReviews:
    """The users of bearer tokens, as the API server knows them.

    Follows: v1.36, apiserver/plugin/pkg/authenticator/token/webhook/webhook.go, AuthenticateToken;
        apiserver/pkg/authentication/token/cache/cached_token_authenticator.go.
    """

    def __init__(
        self,
        api: ReviewAPI,
        times: CacheTimes,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reviewer, self._times = _Reviewer(api, sleep), times
        self._answers = _Answers[tuple[User | None]](clock)

    async def user(self, token: str) -> User | None:
        """The user of a token; None: the API server does not know it.

        Errors: ReviewError.
        """
        # Tokens are not kept in memory.
        key = sha256(token.encode()).digest()
        (user,) = await self._answers.answer(
            key, lambda: self._review(token), lambda _: self._times.authenticated_s
        )
        return user

    async def _review(self, token: str) -> tuple[User | None]:
        status = await self._reviewer.status(TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not status.get("authenticated"):
            if status.get("error"):
                raise ReviewError(str(status["error"]))
            return (None,)
        try:
            user = msgspec.convert(status.get("user") or {}, examined(_ReviewedUser))
        except msgspec.ValidationError as error:
            raise ReviewError(f"the user in the answer: {error}") from None
        extra = {key: tuple(values) for key, values in (user.extra or {}).items()}
        return (User(user.username, tuple(user.groups or ()), user.uid, extra),)


class AccessReviews:
    """What users may do with the node, as the API server decides.

    Follows: v1.36, apiserver/plugin/pkg/authorizer/webhook/webhook.go, Authorize.
    """

    def __init__(
        self,
        api: ReviewAPI,
        node_name: str,
        times: CacheTimes,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._reviewer, self._node_name, self._times = _Reviewer(api, sleep), node_name, times
        self._answers = _Answers[bool](clock)

    async def is_allowed(self, user: User, attributes: RequestAttributes, subresource: str) -> bool:
        """Whether the user may do this with a subresource of the node.

        Errors: ReviewError.
        """
        spec = {
            "user": user.name,
            "groups": list(user.groups),
            **({"uid": user.uid} if user.uid else {}),
            **({"extra": {key: list(values) for key, values in user.extra.items()}} if user.extra else {}),
            "resourceAttributes": {
                "verb": attributes.verb,
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": self._node_name,
            },
        }
        key = msgspec.json.encode(spec)
        if len(key) > MAX_CACHED_KEY_BYTES:
            return await self._review(spec)
        return await self._answers.answer(sha256(key).digest(), lambda: self._review(spec), self._lifetime_s)

    def _lifetime_s(self, is_allowed: bool) -> float:  # noqa: FBT001 - an answer
        return self._times.authorized_s if is_allowed else self._times.unauthorized_s

    async def _review(self, spec: Mapping[str, Any]) -> bool:
        status = await self._reviewer.status(ACCESS_REVIEWS, "SubjectAccessReview", spec)
        if status.get("allowed") and status.get("denied"):
            raise ReviewError("the API server both allows and denies")
        return bool(status.get("allowed"))


# ---------------------------------------------------------------- users and roles

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
