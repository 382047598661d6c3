"""Logs are as the CRI has them, whatever the disk does."""

import os
from pathlib import Path

import pytest

from nodewright.world.processes.logfile import Log


def lines(place: Path) -> list[str]:
    """The log without its times."""
    return [line.split(" ", 1)[1] for line in place.read_text().splitlines()]


def test_lines_are_whole_or_say_that_they_are_not(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "new" / "0.log"))
    log.take("stdout", b"a\nb")
    log.take("stderr", b"c\n")
    log.take("stdout", b"c\n\n")
    log.take("stdout", b"end")
    log.take("stdout", b"")
    log.take("stderr", b"open")
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
    log = Log(str(tmp_path / "0.log"))
    for chunk in said:
        log.take("stdout", chunk)
    log.close()
    found = [line.split(" ") for line in lines(tmp_path / "0.log")]
    assert [f"{tag} {len(text)}" for _, tag, text in found] == parts


def test_a_log_goes_on_in_the_file_that_has_its_name(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "0.log"))
    log.take("stdout", b"one\n")
    (tmp_path / "0.log").rename(tmp_path / "0.log.1")
    log.take("stdout", b"two\n")
    log.reopen()
    log.take("stdout", b"three\n")
    log.close()
    assert lines(tmp_path / "0.log.1") == ["stdout F one", "stdout F two"]
    assert lines(tmp_path / "0.log") == ["stdout F three"]


def test_what_cannot_be_written_is_lost_and_what_comes_later_is_not(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.write_text("in the way")
    log = Log(str(place / "0.log"))
    log.take("stdout", b"lost\n")
    place.unlink()
    log.tried_s -= 10
    log.take("stdout", b"kept\n")
    log.close()
    assert lines(place / "0.log") == ["stdout F kept"]


def test_after_a_torn_line_the_next_one_begins_on_its_own(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "0.log"))
    outside, inside = os.pipe()
    os.set_blocking(inside, False)
    os.close(log.file)
    log.file = inside
    log.take("stdout", b"x" * 10000 + b"\n" + b"y" * 90000 + b"\n")
    assert log.is_torn
    os.read(outside, 1 << 20)
    log.take("stdout", b"after\n")
    assert os.read(outside, 1 << 20).startswith(b"\n2")
    log.close()
    os.close(outside)
