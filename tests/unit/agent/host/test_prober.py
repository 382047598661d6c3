"""Probes and hooks against servers and commands, with the kubelet's messages."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock, settle

from nodewright.agent.host.ports import ContainerConfig, ExecResult, PodSandboxConfig
from nodewright.agent.host.prober import HostProber, _health_check_request, _serving_status
from nodewright.agent.runtimes.simulated import ContainerScript, FakeRuntime
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.errors import HostError
from nodewright.testing.objects import a_pod

COMMANDS: dict[tuple[str, ...], ExecResult] = {
    ("good",): ExecResult(0, b"fine\n"),
    ("bad",): ExecResult(2, b"out", b"err"),
    ("loud",): ExecResult(0, b"x" * 20_000),
}
BROKEN = 'Get "http://127.0.0.1:PORT/health": net/http: HTTP/1.x transport connection broken: '
BAD = "error: command 'bad' exited with 2: err, message: \"outerr\""
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine"


def running(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """The test as an ordinary one."""

    @wraps(test)
    def run(*args: object, **more: object) -> None:
        asyncio.run(test(*args, **more))

    return run


async def an_asker() -> HostProber:
    """A prober for a container `main-web-0` that has a few commands."""
    clock = FakeClock()
    runtime = FakeRuntime(clock, {"main": ContainerScript(commands=COMMANDS)})
    pod = a_pod()
    sandbox = await runtime.run_sandbox(
        PodSandboxConfig(pod=pod, attempt=0, cgroup_parent="", log_directory="")
    )
    container_config = ContainerConfig(
        pod=pod,
        container=pod.spec.containers[0],
        attempt=0,
        spec_hash="",
        log_path="",
        settings=ContainerSettings(),
        cgroup_files=(),
    )
    await runtime.start_container(await runtime.create_container(sandbox, container_config))
    return HostProber(runtime, clock)


Answers = Callable[[bytes], bytes]


@asynccontextmanager
async def a_server(
    answers: Answers, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, list[str]]]:
    """A server with given responses; its port, and the requests that it received."""
    texts: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            texts.append(head.decode())
            writer.write(answers(head))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], texts


async def probe(handler: Mapping[str, Any], timeout_s: float = 5) -> tuple[bool, str]:
    return await (await an_asker()).probe(handler, "main-web-0", "127.0.0.1", timeout_s)


async def http(answers: Answers | bytes, **told: Any) -> tuple[bool, str]:
    """The result of a probe of such a server; PORT replaces its port."""
    given = answers if callable(answers) else lambda _: answers
    async with a_server(given) as (port, _):
        is_good, said = await probe({"httpGet": {"path": "/health", **told, "port": port}})
        return is_good, said.replace(str(port), "PORT")


ANSWERS = (
    (OK, (True, "fine")),
    (b"HTTP/1.0 200 OK\r\n\r\nto the end", (True, "to the end")),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        (True, "abcde"),
    ),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (True, "fine")),
    (b"HTTP/1.1 204 No Content\r\n\r\n", (True, "")),
    (b"HTTP/1.1 399 Odd\r\n\r\nodd", (True, "Probe terminated redirects, Response body: odd")),
    (b"HTTP/1.1 400 Bad Request\r\n\r\nsecret", (False, "HTTP probe failed with statuscode: 400")),
    (b"HTTP/1.1 503 Busy\r\n\r\n", (False, "HTTP probe failed with statuscode: 503")),
    (b"", (False, 'Get "http://127.0.0.1:PORT/health": EOF')),
    (
        b"SSH-2.0-OpenSSH_9.2\r\n",
        (
            False,
            f'{BROKEN}malformed HTTP response "SSH-2.0-OpenSSH_9.2"',
        ),
    ),
    (
        b"HTTP/1.1 301 Moved\r\nLocation: http://other.example/\r\n\r\nthere",
        (True, "Probe terminated redirects, Response body: there"),
    ),
)


@pytest.mark.parametrize(("answer", "expected"), ANSWERS)
@running
async def test_http_statuses_count_as_in_the_kubelet(answer: bytes, expected: tuple[bool, str]) -> None:
    assert await http(answer) == expected


@running
async def test_a_body_is_read_only_up_to_the_limit() -> None:
    for head in (b"\r\n\r\n", b"\r\nContent-Length: 50000\r\n\r\n"):
        is_good, said = await http(b"HTTP/1.1 200 OK" + head + b"x" * 50_000)
        assert (is_good, len(said)) == (True, 10 * 1024)


@running
async def test_redirects_on_the_same_host_are_followed_a_few_times() -> None:
    def once(head: bytes) -> bytes:
        return OK if b"GET /there?x=1 " in head else b"HTTP/1.1 302 Found\r\nLocation: /there?x=1\r\n\r\n"

    async with a_server(once) as (port, _):
        assert await probe({"httpGet": {"port": port}}) == (True, "fine")
    is_good, said = await http(b"HTTP/1.1 307 Again\r\nLocation: /health\r\n\r\n")
    assert (is_good, said) == (False, 'Get "http://127.0.0.1:PORT/health": stopped after 10 redirects')


@running
async def test_the_request_is_the_kubelets() -> None:
    async with a_server(lambda _: OK) as (port, seen):
        await probe({"httpGet": {"path": "a b?c=d#e", "port": port}})
        await probe(
            {
                "httpGet": {
                    "port": port,
                    "httpHeaders": [
                        {"name": "Host", "value": "shop.example"},
                        {"name": "Accept", "value": ""},
                        {"name": "X-A", "value": "1"},
                        {"name": "user-agent", "value": "me"},
                    ],
                }
            }
        )
    assert seen[0].splitlines() == [
        "GET /a%20b?c=d HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "User-Agent: kube-probe/1.37",
        "Accept: */*",
        "Connection: close",
        "",
    ]
    expected = ["GET / HTTP/1.1", "Host: shop.example", "X-A: 1", "user-agent: me", "Connection: close", ""]
    assert seen[1].splitlines() == expected


@running
async def test_a_refused_connection_fails_the_probe() -> None:
    async with a_server(lambda _: b"") as (port, _):
        pass
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert await probe({"httpGet": {"port": port}}) == (False, f'Get "http://127.0.0.1:{port}": {refused}')
    assert await probe({"tcpSocket": {"port": port}}) == (False, refused)
    is_good, said = await probe({"tcpSocket": {"host": "no.invalid", "port": 1}})
    assert (is_good, said) == (False, "dial tcp: lookup no.invalid: no such host")


@running
async def test_a_tcp_probe_succeeds_if_a_server_listens() -> None:
    async with a_server(lambda _: b"") as (port, _):
        assert await probe({"tcpSocket": {"port": port}}) == (True, "")


async def silent(answer: bytes, asking: Callable[[int], Awaitable[tuple[bool, str]]]) -> tuple[bool, str]:
    """The result of a probe of a server that never completes its response."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await held.wait()
        writer.close()

    held = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            is_good, said = await asking(port)
        finally:
            held.set()
        return is_good, said.replace(str(port), "PORT")


