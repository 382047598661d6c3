"""The client against answers of every kind, also those that no API server gives."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.support.cluster_access import NODES, access_to, call, error
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server

from nodewright.cluster.client.access import ClusterAccess, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import collected_pages, lines_of, metadata_of

HTML = b"<!doctype html><html><head><title>\n Sign in </title></head></html>"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as running:
        yield running


def body(server: FakeApiServer, path: str = NODES, **fields: Any) -> bytes:
    return call(access_to(server, **fields), lambda client: client.get(path))


def names(server: FakeApiServer, page_size: int = 2, **selectors: str) -> list[str]:
    async def list_names(client: ApiClient) -> list[str]:
        page = await collected_pages(client.list_pages(NODES, page_size=page_size, **selectors))
        return [msgspec.json.decode(item)["metadata"]["name"] for item in page.items]

    return call(access_to(server), list_names)


def add_nodes(server: FakeApiServer, *names: str) -> None:
    server.add(NODES, *({"metadata": {"name": name, "labels": {"app": name}}} for name in names))


def test_a_get_has_the_bytes_of_the_answer_and_the_query(server: FakeApiServer) -> None:
    server.serve("/api/v1/nodes/w/proxy/configz", {"kubeletconfig": {}})
    path = "/api/v1/nodes/w/proxy/configz"
    assert call(access_to(server), lambda client: client.get(path, {"a": "b c"})) == b'{"kubeletconfig": {}}'
    assert server.requests[0].query == {"a": "b c"}
    assert server.requests[0].headers["User-Agent"].startswith("nodewright/")


def test_lists_are_paged_and_objects_have_their_kind(server: FakeApiServer) -> None:
    add_nodes(server, *"abcde")

    async def list_nodes(client: ApiClient) -> Any:
        return [page async for page in client.list_pages(NODES, page_size=2)]

    pages = call(access_to(server), list_nodes)
    assert [len(page.items) for page in pages] == [2, 2, 1]
    assert [page.remaining for page in pages] == [3, 1, None]
    assert {page.resource_version for page in pages} == {str(server.version)}
    node = msgspec.json.decode(pages[2].items[0])
    assert (node["kind"], node["apiVersion"], node["metadata"]["name"]) == ("Node", "v1", "e")


def test_an_object_that_has_its_kind_keeps_it(server: FakeApiServer) -> None:
    items = [{"apiVersion": "v1", "kind": "Pod", "metadata": {}}, {"apiVersion": "v1", "metadata": {}}]
    server.serve(NODES, {"kind": "NodeList", "apiVersion": "v1", "items": items})
    page = call(access_to(server), lambda client: collected_pages(client.list_pages(NODES)))
    assert [msgspec.json.decode(item)["kind"] for item in page.items] == ["Pod", "Node"]


def test_an_empty_list_may_be_null(server: FakeApiServer) -> None:
    server.serve(NODES, {"kind": "NodeList", "apiVersion": "v1", "items": None})
    assert names(server) == []


def test_selectors_are_sent(server: FakeApiServer) -> None:
    add_nodes(server, *"abc")
    assert names(server, label_selector="app in (a,b)", field_selector="metadata.name!=a") == ["b"]


def test_a_list_that_expires_between_two_pages_is_requested_as_a_whole(server: FakeApiServer) -> None:
    add_nodes(server, *"abcde")

    async def list_names(client: ApiClient) -> list[tuple[bool, int]]:
        pages = []
        async for page in client.list_pages(NODES, page_size=2):
            pages.append((page.is_restart, len(page.items)))
            if len(pages) == 1:
                add_nodes(server, "f")
                server.compact()
        return pages

    assert call(access_to(server), list_names) == [(False, 2), (True, 6)]
    assert "limit" not in server.requests[-1].query


def test_a_restart_discards_the_pages_before(server: FakeApiServer) -> None:
    add_nodes(server, *"abc")
    expired = msgspec.json.encode({"kind": "Status", "reason": "Expired", "message": "old", "code": 410})

    async def list_names(client: ApiClient) -> int:
        pages = client.list_pages(NODES, page_size=2)
        first = await anext(pages)
        server.canned[NODES].append(CannedAnswer(410, expired))

        async def all_pages() -> Any:
            yield first
            async for page in pages:
                yield page

        return len((await collected_pages(all_pages())).items)

    assert call(access_to(server), list_names) == 3


def test_a_first_page_that_is_gone_is_an_error(server: FakeApiServer) -> None:
    server.canned[NODES].append(CannedAnswer(410, b""))
    assert error(access_to(server)).is_expired


STATUS = {"kind": "Status", "message": 'nodes is forbidden: User "x" cannot list resource "nodes"'}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            CannedAnswer(403, msgspec.json.encode(STATUS | {"reason": "Forbidden"})),
            'GET /api/v1/nodes?limit=500: 403 Forbidden: nodes is forbidden: User "x" cannot list resource "nodes"',
        ),
        (
            CannedAnswer(500, b"etcd is\n down"),
            "GET /api/v1/nodes?limit=500: 500 Internal Server Error: etcd is down",
        ),
        (CannedAnswer(404, b""), "GET /api/v1/nodes?limit=500: 404 Not Found"),
        (CannedAnswer(599, b""), "GET /api/v1/nodes?limit=500: 599"),
        (
            CannedAnswer(502, HTML),
            (
                "GET /api/v1/nodes?limit=500: 502 Bad Gateway: the answer is HTML page 'Sign in', not an API object; is the "
                "server's URL that of a Kubernetes API?"
            ),
        ),
        (
            CannedAnswer(200, b"<html>", (("Content-Type", "text/html"),)),
            (
                "GET /api/v1/nodes?limit=500: 200 OK: the answer is an HTML page, not an API object; is the server's URL "
                "that of a Kubernetes API?"
            ),
        ),
        (
            CannedAnswer(302, b"", (("Location", "https://login"),)),
            "GET /api/v1/nodes?limit=500: 302 Found: redirects to https://login, which is not followed",
        ),
        (
            CannedAnswer(401, b"{}"),
            (
                "GET /api/v1/nodes?limit=500: 401 Unauthorized: {}: the credentials of the kubeconfig are not accepted or "
                "have expired"
            ),
        ),
        (
            CannedAnswer(429, b"slow", (("Retry-After", "600"),)),
            "GET /api/v1/nodes?limit=500: 429 Too Many Requests: slow",
        ),
        (CannedAnswer(429, b"slow"), "GET /api/v1/nodes?limit=500: 429 Too Many Requests: slow"),
    ],
)
def test_a_refusal_is_a_line_with_verb_path_status_and_message(
    server: FakeApiServer, answer: CannedAnswer, text: str
) -> None:
    server.canned[NODES].append(answer)
    failure = error(access_to(server))
    assert (str(failure), failure.status, failure.verb) == (text, answer.status, "GET")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            b'{"kind":"NodeList","items":[{"metadata":{',
            "the answer is not the expected JSON: Input data was truncated",
        ),
        (b"[]", "the answer is not the expected JSON: Expected `object`, got `array`"),
        (b'{"kind":"Node"}', "the answer is not the expected JSON: Object missing required field `items`"),
        (b"", "the answer is not the expected JSON: Input data was truncated"),
    ],
)
def test_half_an_object_is_a_line(server: FakeApiServer, content: bytes, text: str) -> None:
    server.canned[NODES].append(CannedAnswer(200, content))
    assert str(error(access_to(server))) == f"GET {server.url}/api/v1/nodes: {text}"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"kind":',
            "the connection ended in the middle of the answer",
        ),
        (
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"kind":',
            "the connection ended in the middle of the answer",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP: "),
        (b"", "the server closed the connection without an answer"),
    ],
)
def test_a_broken_answer_is_a_line(server: FakeApiServer, raw: bytes, text: str) -> None:
    # A GET on a connection that ends without an answer is sent once more.
    server.canned[NODES] += [CannedAnswer(raw=raw)] * 2
    assert str(error(access_to(server))).startswith(f"GET {server.url}/api/v1/nodes?limit=500: {text}")


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_a_server_that_never_answers_is_a_line_within_the_timeout(server: FakeApiServer, raw: bytes) -> None:
    server.canned[NODES].append(CannedAnswer(raw=raw, hangs=True))
    text = f"GET {server.url}/api/v1/nodes?limit=500: no answer within 0.2 s"
    assert str(error(access_to(server, request_timeout=0.2))) == text


def test_a_port_without_a_server_is_a_line() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        failure = error(ClusterAccess(server=url))
    assert str(failure) == f"GET {url}/api/v1/nodes?limit=500: cannot connect: connection refused"
    assert failure.status == 0


def test_a_host_that_does_not_exist_is_a_line() -> None:
    text = str(error(ClusterAccess(server="http://host.invalid")))
    assert text.startswith("GET http://host.invalid/api/v1/nodes?limit=500: cannot connect: no such host")


def test_a_header_that_cannot_be_sent_is_a_line(server: FakeApiServer) -> None:
    bad = UserCredentials(token="a\nb")  # noqa: S106 - made up
    with pytest.raises(ApiError, match=r"GET .*[Hh]eader"):
        body(server, credentials=bad)


def test_the_server_may_ask_for_another_attempt(server: FakeApiServer) -> None:
    add_nodes(server, "a")
    soon = (("Retry-After", "0"),)
    server.canned[NODES] += [CannedAnswer(429, b"", soon), CannedAnswer(503, b"", soon)]
    assert names(server) == ["a"]
    assert len(server.requests) == 3


def test_attempts_are_bounded(server: FakeApiServer) -> None:
    server.canned[NODES] += [CannedAnswer(429, b"", (("Retry-After", "0"),))] * 20
    assert error(access_to(server)).status == 429
    assert len(server.requests) == 11


def test_a_refusal_with_a_retry_time_is_final(server: FakeApiServer) -> None:
    server.canned[NODES].append(CannedAnswer(403, b"", (("Retry-After", "0"),)))
    assert error(access_to(server)).status == 403


def test_compression_can_be_switched_off(server: FakeApiServer) -> None:
    names(server)
    body(server, may_compress=False)
    assert [request.headers["Accept-Encoding"] for request in server.requests] == [
        "gzip, deflate",
        "identity",
    ]


def test_a_proxy_receives_the_request(server: FakeApiServer) -> None:
    server.serve(NODES, {"from": "proxy"})
    access = ClusterAccess(server="http://api.invalid", proxy=server.url.replace("//", "//user:secret@"))
    assert call(access, lambda client: client.get(NODES)) == b'{"from": "proxy"}'
    assert server.requests[0].headers["Host"] == "api.invalid"


def test_a_proxy_that_refuses_is_named_without_its_password(server: FakeApiServer) -> None:
    proxy = server.url.replace("//", "//user:secret@")
    failure = error(ClusterAccess(server="https://api.invalid", proxy=proxy))
    assert str(failure).startswith(
        f"GET https://api.invalid/api/v1/nodes?limit=500: the proxy 127.0.0.1:{server.port} answers 501"
    )


# ---------------------------------------------------------------- watches


async def first_events(client: ApiClient, number: int) -> list[tuple[str, str]]:
    """The kinds of the first events of a watch from the first version, and the names or versions of their objects."""
    events: list[tuple[str, str]] = []
    async with aclosing(client.watch(NODES, resource_version="1", timeout_s=60)) as watch:
        async for event in watch:
            metadata = metadata_of(event.object)
            events.append((event.kind, metadata.name or metadata.resource_version))
            if len(events) == number:
                break
    return events


def watch_error(server: FakeApiServer, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(access_to(server, **fields), lambda client: first_events(client, 99))
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_watch_has_bookmarks_with_their_version(server: FakeApiServer) -> None:
    add_nodes(server, "a")

    async def with_bookmark(client: ApiClient) -> list[tuple[str, str]]:
        def send_bookmark() -> None:
            server.wait_for_watches()
            server.bookmark()

        events, _ = await asyncio.gather(first_events(client, 2), asyncio.to_thread(send_bookmark))
        return events

    assert call(access_to(server), with_bookmark) == [("ADDED", "a"), ("BOOKMARK", str(server.version))]


def test_a_stream_that_breaks_in_the_middle_of_an_event_is_a_line(server: FakeApiServer) -> None:
    def break_watch() -> None:
        server.wait_for_watches()
        server.end_watches(is_broken=True)

    with ThreadPoolExecutor() as pool:
        breaking = pool.submit(break_watch)
        failure = watch_error(server)
        breaking.result()
    assert (
        str(failure) == f"WATCH {server.url}/api/v1/nodes: the connection ended in the middle of the answer"
    )
    assert failure.status == 0


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "text", "status"),
    [
        (b'{"type":"ADDED"', "the connection ended in the middle of an event", 0),
        (
            b'{"type":"ADDED"}\n',
            "the event is not the expected JSON: Object missing required field `object`",
            200,
        ),
        (
            b"<html>\n",
            "the event is not the expected JSON: JSON is malformed: invalid character (byte 0)",
            200,
        ),
        (b'{"type":"MOVED","object":{}}\n', "an event of the unknown type 'MOVED'", 200),
        (
            b'{"type":"ERROR","object":{"code":429,"reason":"TooManyRequests","message":"slow","details":%s}}\n'
            % b'{"retryAfterSeconds":3}',
            "429 TooManyRequests: slow",
            429,
        ),
    ],
)
def test_an_event_that_is_none_is_a_line(server: FakeApiServer, line: bytes, text: str, status: int) -> None:
    server.canned[NODES].append(CannedAnswer(raw=STREAM + line))
    error = watch_error(server)
    assert (error.error, error.status) == (text, status)
    assert error.retry_after_s == (3 if status == 429 else None)


def test_a_watch_that_is_not_answered_ends_with_the_timeout(server: FakeApiServer) -> None:
    server.canned[NODES].append(CannedAnswer(hangs=True))
    assert watch_error(server, request_timeout=0.2).error == "no answer in time"


def test_lines_may_be_in_any_number_of_chunks() -> None:
    async def lines(*chunks: bytes) -> list[bytes]:
        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield chunk

        return [line async for line in lines_of(stream())]

    assert asyncio.run(lines(b"a\nb", b"", b"c", b"d\n\n  \ne\n")) == [b"a", b"bcd", b"e"]
    with pytest.raises(EOFError):
        asyncio.run(lines(b"a\nb"))
