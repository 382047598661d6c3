"""Commands that show a page: their links, what they refuse, how they end."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE

PODS = ("-f", "examples/admission/pods.yaml", "--node", "examples/nodes/worker.yaml")


def started(*words: str) -> tuple["subprocess.Popen[str]", str]:
    """A command that shows a page, and its link."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nodewright", *words], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        match = re.search(r"http://\S+", line)
        if match:
            return process, match[0]
    raise AssertionError(words)


def asked(url: str, credential: str) -> Any:
    """What the server answers to the script of a page."""
    opener = urllib.request.build_opener()
    opener.addheaders = [("Authorization", f"Bearer {credential}")]
    return opener.open(url, timeout=10)


@pytest.mark.slow
def test_a_plan_is_shown_until_it_is_enough() -> None:
    process, link = started("admit", *PODS, "--serve")
    try:
        page, _, token = link.partition("#token=")
        with asked(page, "") as answer:
            assert "<title>nodewright</title>" in answer.read().decode()
        with asked(f"{page}session", token) as answer:
            session = answer.read().decode()
        with asked(f"{page}document", session) as answer:
            assert b'"OutOfcpu"' in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="403"):
            asked(f"{page}session", token)
        stream = asked(f"{page}changes", session)
        assert stream.readline().startswith(b"data: {")
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == NO, "as without a page"
        assert stream.read() is not None
    finally:
        process.kill()
        rest = process.communicate()[1]
    assert "for another browser: http://127.0.0.1:" in rest
    assert "Traceback" not in rest
    assert "Cancel" not in rest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("admit", *PODS, "--serve", "--resize"), "--serve cannot be combined"),
        (("admit", *PODS, "-o", "json", "--serve"), "--serve cannot be combined"),
        (("admit", "-f", "-", "--node", "vm-4", "--serve"), "use files, not standard input"),
        (("admit", *PODS, "--serve", "web.example:80"), "'web.example' is not an IP address"),
        (("admit", *PODS, "--serve", "127.0.0.1:70000"), "'70000' is not a port"),
        (("dashboard", "--listen", "127.0.0.1:http"), "'http' is not a port"),
    ],
)
def test_invalid_arguments_of_pages_are_reported(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == USAGE
    assert said in capsys.readouterr().err


def test_initial_faults_of_files_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", "-f", str(tmp_path / "none.yaml"), "--node", "vm-4", "--serve"]) == ERROR
    assert "does not exist" in capsys.readouterr().err


def test_without_an_agent_there_is_no_dashboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dashboard", "--socket", str(tmp_path / "none.sock")]) == ERROR
    assert "no agent listens there" in capsys.readouterr().err


def test_an_unavailable_address_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["admit", *PODS, "--serve", "192.0.2.1:9"]) == ERROR
    assert "listen on 192.0.2.1:9" in capsys.readouterr().err