@running
async def test_a_server_that_does_not_respond_in_time_fails_the_probe() -> None:
    expected = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    assert await silent(b"", lambda port: probe({"httpGet": {"port": port}}, 0.05)) == (
        False,
        f'Get "http://127.0.0.1:PORT": {expected}',
    )


@running
async def test_a_truncated_response_is_discarded() -> None:
    with pytest.raises(HostError, match="unexpected EOF"):
        await http(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """The self-signed certificate of a server."""
    place = tmp_path_factory.mktemp("tls")
    key, cert = place / "key.pem", place / "cert.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-keyout", str(key), "-out", str(cert), "-subj", "/CN=nobody"]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


@running
async def test_certificates_are_not_verified(certificate: ssl.SSLContext) -> None:
    async with a_server(lambda _: OK, certificate) as (port, _):
        assert await probe({"httpGet": {"port": port, "scheme": "HTTPS"}}) == (True, "fine")


@running
async def test_probes_insist_on_encryption_and_hooks_do_not() -> None:
    handler: dict[str, Any] = {"scheme": "HTTPS", "path": "/x"}
    refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = await reader.read(3)
        writer.write(OK if start == b"GET" else refusal)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        handler["port"] = server.sockets[0].getsockname()[1]
        is_good, said = await probe({"httpGet": handler})
        assert not is_good
        assert said.endswith("http: server gave HTTP response to HTTPS client")
        assert await hooked({"httpGet": handler}) == (True, "")


@running
async def test_commands_in_containers() -> None:
    assert await probe({"exec": {"command": ["good"]}}) == (True, "fine\n")
    assert await probe({"exec": {"command": ["bad"]}}) == (False, "outerr")
    assert len((await probe({"exec": {"command": ["loud"]}}))[1]) == 10 * 1024


