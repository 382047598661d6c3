"""An agent with a fake machine and the kubelet's HTTP API on the loopback, and clients with certificates and tokens.

Applications asked without a network.
"""

import asyncio
import datetime as dt
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message
from tests.support.agent_bench import AgentBench
from tests.support.fake_clock import FakeClock

from nodewright.agent.host.ports import ProcessStreams, StreamingServer
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.serving.agent_interface import AgentInterface
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.serving.kubelet_routes import (
    KubeletServingConfig,
    LoopMetrics,
    serve_kubelet_api,
)
from nodewright.cluster.serving.access import Authorizer, Grants, TokenFile
from nodewright.cluster.serving.http_server import ListenAddress
from nodewright.cluster.serving.key_pair import KeyPair, make_key_pair
from nodewright.cluster.serving.routes import AccessRole
from nodewright.cluster.serving.tls import ReloadingTLS
from nodewright.model.kubernetes.kubelet_configuration import (
    KubeletAuthentication,
    KubeletConfiguration,
    KubeletX509Authentication,
)
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.testing.nodes import STATIC_CPUS, a_profile

TOKENS = """\
reads,prometheus,1,"monitoring"
writes,admin,2,
nothing,stranger,3,
was,prometheus,1,"monitoring",2020-01-01T00:00:00Z
"""
GRANTS = Grants({"admin": AccessRole.WRITE, "certain": AccessRole.WRITE}, {"monitoring": AccessRole.READ})
LOOPBACK = "127.0.0.1"


