"""The files by which kubelets and exporters are reached."""

import ssl
from pathlib import Path

import pytest

from nodewright.cluster.client.tls import PeerAccess
from nodewright.cluster.serving.key_pair import make_key_pair
from nodewright.model.errors import HostError


def test_a_token_is_read_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    access = PeerAccess(token_file=file)
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert access.headers("https://a") == {"Authorization": f"Bearer {token}"}
    file.write_bytes(b"\xff")
    with pytest.raises(HostError, match="read the token"):
        access.headers("https://a")
    file.unlink()
    with pytest.raises(HostError, match="No such file"):
        access.headers("https://a")
    assert PeerAccess().headers("http://a") == {}


def test_certificates_are_verified_only_with_an_authority(tmp_path: Path) -> None:
    make_key_pair(tmp_path, "localhost", ["127.0.0.1"])
    certificate, key = tmp_path / "kubelet.crt", tmp_path / "kubelet.key"
    assert PeerAccess().tls().verify_mode is ssl.CERT_NONE
    verified = PeerAccess(authority=certificate, certificate=certificate, key=key).tls()
    assert (verified.verify_mode, verified.check_hostname) == (ssl.CERT_REQUIRED, True)
    for files in (
        {"authority": key},
        {"certificate": key, "key": certificate},
        {"authority": tmp_path / "no"},
    ):
        with pytest.raises(HostError, match="read the certificates"):
            PeerAccess(**files).tls()