@running
async def test_a_command_that_takes_too_long_fails() -> None:
    asker = await an_asker()
    clock = asker._clock
    assert isinstance(clock, FakeClock)
    task = asyncio.ensure_future(
        asker.probe({"exec": {"command": ["sleep", "forever"]}}, "main-web-0", "", 1)
    )
    await settle()
    await clock.advance(1)
    assert await task == (False, 'command timed out: "sleep forever" timed out after 1s')


@running
async def test_a_probe_that_cannot_run_is_repeated_and_then_an_error() -> None:
    asker = await an_asker()
    runtime = asker._runtime
    assert isinstance(runtime, FakeRuntime)
    for _ in range(2):
        runtime.fail("execute", "busy")
    assert await asker.probe({"exec": {"command": ["good"]}}, "main-web-0", "", 1) == (True, "fine\n")
    for _ in range(3):
        runtime.fail("execute", "busy")
    with pytest.raises(HostError, match="busy"):
        await asker.probe({"exec": {"command": ["good"]}}, "main-web-0", "", 1)
    with pytest.raises(HostError, match="missing probe handler"):
        await asker.probe({}, "main-web-0", "", 1)


# ---------------------------------------------------------------- hooks

WHO = 'Container "main" in Pod "web_default(web)"'


async def hooked(handler: Mapping[str, Any]) -> tuple[bool, str]:
    return await (await an_asker()).run_hook(handler, "main-web-0", "127.0.0.1", 5, WHO)


@running
async def test_hooks_by_command() -> None:
    assert await hooked({"exec": {"command": ["good"]}}) == (True, "")
    assert await hooked({"exec": {"command": ["bad"]}}) == (
        False,
        f"Exec lifecycle hook ([bad]) for {WHO} failed - {BAD}",
    )


@running
async def test_any_response_to_a_hook_is_a_success() -> None:
    async with a_server(lambda _: b"HTTP/1.1 500 No\r\n\r\n") as (port, seen):
        assert await hooked({"httpGet": {"port": port, "path": "/bye"}}) == (True, "")
    assert "User-Agent: kube-lifecycle/1.37" in seen[0]
    is_good, said = await hooked({"httpGet": {"port": port, "path": "/bye"}})
    assert not is_good
    assert said.startswith(f'HTTP lifecycle hook (/bye) for {WHO} failed - error: Get "http://127.0.0.1:')


@running
async def test_sleep_hooks_wait_and_invalid_hooks_fail() -> None:
    asker = await an_asker()
    clock = asker._clock
    assert isinstance(clock, FakeClock)
    task = asyncio.ensure_future(asker.run_hook({"sleep": {"seconds": 7}}, "main-web-0", "", 30, WHO))
    await settle()
    await clock.advance(6)
    assert not task.done()
    await clock.advance(1)
    assert await task == (True, "")
    assert await hooked({}) == (False, "Cannot run handler: invalid handler: {}")


# ---------------------------------------------------------------- gRPC


def test_messages_of_the_health_protocol() -> None:
    assert _health_check_request("") == b""
    assert _health_check_request("shop") == b"\x0a\x04shop"
    assert _health_check_request("s" * 200)[:3] == b"\x0a\xc8\x01"
    assert [_serving_status(content) for content in (b"", b"\x08\x01", b"\x08\x02", b"\x08\x09")] == [
        "UNKNOWN",
        "SERVING",
        "NOT_SERVING",
        "9",
    ]


@pytest.mark.slow
@running
async def test_grpc_services_report_their_health() -> None:
    grpc = pytest.importorskip("grpc", reason="the Python package grpcio is not installed")
    states = {b"": b"\x08\x01", b"\x0a\x03off": b"\x08\x02"}

    async def check(request: bytes, _: object) -> bytes:
        return states[request]

    server = grpc.aio.server()
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await probe({"grpc": {"port": port}}) == (True, "service healthy")
        off = await probe({"grpc": {"port": port, "service": "off"}})
        assert off == (False, 'service unhealthy (responded with "NOT_SERVING")')
    finally:
        await server.stop(None)
    is_good, said = await probe({"grpc": {"port": port}}, 1)
    assert not is_good
    expected = f'timeout: failed to connect service "127.0.0.1:{port}" within 1s: context deadline exceeded'
    assert said == expected
