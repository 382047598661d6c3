"""The client of API servers that needs the standard library alone: writes, credentials, and servers that answer badly."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server

from nodewright.cluster.client.access import ClusterAccess, PEMSource, TLSSettings, UserCredentials
from nodewright.cluster.client.api_client import PlainAccess
from nodewright.cluster.client.cluster_api import STRATEGIC_MERGE, ApiError

MAPS = "/api/v1/namespaces/default/configmaps"
NODES = "/api/v1/nodes"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as fake:
        yield fake


def call(server: FakeApiServer, procedure: Callable[[PlainAccess], Awaitable[Any]], **access: Any) -> Any:
    async def run() -> Any:
        async with PlainAccess(ClusterAccess(server=server.url, **access)) as api:
            return await procedure(api)

    return asyncio.run(run())


def test_objects_are_written_and_read(server: FakeApiServer) -> None:
    async def write(api: PlainAccess) -> None:
        created = await api.create(MAPS, {"metadata": {"name": "m"}, "data": {"a": "1"}})
        changed = await api.update(f"{MAPS}/m", {**created, "data": {"a": "2"}})
        assert changed["data"] == {"a": "2"}
        with pytest.raises(ApiError) as stale:
            await api.update(f"{MAPS}/m", created)
        assert stale.value.status == 409
        assert (await api.patch(f"{MAPS}/m", {"data": {"b": "3"}}))["data"] == {"a": "2", "b": "3"}
        items = (await api.read(MAPS, {"fieldSelector": "metadata.name=m", "limit": "5"}))["items"]
        assert [item["data"] for item in items] == [{"a": "2", "b": "3"}]
        await api.delete(f"{MAPS}/m", {})
        with pytest.raises(ApiError) as gone:
            await api.read(f"{MAPS}/m", {})
        assert (gone.value.status, gone.value.reason) == (404, "NotFound")

    call(server, write)
    [patch] = [request for request in server.requests if request.verb == "PATCH"]
    assert patch.headers["Content-Type"] == STRATEGIC_MERGE


def test_a_token_that_has_changed_is_read_again(server: FakeApiServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    server.users["Bearer new"] = "exporter"

    async def read(api: PlainAccess) -> None:
        file.write_text("old")
        with pytest.raises(ApiError) as refused:
            await api.read(NODES, {})
        assert refused.value.status == 401
        file.write_text("new")
        await api.read(NODES, {})
        file.unlink()

    call(server, read, credentials=UserCredentials(token_file=str(file)))


def test_certificates_are_verified(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    with fake_api_server(authority.pair("kubernetes")) as server:
        for known, name, text in (
            (authority, "kubernetes", ""),
            (other, "kubernetes", "the server's certificate is not accepted"),
            (authority, "elsewhere", "the server's certificate is not accepted"),
        ):
            tls = TLSSettings(authority=PEMSource(str(known.certificate)), server_name=name)
            if not text:
                assert call(server, lambda api: api.read(NODES, {}), tls=tls)["items"] == []
                continue
            with pytest.raises(ApiError, match=text):
                call(server, lambda api: api.read(NODES, {}), tls=tls)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (CannedAnswer(200, b"[]"), "the answer is not JSON"),
        (CannedAnswer(200, b"\xff"), "the answer is not JSON"),
        (CannedAnswer(raw=b"220 mail\r\n\r\n"), "the answer is not HTTP"),
        (CannedAnswer(raw=b"x" * 200_000), "the answer is not HTTP"),
        (CannedAnswer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"), "the connection ended"),
        (CannedAnswer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}"), "the answer is not HTTP"),
        (CannedAnswer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}"), "the answer is not HTTP"),
        (CannedAnswer(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 0_2\r\n\r\n{}"), "the answer is not HTTP"),
        (
            CannedAnswer(raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n"),
            "the answer is not HTTP",
        ),
        (CannedAnswer(raw=b""), "the connection ended"),
        (CannedAnswer(hangs=True), "no answer within 0.5 s"),
        (CannedAnswer(503, b"busy", (("Retry-After", "70"),)), "503 Service Unavailable: busy"),
    ],
)
def test_bad_answers_are_errors_of_one_line(server: FakeApiServer, answer: CannedAnswer, text: str) -> None:
    server.canned[NODES].append(answer)
    with pytest.raises(ApiError, match=text) as error:
        call(server, lambda api: api.read(NODES, {}), request_timeout=0.5 if answer.hangs else 30)
    assert "\n" not in str(error.value)
    assert (error.value.retry_after_s == 70.0) == (answer.status == 503)


def test_a_server_that_does_not_listen_is_an_error() -> None:
    with fake_api_server() as server:
        pass
    with pytest.raises(ApiError, match="connection refused"):
        call(server, lambda api: api.read(NODES, {}))
