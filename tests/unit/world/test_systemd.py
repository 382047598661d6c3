"""What systemd is told."""

import socket
from pathlib import Path

import pytest

from nodewright.world import systemd


def test_systemd_is_told_where_it_wants_to_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        assert systemd.notify("READY=1")
        assert listener.recv(64) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nonexistent/notify"])
def test_nobody_listens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not systemd.notify("READY=1")


@pytest.mark.parametrize(("said", "stops"), [("stopping", True), ("running", False), ("degraded", False)])
def test_whether_the_machine_goes_down_is_what_systemctl_says(
    said: str, stops: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text(f"#!/bin/sh\necho {said}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(systemd, "_RUNS", tmp_path)
    assert systemd.machine_stops() is stops
    monkeypatch.setattr(systemd, "_RUNS", tmp_path / "nowhere")
    assert not systemd.machine_stops()
