"""What each client shows to servers that redirect, that impersonate others, and that have no TLS; which modules are clients."""

import ast
import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml
from tests.support.agent_bench import async_test
from tests.support.kubelet_api import asgi_request

from nodewright.agent.host.prober import _probe_http, _run_http_hook
from nodewright.agent.member.certificates import SIGNING_REQUESTS
from nodewright.agent.observe.manifest_url import ManifestURL
from nodewright.agent.serving.upgrade_proxy import UpgradeProxy
from nodewright.cluster.client.access import (
    AccessOptions,
    ClusterAccess,
    PEMSource,
    TLSSettings,
)
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.http_get import HTTPRequest
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.exports.exported_node import AUTHORITY_VARIABLE, TOKEN_VARIABLE, _read_export
from nodewright.cluster.serving.access import CacheTimes, TokenReviews
from nodewright.cluster.serving.key_pair import KeyPair, ensure_key_pair
from nodewright.documents.files.url_files import open_url
from nodewright.scheduling.exporter.kubelet_client import KubeletClient, KubeletEndpoint
from nodewright.scheduling.extender.export_followers import _Exporter

SOURCES = Path(__file__).parents[4] / "src" / "nodewright"
SECRET = "marked-secret"  # noqa: S105 - of a test


class Place(NamedTuple):
    """A server, and the files with which a client reaches it."""

    url: str
    authority: Path
    token: Path


async def with_kubeconfig(place: Place) -> None:
    """A certificate is requested, as with a bootstrap kubeconfig."""
    cluster = {"server": place.url, "certificate-authority": str(place.authority)}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": SECRET}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = place.token.with_name("kubeconfig")
    path.write_text(yaml.safe_dump(document))
    async with ApiClient(load_access(AccessOptions(kubeconfig=str(path)), {})) as api:
        await api.create(SIGNING_REQUESTS, {"kind": "CertificateSigningRequest"})


async def reviewing(place: Place) -> None:
    """The token of a caller is sent to the API server."""
    access = ClusterAccess(server=place.url, tls=TLSSettings(authority=PEMSource(str(place.authority))))

    async def sleep(_duration_s: float) -> None:
        """Tries again at once."""

    async with ApiClient(access) as api:
        await TokenReviews(api, CacheTimes(), sleep=sleep).user(SECRET)


async def as_exporter(place: Place) -> None:
    peer = PeerAccess(authority=place.authority, token_file=place.token)
    await KubeletClient(KubeletEndpoint(url=place.url, peer=peer)).pods()


async def as_extender(place: Place) -> None:
    peer = PeerAccess(authority=place.authority, token_file=place.token)
    exporter = _Exporter(f"{place.url}/v1/state", peer, peer.tls())
    try:
        await exporter.next_export(-1)
    finally:
        exporter.close()


async def as_command(place: Place) -> None:
    """The export of a node, with a kubeconfig that verifies nothing."""
    access = ClusterAccess(server="https://none", tls=TLSSettings(is_verified=False))
    environment = {TOKEN_VARIABLE: str(place.token), AUTHORITY_VARIABLE: str(place.authority)}
    await _read_export(f"{place.url}/v1/state", access, environment)


async def manifests(place: Place) -> None:
    url = place.url.replace("://", f"://user:{SECRET}@")
    await asyncio.to_thread(lambda: open_url(url, 10.0).close())


async def static_pods(place: Place) -> None:
    listener = cast("Any", type("Listener", (), {"record_warning": lambda *_: None, "node_name": "n"})())
    await ManifestURL(f"{place.url}/pods", {"X-Token": SECRET}, listener).poll()


async def probes(place: Place) -> None:
    request = HTTPRequest.from_url(f"{place.url}/a", {"Authorization": SECRET, "Cookie": SECRET})
    await _probe_http(request, 10.0)
    await _run_http_hook(request, 10.0)


async def streams(place: Place) -> None:
    """The request of a caller is passed to a streaming server."""
    headers = {
        "Authorization": f"Bearer {SECRET}",
        "Connection": "upgrade",
        "Upgrade": "websocket",
        "Host": "a",
    }
    await asgi_request(UpgradeProxy(f"{place.url}/exec"), "/exec", headers=headers)


Use = Callable[[Place], Awaitable[None]]
VERIFYING: dict[str, tuple[str, Use]] = {
    "a kubeconfig": ("cluster/client/api_client.py", with_kubeconfig),
    "reviews of tokens": ("cluster/client/api_client.py", reviewing),
    "the exporter": ("scheduling/exporter/kubelet_client.py", as_exporter),
    "the extender": ("scheduling/extender/export_followers.py", as_extender),
    "node/NAME": ("cluster/client/api_client.py", as_command),
    "-f URL": ("documents/files/url_files.py", manifests),
    "--manifest-url": ("agent/observe/manifest_url.py", static_pods),
}
"""The clients that show credentials, by their modules."""
OTHERS: dict[str, tuple[str, Use]] = {
    "probes": ("agent/host/prober.py", probes),
    "streams": ("agent/serving/upgrade_proxy.py", streams),
}
"""Those that verify nobody, as the kubelet's, or show nothing."""
PARTS = {"cluster/client/http_connections.py", "cluster/client/http_get.py", "documents/formats/documents.py"}
"""What clients are made of."""
LOCAL = {
    *("agent/serving/proxy.py", "agent/serving/agent_server.py", "agent/host/on_demand_server.py"),
    *("agent/devices/registration.py", "agent/devices/plugin_client.py", "agent/runtimes/cri/channel.py"),
    *("cluster/pod_resources/lister.py", "cluster/client/agent_client.py"),
    "agent/assembly/agent_node.py",  # asks for its own address; nothing is sent
}
"""Clients of sockets of this machine."""
CONNECTING = {
    *("HTTPConnections", "open_connection", "open_unix_connection", "http_get", "open_url", "build_opener"),
    *("urlopen", "insecure_channel", "secure_channel", "connect", "create_connection", "sock_connect"),
    *("HTTPSConnection", "start_tls", "ClientSession", "create_unix_connection"),
}


