"""Nothing that may hold a password reaches a message, and no client takes credentials to another server."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.all_commands import all_commands
from tests.support.cluster_access import NODES, access_to, error, kubeconfig, write
from tests.support.fake_api_server import CannedAnswer, FakeApiServer, fake_api_server

from nodewright.cli.app import run
from nodewright.cluster.client.access import ClusterAccess, TLSSettings, UserCredentials
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.http_get import HTTPFailure, HTTPRequest, HTTPResponse, http_get
from nodewright.cluster.client.tls import PeerAccess
from nodewright.documents.formats.documents import read_file
from nodewright.documents.output.terminal import USAGE, YES
from nodewright.model.errors import HostError, InputError
from nodewright.scheduling.exporter.kubelet_client import KubeletClient, KubeletEndpoint

SECRET = "s3cr3t-marker"  # noqa: S105 - made up
USER = f"ann:{SECRET}@"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as running:
        yield running


@pytest.fixture
def other() -> Iterator[FakeApiServer]:
    with fake_api_server() as running:
        yield running


EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
ENVIRONMENT = [{"name": "PASSWORD", "value": SECRET}]
PLACES: list[tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = [
    ({"server": f"https://{USER}127.0.0.1:1"}, {}, {}),
    ({"server": f"https://ann:a/{SECRET}@127.0.0.1:1"}, {}, {}),
    ({"server": f"{USER}127.0.0.1:1"}, {}, {}),
    ({"server": f"ftp://{USER}127.0.0.1:1"}, {}, {}),
    ({"server": f"https://{USER}["}, {}, {}),
    ({"server": f"https://{USER}127.0.0.1:b"}, {}, {}),
    *(
        ({"server": "https://a.example:1", "proxy-url": url}, {}, {})
        for url in (
            f"http://{USER}127.0.0.1:1",
            f"socks5://{USER}a",
            f"{USER}a:1",
            f"http://ann:a/{SECRET}@a:1",
        )
    ),
    *(
        ({"server": "https://a.example:1"}, {}, {"HTTPS_PROXY": url})
        for url in (
            f"http://{USER}127.0.0.1:1",
            f"socks5://{USER}a",
            f"{USER}a:b",
            f"http://ann:a/{SECRET}@a:1",
        )
    ),
    ({"server": "https://127.0.0.1:1"}, {"token": SECRET}, {}),
    ({"server": "https://127.0.0.1:1"}, {"token": f"{SECRET}\n\x01x"}, {}),
    ({"server": "https://127.0.0.1:1"}, {"token": [SECRET]}, {}),
    ({"server": "https://127.0.0.1:1"}, {"username": "ann", "password": SECRET}, {}),
    ({"server": "https://127.0.0.1:1"}, {"token": SECRET, "username": "ann", "password": SECRET}, {}),
    ({"server": "https://127.0.0.1:1"}, {"client-key-data": SECRET, "client-certificate-data": SECRET}, {}),
    ({"server": "https://127.0.0.1:1"}, {"exec": {"command": "/none", "env": ENVIRONMENT, **EXEC}}, {}),
    ({"server": "https://127.0.0.1:1"}, {"exec": {"command": "false", "env": ENVIRONMENT, **EXEC}}, {}),
    ({"server": "https://127.0.0.1:1"}, {"exec": {"env": ENVIRONMENT}}, {}),
]
COMMANDS = (
    "requests pods",
    "admit pod/web --node node/n",
    "admit pod/web --node node/n -o json",
    "explain pod/web",
    "fit --node nodes pods",
    "preempt pods --node node/n",
    "evict --node node/n --available memory.available=1Mi",
    "cgroups pods --node node/n",
    "node show node/n",
    "node capture node/n",
    "node export node/n",
    "lint pods",
    "quota -A",
    "rehearse node/n",
    "upgrade node/n --from 1.33",
    "audit node/n",
    "drain node/n",
    "fleet run --kubeconfig FILE",
    "fleet capacity --kubeconfig FILE -f examples/fleet/probe.yaml",
    "fleet minimise --kubeconfig FILE --most 3",
    "hollow --nodes 1*vm-4 --kubeconfig FILE",
    "export --once --kubelet-root examples/worker-3/kubelet --pod-resources none --node-name a --kubeconfig FILE",
)
"""Of each command that reads a kubeconfig and ends by itself."""
STAY = {"agent", "extender"}
"""Those that try again without end."""
SHARE = 4
"""Each place is tried with one command in so many."""


def test_each_command_that_reads_a_kubeconfig_is_tried() -> None:
    reading = {
        name
        for name, command in all_commands()
        if any("--kubeconfig" in parameter.opts for parameter in command.params)
    } - STAY
    assert not {name for name in reading if not any(line.startswith(name) for line in COMMANDS)}


@pytest.mark.parametrize("place", range(len(PLACES)))
def test_no_secret_of_a_kubeconfig_or_the_environment_is_printed(
    place: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster, user, environment = PLACES[place]
    path = write(tmp_path / "config", kubeconfig(cluster=cluster, user=user))
    variables = {"KUBECONFIG": path, "HOME": str(tmp_path), "NO_PROXY": "", **environment}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for line in COMMANDS[place % SHARE :: SHARE]:
        code = run([path if word == "FILE" else word for word in line.split()])
        printed = "".join(capsys.readouterr())
        assert code not in (YES, USAGE), line
        assert printed
        assert "Traceback" not in printed
        assert SECRET not in printed


@pytest.mark.parametrize(
    "url",
    [
        f"http://{USER}127.0.0.1:1/a",
        f"https://ann:a/{SECRET}@127.0.0.1/",
        f"http://{USER}[",
        f"http://{USER}a:b/",
    ],
)
def test_no_password_of_a_manifests_url_is_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ((), ("-o", "json")):
        assert run(["lint", "-f", url, *form]) != 0
        printed = "".join(capsys.readouterr())
        assert SECRET not in printed
        assert "cannot be read" in printed


# ---------------------------------------------------------------- redirects


def redirect(server: FakeApiServer, path: str, location: str) -> None:
    server.canned[path] += [CannedAnswer(302, b"", (("Location", location),))] * 3


def test_manifests_of_a_url_follow_redirects_without_credentials_only(
    server: FakeApiServer, other: FakeApiServer
) -> None:
    other.canned["/b"] += [CannedAnswer(200, b"{}")]
    redirect(server, "/a", f"{other.url}/b")
    assert read_file(f"{server.url}/a").content == b"{}"
    with pytest.raises(InputError) as caught:
        read_file(server.url.replace("://", f"://{USER}") + "/a")
    assert SECRET not in str(caught.value)
    assert len(other.requests) == 1
    assert server.requests[-1].headers["Authorization"].startswith("Basic ")
    redirect(server, "/c", "/d")
    server.canned["/d"] += [CannedAnswer(200, b"{}")]
    assert read_file(server.url.replace("://", f"://{USER}") + "/c").content == b"{}"
    assert server.requests[-1].headers["Authorization"].startswith("Basic ")


async def answer(request: HTTPRequest, context: ssl.SSLContext | None = None) -> HTTPResponse | HTTPFailure:
    try:
        return await http_get(request, 30.0, context=context)
    finally:
        await asyncio.sleep(0.05)  # The loop closes the sockets.


def test_probes_take_no_header_to_another_port(server: FakeApiServer, other: FakeApiServer) -> None:
    redirect(server, "/a", f"{other.url}/b")
    other.canned["/b"] += [CannedAnswer(200, b"{}")]
    headers = {"Authorization": SECRET, "Cookie": SECRET, "X-Token": SECRET, "User-Agent": "probe"}
    request = HTTPRequest.from_url(f"{server.url}/a", headers)
    asyncio.run(answer(request))
    assert SECRET not in str(other.requests[0].headers)
    assert other.requests[0].headers["User-Agent"] == "probe"
    response = asyncio.run(answer(request, ssl.create_default_context()))
    assert isinstance(response, HTTPResponse)
    assert (response.status, len(other.requests)) == (302, 1)


def test_api_servers_and_kubelets_are_not_followed(server: FakeApiServer, other: FakeApiServer) -> None:
    for path in (NODES, "/pods"):
        redirect(server, path, f"{other.url}{path}")
    assert "302" in str(error(access_to(server, credentials=UserCredentials(token=SECRET))))
    kubelet = KubeletClient(KubeletEndpoint(url=server.url))
    with pytest.raises(HostError, match="status 302"):
        asyncio.run(kubelet.pods())
    assert not other.requests


def test_a_server_that_is_not_verified_is_named_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async def opened() -> None:
        access = ClusterAccess(server=f"https://{USER}unverified:1", tls=TLSSettings(is_verified=False))
        for _ in range(2):
            async with ApiClient(access):
                pass

    asyncio.run(opened())
    text = capsys.readouterr().err
    assert (text.count("https://unverified:1 is not verified"), SECRET in text) == (1, False)
    assert "not verified" in PeerAccess().warning("the kubelet", "--ca")
    assert "read the token" in PeerAccess(token_file=tmp_path).warning("the kubelet", "--ca")
    assert not PeerAccess(token_file=tmp_path, authority=tmp_path).warning("the kubelet", "--ca")
