"""Logs are read in blocks, whatever the length of their lines."""

import asyncio
from pathlib import Path

import pytest

from nodewright.agent.host.container_logs import LogOptions, follow_log, follow_streams, line_text, read_log
from nodewright.agent.host.ports import STDERR, STDOUT

COUNT = 20_000
FEW = 25
"""A block has 64 KiB, and the log a little more than 800 KiB."""
PART = "2026-01-31T12:00:00.000000000Z stdout P "


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    prefix = "2026-01-31T12:00:00.000000000Z stdout F "
    path.write_text("".join(f"{prefix}{number}\n" for number in range(COUNT)))
    return path


def test_many_short_lines_are_few_blocks(log: Path) -> None:
    expected = "".join(f"{number}\n" for number in range(COUNT)).encode()

    async def followed() -> list[bytes]:
        return [block async for block in follow_log(log, LogOptions(), lambda: True)]

    for blocks in (list(read_log(log, LogOptions())), asyncio.run(followed())):
        assert len(blocks) < FEW
        assert b"".join(blocks) == expected
    assert list(read_log(log, LogOptions(since_time=b"2027-01-01T00:00:00Z"))) == []


def test_a_line_is_not_older_than_the_whole_second_in_which_it_was_written() -> None:
    line = b"2026-01-31T12:00:00.500000000Z stdout F hello\n"
    for since in (b"2026-01-31T12:00:00Z", b"2026-01-31T12:00:00.5Z"):
        assert line_text(line, LogOptions(since_time=since)) == b"hello\n"
    for since in (b"2026-01-31T12:00:01Z", b"2026-01-31T12:00:00.50001Z"):
        assert line_text(line, LogOptions(since_time=since)) == b""


def test_output_of_one_stream_is_attached_to_in_blocks(log: Path) -> None:
    async def attached() -> list[tuple[int, bytes]]:
        is_written = False

        def is_over() -> bool:
            nonlocal is_written
            if not is_written:
                is_written = True
                text = log.read_text()
                with log.open("a") as file:
                    file.write(text.replace("stdout", "stderr") + text)
                return False
            return True

        return [block async for block in follow_streams(log, is_over)]

    blocks = asyncio.run(attached())
    assert len(blocks) < 2 * FEW
    assert [number for number, _ in blocks] == sorted((number for number, _ in blocks), reverse=True)
    assert {STDOUT, STDERR} == {number for number, _ in blocks}
    assert sum(text.count(b"\n") for _, text in blocks) == 2 * COUNT


@pytest.mark.parametrize("tail", [0, 1, 2, 1500, 5000, COUNT, 1 << 62])
def test_the_last_lines_are_found_however_many_they_are(log: Path, tail: int) -> None:
    numbers = [str(number) for number in range(COUNT)]
    with log.open("a") as file:
        # The parts of a split line count as one.
        file.write(f"{PART}a\n{PART}b\n{PART.replace(' P ', ' F ')}c\n")
    expected = [*numbers, "abc"][max(0, COUNT + 1 - tail) :]
    text = b"".join(read_log(log, LogOptions(tail_lines=tail))).decode()
    assert text.split("\n")[:-1] == expected


def test_carriage_returns_end_no_line(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    prefix = PART.replace(" P ", " F ")
    path.write_bytes(f"{prefix}first\n{prefix}10 %\r20 %\r100 %\n{prefix}last\n".encode())
    assert b"".join(read_log(path, LogOptions(tail_lines=2))) == b"10 %\r20 %\r100 %\nlast\n"
