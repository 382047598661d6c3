"""Users and rights from the API server: what is asked, how often, and what becomes of errors."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubelet_api import HTTPSAgent

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.serving import access as webhooks
from nodewright.cluster.serving.access import (
    AccessReviews,
    Authorizer,
    CacheTimes,
    Grants,
    RequestAttributes,
    ReviewError,
    TokenFile,
    TokenReviews,
    User,
    request_attributes,
)
from nodewright.cluster.serving.routes import AccessRole
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration

ALICE = {"username": "alice", "uid": "7", "groups": ["dev"], "extra": {"scopes": ["a", "b"]}}
PODS = RequestAttributes("get", ("pods", "proxy"))
Answer = Callable[[dict[str, Any]], dict[str, Any]]


def in_event_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test in an event loop of its own."""

    @wraps(test)
    def run(**arguments: object) -> None:
        asyncio.run(test(**arguments))

    return run


class FakeReviews:
    """An API server that knows the token `good`, and allows what is in ``allowed``; ``errors`` come first."""

    def __init__(self, *errors: ApiError, allowed: frozenset[str] = frozenset()) -> None:
        self.requests: list[dict[str, Any]] = []
        self.errors, self.allowed = list(errors), allowed
        self.now_s = 0.0
        self.sleeps: list[float] = []
        self.status: dict[str, Any] | None = None
        """The status of every answer; None: as a real server's."""

    def clock(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        self.requests.append({"path": path, **document})
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        spec = document["spec"]
        if self.status is not None:
            return {"status": self.status}
        if path == webhooks.TOKEN_REVIEWS:
            is_known = spec["token"] == "good"  # noqa: S105 - of a test
            return {"status": {"authenticated": True, "user": ALICE} if is_known else {}}
        attributes = spec["resourceAttributes"]
        return {"status": {"allowed": f"{attributes['verb']} {attributes['subresource']}" in self.allowed}}

    def tokens(self) -> TokenReviews:
        return TokenReviews(self, CacheTimes(), self.clock, self.sleep)

    def access(self) -> AccessReviews:
        return AccessReviews(self, "worker", CacheTimes(), self.clock, self.sleep)


def error(status: int) -> ApiError:
    return ApiError("POST", "/reviews", f"status {status}", status=status)


@in_event_loop
async def test_a_token_is_reviewed_once_in_two_minutes() -> None:
    api = FakeReviews()
    reviews = api.tokens()
    alice = User("alice", ("dev",), "7", {"scopes": ("a", "b")})
    assert await asyncio.gather(*(reviews.user("good") for _ in range(5))) == [alice] * 5
    assert [await reviews.user(token) for token in ("bad", "bad")] == [None, None]
    assert [request["spec"]["token"] for request in api.requests] == ["good", "bad"]
    assert api.requests[0]["apiVersion"] == "authentication.k8s.io/v1"
    api.now_s = 119.9
    assert await reviews.user("good") == alice
    assert len(api.requests) == 2
    api.now_s = 120.0
    assert await reviews.user("good") == alice
    assert len(api.requests) == 3


@in_event_loop
async def test_rights_are_kept_for_five_minutes_and_refusals_for_half_a_minute() -> None:
    api = FakeReviews(allowed=frozenset(["get proxy"]))
    reviews, user = api.access(), User("alice", ("dev",))
    assert not await reviews.is_allowed(user, PODS, "pods")
    assert await reviews.is_allowed(user, PODS, "proxy")
    assert api.requests[1] == {
        "path": "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": "alice",
            "groups": ["dev"],
            "resourceAttributes": {
                "verb": "get",
                "version": "v1",
                "resource": "nodes",
                "subresource": "proxy",
                "name": "worker",
            },
        },
    }
    api.allowed = frozenset(["get pods"])
    api.now_s = 29.0
    assert not await reviews.is_allowed(user, PODS, "pods")
    api.now_s = 31.0
    assert await reviews.is_allowed(user, PODS, "pods")
    api.now_s = 299.0
    assert await reviews.is_allowed(user, PODS, "proxy")
    api.now_s = 300.0
    assert not await reviews.is_allowed(user, PODS, "proxy")


@in_event_loop
async def test_users_that_differ_in_uid_or_extra_are_asked_for_each() -> None:
    api = FakeReviews(allowed=frozenset(["get proxy"]))
    reviews = api.access()
    users = (
        User("a", ()),
        User("a", (), "1"),
        User("a", (), "", {"x": ("y",)}),
        User("a", ("g",)),
        User("b", ()),
    )
    for user in (*users, *users):
        assert await reviews.is_allowed(user, PODS, "proxy")
    assert len(api.requests) == len(users)


@pytest.mark.parametrize(("status", "attempts"), [(500, 5), (429, 5), (504, 5), (403, 1), (0, 1)])
@in_event_loop
async def test_errors_that_may_pass_are_retried_and_none_is_kept(status: int, attempts: int) -> None:
    api = FakeReviews(*[error(status)] * attempts)
    reviews = api.tokens()
    with pytest.raises(ReviewError, match=f"status {status}"):
        await reviews.user("good")
    assert len(api.requests) == attempts
    assert api.sleeps == [0.5, 0.75, 1.125, 1.6875][: attempts - 1]
    assert await reviews.user("good") is not None


