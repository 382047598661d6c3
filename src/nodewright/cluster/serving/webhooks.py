"""Authentication and authorization by the API server: TokenReview and SubjectAccessReview, with cached answers."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.serving.access import RequestAttributes, User
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

T = TypeVar("T")
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEW_TIMEOUT_S = 30.0
MAX_ANSWERS = 8192
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
        self._valid: OrderedDict[bytes, tuple[float, T]] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[T]] = {}

    async def answer(
        self, key: bytes, look_up: Callable[[], Awaitable[T]], lifetime_s: Callable[[T], float]
    ) -> T:
        """The answer; errors are those of the lookup."""
        expiry_s, answer = self._valid.get(key, (0.0, None))
        if answer is not None and self._clock() < expiry_s:
            self._valid.move_to_end(key)
            return answer
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
            self._valid[key] = (self._clock() + lifetime_s(answer), answer)
            while len(self._valid) > MAX_ANSWERS:
                self._valid.popitem(last=False)
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
            user = msgspec.convert(status.get("user") or {}, _ReviewedUser)
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
        return await self._answers.answer(key, lambda: self._review(spec), self._lifetime_s)

    def _lifetime_s(self, is_allowed: bool) -> float:  # noqa: FBT001 - an answer
        return self._times.authorized_s if is_allowed else self._times.unauthorized_s

    async def _review(self, spec: Mapping[str, Any]) -> bool:
        status = await self._reviewer.status(ACCESS_REVIEWS, "SubjectAccessReview", spec)
        if status.get("allowed") and status.get("denied"):
            raise ReviewError("the API server both allows and denies")
        return bool(status.get("allowed"))
