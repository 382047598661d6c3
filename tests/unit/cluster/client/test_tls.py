"""Certificates of servers and users."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.cluster_access import NODES, access_to, call, error, secure_access
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import FakeApiServer, fake_api_server

from nodewright.cluster.client.access import ClusterAccess
from nodewright.cluster.client.list_watch import collected_pages
from nodewright.model.errors import HostError


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with fake_api_server() as running:
        yield running


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def secure_server(authority: Authority) -> Iterator[FakeApiServer]:
    with fake_api_server(authority.pair("127.0.0.1"), authority.certificate) as running:
        yield running


def add_nodes(server: FakeApiServer, *names: str) -> None:
    server.add(NODES, *({"metadata": {"name": name, "labels": {"app": name}}} for name in names))


def body(server: FakeApiServer, path: str = NODES, **fields: Any) -> bytes:
    return call(access_to(server, **fields), lambda client: client.get(path))


def test_the_server_is_verified_with_the_authority_of_the_kubeconfig(
    secure_server: FakeApiServer, authority: Authority, tmp_path: Path
) -> None:
    add_nodes(secure_server, "a")
    access = secure_access(tmp_path, secure_server, authority)
    page = call(access, lambda client: collected_pages(client.list_pages(NODES)))
    assert len(page.items) == 1


def test_an_unknown_authority_is_a_line(secure_server: FakeApiServer) -> None:
    assert str(error(access_to(secure_server))) == (
        f"GET {secure_server.url}/api/v1/nodes?limit=500: the server's certificate is not accepted: self-signed "
        "certificate in certificate chain; see certificate-authority in the kubeconfig"
    )


def test_a_certificate_of_another_name_is_a_line(authority: Authority, tmp_path: Path) -> None:
    with fake_api_server(authority.pair("other.example")) as server:
        access = secure_access(tmp_path, server, authority)
        text = str(error(access))
        assert "the server's certificate is not accepted: IP address mismatch" in text
        tls = msgspec.structs.replace(access.tls, server_name="other.example")
        call(msgspec.structs.replace(access, tls=tls), lambda client: client.get(NODES))
        tls = msgspec.structs.replace(access.tls, is_verified=False)
        call(msgspec.structs.replace(access, tls=tls), lambda client: client.get(NODES))


def test_http_and_https_that_are_confused_are_a_line(
    server: FakeApiServer, secure_server: FakeApiServer
) -> None:
    text = str(error(ClusterAccess(server=server.url.replace("http:", "https:"))))
    assert text.endswith("the server does not speak TLS; is its URL http://?")
    text = str(error(ClusterAccess(server=secure_server.url.replace("https:", "http:"))))
    assert text.startswith("GET http://127.0.0.1")


def test_the_client_identifies_itself_with_a_certificate(
    secure_server: FakeApiServer, authority: Authority, tmp_path: Path
) -> None:
    secure_server.users = {"none": "none"}
    secure_server.forbidden.add(("list", "nodes"))
    certificate, key = authority.pair("ann")
    access = secure_access(
        tmp_path, secure_server, authority, **{"client-certificate": str(certificate), "client-key": str(key)}
    )
    assert 'User "ann" cannot list resource "nodes"' in str(error(access))


@pytest.mark.parametrize(
    ("user", "text"),
    [
        (
            {"client-certificate-data": "Q0E=", "client-key-data": "Q0E="},
            "load the client certificate in the kubeconfig: no certificate with its unencrypted key in PEM: ",
        ),
    ],
)
def test_certificates_that_are_none_are_a_line(
    user: dict[str, str], text: str, secure_server: FakeApiServer, authority: Authority, tmp_path: Path
) -> None:
    access = secure_access(tmp_path, secure_server, authority, **user)
    with pytest.raises(HostError) as caught:
        call(access, lambda client: client.get(NODES))
    assert str(caught.value).startswith(text)
    assert "\n" not in str(caught.value)


def test_an_encrypted_key_is_a_line_and_asks_nobody(
    secure_server: FakeApiServer, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.pair("ann", password=b"secret")
    user = {"client-certificate": str(certificate), "client-key": str(key)}
    access = secure_access(tmp_path, secure_server, authority, **user)
    with pytest.raises(HostError, match=r"load the client certificate .*unencrypted key"):
        call(access, lambda client: client.get(NODES))


def test_an_authority_that_is_none_is_a_line(secure_server: FakeApiServer, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text("no certificate", "utf-8")
    tls = msgspec.structs.replace(
        access_to(secure_server).tls,
        authority=msgspec.structs.replace(access_to(secure_server).tls.authority, path=str(path)),
    )
    with pytest.raises(HostError, match=f"load the certificate authority {path}: no certificate in PEM"):
        body(secure_server, tls=tls)
    path.unlink()
    with pytest.raises(HostError, match=f"read the certificate authority {path}: No such file"):
        body(secure_server, tls=tls)
