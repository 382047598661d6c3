"""The agent's key pair: created once, kept, and replaced before it expires."""

import os
import ssl
import stat
from pathlib import Path

import pytest

from nodewright.cluster.serving import key_pair
from nodewright.cluster.serving.key_pair import ensure_key_pair, make_key_pair
from nodewright.model.errors import HostError


def test_a_pair_is_made_once_and_kept(tmp_path: Path) -> None:
    pair = ensure_key_pair(tmp_path / "pki", "node1", ("127.0.0.1", "::1"))
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
    assert ensure_key_pair(tmp_path / "pki", "node1", ()).certificate.read_bytes() == first


def test_a_certificate_that_expires_soon_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_pair, "VALIDITY_DAYS", 29)
    make_key_pair(tmp_path, "node1", [])
    before = (tmp_path / "kubelet.crt").read_bytes()
    assert ensure_key_pair(tmp_path, "node1", ()).certificate.read_bytes() != before


@pytest.mark.slow
def test_a_key_pair_that_cannot_be_created_is_an_error_with_the_reason(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_text("")
    with pytest.raises(HostError, match="Not a directory"):
        ensure_key_pair(place / "pki", "node1", ())


@pytest.mark.slow
def test_an_invalid_certificate_is_replaced(tmp_path: Path) -> None:
    for name in ("kubelet.crt", "kubelet.key"):
        (tmp_path / name).write_text("garbage")
    os.chmod(tmp_path / "kubelet.key", 0o644)  # noqa: PTH101 - as somebody else would
    pair = ensure_key_pair(tmp_path, "node1", ())
    assert pair.certificate.read_text().startswith("-----BEGIN CERTIFICATE")
    assert stat.S_IMODE(pair.key.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="changes the owner of files")
@pytest.mark.parametrize("is_link", [False, True])
def test_a_directory_that_another_user_has_made_is_refused(tmp_path: Path, *, is_link: bool) -> None:
    shared, ours = tmp_path / "tmp", tmp_path / "ours"
    shared.mkdir()
    shared.chmod(0o1777)
    make_key_pair(ours, "node1", [])
    ours.chmod(0o755)
    theirs = shared / "nodewright-export-0"
    if is_link:
        theirs.symlink_to(ours)
    else:
        ours.rename(theirs)
    os.chown(theirs, 65534, 65534, follow_symlinks=False)
    with pytest.raises(HostError, match="belongs to user 65534"):
        ensure_key_pair(theirs, "node1", ())
    with pytest.raises(HostError, match="belongs to user 65534"):
        make_key_pair(theirs, "node1", [])
    assert not is_link or stat.S_IMODE(ours.stat().st_mode) == 0o755
