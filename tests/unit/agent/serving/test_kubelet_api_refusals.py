"""The kubelet's HTTP API over TLS: who is let in, and who misbehaves."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.fake_clock import settle
from tests.support.kubelet_api import (
    LOOPBACK,
    CertificateAuthority,
    HTTPSAgent,
    http_request,
    parsed_response,
    with_served_agent,
)

from nodewright.cluster.serving import http_server, middleware
from nodewright.cluster.serving import http_server as http_connection
from nodewright.cluster.serving.access import ANONYMOUS, Authorizer, Grants, Unauthenticated, User
from nodewright.cluster.serving.key_pair import make_key_pair
from nodewright.cluster.serving.routes import AccessRole
from nodewright.model.values.instant import Instant
from nodewright.testing.objects import a_pod

JSON = "application/json"


# ---------------------------------------------------------------- who is let in


@with_served_agent()
async def test_requests_without_credentials_are_unauthorized(node: HTTPSAgent) -> None:
    for path in ("/pods", "/healthz", "/metrics", "/nothing"):
        answer = await node.request(path, token="")
        assert (answer.status, answer.text) == (401, "Unauthorized")
    assert node.refusal_events()[0] == "127.0.0.1: 401 for GET /pods: no token and no client certificate"


@with_served_agent()
async def test_each_refusal_is_logged_once_a_minute_and_counted_each_time(node: HTTPSAgent) -> None:
    for token in ("wrong", "was", "wrong", "wrong"):
        assert (await node.request("/pods", token)).status == 401
    assert node.refusal_events() == [
        "127.0.0.1: 401 for GET /pods: unknown token",
        "127.0.0.1: 401 for GET /pods: expired token",
    ]
    assert 'nodewright_http_refusals_total{kind="unauthorized"} 4' in (await node.request("/metrics")).text


@with_served_agent()
async def test_a_user_without_the_role_gets_the_kubelets_message(node: HTTPSAgent) -> None:
    for path, said in {
        "/pods": "pods proxy",
        "/runningpods/": "pods proxy",
        "/healthz/ping": "healthz proxy",
        "/configz": "configz proxy",
        "/stats/summary": "stats",
        "/metrics/resource": "metrics",
        "/logs/": "log",
        "/containerLogs/default/web/main": "proxy",
    }.items():
        answer = await node.request(path, "nothing")
        assert answer.status == 403
        assert (
            answer.text == f"Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[{said}])\n"
        )
    assert len(node.refusal_events()) == 1


@with_served_agent()
async def test_to_read_is_not_to_write(node: HTTPSAgent) -> None:
    await node.bench.add_pods(a_pod())
    path = "/run/default/web/main?cmd=id"
    assert (await node.request(path, "reads", method="POST")).status == 403
    assert (await node.request(path, "writes", method="POST")).status != 403
    assert (await node.request("/exec/default/web/main", "reads")).status == 403
    assert (await node.request("/pods", "writes")).status == 200


@with_served_agent()
async def test_a_client_certificate_gives_user_and_groups(node: HTTPSAgent) -> None:
    reader = node.client(node.authority.client_certificate("somebody", "monitoring"))
    writer = node.client(node.authority.client_certificate("certain"))
    stranger = node.client(node.authority.client_certificate("nobody", "others"))
    assert (await node.request("/pods", "", context=reader)).status == 200
    assert (await node.request("/exec/default/web/main", "", context=reader)).status == 403
    assert (await node.request("/exec/default/web/main", "", context=writer)).status == 400
    assert "user=nobody" in (await node.request("/pods", "", context=stranger)).text


@with_served_agent()
async def test_a_certificate_of_another_authority_ends_the_handshake_and_is_logged(node: HTTPSAgent) -> None:
    other = CertificateAuthority(node.tokens.parent, "other").client_certificate("somebody", "monitoring")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await node.request("/pods", context=node.client(other))
    await settle()
    assert node.refusal_events()[0].startswith("127.0.0.1: TLS handshake failed: certificate verify failed")
    assert (await node.request("/pods")).status == 200


@with_served_agent()
async def test_old_tls_is_refused_and_logged(node: HTTPSAgent) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await node.request("/pods", context=context)
    await settle()
    assert node.refusal_events() == ["127.0.0.1: TLS handshake failed: unsupported protocol"]


def test_anonymous_requests_may_be_allowed_but_not_unknown_tokens(tmp_path: Path) -> None:
    async def through() -> None:
        node = HTTPSAgent(tmp_path)
        node.access = type(node.access)(
            node.access.grants._replace(users={"system:anonymous": AccessRole.READ}),
            node.access.tokens,
            takes_anonymous=True,
        )
        async with node:
            assert (await node.request("/pods", "")).status == 200
            assert (await node.request("/pods", "wrong")).status == 401
            assert "user=system:anonymous" in (await node.request("/exec/a/b/c", "")).text

    asyncio.run(through())


def test_tokens_are_not_read_where_nothing_knows_them() -> None:
    async def users(*, takes_anonymous: bool) -> User | Unauthenticated:
        access = Authorizer(Grants(), takes_anonymous=takes_anonymous, allows_all=True)
        return await access.authenticate({}, "Bearer t", Instant(0))

    assert asyncio.run(users(takes_anonymous=True)) == User(ANONYMOUS, ("system:unauthenticated",))
    assert isinstance(asyncio.run(users(takes_anonymous=False)), Unauthenticated)


# ---------------------------------------------------------------- who misbehaves


@with_served_agent()
async def test_garbage_slowness_and_too_much_are_refused_while_others_are_answered(node: HTTPSAgent) -> None:
    place, context = node.places[0], node.client()
    # No TLS at all.
    reader, writer = await asyncio.open_connection(place.address, place.port)
    writer.write(b"\x00\xff" * 100)
    assert await reader.read() is not None
    writer.close()
    # TLS, and no HTTP.
    for content in (
        b"\x00\xff\r\n\r\n",
        b"GET /pods HTTP/1.1\r\n" + b"X: " + b"y" * (100 << 10) + b"\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(place.address, place.port, ssl=context)
        writer.write(content)
        assert parsed_response(await reader.read()).status == 400
        writer.close()
    assert (await node.request("/pods")).status == 200
    kinds = " | ".join(node.refusal_events())
    assert "TLS handshake failed" in kinds
    assert "malformed HTTP request" in kinds


@pytest.mark.slow
def test_slow_requests_are_aborted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEADERS_TIMEOUT_S", 0.3)

    async def through() -> None:
        async with HTTPSAgent(tmp_path) as node:
            reader, writer = await asyncio.open_connection(
                node.places[0].address, node.places[0].port, ssl=node.client()
            )
            began_s = asyncio.get_running_loop().time()
            ending = asyncio.create_task(reader.read())
            for letter in "GET /pods HTTP/1.1\r\nX: " + "y" * 1000:
                if ending.done():
                    break
                with suppress(OSError):
                    writer.write(letter.encode())
                    await writer.drain()
                await asyncio.sleep(0.02)
            assert ending.done(), "it was listened to for ever"
            with suppress(OSError):
                assert await ending == b""
            assert asyncio.get_running_loop().time() - began_s < 10
            writer.close()
            assert any("no complete request within" in event for event in node.refusal_events())
            assert (await node.request("/pods")).status == 200

    asyncio.run(through())


def test_idle_connections_of_a_crowd_give_way_to_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS_PER_ADDRESS", 3)

    async def through() -> None:
        async with HTTPSAgent(tmp_path) as node:
            place, context = node.places[0], node.client()
            held = [await asyncio.open_connection(place.address, place.port, ssl=context) for _ in range(3)]
            assert (await node.request("/pods")).status == 200
            assert any("3 connections of this client are open" in event for event in node.refusal_events())
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            await settle()
            assert (await node.request("/pods")).status == 200

    asyncio.run(through())


def test_handshakes_of_a_crowd_that_hang_give_way_to_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_CONNECTIONS_PER_ADDRESS", 3)

    async def through() -> None:
        async with HTTPSAgent(tmp_path) as node:
            place = node.places[0]
            held = [await asyncio.open_connection(place.address, place.port) for _ in range(6)]
            assert (await node.request("/pods")).status == 200
            # The first of them have been closed, without a byte.
            assert await held[0][0].read() == b""
            for _, writer in held:
                writer.close()

    asyncio.run(through())


@with_served_agent()
async def test_clients_do_not_name_their_own_address(node: HTTPSAgent) -> None:
    headers = {"X-Forwarded-For": "10.9.8.7", "Authorization": "Bearer wrong"}
    assert (await http_request(node.places[0], "/pods", headers, context=node.client())).status == 401
    assert node.refusal_events()
    assert not any("10.9.8.7" in event for event in node.refusal_events())


@with_served_agent()
async def test_a_body_that_is_too_large_is_not_taken(node: HTTPSAgent) -> None:
    place = node.places[0]
    reader, writer = await asyncio.open_connection(place.address, place.port, ssl=node.client())
    writer.write(b"POST /stats/summary HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer writes\r\n")
    writer.write(f"Content-Length: {10 << 20}\r\n\r\n".encode())
    first = await reader.readuntil(b"\r\n")
    # It is answered without being read, and the rest goes nowhere.
    assert first.startswith(b"HTTP/1.1 200")
    writer.close()
    assert (await node.request("/pods")).status == 200


@with_served_agent()
async def test_tokens_are_reloaded_and_a_broken_file_authenticates_nothing(node: HTTPSAgent) -> None:
    tokens = node.access.tokens
    assert tokens is not None
    assert (await node.request("/pods", "new")).status == 401
    node.tokens.write_text('new,prometheus,1,"monitoring"\n', "utf-8")
    tokens._checked_s -= 2
    assert (await node.request("/pods", "new")).status == 200
    assert (await node.request("/pods", "reads")).status == 401
    node.tokens.write_text("broken\n", "utf-8")
    tokens._checked_s -= 2
    assert (await node.request("/pods", "new")).status == 401
    assert any("not 1 columns" in event for event in node.refusal_events())
    node.tokens.write_text('new,prometheus,1,"monitoring"\n', "utf-8")
    tokens._checked_s -= 2
    assert (await node.request("/pods", "new")).status == 200


@with_served_agent()
async def test_certificates_are_read_again_and_broken_files_change_nothing(node: HTTPSAgent) -> None:
    somebody = CertificateAuthority(node.tokens.parent, "other").client_certificate("certain")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await node.request("/pods", "", context=node.client(somebody))
    old = node.client()
    # Another key and certificate, and another authority whose certificates count.
    make_key_pair(node.pair.certificate.parent, "node1", [LOOPBACK])
    node.authority.file.write_bytes((node.tokens.parent / "other.crt").read_bytes())
    node.tls._checked_s -= 2
    with pytest.raises(ssl.SSLCertVerificationError):
        await node.request("/pods", context=old)
    assert (await node.request("/pods", "", context=node.client(somebody))).status == 200
    good = node.pair.certificate.read_bytes()
    node.pair.certificate.write_text("broken", "utf-8")
    node.tls._checked_s -= 2
    context = ssl.create_default_context(cadata=str(good, "ascii"))
    assert (await node.request("/pods", context=context)).status == 200
    (text,) = [event.message for event in node.board.events() if event.reason == "CertificateNotTaken"]
    assert text.startswith("the previous certificates stay in use: tlsCertFile: ")


@with_served_agent()
async def test_requests_are_counted_while_they_are_answered(node: HTTPSAgent) -> None:
    text = (await node.request("/metrics")).body.decode()
    labels = '{long_running="false",method="GET",path="metrics",server_type="readwrite"}'
    assert f"kubelet_http_inflight_requests{labels} 1\n" in text
    assert f"kubelet_http_requests_total{labels} 1\n" in text


@pytest.mark.slow
def test_clients_that_do_not_read_are_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(middleware, "SEND_TIMEOUT_S", 0.3)

    async def through() -> None:
        async with HTTPSAgent(tmp_path) as node:
            await node.bench.add_pods(*(a_pod(f"p{number}", "1m/1Mi") for number in range(50)))
            reader, writer = await asyncio.open_connection(
                node.places[0].address, node.places[0].port, ssl=node.client(), limit=1
            )
            writer.write(b"GET /pods HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer reads\r\n\r\n" * 500)
            for _ in range(100):
                if any("the response was not received in time" in event for event in node.refusal_events()):
                    break
                await asyncio.sleep(0.1)
            assert any("the response was not received in time" in event for event in node.refusal_events())
            assert (await node.request("/healthz")).text == "ok"
            writer.close()
            del reader

    asyncio.run(through())
    assert not caplog.records
