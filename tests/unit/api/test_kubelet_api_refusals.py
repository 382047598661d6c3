"""The kubelet's HTTP API over TLS: who is let in, and who misbehaves."""

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from nodewright.api import guard, listening
from nodewright.api.entries import Role
from nodewright.testing.kubelet_api import LOOPBACK, Authority, ServedAgent, parsed, served
from nodewright.testing.objects import a_pod
from nodewright.testing.runtime import settle
from nodewright.world.key_maker import make_key_pair

JSON = "application/json"


# ---------------------------------------------------------------- who is let in


@served()
async def test_nobody_is_let_in_without_saying_who_he_is(node: ServedAgent) -> None:
    for path in ("/pods", "/healthz", "/metrics", "/nothing"):
        answer = await node.ask(path, token="")
        assert (answer.status, answer.text) == (401, "Unauthorized")
    assert node.told()[0] == "127.0.0.1: 401 for GET /pods: no token and no client certificate"


@served()
async def test_each_reason_is_told_once_a_minute_and_counted_each_time(node: ServedAgent) -> None:
    for token in ("wrong", "was", "wrong", "wrong"):
        assert (await node.ask("/pods", token)).status == 401
    assert node.told() == [
        "127.0.0.1: 401 for GET /pods: a token that is nobody's",
        "127.0.0.1: 401 for GET /pods: a token that has expired",
    ]
    assert 'nodewright_http_refusals_total{kind="unauthorized"} 4' in (await node.ask("/metrics")).text


@served()
async def test_who_has_no_role_is_told_what_he_would_need_in_the_kubelets_words(node: ServedAgent) -> None:
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
        answer = await node.ask(path, "nothing")
        assert answer.status == 403
        assert (
            answer.text == f"Forbidden (user=stranger, verb=get, resource=nodes, subresource(s)=[{said}])\n"
        )
    assert len(node.told()) == 1


@served()
async def test_to_read_is_not_to_write(node: ServedAgent) -> None:
    await node.bench.want(a_pod())
    path = "/run/default/web/main?cmd=id"
    assert (await node.ask(path, "reads", method="POST")).status == 403
    assert (await node.ask(path, "writes", method="POST")).status != 403
    assert (await node.ask("/exec/default/web/main", "reads")).status == 403
    assert (await node.ask("/pods", "writes")).status == 200


@served()
async def test_a_client_certificate_says_who_one_is_and_which_groups_he_is_in(node: ServedAgent) -> None:
    reader = node.client(node.authority.signs("somebody", "monitoring"))
    writer = node.client(node.authority.signs("certain"))
    stranger = node.client(node.authority.signs("nobody", "others"))
    assert (await node.ask("/pods", "", context=reader)).status == 200
    assert (await node.ask("/exec/default/web/main", "", context=reader)).status == 403
    assert (await node.ask("/exec/default/web/main", "", context=writer)).status == 501
    assert "user=nobody" in (await node.ask("/pods", "", context=stranger)).text


@served()
async def test_a_certificate_of_another_authority_ends_the_handshake_and_is_told(node: ServedAgent) -> None:
    other = Authority(node.tokens.parent, "other").signs("somebody", "monitoring")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await node.ask("/pods", context=node.client(other))
    await settle()
    assert node.told()[0].startswith("127.0.0.1: no TLS: certificate verify failed")
    assert (await node.ask("/pods")).status == 200


@served()
async def test_old_tls_is_refused_and_told(node: ServedAgent) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.maximum_version = ssl.TLSVersion.TLSv1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await node.ask("/pods", context=context)
    await settle()
    assert node.told() == ["127.0.0.1: no TLS: unsupported protocol"]


def test_somebody_nameless_may_be_let_in_but_nobody_with_a_wrong_token(tmp_path: Path) -> None:
    async def through() -> None:
        node = ServedAgent(tmp_path)
        node.access = type(node.access)(
            node.access.grants._replace(users={"system:anonymous": Role.READ}),
            node.access.tokens,
            takes_anonymous=True,
        )
        async with node:
            assert (await node.ask("/pods", "")).status == 200
            assert (await node.ask("/pods", "wrong")).status == 401
            assert "user=system:anonymous" in (await node.ask("/exec/a/b/c", "")).text

    asyncio.run(through())


# ---------------------------------------------------------------- who misbehaves


@served()
async def test_garbage_slowness_and_too_much_are_refused_while_others_are_answered(node: ServedAgent) -> None:
    place, context = node.places[0], node.client()
    # No TLS at all.
    reader, writer = await asyncio.open_connection(place.address, place.port)
    writer.write(b"\x00\xff" * 100)
    assert await reader.read() is not None
    writer.close()
    # TLS, and no HTTP.
    for said in (b"\x00\xff\r\n\r\n", b"GET /pods HTTP/1.1\r\n" + b"X: " + b"y" * (100 << 10) + b"\r\n\r\n"):
        reader, writer = await asyncio.open_connection(place.address, place.port, ssl=context)
        writer.write(said)
        assert parsed(await reader.read()).status == 400
        writer.close()
    assert (await node.ask("/pods")).status == 200
    kinds = " | ".join(node.told())
    assert "no TLS" in kinds
    assert "what it said is no HTTP request" in kinds


