"""Logs are as the CRI has them, whatever the disk does."""

import os
from pathlib import Path

import pytest

from nodewright.agent.runtimes.processes.logfile import ContainerLogWriter


def lines(place: Path) -> list[str]:
    """The log without its times."""
    return [line.split(" ", 1)[1] for line in place.read_text().splitlines()]


def test_lines_are_whole_or_say_that_they_are_not(tmp_path: Path) -> None:
    log = ContainerLogWriter(str(tmp_path / "new" / "0.log"))
    log.append("stdout", b"a\nb")
    log.append("stderr", b"c\n")
    log.append("stdout", b"c\n\n")
    log.append("stdout", b"end")
    log.append("stdout", b"")
    log.append("stderr", b"open")
    log.close()
    assert lines(tmp_path / "new" / "0.log") == [
        "stdout F a",
        "stderr F c",
        "stdout F bc",
        "stdout F ",
        "stdout P end",
        "stderr P open",
    ]


@pytest.mark.parametrize(
    ("said", "parts"),
    [
        ([b"x" * 16384 + b"\n"], ["F 16384"]),
        ([b"x" * 16385 + b"\n"], ["P 16384", "F 1"]),
        ([b"x" * 40000, b"y\n"], ["P 16384", "P 16384", "F 7233"]),
    ],
)
def test_long_lines_come_in_parts(tmp_path: Path, said: list[bytes], parts: list[str]) -> None:
    log = ContainerLogWriter(str(tmp_path / "0.log"))
    for chunk in said:
        log.append("stdout", chunk)
    log.close()
    texts = [line.split(" ") for line in lines(tmp_path / "0.log")]
    assert [f"{tag} {len(text)}" for _, tag, text in texts] == parts


def test_a_reopened_log_continues_in_the_file_of_its_name(tmp_path: Path) -> None:
    log = ContainerLogWriter(str(tmp_path / "0.log"))
    log.append("stdout", b"one\n")
    (tmp_path / "0.log").rename(tmp_path / "0.log.1")
    log.append("stdout", b"two\n")
    log.reopen()
    log.append("stdout", b"three\n")
    log.close()
    assert lines(tmp_path / "0.log.1") == ["stdout F one", "stdout F two"]
    assert lines(tmp_path / "0.log") == ["stdout F three"]


def test_a_failed_write_loses_its_lines_only(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.write_text("in the way")
    log = ContainerLogWriter(str(place / "0.log"))
    log.append("stdout", b"lost\n")
    place.unlink()
    log.opened_at_s -= 10
    log.append("stdout", b"kept\n")
    log.close()
    assert lines(place / "0.log") == ["stdout F kept"]


def test_after_a_torn_line_the_next_one_begins_on_its_own(tmp_path: Path) -> None:
    log = ContainerLogWriter(str(tmp_path / "0.log"))
    outside, inside = os.pipe()
    os.set_blocking(inside, False)
    os.close(log.file)
    log.file = inside
    log.append("stdout", b"x" * 10000 + b"\n" + b"y" * 90000 + b"\n")
    assert log.is_torn
    os.read(outside, 1 << 20)
    log.append("stdout", b"after\n")
    assert os.read(outside, 1 << 20).startswith(b"\n2")
    log.close()
    os.close(outside)


def test_a_fifo_or_a_link_in_place_of_a_log_takes_nothing_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    os.mkfifo(tmp_path / "0.log")
    (tmp_path / "1.log").symlink_to("elsewhere")
    for name in ("0.log", "1.log"):
        log = ContainerLogWriter(str(tmp_path / name))
        log.append("stdout", b"a\n")
        log.close()
    assert (tmp_path / "elsewhere").read_text() == ""
