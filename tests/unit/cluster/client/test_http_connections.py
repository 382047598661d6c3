"""The connections of the client: kept, renewed, through proxies, and closed."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server

from nodewright.cluster.client import http_connections
from nodewright.cluster.client.access import ClusterAccess, PEMSource, TLSSettings, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.tls import PeerAccess
from nodewright.model.errors import HostError
from nodewright.scheduling.exporter.kubelet_client import KubeletClient, KubeletEndpoint

NODES = "/api/v1/nodes"
MAPS = "/api/v1/namespaces/default/configmaps"


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as fake:
        yield fake


@in_a_loop
async def test_later_requests_use_the_connections_of_earlier_ones(server: FakeApiServer) -> None:
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        for name in ("a", "b"):
            await api.create(MAPS, {"metadata": {"name": name}})
            with pytest.raises(ApiError):
                await api.read(f"{MAPS}/absent", {})
        assert server.connections == 1
        await asyncio.gather(*(api.read(NODES, {}) for _ in range(100)))
        assert server.connections <= 16


@pytest.mark.parametrize(
    "body",
    [
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nDigest: x\r\n\r\n",
        b"Content-Length: 2\r\nConnection: close\r\n\r\n{}",
        b"\r\n{}",
    ],
)
@in_a_loop
async def test_answers_end_as_their_headers_say(server: FakeApiServer, body: bytes) -> None:
    # The server closes the connection after each of these.
    server.canned[NODES] += [CannedAnswer(raw=b"HTTP/1.1 200 OK\r\n" + body)] * 3
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        assert [await api.read(NODES, {}) for _ in range(3)] == [{}] * 3
    assert server.connections == 3


@in_a_loop
async def test_a_read_is_repeated_if_the_server_closes_an_idle_connection(server: FakeApiServer) -> None:
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        await api.read(NODES, {})
        server.canned[NODES].append(CannedAnswer(raw=b""))
        assert (await api.read(NODES, {}))["items"] == []
        assert server.connections == 2
        server.canned[MAPS].append(CannedAnswer(raw=b""))
        with pytest.raises(ApiError, match="the server closed the connection without an answer"):
            await api.create(MAPS, {"metadata": {"name": "a"}})  # It may have been created.
        server.canned[NODES] += [CannedAnswer(raw=b"")] * 2
        with pytest.raises(ApiError, match="the server closed the connection without an answer"):
            await api.read(NODES, {})


@in_a_loop
async def test_what_nobody_asked_for_is_no_answer(server: FakeApiServer) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    server.canned[NODES].append(CannedAnswer(raw=answer + b"{}" + answer + b"{}"))
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        assert await api.read(NODES, {}) == {}
        assert (await api.read(NODES, {}))["items"] == []


@in_a_loop
async def test_connections_that_were_idle_for_long_are_not_used(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "MAX_IDLE_S", 0.0)
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        for _ in range(3):
            await api.read(NODES, {})
    assert server.connections == 3


@in_a_loop
async def test_a_busy_server_is_asked_again(server: FakeApiServer) -> None:
    answer = CannedAnswer(429, b"", (("Retry-After", "0"),))
    server.canned[NODES] += [answer] * 3
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        codes: list[int] = []
        api.on_answer = lambda _verb, _host, code, _duration_s: codes.append(code)
        await api.read(NODES, {})
        assert codes == [429, 429, 429, 200]
        server.canned[NODES] += [answer] * 20
        with pytest.raises(ApiError) as error:
            await api.read(NODES, {})
        assert error.value.status == 429


@in_a_loop
async def test_a_new_client_certificate_has_a_connection_of_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pairs = [authority.pair(name) for name in ("first", "second")]
    own = (tmp_path / "own.crt", tmp_path / "own.key")
    tls = TLSSettings(
        authority=PEMSource(str(authority.certificate)),
        server_name="kubernetes",
        client_certificate=PEMSource(str(own[0])),
        client_key=PEMSource(str(own[1])),
    )
    with fake_api_server(authority.pair("kubernetes"), authority.certificate) as server:
        async with ApiClient(ClusterAccess(server=server.url, tls=tls)) as api:
            for pair in pairs:
                for source, target in zip(pair, own, strict=True):
                    target.write_bytes(source.read_bytes())
                server.forbidden_users = {"first"}
                if pair is pairs[0]:
                    with pytest.raises(ApiError, match='User "first" cannot list'):
                        await api.read(NODES, {})
                    server.canned[NODES].append(CannedAnswer(401))
            await api.read(NODES, {})
        assert server.connections == 2


@in_a_loop
async def test_a_cancelled_request_leaves_no_connection(server: FakeApiServer) -> None:
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        for turns in range(12):
            server.canned[NODES].append(CannedAnswer(hangs=True))
            request = asyncio.create_task(api.read(NODES, {}))
            for _ in range(turns):
                await asyncio.sleep(0)
            request.cancel()
            with suppress(asyncio.CancelledError):
                await request
            server.canned[NODES].clear()
    await asyncio.sleep(0)
    gc.collect()  # warns of what is open still, and warnings are errors


# ---------------------------------------------------------------- proxies


@asynccontextmanager
async def tunnels() -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that knows CONNECT: its port, and the heads of what it was asked."""
    heads: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while content := await reader.read(1 << 16):
                writer.write(content)
        finally:
            writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        port = int(head.split()[1].rpartition(":")[2])
        onward = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        tasks.update(asyncio.create_task(copy(*pair)) for pair in ((reader, onward[1]), (onward[0], writer)))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with proxy:
        yield proxy.sockets[0].getsockname()[1], heads
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # Aborted connections are closed in the next turn.