def test_who_does_not_come_to_the_point_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEADERS_WITHIN_S", 0.3)

    async def through() -> None:
        async with ServedAgent(tmp_path) as node:
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
            assert any("no whole request within" in one for one in node.told())
            assert (await node.ask("/pods")).status == 200

    asyncio.run(through())


def test_a_crowd_from_one_address_is_kept_out_and_let_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "MOST_OF_ONE", 3)

    async def through() -> None:
        async with ServedAgent(tmp_path) as node:
            place, context = node.places[0], node.client()
            held = [await asyncio.open_connection(place.address, place.port, ssl=context) for _ in range(3)]
            with pytest.raises(ConnectionError):
                await node.ask("/pods")
            assert any("3 connections of this address are open" in one for one in node.told())
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            await settle()
            assert (await node.ask("/pods")).status == 200

    asyncio.run(through())


@served()
async def test_a_body_that_is_too_large_is_not_taken(node: ServedAgent) -> None:
    place = node.places[0]
    reader, writer = await asyncio.open_connection(place.address, place.port, ssl=node.client())
    writer.write(b"POST /stats/summary HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer writes\r\n")
    writer.write(f"Content-Length: {10 << 20}\r\n\r\n".encode())
    first = await reader.readuntil(b"\r\n")
    # It is answered without being read, and the rest goes nowhere.
    assert first.startswith(b"HTTP/1.1 200")
    writer.close()
    assert (await node.ask("/pods")).status == 200


@served()
async def test_tokens_are_read_again_and_a_broken_file_lets_nobody_in(node: ServedAgent) -> None:
    tokens = node.access.tokens
    assert tokens is not None
    assert (await node.ask("/pods", "new")).status == 401
    node.tokens.write_text('new,prometheus,1,"monitoring"\n', "utf-8")
    tokens._looked_s -= 2
    assert (await node.ask("/pods", "new")).status == 200
    assert (await node.ask("/pods", "reads")).status == 401
    node.tokens.write_text("broken\n", "utf-8")
    tokens._looked_s -= 2
    assert (await node.ask("/pods", "new")).status == 401
    assert any("not 1 columns" in one for one in node.told())
    node.tokens.write_text('new,prometheus,1,"monitoring"\n', "utf-8")
    tokens._looked_s -= 2
    assert (await node.ask("/pods", "new")).status == 200


@served()
async def test_certificates_are_read_again_and_broken_files_change_nothing(node: ServedAgent) -> None:
    somebody = Authority(node.tokens.parent, "other").signs("certain")
    with pytest.raises((OSError, asyncio.IncompleteReadError)):
        await node.ask("/pods", "", context=node.client(somebody))
    old = node.client()
    # Another key and certificate, and another authority whose certificates count.
    make_key_pair(node.pair.certificate.parent, "node1", [LOOPBACK])
    node.authority.file.write_bytes((node.tokens.parent / "other.crt").read_bytes())
    node.tls._looked_s -= 2
    with pytest.raises(ssl.SSLCertVerificationError):
        await node.ask("/pods", context=old)
    assert (await node.ask("/pods", "", context=node.client(somebody))).status == 200
    good = node.pair.certificate.read_bytes()
    node.pair.certificate.write_text("broken", "utf-8")
    node.tls._looked_s -= 2
    context = ssl.create_default_context(cadata=str(good, "ascii"))
    assert (await node.ask("/pods", context=context)).status == 200
    (told,) = [one.message for one in node.board.happenings() if one.reason == "CertificateNotTaken"]
    assert told.startswith("the certificates of before stay in use: tlsCertFile: ")


@served()
async def test_requests_are_counted_while_they_are_answered(node: ServedAgent) -> None:
    text = (await node.ask("/metrics")).body.decode()
    labels = '{long_running="false",method="GET",path="metrics",server_type="readwrite"}'
    assert f"kubelet_http_inflight_requests{labels} 1\n" in text
    assert f"kubelet_http_requests_total{labels} 1\n" in text


@pytest.mark.slow
def test_who_takes_no_answer_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "TAKEN_WITHIN_S", 0.3)

    async def through() -> None:
        async with ServedAgent(tmp_path) as node:
            await node.bench.want(*(a_pod(f"p{number}", "1m/1Mi") for number in range(50)))
            reader, writer = await asyncio.open_connection(
                node.places[0].address, node.places[0].port, ssl=node.client(), limit=1
            )
            writer.write(b"GET /pods HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer reads\r\n\r\n" * 500)
            for _ in range(100):
                if any("took no answer in time" in one for one in node.told()):
                    break
                await asyncio.sleep(0.1)
            assert any("took no answer in time" in one for one in node.told())
            assert (await node.ask("/healthz")).text == "ok"
            writer.close()
            del reader

    asyncio.run(through())
    assert not caplog.records