@in_event_loop
async def test_a_client_that_leaves_does_not_end_the_lookup_of_others() -> None:
    api = FakeReviews()
    reviews = api.tokens()
    first = asyncio.create_task(reviews.user("good"))
    await asyncio.sleep(0)
    second = asyncio.create_task(reviews.user("good"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is not None
    assert len(api.requests) == 1


@in_event_loop
async def test_a_server_that_is_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(FakeReviews):
        async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
            del path, document
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(webhooks, "REVIEW_TIMEOUT_S", 0.01)
    with pytest.raises(ReviewError, match="no answer within"):
        await Silent().tokens().user("good")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"authenticated": False, "error": "token has expired"}, "token has expired"),
        ({"error": "x"}, "x"),
        *(
            ({"authenticated": True, "user": user}, "the user in the answer")
            for user in (5, "a", ["a"], {"groups": 5}, {"extra": {"a": 5}}, {"username": None})
        ),
    ],
)
@in_event_loop
async def test_errors_of_a_review_are_errors(status: dict[str, Any], text: str) -> None:
    api = FakeReviews()
    api.status = status
    with pytest.raises(ReviewError, match=text):
        await api.tokens().user("good")


@in_event_loop
async def test_an_answer_that_allows_and_denies_is_an_error() -> None:
    api = FakeReviews()
    api.status = {"allowed": True, "denied": True}
    with pytest.raises(ReviewError, match="both allows and denies"):
        await api.access().is_allowed(User("a", ()), PODS, "proxy")
    api.status = {"denied": True, "reason": "no"}
    assert not await api.access().is_allowed(User("a", ()), PODS, "proxy")


@in_event_loop
async def test_the_number_of_kept_answers_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "MAX_ANSWERS", 3)
    api = FakeReviews()
    reviews = api.tokens()
    for token in "abcda":
        await reviews.user(token)
    assert len(api.requests) == 5
    # An answer whose key is large is not kept.
    access, huge = api.access(), User("x" * 20_000, ())
    for _ in range(2):
        await access.is_allowed(huge, PODS, "proxy")
    assert len(api.requests) == 7


def test_times_are_those_of_the_configuration() -> None:
    assert CacheTimes.from_config(KubeletConfiguration()) == CacheTimes(120.0, 300.0, 30.0)


@pytest.mark.parametrize(
    ("method", "path", "verb", "subresources", "coarse"),
    [
        ("GET", "/pods", "get", "pods proxy", "proxy"),
        ("GET", "/runningpods/", "get", "pods proxy", "proxy"),
        ("GET", "/healthz/syncloop", "get", "healthz proxy", "proxy"),
        ("GET", "/configz", "get", "configz proxy", "proxy"),
        ("GET", "/stats/summary", "get", "stats", "stats"),
        ("GET", "/metrics/resource", "get", "metrics", "metrics"),
        ("GET", "/logs/messages", "get", "log", "log"),
        ("POST", "/checkpoint/a/b/c", "create", "checkpoint", "checkpoint"),
        ("POST", "/exec/a/b/c", "create", "proxy", "proxy"),
        ("GET", "/exec/a/b/c", "get", "proxy", "proxy"),
        ("GET", "/podsandmore", "get", "proxy", "proxy"),
        ("HEAD", "/pods", "", "pods proxy", "proxy"),
    ],
)
def test_requests_have_the_attributes_of_a_kubelet(
    method: str, path: str, verb: str, subresources: str, coarse: str
) -> None:
    fine = request_attributes(method, path, is_fine=True)
    assert fine == RequestAttributes(verb, tuple(subresources.split()))
    assert request_attributes(method, path, is_fine=False).subresources == (coarse,)


def served(tmp_path: Path, api: FakeReviews, grants: Grants) -> HTTPSAgent:
    """An agent whose users and rights are those of the API server."""
    node = HTTPSAgent(tmp_path)
    node.access = Authorizer(
        grants, TokenFile(node.tokens), token_reviews=api.tokens(), access_reviews=api.access()
    )
    return node


@in_event_loop
async def test_the_api_server_decides_about_what_grants_and_files_leave_open(tmp_path: Path) -> None:
    api = FakeReviews(allowed=frozenset(["get pods"]))
    async with served(tmp_path, api, Grants({"admin": AccessRole.WRITE})) as node:
        assert (await node.request("/pods", "writes")).status == 200
        assert api.requests == []
        assert (await node.request("/pods", "good")).status == 200
        user = api.requests[-1]["spec"]
        assert (user["user"], user["groups"]) == ("alice", ["dev", "system:authenticated"])
        assert (user["uid"], user["extra"]) == ("7", {"scopes": ["a", "b"]})
        answer = await node.request("/exec/default/web/main?output=1", "good")
        text = "Forbidden (user=alice, verb=get, resource=nodes, subresource(s)=[proxy])\n"
        assert (answer.status, answer.text) == (403, text)
        assert (await node.request("/pods", "unknown")).status == 401
        assert (await node.request("/pods", "")).status == 401
        certificate = node.client(node.authority.client_certificate("bob", "ops"))
        assert (await node.request("/pods", "", context=certificate)).status == 200
        assert api.requests[-1]["spec"]["groups"] == ["ops", "system:authenticated"]


@in_event_loop
async def test_without_an_answer_nothing_is_allowed(tmp_path: Path) -> None:
    api = FakeReviews(error(403))
    async with served(tmp_path, api, Grants()) as node:
        assert (await node.request("/pods", "good")).status == 401
        assert (await node.request("/stats/summary", "good")).status == 403
        api.errors.append(error(503))
        answer = await node.request("/pods", "good")
        text = "Authorization error (user=alice, verb=get, resource=nodes, subresource=pods)"
        assert (answer.status, answer.text) == (500, text)
        messages = " | ".join(node.refusal_events())
        assert "the API server does not verify the token: POST /reviews: status 403" in messages
        assert "status 503" in messages