def with_served_agent(
    **scripts: ContainerScript,
) -> Callable[[Callable[["HTTPSAgent"], Coroutine[Any, Any, None]]], Callable[..., None]]:
    """The test with an agent that answers; ``scripts`` say what its containers do."""

    def with_agent(test: Callable[["HTTPSAgent"], Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @wraps(test)
        def running(tmp_path: Path) -> None:
            async def through() -> None:
                async with HTTPSAgent(tmp_path, scripts=scripts) as node:
                    await test(node)

            asyncio.run(through())

        del running.__wrapped__
        return running

    return with_agent


class HTTPSResponse(NamedTuple):
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class CertificateAuthority:
    """Signs certificates of clients."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name, self._folder = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), folder
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(self._signed(self._name, self._key, is_authority=True))
        self.key_file = folder / f"{name}.key"
        self.key_file.write_bytes(_pem(self._key))

    def client_certificate(self, name: str, *groups: str) -> KeyPair:
        """A client certificate for a user."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        pair = KeyPair(self._folder / f"{name}.client.crt", self._folder / f"{name}.client.key")
        pair.certificate.write_bytes(self._signed(subject, key, is_authority=False))
        pair.key.write_bytes(_pem(key))
        return pair

    def _signed(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        now = dt.datetime.now(dt.UTC)
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        return built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    private = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())


class HTTPSAgent:
    """An agent with its API, for `async with`; ``folder`` is for keys, tokens and logs."""

    def __init__(
        self,
        folder: Path,
        profile: NodeProfile | None = None,
        *,
        tokens: str = TOKENS,
        scripts: Mapping[str, ContainerScript] = {},
    ) -> None:
        self.bench = AgentBench(profile or a_profile(**STATIC_CPUS), (), FakeClock(time.time_ns()), **scripts)
        self.board = EventRecorder(self.bench.loop.state, self.bench.clock)
        self.bench.loop.subscriber = self.board
        self.logs = folder / "logs"
        make_key_pair(folder / "pki", "node1", [LOOPBACK])
        self.pair = KeyPair(folder / "pki/kubelet.crt", folder / "pki/kubelet.key")
        self.authority = CertificateAuthority(folder, "authority")
        self.tokens = folder / "tokens.csv"
        self.tokens.write_text(tokens, "utf-8")
        self.config = KubeletConfiguration(
            address=LOOPBACK,
            port=0,
            healthz_port=0,
            authentication=KubeletAuthentication(
                x509=KubeletX509Authentication(client_ca_file=str(self.authority.file))
            ),
        )
        self.access = Authorizer(GRANTS, TokenFile(self.tokens))
        self.streaming_server: StreamingServer | None = None
        self.process_streams: ProcessStreams | None = None
        self._stack = AsyncExitStack()

    def reconfigure(self, **changes: object) -> None:
        """Have another configuration, before it begins."""
        self.config = replace(self.config, **changes)

    async def __aenter__(self) -> Self:
        pressure = await self.bench.watch_pressure()
        self.agent = AgentInterface(
            event_recorder=self.board,
            observe=self.bench.loop.observe,
            runtime=self.bench.runtime,
            streaming_server=self.streaming_server,
            process_streams=self.process_streams,
            clock=self.bench.clock,
            system_info=NodeSystemInfo(
                kubelet_version="v1.36",
                started_ns=self.bench.clock.now_ns(),
                container_runtime_version="fake://0",
            ),
            log_root=self.logs,
        )
        self.tls = ReloadingTLS(self.pair, self.config)
        kubelet_serving_config = KubeletServingConfig(
            config=self.config,
            access=self.access,
            tls=self.tls,
        )
        self.counting = LoopMetrics(self.bench.loop, pressure, self.logs / "journal.json")
        await self._stack.enter_async_context(self.bench)
        self._stack.callback(self.board.close)
        self.places = await serve_kubelet_api(
            self._stack, kubelet_serving_config, self.agent, self.counting, ()
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def refusal_events(self) -> list[str]:
        """The messages of the refusal events."""
        return [event.message for event in self.board.events() if event.reason == "RequestRefused"]

    def client(self, pair: KeyPair | None = None) -> ssl.SSLContext:
        """The TLS context of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.pair.certificate)
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context

    async def request(
        self,
        path: str,
        token: str = "reads",  # noqa: S107 - of TOKENS
        *,
        method: str = "GET",
        context: ssl.SSLContext | None = None,
    ) -> HTTPSResponse:
        """The response to a request over TLS; without a token, if it is empty."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await http_request(
            self.places[0], path, headers, method=method, context=context or self.client()
        )


async def http_request(
    place: ListenAddress,
    path: str,
    headers: Mapping[str, str],
    *,
    method: str = "GET",
    context: ssl.SSLContext | None = None,
) -> HTTPSResponse:
    """What a server answers.

    Errors: OSError where it hangs up.
    """
    reader, writer = await asyncio.open_connection(place.address, place.port, ssl=context)
    lines = [f"{method} {path} HTTP/1.1", "Host: node1", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(60):
            content = await reader.read()
    finally:
        writer.close()
    return parsed_response(content)


def parsed_response(said: bytes) -> HTTPSResponse:
    """An answer out of its bytes.

    Errors: ConnectionError where there is none.
    """
    head, _, body = said.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    if not first:
        raise ConnectionError("it hung up without a word")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return HTTPSResponse(int(first.split()[1]), headers, body)


def _chunks(body: bytes) -> list[bytes]:
    result = []
    while body:
        size, _, body = body.partition(b"\r\n")
        count = int(size, 16)
        result.append(body[:count])
        body = body[count + 2 :]
    return result


class ASGIResponse(NamedTuple):
    """What an application says."""

    code: int
    headers: Headers
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


async def asgi_request(
    application: ASGIApp, target: str, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> ASGIResponse:
    """The response to a request, read completely."""
    path, _, query = target.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    mutable_mappings: list[Message] = []
    result: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> Message:
        if not result:
            # Nobody leaves before the end; who waits for it is cancelled then.
            await asyncio.Event().wait()
        return result.pop()

    async def send(message: Message) -> None:
        mutable_mappings.append(message)

    await application(scope, receive, send)
    start = mutable_mappings[0]
    body = b"".join(mutable_mapping.get("body", b"") for mutable_mapping in mutable_mappings[1:])
    return ASGIResponse(start["status"], Headers(raw=start["headers"]), body)
