"""Exporters that lie, hurry or lead elsewhere: they cost the extender little, and learn nothing."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from tests.support.binding_cluster import BindingCluster, ExtenderBench
from tests.unit.scheduling.extender.test_extender_network import options
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile

from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.cluster.serving.http_server import ListenAddress, serve_network
from nodewright.cluster.serving.middleware import RefusalLog
from nodewright.cluster.tasks.timing import HostClock
from nodewright.documents.profiles.node_export import encode_node_export, node_export
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.values.instant import Instant
from nodewright.scheduling.extender.export_followers import ExportFollowers
from nodewright.scheduling.extender.run_extender import token_warning
from nodewright.scheduling.verdicts.tracked_cluster import Basis

_LIMIT_S = 30.0


class PausingClock(HostClock):
    """A clock whose first sleep never ends; without ``tick_s`` it stands still, so that no answer costs time."""

    def __init__(self, tick_s: float = 0.0) -> None:
        super().__init__()
        self._now_s, self._tick_s = 1000.0, tick_s
        self.pauses_s: list[float] = []
        self.is_pausing = asyncio.Event()

    def monotonic_s(self) -> float:
        self._now_s += self._tick_s
        return self._now_s

    async def sleep(self, duration_s: float) -> None:
        self.pauses_s.append(duration_s)
        self.is_pausing.set()
        await asyncio.Event().wait()


class Exporter:
    """A server whose answers are a function of the number of the request."""

    def __init__(self, answer: Callable[[int], Response]) -> None:
        self._answer = answer
        self.paths: list[str] = []

    async def handle(self, request: Request) -> Response:
        self.paths.append(request.url.path)
        return self._answer(len(self.paths))


async def followed(
    answer: Callable[[int], Response],
    token_file: Path | None = None,
    *,
    breaks: bool = False,
    tick_s: float = 0.0,
) -> tuple[Exporter, ExportFollowers, PausingClock, list[str]]:
    """What has happened when the followers of an exporter pause for the first time."""
    exporter, clock, log = Exporter(answer), PausingClock(tick_s), list[str]()
    bench = ExtenderBench(BindingCluster(clock), clock)
    bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
    app = Starlette(routes=[Route("/{path:path}", exporter.handle)])
    async with AsyncExitStack() as stack:
        serving = serve_network(app, ListenAddress("127.0.0.1", 0), None, RefusalLog(lambda _text: None))
        address = await stack.enter_async_context(serving)
        followers = await stack.enter_async_context(
            ExportFollowers(PeerAccess(token_file=token_file), bench.cluster, clock)
        )
        followers.log, followers.on_error = log.append, bench.feed.export_failed
        if breaks:
            bench.cluster.put_export = None  # type: ignore[method-assign, assignment] # a bug
        followers.follow("n1", f"http://{address}/state")
        async with asyncio.timeout(_LIMIT_S):
            await clock.is_pausing.wait()
    return exporter, followers, clock, log


def an_export(_number: int = 1, observed_ns: int = 10**9) -> Response:
    profile = replace(a_profile(), metadata=ObjectMeta(name="n1"))
    export = node_export(profile, generation=1, observed_time=Instant(observed_ns))
    return Response(encode_node_export(export))


@pytest.mark.parametrize(("hours", "count"), [(-24 * 365 * 20, 1), (-1, 1), (0, 0), (1, 1)])
def test_a_clock_that_differs_is_counted_and_does_not_matter(hours: int, count: int) -> None:
    observed_ns = time.time_ns() + hours * 3600 * 10**9

    def answer(number: int) -> Response:
        return an_export(number, observed_ns) if number == 1 else Response(status_code=304)

    _, followers, _, log = asyncio.run(followed(answer))
    assert followers.cluster.node("n1").basis is Basis.EXACT
    assert (followers.errors["skew"], log) == (count, [])


def test_a_watch_that_always_ends_at_once_is_not_repeated_at_once() -> None:
    exporter, followers, clock, _ = asyncio.run(
        followed(lambda number: an_export() if number == 1 else Response(status_code=304))
    )
    assert len(exporter.paths) == 2
    assert min(clock.pauses_s) >= 0.8
    assert not followers.errors["transport"]


def test_an_exporter_with_ever_new_exports_has_a_tenth_of_the_time() -> None:
    exporter, _, clock, _ = asyncio.run(followed(an_export, tick_s=0.01))
    assert len(exporter.paths) == 1
    assert clock.pauses_s[0] >= 9 * 0.01


def test_a_token_is_not_sent_in_plain_text(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    exporter, followers, _, log = asyncio.run(followed(an_export, tmp_path / "token"))
    assert not exporter.paths
    assert followers.errors["transport"] == 1
    assert "over https only" in log[0]


def test_exporters_lead_nowhere_else() -> None:
    exporter, followers, _, log = asyncio.run(followed(lambda _number: RedirectResponse("/elsewhere")))
    assert exporter.paths == ["/state"]
    assert followers.errors["transport"] == 1
    assert "status 307" in log[0]


@pytest.mark.parametrize("token", ["a\nb", "\x00", "\udcff"])
def test_a_token_that_is_no_header_is_an_error_of_each_request(token: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(token.encode("utf-8", "surrogateescape"))
    exporter, followers, clock, _ = asyncio.run(followed(an_export, tmp_path / "token"))
    assert not exporter.paths
    assert sum(followers.errors.values()) == len(clock.pauses_s) == 1


def test_a_bug_does_not_end_the_following() -> None:
    _, followers, clock, log = asyncio.run(followed(an_export, breaks=True))
    assert followers.errors["internal"] == 1
    assert len(clock.pauses_s) == 1
    assert log[0].startswith("node n1: ")


def test_a_token_for_exporters_that_are_not_verified_is_worth_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert "--export-ca-file" in token_warning(options(export_token_file=file))
    assert not token_warning(options(export_token_file=file, export_ca_file=file))
    assert "not verified" in token_warning(options())


def test_a_node_object_that_leads_elsewhere_is_counted_and_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    exporter = Exporter(an_export)

    async def scenario() -> None:
        clock, log = PausingClock(), list[str]()
        bench = ExtenderBench(BindingCluster(clock), clock)
        bench.feed.nodes.has_listed = bench.feed.pods.has_listed = True
        app = Starlette(routes=[Route("/{path:path}", exporter.handle)])
        async with AsyncExitStack() as stack:
            serving = serve_network(app, ListenAddress("127.0.0.1", 0), None, RefusalLog(lambda _text: None))
            address = await stack.enter_async_context(serving)
            followers = await stack.enter_async_context(
                ExportFollowers(PeerAccess(token_file=tmp_path / "token"), bench.cluster, clock)
            )
            followers.log, followers.on_error = log.append, bench.feed.export_failed
            bench.feed.on_node, bench.feed.on_refused_url = followers.follow, followers.refuse
            bench.put_export("n1", a_profile())
            addresses = [{"type": "InternalIP", "address": "10.0.0.7"}]
            annotations = {EXPORT_URL: f"https://{address}/v1/state"}
            document = {"metadata": {"name": "n1", "uid": "u", "annotations": annotations}}
            bench.feed.nodes.objects["u"] = {**document, "status": {"addresses": addresses}}
            for _ in range(2):  # kubelets update their Node objects again and again
                bench.feed.nodes.on_change("u")
            await asyncio.sleep(0)
            node = bench.cluster.node("n1")
            assert node.basis is Basis.UNKNOWN
            assert "must have an InternalIP or ExternalIP of the node as its host" in node.note
            assert (followers.errors["address"], len(log)) == (1, 1)
            assert followers.has_settled

    asyncio.run(scenario())
    assert not exporter.paths
