"""The agent's own key: made once, kept, and made anew before it runs out."""

import os
import ssl
import stat
from pathlib import Path

import pytest

from nodewright.world import key_maker
from nodewright.world.errors import WorldError
from nodewright.world.key_maker import make_key_pair
from nodewright.world.key_pair import own_key_pair


def test_a_pair_is_made_once_and_kept(tmp_path: Path) -> None:
    pair = own_key_pair(tmp_path / "pki", "node1", ("127.0.0.1", "::1"))
    first = pair.certificate.read_bytes()
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
    assert stat.S_IMODE(pair.key.parent.stat().st_mode) == 0o700
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    context.load_verify_locations(cafile=pair.certificate)
    (shown,) = context.get_ca_certs()
    names = (
        ("DNS", "node1"),
        ("DNS", "localhost"),
        ("IP Address", "127.0.0.1"),
        ("IP Address", "0:0:0:0:0:0:0:1"),
    )
    assert shown["subjectAltName"] == names
    assert own_key_pair(tmp_path / "pki", "node1", ()).certificate.read_bytes() == first


def test_one_that_runs_out_soon_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_maker, "GOOD_FOR_DAYS", 29)
    make_key_pair(tmp_path, "node1", [])
    before = (tmp_path / "kubelet.crt").read_bytes()
    assert own_key_pair(tmp_path, "node1", ()).certificate.read_bytes() != before


def test_where_it_cannot_be_made_the_reason_is_told(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(WorldError, match="make a key for TLS"):
        own_key_pair(place / "pki", "node1", ())


def test_a_certificate_that_is_none_is_made_anew(tmp_path: Path) -> None:
    for name in ("kubelet.crt", "kubelet.key"):
        (tmp_path / name).write_text("garbage")
    os.chmod(tmp_path / "kubelet.key", 0o644)  # noqa: PTH101 - as somebody else would
    pair = own_key_pair(tmp_path, "node1", ())
    assert pair.certificate.read_text().startswith("-----BEGIN CERTIFICATE")
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600
