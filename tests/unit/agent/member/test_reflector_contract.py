"""The reflector keeps the objects of a list, on the fake API server and, where there is one, on a real one."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server
from tests.support.real_api_server import needs_real, real_api_server

from nodewright.cluster.client.access import ClusterAccess, PEMSource, TLSSettings, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.reflector import BackOffDelay, Reflector
from nodewright.model.kubernetes.runtime_status import RecordEvent

T = TypeVar("T")
NUMBERS = itertools.count()
_WAIT_S = 30.0


class ImmediateClock:
    """A clock whose sleeps end at once and are remembered."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    def now_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)


class ReflectorServer(NamedTuple):
    """A server; the fake one, if it is that."""

    access: ClusterAccess
    fake: FakeApiServer | None


class Followed:
    """A reflector that runs, and what the test changes with the client."""

    def __init__(self, client: ApiClient, path: str) -> None:
        self.client, self.path = client, path
        self.clock = ImmediateClock()
        self.reflector = Reflector(client, path, "metadata.name!=kube-root-ca.crt", self.clock)
        self.events: list[RecordEvent] = []
        self.reflector.record_event = self.events.append
        self._changed = asyncio.Event()
        self.reflector.on_change = lambda _uid: self._changed.set()

    def names(self) -> list[str]:
        return sorted(document["metadata"]["name"] for document in self.reflector.objects.values())

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until the reflector's objects are as expected."""
        async with asyncio.timeout(_WAIT_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def create(self, name: str, **data: str) -> None:
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        await self.client.create(self.path, document)


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        pytest.param(
            "real",
            marks=[
                pytest.mark.live,
                pytest.mark.slow,
                needs_real(),
            ],
        ),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReflectorServer]:
    folder = tmp_path_factory.mktemp("server")
    if request.param == "fake":
        authority = Authority(folder)
        with fake_api_server(authority.pair("kubernetes")) as fake:
            yield ReflectorServer(access(fake.url, authority.certificate), fake)
    else:
        with real_api_server(folder) as real:
            certificate = folder / "certificates" / "apiserver.crt"
            yield ReflectorServer(access(f"https://127.0.0.1:{real.port}", certificate), None)


def access(url: str, authority: Path) -> ClusterAccess:
    return ClusterAccess(
        server=url,
        credentials=UserCredentials(token="admin"),  # noqa: S106 - of servers that only this test reaches
        tls=TLSSettings(authority=PEMSource(str(authority)), server_name="kubernetes"),
    )


def follow(server: ReflectorServer, procedure: Callable[[Followed], Awaitable[T]]) -> T:
    """The result of the procedure while a reflector follows the ConfigMaps of a new namespace."""

    async def run() -> T:
        async with ApiClient(server.access) as api:
            namespace = f"reflector-{next(NUMBERS)}"
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await api.create("/api/v1/namespaces", document)
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            followed = Followed(api, path)
            await followed.create("before")
            task = asyncio.ensure_future(followed.reflector.run())
            try:
                await followed.until(lambda: followed.reflector.has_listed)
                return await procedure(followed)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    return asyncio.run(run())


def test_objects_are_those_of_the_list_and_of_the_changes_after_it(server: ReflectorServer) -> None:
    async def change(followed: Followed) -> Any:
        assert followed.names() == ["before"]
        await followed.create("a")
        await followed.until(lambda: followed.names() == ["a", "before"])
        await followed.client.patch(f"{followed.path}/a", {"data": {"x": "1"}})
        await followed.until(lambda: any(each.get("data") for each in followed.reflector.objects.values()))
        await followed.client.delete(f"{followed.path}/before", {})
        await followed.until(lambda: followed.names() == ["a"])
        return next(iter(followed.reflector.objects.values()))["data"]

    assert follow(server, change) == {"x": "1"}


def test_an_object_that_a_write_returned_is_not_replaced_by_an_older_one(server: ReflectorServer) -> None:
    async def put(followed: Followed) -> list[Any]:
        old = next(iter(followed.reflector.objects.values()))
        answer = await followed.client.patch(f"{followed.path}/before", {"data": {"x": "2"}})
        followed.reflector.put(answer)
        followed.reflector.put(old)
        return [each["data"] for each in followed.reflector.objects.values()]

    assert follow(server, put) == [{"x": "2"}]


@pytest.fixture
def fake() -> Iterator[ReflectorServer]:
    with fake_api_server() as fake:
        yield ReflectorServer(ClusterAccess(server=fake.url), fake)


def watch_requests(fake: FakeApiServer) -> list[dict[str, str]]:
    return [request.query for request in fake.requests if request.query.get("watch") == "true"]


def test_a_bookmark_is_where_the_next_watch_begins(fake: ReflectorServer) -> None:
    assert fake.fake is not None
    api = fake.fake

    async def resume(followed: Followed) -> None:
        await asyncio.to_thread(api.wait_for_watches)
        # Another object changes, which this list does not have.
        other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
        await followed.client.create("/api/v1/namespaces", other)
        api.bookmark()
        await asyncio.to_thread(api.wait_for_bookmarks)
        requests = len(api.requests)
        api.end_watches()
        await asyncio.to_thread(api.wait_for_requests, requests + 1)

    follow(fake, resume)
    first, second, *_ = watch_requests(api)
    assert second["resourceVersion"] == str(api.version) > first["resourceVersion"]
    assert all(300 <= int(query["timeoutSeconds"]) <= 600 for query in (first, second))
    assert all(query["allowWatchBookmarks"] == "true" for query in (first, second))


def test_after_a_version_that_is_too_old_the_difference_is_found(fake: ReflectorServer) -> None:
    assert fake.fake is not None
    api = fake.fake

    async def relist(followed: Followed) -> list[str]:
        await asyncio.to_thread(api.wait_for_watches)
        collection = followed.path
        # What changes while no watch can tell: one object is gone and another is new.
        api.fixed[collection] = CannedAnswer(raw=b"")
        api.end_watches()
        await followed.client.delete(f"{collection}/before", {})
        api.add(collection, {"metadata": {"name": "after"}})
        api.compact()
        del api.fixed[collection]
        await followed.until(lambda: followed.names() == ["after"])
        return followed.names()

    assert follow(fake, relist) == ["after"]


def test_a_stream_that_breaks_is_continued_after_a_pause(fake: ReflectorServer) -> None:
    assert fake.fake is not None
    api = fake.fake

    async def broken(followed: Followed) -> tuple[list[str], list[float]]:
        await asyncio.to_thread(api.wait_for_watches)
        api.end_watches(is_broken=True)
        await followed.create("a")
        await followed.until(lambda: "a" in followed.names())
        return [event.reason for event in followed.events], followed.clock.slept_s

    reasons, pauses = follow(fake, broken)
    assert reasons == ["APIServerUnavailable", "APIServerAvailable"]
    assert len(pauses) == 1
    assert 0.8 <= pauses[0] <= 1.2


def test_pauses_grow_to_half_a_minute_with_jitter() -> None:
    delay = BackOffDelay()
    pauses = [delay.next_s() for _ in range(10)]
    bounds = [min(0.8 * 2**attempt, 30.0) for attempt in range(10)]
    assert all(bound <= pause <= 1.5 * bound for pause, bound in zip(pauses, bounds, strict=True))
    assert len(set(pauses)) == 10
    delay.reset()
    assert delay.next_s() <= 1.2