@in_a_loop
async def test_a_proxy_tunnels_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = TLSSettings(authority=PEMSource(str(authority.certificate)), server_name="kubernetes")
    with fake_api_server(authority.pair("kubernetes")) as server:
        async with tunnels() as (port, heads):
            access = ClusterAccess(
                server=server.url, tls=tls, proxy=f"http://user:se%40cret@127.0.0.1:{port}"
            )
            async with ApiClient(access) as api:
                assert (await api.read(NODES, {}))["items"] == []
                assert (await api.read(NODES, {}))["items"] == []
    assert [head.splitlines()[0] for head in heads] == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
    assert "Proxy-Authorization: Basic dXNlcjpzZUBjcmV0" in heads[0]


@in_a_loop
async def test_a_proxy_receives_requests_without_tls_as_they_are(server: FakeApiServer) -> None:
    server.serve(NODES, {"from": "proxy"})
    access = ClusterAccess(server="http://api.invalid", proxy=server.url.replace("//", "//user:secret@"))
    async with ApiClient(access) as api:
        assert await api.read(NODES, {}) == {"from": "proxy"}
    headers = server.requests[0].headers
    assert (headers["Host"], headers["Proxy-Authorization"]) == ("api.invalid", "Basic dXNlcjpzZWNyZXQ=")


@in_a_loop
async def test_errors_name_the_proxy_without_its_password(server: FakeApiServer) -> None:
    proxy = server.url.replace("//", "//user:secret@")
    async with ApiClient(ClusterAccess(server="https://api.invalid", proxy=proxy)) as api:
        with pytest.raises(ApiError, match=rf"the proxy 127.0.0.1:{server.port} answers 501"):
            await api.read(NODES, {})
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    access = ClusterAccess(server="https://api.invalid", proxy=f"http://user:secret@127.0.0.1:{port}")
    async with ApiClient(access) as api:
        with pytest.raises(ApiError, match=rf"refused through the proxy 127.0.0.1:{port}") as error:
            await api.read(NODES, {})
    assert "secret" not in str(error.value)


# ---------------------------------------------------------------- bodies, errors


def test_chunks_may_be_split_anywhere() -> None:
    content = b"3;name=x\r\nabc\r\n0A \r\n0123456789\r\n0\r\nDigest: x\r\n\r\nrest"
    for size in (1, 2, 3, len(content)):
        chunks, body = http_connections._ChunkedBody(), b""
        for start in range(0, len(content), size):
            if not chunks.is_at_end:
                body += chunks.feed(content[start : start + size])
        assert (body, chunks.is_at_end) == (b"abc0123456789", True)
        assert b"rest".startswith(chunks.rest)


@pytest.mark.parametrize("content", [b"3\r\nabcd\r\n", b"\r\n", b"x\r\n", b"0_1\r\na", b"1" * 100_000])
def test_chunks_that_are_none_are_an_error(content: bytes) -> None:
    with pytest.raises(http_connections.InvalidAnswerError):
        http_connections._ChunkedBody().feed(content)


@pytest.mark.parametrize("content", [b"not packed", b""])
@in_a_loop
async def test_a_body_that_is_not_packed_as_it_says_is_an_error(
    server: FakeApiServer, content: bytes
) -> None:
    server.canned[NODES].append(CannedAnswer(200, content, (("Content-Encoding", "gzip"),)))
    async with ApiClient(ClusterAccess(server=server.url)) as api:
        with pytest.raises(ApiError, match=r"not gzip|in the middle of the answer"):
            await api.get(NODES)


@in_a_loop
async def test_a_token_that_cannot_be_sent_is_not_printed(server: FakeApiServer) -> None:
    credentials = UserCredentials(token="secret\nword")  # noqa: S106 - made up
    async with ApiClient(ClusterAccess(server=server.url, credentials=credentials)) as api:
        with pytest.raises(ApiError, match="a header of the request") as error:
            await api.read(NODES, {})
    assert "secret" not in str(error.value)
    assert not server.requests


@in_a_loop
async def test_the_client_of_a_kubelet_follows_no_redirect(server: FakeApiServer) -> None:
    server.fixed["/pods"] = CannedAnswer(302, b"", (("Location", f"{server.url}/elsewhere"),))
    with pytest.raises(HostError, match="status 302"):
        await KubeletClient(KubeletEndpoint(url=server.url, peer=PeerAccess())).pods()
    assert [request.path for request in server.requests] == ["/pods"]