def test_each_module_that_opens_connections_is_in_a_table() -> None:
    found = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text("utf-8")
        if not any(f"{name}(" in text for name in CONNECTING):
            continue
        names = {
            ast.unparse(node.func).rpartition(".")[2]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Call)
        }
        if names & CONNECTING:
            found.add(path.relative_to(SOURCES).as_posix())
    modules = {module for module, _ in (*VERIFYING.values(), *OTHERS.values())}
    # `cluster/client/api_client.py` has the connections of all that `ApiClient` does.
    assert found == modules | PARTS | LOCAL


class Recorder:
    """A server that answers each request with a redirect, and keeps what it receives."""

    def __init__(self, location: str) -> None:
        self.received, self._location = b"", location

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.received += head
            length = next((line for line in head.lower().split(b"\r\n") if b"content-length" in line), b": 0")
            self.received += await reader.readexactly(int(length.partition(b":")[2]))
            answer = f"HTTP/1.1 302 Found\r\nLocation: {self._location}/b\r\nContent-Length: 0\r\n"
            writer.write(f"{answer}Connection: close\r\n\r\n".encode())
            await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(
    pair: KeyPair | None, location: str = "http://127.0.0.1:1"
) -> AsyncIterator[tuple[Recorder, str]]:
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
    recorder = Recorder(location)
    server = await asyncio.start_server(recorder.handle, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield recorder, f"{'http' if pair is None else 'https'}://127.0.0.1:{port}"
    finally:
        server.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, KeyPair]:
    """A server that is trusted, and one that is not."""
    return {
        name: ensure_key_pair(tmp_path_factory.mktemp("keys") / name, "localhost", ("127.0.0.1",))
        for name in ("known", "stranger")
    }


async def used(use: Use, url: str, pairs: dict[str, KeyPair], folder: Path) -> None:
    """Any error of the client is its answer to such servers."""
    token = folder / "token"
    token.write_text(SECRET)
    with suppress(Exception):
        async with asyncio.timeout(20):
            await use(Place(url, pairs["known"].certificate, token))
    await asyncio.sleep(0.02)  # The loop closes the sockets.


@pytest.mark.parametrize("target", ["https", "http"])
@pytest.mark.parametrize("client", [*VERIFYING, *OTHERS])
def test_no_credentials_go_along_a_redirect(
    client: str, target: str, pairs: dict[str, KeyPair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pairs["known"].certificate))
    use = (VERIFYING | OTHERS)[client][1]

    @async_test
    async def run_scenario() -> None:
        pair = pairs["known"]
        async with (
            serving(pair if target == "https" else None) as (other, elsewhere),
            serving(pair, elsewhere) as (recorder, url),
        ):
            await used(use, url, pairs, tmp_path)
        assert recorder.received, "the client did not reach the server"
        assert secret_in(recorder.received) is (client != "streams")
        assert not secret_in(other.received)
        assert not other.received or client == "probes"

    run_scenario()


def secret_in(received: bytes) -> bool:
    """Whether the secret is there, also as a password in base64."""
    return SECRET.encode() in received or b"Authorization: Basic" in received


@pytest.mark.parametrize("client", VERIFYING)
def test_a_server_that_impersonates_another_gets_nothing(
    client: str, pairs: dict[str, KeyPair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pairs["known"].certificate))

    @async_test
    async def run_scenario() -> None:
        async with serving(pairs["stranger"]) as (recorder, url):
            await used(VERIFYING[client][1], url, pairs, tmp_path)
        assert recorder.received == b""

    run_scenario()


@pytest.mark.parametrize("client", ["a kubeconfig", "the exporter", "the extender", "node/NAME"])
def test_tokens_are_not_sent_in_plain_text(client: str, pairs: dict[str, KeyPair], tmp_path: Path) -> None:
    @async_test
    async def run_scenario() -> None:
        async with serving(None) as (recorder, url):
            await used(VERIFYING[client][1], url, pairs, tmp_path)
        assert not secret_in(recorder.received)

    run_scenario()


def test_a_server_that_is_not_verified_is_worth_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = PeerAccess(token_file=tmp_path / "token")
    assert "can read the token" in peer.warning("exporters", "--export-ca-file")
    assert not PeerAccess(authority=tmp_path / "ca").warning("exporters", "--export-ca-file")

    @async_test
    async def run_scenario() -> None:
        async with ApiClient(ClusterAccess(server="https://any:1", tls=TLSSettings(is_verified=False))):
            pass

    run_scenario()
    assert "warning: insecure-skip-tls-verify: the certificate of https://any:1" in capsys.readouterr().err
